"""The content address of a run: a sha256 over canonical content, so that a result is found by what it was made from.

Reordering keys changes nothing; changing a byte of any input changes the id. Environment (packages, hardware) is
recorded beside the run, not hashed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench import discovery
from bench.adapters.source_hash import source_hash
from bench.errors import UserError

if TYPE_CHECKING:
    from bench.suite import Run

OPEN_CLIP = "open_clip:"  #: before the name of pretrained weights, in place of a path
#: Raised whenever the runner or `methods/protocol.py` gives other results for the same settings. 2: embeddings are
#: normalised in fp32, the number of threads is a run's own, and of an adapter's source only its meaning counts.
TRAINING_VERSION = 2


@dataclass(frozen=True)
class Absent:
    """Stands in a run's content for the hash of a file that is not there: the run then has settings, but no id."""

    reason: str  #: one line: which file, and why


class MissingFile(UserError):
    """Weights or a vocabulary that a run's id needs are not there."""


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
    if isinstance(value, Absent):
        return {"absent": value.reason}
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
    Raises MissingFile where the weights it begins at, or files of its towers, are not there.
    """
    content = run.content()
    for place, absent in _absent(content):
        other = f"; a path, or {OPEN_CLIP}MODEL/TAG" if place == "start" else ""
        raise MissingFile(f"{place}: {absent.reason}{other}")
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


def _absent(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Absent]]:
    """Fields whose files are not there."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _absent(value, f"{above}{key}.")
        elif isinstance(value, Absent):
            yield f"{above}{key}", value


@functools.cache
def weights(start: str) -> str | Absent:
    """What `start` is, as identities see it: sha256 of a file's bytes; a pretrained tag is its name.

    A file that is not there is `Absent`: a run that begins at it has settings, but no id.
    """
    if start.startswith(OPEN_CLIP):
        return start
    try:
        with open(start, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return Absent(f"{start}: cannot be read: {error.strerror}")


def adapter_source_hash(method: str) -> str:
    """sha256 over the meaning of all that a method's class reaches in `methods` or its own package."""
    location = discovery.source(method)
    return source_hash(location.module, location.path)
