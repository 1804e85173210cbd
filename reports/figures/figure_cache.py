"""Figures that an earlier report drew from the same numbers, so that they need not be drawn again.

`figures.json` next to the page has a hash for each figure, of what it was drawn from; it is written last. A figure is
drawn again if that changed or a file is gone; all are if `figures.json` is deleted.
"""

from __future__ import annotations

import base64
import hashlib
import marshal
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bench.catalogue
import bench.console
from bench.resources import published_folder
from bench.store import Damaged
from bench.store.files import dump
from bench.store.reading import parse_stored_json, read_bytes
from reports.figures.figure_registry import reported
from reports.figures.histograms import SIMILAR, SIMILARITIES, Learned, names_of_own
from reports.figures.pictures import Picture, file_name
from reports.results import Results

FILE = "figures.json"
LIMIT = 256 << 20  #: bytes of a file of figures or of their list
_PACKAGES = ("matplotlib", "numpy", "pillow")  #: packages that draw


def keys(results: Results, diagnostics: Learned, widths: Sequence[str]) -> dict[str, str]:
    """Return for every figure of a report the hash of what it is drawn from: code, numbers, names and `widths`."""
    common = [_code(), list(widths), list(results.methods), list(results.noises)]
    scores = _digest(common, _seen(results, diagnostics))
    similar = [[key, [(name, entries.get(name)) for name in SIMILARITIES]] for key, entries in diagnostics.items()]
    own = {
        name: _digest(common, name, [diagnostics[method, noise] for noise in results.noises])
        for method, name in names_of_own(results, diagnostics).items()
    }
    return {**dict.fromkeys(reported(results), scores), SIMILAR: _digest(common, similar), **own}


def _seen(results: Results, diagnostics: Learned) -> list[Any]:
    """Everything that a figure of scores may show: plan and runs without their times, folders and machines."""
    plan = {key: value for key, value in results.plan.items() if key != "made"}
    runs = [
        (
            *(run.method, run.noise, run.seed, run.run, run.steps, run.state, run.unmeasured),
            *(run.manifest, run.ledger, run.reference, run.kept_rows),
            [tuple(record.__dict__.values()) for record in run.measured.values()],
        )
        for run in results.runs
    ]
    started = any(entry.get("untrained") for entry in results.methods.values())  # their diagnostics are shown as well
    maps = sorted((results.runs[0].stored.folder.parents[1] / results.suite / "maps").glob("*.csv")) if runs else []
    printed = sorted(published_folder().glob("*.csv")) if plan["tables"] else []
    return [plan, runs, list(diagnostics.items()) if started else [], _contents((*maps, *printed))]


@cache
def _code() -> str:
    """The hash of all that draws, of the words that it writes, and of its fonts."""
    words = (Path(one).parent for one in (bench.catalogue.__file__, bench.console.__file__))
    rooms = [Path(__file__).parents[1], *words]
    files = (path for room in rooms for path in sorted(room.rglob("*")) if path.suffix in (".py", ".ttf", ".yaml"))
    return _digest(_contents(files), sys.version, [version(name) for name in _PACKAGES])


def _contents(paths: Iterable[Path]) -> list[tuple[str, bytes]]:
    return [(path.name, hashlib.sha256(path.read_bytes()).digest()) for path in paths]


def _digest(*content: Any) -> str:
    """The sha256 of plain values; this version of `marshal` writes equal values alike, and is faster than JSON."""
    return hashlib.sha256(marshal.dumps(content, 2)).hexdigest()


def kept(folder: Path, wanted: Mapping[str, str]) -> dict[str, Picture | None]:
    """Return those of the `wanted` figures (name -> key) that lie in a suite's folder as they were drawn.

    None stands for a figure that there are no numbers for.
    """
    try:
        entries = parse_stored_json(folder / FILE, read_bytes(folder / FILE, LIMIT) or b"{}")
    except Damaged:
        return {}
    found: dict[str, Picture | None] = {}
    for name, key in wanted.items() if isinstance(entries, dict) else ():
        try:
            if entries[name]["key"] == key:
                found[name] = _read(folder, name, entries[name])
        except (Damaged, KeyError, TypeError, ValueError):  # not written by us, or a file is gone
            continue
    return found


def _read(folder: Path, name: str, entry: Any) -> Picture | None:
    """Return the figure of an entry. Raises Damaged if one of its files is gone."""
    if entry["caption"] is None:
        return None

    def file(width: str = "") -> bytes:
        path = folder / "figures" / file_name(name, width)
        if not (content := read_bytes(path, LIMIT)):
            raise Damaged(path, "is missing", "the report draws it again")
        return content

    webp = base64.b64decode(entry["webp"], validate=True)
    return Picture(name, entry["caption"], file(), entry["least"], webp, {one: file(one) for one in entry["widths"]})


def listed(wanted: Mapping[str, str], drawn: Mapping[str, Picture | None]) -> bytes:
    """Return the content of `figures.json`."""
    return dump({name: _entry(drawn.get(name), key) for name, key in wanted.items()})


def _entry(picture: Picture | None, key: str) -> dict[str, Any]:
    about: dict[str, Any] = {"key": key, "caption": picture and picture.caption}
    if picture:
        webp = base64.b64encode(picture.webp).decode()
        about |= {"least": picture.least, "widths": list(picture.pdf), "webp": webp}
    return about
