"""Measures the seconds that a step takes on this machine."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from bench.data.order import steps_per_epoch
from bench.hashing import digest
from bench.machine.device_lock import hold_device
from bench.machine.environment import environment
from bench.planning.flops import cost_key, step_prices
from bench.store import Store, writing
from bench.store.files import write_json
from bench.store.reading import read_json
from bench.store.verify import RENEW_SECONDS
from bench.suite.run import Run
from bench.training.inputs import Inputs
from bench.training.job import available_device, make_job
from bench.training.loop import train
from bench.training.schedule import ResolvedSteps

CALIBRATION_STEPS = 20  #: timed steps of each phase, after a few that are not timed

_measured: dict[Path, dict[str, float]] = {}  #: by this process


def calibrated_seconds(run: Run, inputs: Inputs, store: Store, keep: bool) -> dict[str, float]:
    """Return the median seconds of a real step of each phase here, measured once per store: they enter ids.

    keep: whether what is measured is stored.
    """
    machine = {**environment(available_device())["hardware"], "threads": run.train.threads}  # a job sets them
    key = digest({"cost": cost_key(run), "train": run.train.model_dump(), "machine": machine})
    path = store.root / "calibrations" / f"{key}.json"
    seconds: dict[str, float] | None = read_json(path, "seconds", remedy=RENEW_SECONDS) or _measured.get(path)
    if seconds is None:
        with hold_device(alone=True):
            seconds = _measured[path] = time_steps(run, inputs, CALIBRATION_STEPS)
    if keep and not path.exists():
        write_json(path, seconds)
    return seconds


def time_steps(run: Run, inputs: Inputs, steps: int) -> dict[str, float]:
    """Return the median seconds of a real step of each phase, from `steps` of each; the first quarter is left out."""
    prices = step_prices(run, inputs)
    lengths = tuple((phase.name, steps) for phase in prices.phases)
    trial = ResolvedSteps(
        lengths, dict(prices.flops), run.train.batch, steps_per_epoch(len(inputs.seen), run.train.batch)
    )
    rates: list[float] = []
    with tempfile.TemporaryDirectory() as folder, writing(Store(Path(folder)).run("calibration")) as out:
        job = make_job(run, inputs, trial, out, None, available_device(), "none")
        job.on_step = lambda *progress: rates.append(progress[-1])
        train(job)
    own = {name: rates[number * steps : (number + 1) * steps] for number, (name, _) in enumerate(lengths)}
    return {name: run.train.batch / statistics.median(speeds[steps // 4 :]) for name, speeds in own.items()}
