"""Bundles written and rerun: `bench submit`, and `bench board --rerun`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

from bench.board.bundle import BundleCheck, check_folder
from bench.board.retrain import Verified, retrain
from bench.errors import UserError
from bench.machine.environment import environment
from bench.store import Store, files
from bench.store.incoming import unpacked
from bench.store.pack import SUFFIX, Packed, pack
from bench.training.job import available_device

CHEAPEST = "cheapest"
RERUNS = ".rerun.json"  #: ends the name of the file beside a bundle that says what was rerun


def submit(suite: str, store: Store, target: Path) -> tuple[Packed, BundleCheck]:
    """Write the bundle of a suite and check it beside the bundles that lie there; the file goes if it does not pass.

    Raises the errors of `pack`; UserError if the file already exists, or a run of the suite is damaged.
    """
    if target.exists():
        raise UserError(f"{target}: already exists; --out FILE gives the bundle another name")
    packed = pack(suite, store, target, bundle=True)
    if packed.damaged:
        target.unlink()
        raise UserError(*packed.damaged)
    (check,) = check_folder([target])
    if check.problems:
        target.unlink()
    return packed, check


def rerun_of(path: Path, run: str) -> Verified:
    """Train a run of a bundle again, `CHEAPEST` or by the beginning of its id, and note the outcome beside the bundle.

    Raises UserError as `retrain` does.
    """
    with unpacked(path) as store:
        verified = retrain(store, _cheapest(store) if run == CHEAPEST else run)
    where = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "environment": environment(available_device())}
    files.write_json(path.with_name(path.name.removesuffix(SUFFIX) + RERUNS), {**asdict(verified), **where})
    return verified


def _cheapest(store: Store) -> str:
    """Return the finished run that took least time and starts from no other run."""
    alone = [run for run in store.runs() if run.settings()["address"]["reference"] is None]
    done = [run for run in alone if run.read_status()["state"] == "done"]
    if not done:
        raise UserError(f"{CHEAPEST}: every run of the bundle starts from another run, which it does not hold")
    return min(done, key=lambda run: (run.ledger()["train_seconds"], run.id)).id
