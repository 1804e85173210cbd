"""The rows of the board: every method of a suite under each of its noises, on the suite's primary metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.errors import UserError
from bench.store import Store
from bench.store.incoming import unpack_incoming
from bench.store.pack import ARCHIVE, ARCHIVE_SUFFIX, RERUN_SUFFIX
from bench.store.reading import read_json
from reports.headlines import headlines, primary
from reports.measure import cell
from reports.pages.sections import hardware, paper_link
from reports.results import Results, load, uses
from reports.statistics.contrasts import headline_contrasts
from reports.statistics.paired import Difference
from reports.statistics.ratio import Ratio
from reports.tables.table import Cell, show

STATED, RECOMPUTED = "stated by the author", "recomputed"  #: what a score rests on


class Computed(Protocol):
    """What our own code computed of a bundle (`bench.board.bundle.BundleCheck`). All else is stated by its author."""

    numbers: set[tuple[str, str, str]]  #: (data set, task, metric) whose values follow from per-example results
    fidelity: dict[str, str]  #: label -> how its method was checked, where it is one of ours


Check = Callable[[Path, Store], Computed]  #: of the unpacked store of a bundle; raises UserError if anything is wrong


@dataclass(frozen=True)
class Source:
    """A suite of a store or an archive."""

    results: Results
    rerun: str | None = None  #: the id of the run that was trained again consistently, as the file next to it says
    computed: Computed | None = None


@dataclass(frozen=True)
class BoardRow:
    """One row. Numbers are those of the reports."""

    source: str
    suite: str
    method: str  #: label
    title: str  #: what sentences call it
    paper: str  #: its address; "" if it is not out
    of: str  #: the method's own name, if the label is another; "" if not
    noise: str
    rate: float
    fidelity: str
    budget: str
    hardware: str
    measure: str
    higher_is_better: bool
    score: Cell
    basis: str  #: `RECOMPUTED` or `STATED`
    gain: Difference | None  #: method minus baseline
    recovered: Ratio | None
    resolution: Ratio | None
    runs: Mapping[str, int]  #: id -> seed
    rerun: bool  #: whether one of its runs was trained again
    knows: str  #: what no method knows and this row was trained on; "" for most


@contextmanager
def opened(path: Path, check: Check | None = None) -> Iterator[list[Source]]:
    """Yield the suites of a store or an archive. A bundle is shown after `check` alone.

    Raises UserError for what is damaged or forged.
    """
    if path.is_dir():
        store = Store(path)
        yield [Source(load(name, store)) for name in store.plans()]
        return
    note: Any = read_json(path.with_name(path.name.removesuffix(ARCHIVE_SUFFIX) + RERUN_SUFFIX))
    consistent = isinstance(note, dict) and note.get("consistent") is True
    with unpack_incoming(path) as store:
        computed = check(path, store) if check and path.name != ARCHIVE else None
        rerun = str(note.get("run")) if consistent else None
        yield [Source(load(suite, store), rerun, computed) for suite in store.plans()]


def name_of(path: Path) -> str:
    """Return what a store, an archive or a bundle is called on the board."""
    return path.parent.name if path.name == ARCHIVE else path.name.removesuffix(ARCHIVE_SUFFIX)


def listed(paths: Sequence[Path]) -> list[Path]:
    """Return stores and archives: those given, and all of a folder of comparisons or bundles.

    Raises UserError for a path without any.
    """
    sources: list[Path] = []
    for path in paths:
        inside = sorted({*path.glob(f"*{ARCHIVE_SUFFIX}"), *path.glob(f"*/{ARCHIVE}")})
        itself = path.is_file() or (path / "runs").is_dir()
        if not itself and not inside:
            raise UserError(f"{path}: has no runs: it should be a store, an archive, or a folder of archives")
        sources += [path] if itself else inside
    return sources


def board_rows(name: str, source: Source) -> Iterator[BoardRow]:
    """Yield the rows of a suite in its order. Raises UserError if its plan names no primary metric."""
    results, computed = source.results, source.computed
    measure = headlines(results)[0]
    basis = RECOMPUTED if computed and primary(results) in computed.numbers else STATED
    contrasts = {one.noise: one for one in headline_contrasts(results)}
    for noise, entry in results.noises.items():
        contrast = contrasts.get(noise)
        for label, about in results.methods.items():
            if not (runs := results.of(label, noise)):
                continue
            gain = contrast.gains.get(label) if contrast else None
            yield BoardRow(
                source=name,
                suite=results.suite,
                method=label,
                title=results.named(label),
                paper=paper_link(about["bibtex"]),
                of=about["method"] if about["method"] != label else "",
                noise=noise,
                rate=entry["rate"],
                fidelity=computed.fidelity.get(label, STATED) if computed else about["fidelity"],
                budget=_budget(results.budget(noise), results.plan["budget"]["kind"]),
                hardware="; ".join(sorted(filter(None, set(map(hardware, runs))))) or "unknown",
                measure=f"{measure.column.group} {measure.column.label}",
                higher_is_better=bool(measure.column.higher_is_better),
                score=cell(runs, measure, about["score"]),
                basis=basis,
                gain=contrast.as_difference(gain) if contrast and gain else None,
                recovered=contrast.recovered(label) if contrast and gain else None,
                resolution=contrast.resolution if contrast else None,
                runs={run.run: run.seed for run in runs},
                rerun=any(run.run == source.rerun for run in runs),
                knows=uses(about),
            )


def _budget(value: float, kind: str) -> str:
    """ "20 epochs", "210 GFLOPs"."""
    return f"{show(value, 'flops')}FLOPs" if kind == "flops" else f"{value:g} {kind.replace('_', ' ')}"
