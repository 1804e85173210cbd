"""What a site is made from: stores, committed comparisons, and bundles of the board."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import UserError
from bench.store import Store
from bench.store.incoming import unpacked
from bench.store.pack import ARCHIVE, SUFFIX
from bench.store.reading import read_json
from reports.results import Results, load

RERUNS = ".rerun.json"  #: ends the name of the file beside a bundle that says which of its runs was trained again


@dataclass(frozen=True)
class Source:
    """One suite of a store or archive; its runs can be read while `opened` yields it."""

    name: str  #: of the folder or the file that it comes from
    results: Results
    rerun: str | None  #: id of the run that was trained again with a consistent outcome


@contextmanager
def opened(path: Path) -> Iterator[list[Source]]:
    """Yield the suites of a store or an archive. Raises UserError for what is damaged or forged."""
    if path.is_dir():
        store = Store(path)
        yield [Source(path.name, load(name, store), None) for name in store.plans()]
        return
    name = path.parent.name if path.name == ARCHIVE else path.name.removesuffix(SUFFIX)
    with unpacked(path) as store:
        yield [Source(name, load(suite, store), _rerun(path)) for suite in store.plans()]


def _rerun(path: Path) -> str | None:
    note: Any = read_json(path.with_name(path.name.removesuffix(SUFFIX) + RERUNS))
    consistent = isinstance(note, dict) and note.get("consistent") is True
    return str(note.get("run")) if consistent else None


def listed(paths: Sequence[Path]) -> list[Path]:
    """Return stores and archives: those given, and all of a folder of comparisons or bundles.

    Raises UserError for a path without any.
    """
    sources: list[Path] = []
    for path in paths:
        inside = sorted({*path.glob(f"*{SUFFIX}"), *path.glob(f"*/{ARCHIVE}")})
        is_store = (path / "runs").is_dir()
        if not path.is_file() and not is_store and not inside:
            raise UserError(f"{path}: has no runs: it should be a store, an archive, or a folder of archives")
        sources += [path] if path.is_file() or is_store else inside
    return sources
