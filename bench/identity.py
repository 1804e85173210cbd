"""The content address of a run: a sha256 over canonical content, so that a result is found by what it was made from.

Reordering keys changes nothing; changing a byte of any input changes the id. Environment (packages, hardware) is
recorded beside the run, not hashed.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import discovery
from bench.errors import UserError

if TYPE_CHECKING:
    from bench.suite import Run

MISSING = "missing: "  #: before what is said of weights or vocabularies that are not there
OPEN_CLIP = "open_clip:"  #: before the name of pretrained weights, in place of a path
TRAINING_VERSION = 1  #: raised whenever the runner gives other results for the same settings


def canonical(value: Any) -> str:
    """JSON with one spelling a value: sorted keys, 1.0 as 1, tuples as lists. ValueError for nan and infinities."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"keys should be strings, not {key!r}")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return value


def digest(value: Any) -> str:
    """sha256 of the canonical JSON, 64 hex digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def run_id(
    run: Run,
    data_hash: str,
    manifest_hash: str | None,
    reference_id: str | None = None,
    calibration_hash: str | None = None,
    kept_hash: str | None = None,
) -> str:
    """64 hex digits; the first 16 are shown.

    data_hash, manifest_hash: `content_hash` of the training pairs and of the noise manifest (None without one).
    reference_id: of the run it starts from. calibration_hash: of what turned device seconds into steps.
    kept_hash: of the keys of a treated run's rows; where these follow from the truth alone they stand for the noise.
    Raises UserError where the weights it begins at, or files of its towers, are not there.
    """
    content = run.content()
    for place, said in _missing({key: content[key] for key in ("start", "towers") if key in content}):
        other = f"; a path, or {OPEN_CLIP}MODEL/TAG" if place == "start" else ""
        raise UserError(f"{place}: {said}{other}")
    if kept_hash is not None:
        content["kept"] = kept_hash
        if run.keep.entry.truth_alone:  # whose captions the others have changes nothing
            content["noise"] = manifest_hash = None
    return digest(
        {
            **content,
            "training_version": TRAINING_VERSION,
            "adapter": adapter_source_hash(run.method),
            "pairs": data_hash,
            "manifest": manifest_hash if run.rate else None,
            "reference": reference_id,
            "calibration": calibration_hash,
        }
    )


def _missing(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Fields whose files are not there, and what is said of them."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _missing(value, f"{above}{key}.")
        elif isinstance(value, str) and value.startswith(MISSING):
            yield f"{above}{key}", value.removeprefix(MISSING)


@functools.cache
def weights(start: str) -> str:
    """What `start` is, as identities see it: sha256 of a file's bytes; a pretrained tag is its name.

    A file that is not there is named as `MISSING`: a run that begins at it has settings, but no id.
    """
    if start.startswith(OPEN_CLIP):
        return start
    try:
        with open(start, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"{MISSING}{start}: cannot be read: {error.strerror}"


def adapter_source_hash(method: str) -> str:
    """sha256 over an adapter's file and everything it imports, directly or not, from `methods` or its own package."""
    location = discovery.source(method)
    return source_hash(location.module, location.path)


def source_hash(module: str, path: Path) -> str:
    """sha256 over names and bytes of `source_files`."""
    files = source_files(module, path)
    return digest({name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()})


def source_files(module: str, path: Path) -> dict[str, Path]:
    """A module's file and those of all it imports, directly or not, from `methods` or from its own package, by name."""
    packages = {"methods", module.partition(".")[0]}
    files: dict[str, Path] = {module: path}
    waiting = [module]
    while waiting:
        current = waiting.pop()
        for name in _imports(current, files[current]):
            if name not in files and name.partition(".")[0] in packages:
                found = _file_of(name)
                if found is not None:
                    files[name] = found
                    waiting.append(name)
    return files


def _imports(module: str, path: Path) -> Iterator[str]:
    """Absolute names of what a file may import: `from a import b` gives both a and a.b."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_bytes(), filename=str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                start = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*start, base]) if base else ".".join(start)
            yield from _with_parents(base)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[: end + 1]) for end in range(len(parts)))


def _file_of(module: str) -> Path | None:
    """The source file of a module, found without importing anything; None where the name is no module."""
    top, *inner = module.split(".")
    spec = importlib.util.find_spec(top)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        place = Path(folder).joinpath(*inner)
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                return file
    return None
