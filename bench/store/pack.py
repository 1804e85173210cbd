"""`bench store pack`: the finished runs of a suite as one archive without weights, which `bench store import` reads.

An archive holds what reports read: plan, settings, states, records, ledgers, environments and diagnostics. Left out are
weights, checkpoints, metrics of steps, noise manifests, per-example results, and the hashes of files, which do
not compress: one sum over all stands for them. The same runs give the same bytes: members of a kind stand together and
carry no times, owners or rights.

A bundle, which `bench board submit` writes, also has the per-example results, so that scores can be computed
again, the losses of the steps, and the hashes.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench.errors import UserError
from bench.hashing import digest
from bench.store import files
from bench.store.archive import SUM
from bench.store.format import FORMAT, NAME
from bench.store.reading import MAX_ARRAYS, MAX_LINES, Damaged, read_bytes
from bench.store.run import HASHES, METRICS, RunStore, Store
from bench.store.verify import run_problems

ARCHIVE_SUFFIX = ".tar.xz"
ARCHIVE = f"runs{ARCHIVE_SUFFIX}"  #: of a committed comparison, in its folder
RERUN_SUFFIX = ".rerun.json"  #: suffix of the file next to a bundle that says which of its runs was trained again
FINISHED_STATES = ("done", "failed")  #: states of a run that does not continue; why it failed is a result as well
_PARTS = ("settings.json", "status.json", "ledger.json", "environment.json", "diagnostics.json")


@dataclass(frozen=True)
class PackOutcome:
    """Content of a written archive, and the runs of its suite's plan that it lacks."""

    runs: int
    bytes: int
    unfinished: tuple[str, ...]  #: a line for each planned run that is not finished
    damaged: tuple[str, ...]  #: a line for each run that a damaged file keeps out


def pack_runs(suite: str, store: Store, target: Path, bundle: bool = False) -> PackOutcome:
    """Write the finished runs that a suite's plan measures, trials too, to an archive, or to a `bundle`.

    Runs that others start from are not measured, and their costs stand in the ledgers of the others. Raises UserError
    for another suffix than `ARCHIVE_SUFFIX`, without a plan, if no run is finished, and if a run was made by code with
    uncommitted changes; Damaged for the plan.
    """
    if not target.name.endswith(ARCHIVE_SUFFIX) or target.is_dir():
        raise UserError(f"{target}: should be a file whose name ends in {ARCHIVE_SUFFIX}")
    plan = store.plan(suite)
    if plan is None:
        raise UserError(f"{store.suite(suite) / 'plan.json'}: is not there; run the suite first with `bench run`")
    members = {NAME: files.dump({"format": FORMAT}), f"{suite}/plan.json": files.dump(plan)}
    unfinished, damaged, count, changed = [], [], 0, 0
    for identity, name in _planned(plan).items():
        run = store.run(identity)
        state = run.status()["state"]
        if state not in (*FINISHED_STATES, "damaged"):
            unfinished.append(f"{name}: {state}")
            continue
        try:
            contents, of_changes = _contents(run, state, bundle), of_changed_code(run.environment())
        except Damaged as error:
            damaged.append(f"{name}: {error}")
            continue
        if state == "done" and not any(record.at == 1.0 for record in run.records()):
            unfinished.append(f"{name}: trained, without records of its final weights")
        elif "settings.json" not in contents:
            unfinished.append(f"{name}: {state}, without settings")
        else:
            members |= {f"runs/{identity}/{part}": content for part, content in contents.items()}
            count, changed = count + 1, changed + of_changes
    if changed:
        message = f"{changed} of its {count} finished runs were made by code with uncommitted changes"
        raise UserError(f"suite {suite}: {message}, which nobody else has; commit it, and run them again")
    if not count:
        raise UserError(f"suite {suite}: none of its runs in {store.root} is finished and whole", *damaged)
    if not bundle:
        members[SUM] = files.dump({"sha256": digest({name: sha256(one).hexdigest() for name, one in members.items()})})
    files.write_path(target, lambda path: _write(path, members))
    return PackOutcome(count, target.stat().st_size, tuple(unfinished), tuple(damaged))


def of_changed_code(environment: Mapping[str, Any]) -> bool:
    """Return whether a run's commit had uncommitted changes, by its environment."""
    return str(environment.get("commit")).endswith("+")


def _planned(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return the runs that a plan measures by their ids, each with its name: those of its cells, then trials."""
    names: dict[str, str] = {}
    for cell in plan["cells"]:
        names.setdefault(cell["run"], f"{cell['method']}, {cell['noise']}, seed {cell['seed']}")
    chosen = (plan["tuning"] or {"methods": {}})["methods"]
    for label, choice in chosen.items():
        for trial in choice["trials"]:
            names.setdefault(trial["run"], f"a trial of {label}")
    return names


def _contents(run: RunStore, state: str, bundle: bool) -> dict[str, bytes]:
    """Return the packed files of a run by their names. Raises Damaged for the first file that is not whole."""
    for error in run_problems(run):
        raise error
    parts = ("records.json", "outcomes.npz") if bundle else ("records.json",)
    measured = () if bundle and state == "failed" else run.evaluations()  # the board shows no numbers of a failed run
    evaluations = [f"evaluations/{key}/{part}" for key in measured for part in parts]
    known, contents = run.hashes(), {}
    for name in (*_PARTS, *evaluations, *((METRICS, HASHES) if bundle else ())):
        content = read_bytes(run.path(name), MAX_ARRAYS if name.endswith(".npz") else MAX_LINES)
        if content is None:
            continue
        if name in known and sha256(content).hexdigest() != known[name]:
            raise Damaged(run.path(name), "differs from the sha256 that was stored when it was made")
        contents[name] = content
    return contents


def _write(path: Path, members: Mapping[str, bytes]) -> None:
    with tarfile.open(path, "w:xz") as archive:
        for name in sorted(members, key=lambda name: (name.split("/")[2:], name)):
            member = tarfile.TarInfo(name)  # its time, owner and rights are constants
            member.size = len(members[name])
            archive.addfile(member, io.BytesIO(members[name]))
