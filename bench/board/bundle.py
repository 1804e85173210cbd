"""Checks of bundles before their runs appear on the board. Consistent is not proven: only a rerun shows more.

A bundle is a plan plus per-example results, as `bench board submit` writes them. Whatever is shown of it is computed
from them by our own code, or labelled as stated by its author. Files, ids and hashes are checked as an import checks
them. The settings of a run are compared with its address, the plan against the settings, the ledger against the steps,
the scores against the outcomes. A run that is not done has no records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.board import follows
from bench.board.outcomes import Refused, refuse_other_scores
from bench.errors import UserError, one_line
from bench.store import RunStore, Store
from bench.store.incoming import unpack_incoming
from bench.store.pack import ARCHIVE_SUFFIX
from bench.store.run import SHORT_ID
from bench.suite.run import Run
from bench.training.inputs import InputsReader


@dataclass
class BundleCheck:
    """The outcome for one bundle."""

    path: Path
    runs: int = 0
    shared: int = 0  #: runs that an earlier bundle has with the same records
    scores: int = 0
    recomputed: int = 0  #: of `scores`, computed again from the per-example results
    noisy: int = 0  #: finished runs on noise
    drawn: int = 0  #: of `noisy`, whose noise was drawn again
    done: int = 0  #: finished runs
    counted: int = 0  #: of `done`, whose steps, FLOPs and passes through the towers were counted again
    problems: list[str] = field(default_factory=list)  #: a sentence for everything that is wrong
    numbers: set[tuple[str, str, str]] = field(default_factory=set)  #: (data set, task, metric) that were recomputed
    fidelity: dict[str, str] = field(default_factory=dict)  #: label -> how its method was checked, where it is here

    def text(self) -> list[str]:
        """Return what was checked, in lines."""
        last = "consistent; consistent is not proven"
        if self.problems:
            last = f"{len(self.problems)} problem{'s' * (len(self.problems) > 1)}"
        return [
            f"{self.path}: {self.runs} runs, {self.shared} of them in other bundles as well",
            f"  scores: {self.recomputed} of {self.scores} recomputed from per-example results",
            f"  noise: {self.drawn} of {self.noisy} runs redrawn",
            f"  steps and passes: {self.counted} of {self.done} runs recounted",
            "  stated by the author: seconds, memory, hardware, intervals over examples, and what was not recomputed",
            f"  {last}",
        ]


@dataclass
class BundleChecker:
    """Checks bundles one after the other, and each against those before it."""

    _records: dict[str, str] = field(default_factory=dict)  #: run -> hash of its final records
    _weights: dict[str, tuple[str, str]] = field(default_factory=dict)  #: hash of weights -> run, and what it is
    _reader: InputsReader = field(default_factory=InputsReader)

    def check(self, path: Path) -> BundleCheck:
        """Check a bundle; what is wrong is in the outcome's `problems`."""
        outcome = BundleCheck(path)
        with _told(outcome), unpack_incoming(path) as store:
            self.look(store, outcome)
        return outcome

    def look(self, store: Store, outcome: BundleCheck) -> None:
        """Check the unpacked store of a bundle."""
        suites = store.plans()
        if len(suites) != 1:
            outcome.problems.append(f"{outcome.path}: holds the plans of {len(suites)} suites, and should hold one")
            return
        plan = store.plan(suites[0]) or {}
        cells: dict[str, list[Any]] = {}  # by the ids of their runs; a trial has none
        for cell in plan["cells"]:
            cells.setdefault(cell["run"], []).append(cell)
        known: list[Run] = []
        for run in store.runs():
            outcome.runs += 1
            with _told(outcome, f"run {run.id[:SHORT_ID]}: "):
                known.append(self._run(run, plan, cells.get(run.id, []), outcome))
        with _told(outcome, "plan: "):
            for one in known[:1]:
                follows.refuse_other_headline(plan, one)
        if 0 < outcome.done == outcome.shared and not outcome.problems:
            outcome.problems.append(f"{outcome.path}: duplicate: every finished run of it is already in other bundles")

    def _run(self, run: RunStore, plan: Mapping[str, Any], cells: list[Any], outcome: BundleCheck) -> Run:
        """Check a run; return it as `follows.run_with_method` does. Raises Refused for the first mistake."""
        settings, state = run.settings(), run.read_status()["state"]
        known = follows.run_with_method(settings)
        follows.refuse_other_cells(settings, known, plan, cells)
        if state != "done":
            if run.evaluations():
                raise Refused(f"status: is {state}, but it has records; only a finished run has any")
            return known
        outcome.done += 1
        follows.refuse_other_costs(run.ledger(), settings)
        outcome.noisy += known.rate > 0
        if follows.refuse_other_inputs(settings, known, self._reader):
            outcome.drawn += known.rate > 0
            outcome.counted += follows.refuse_other_steps(run, settings, self._reader)
        for key in run.evaluations():
            count, given = refuse_other_scores(run, key)
            outcome.scores += count
            outcome.recomputed += len(given)
            outcome.numbers |= {(dataset, task, metric) for dataset, task, metric, _ in given}
        if fidelity := follows.stored_fidelity(settings):
            outcome.fidelity |= {cell["method"]: fidelity for cell in cells}
        self._refuse_renamed(run, settings, outcome)
        return known

    def _refuse_renamed(self, run: RunStore, settings: Mapping[str, Any], outcome: BundleCheck) -> None:
        """Raise Refused if other records of this run, or its weights under another name, were seen before."""
        final = [record for record in run.records() if record.at == 1.0]
        records = hashlib.sha256(repr(sorted(map(repr, final))).encode()).hexdigest()
        outcome.shared += run.id in self._records
        if self._records.setdefault(run.id, records) != records:
            raise Refused("duplicate: another bundle has this run with other scores")
        what = f"{settings['method']}, {settings['noise']}, seed {settings['seed']}"
        first, named = self._weights.setdefault(final[0].checkpoint, (run.id, what)) if final else (run.id, what)
        if first != run.id and named != what and not settings.get("untrained"):
            raise Refused(f"duplicate: has the weights of run {first[:SHORT_ID]} ({named}) under another name")


@contextmanager
def _told(outcome: BundleCheck, what: str = "") -> Iterator[None]:
    """Note what is wrong with a bundle, or with `what` of it, so that the check continues with the next."""
    try:
        yield
    except Refused as reason:
        outcome.problems.append(f"{outcome.path}: {what}{reason}")
    except UserError as error:
        outcome.problems += [f"{outcome.path}: {what}{line}" if what else line for line in str(error).split("\n")]
    except Exception as error:  # what strangers wrote leads the code anywhere
        outcome.problems.append(f"{outcome.path}: {what}cannot be checked: {type(error).__name__}: {one_line(error)}")


def check_folder(paths: Sequence[Path]) -> list[BundleCheck]:
    """Check bundles, or all bundles of a folder; a file is also compared with the others next to it.

    Raises UserError for a path that is neither.
    """
    asked: list[Path] = []
    for path in paths:
        if not (path.is_dir() or path.is_file()):
            raise UserError(
                f"{path}: no such bundle or folder of bundles; `bench board submit RESULTS SUITE` writes one"
            )
        asked += sorted(path.glob(f"*{ARCHIVE_SUFFIX}")) if path.is_dir() else [path]
    checker = BundleChecker()
    for other in sorted({other for path in asked for other in path.parent.glob(f"*{ARCHIVE_SUFFIX}")} - {*asked}):
        checker.check(other)
    return [checker.check(path) for path in asked]


def check_bundle(path: Path, store: Store) -> BundleCheck:
    """Check the unpacked store of a bundle before it is shown. Raises UserError if anything is wrong with it."""
    outcome = BundleCheck(path)
    BundleChecker().look(store, outcome)
    if outcome.problems:
        raise UserError(*outcome.problems)
    return outcome
