"""From a suite's runs to planned ones: ids, and how many steps each budget buys."""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
import traceback
from pathlib import Path

import torch

from bench import discovery, missing
from bench.budget import Resolved, count_step_flops, resolve
from bench.data.order import steps_per_epoch
from bench.device import device
from bench.environment import environment
from bench.errors import UserError
from bench.identity import adapter_source_hash, digest
from bench.keep_settings import KeepSettings
from bench.run import Planned, available_device, build, hashes, make_job, prepare, rows_seen, training_pairs
from bench.settings import SYNTHETIC
from bench.store import Store
from bench.store.files import read_json, write_json
from bench.suite import Run
from bench.train import train
from methods.protocol import Phase

_FREE = ("lr", "weight_decay", "betas", "eps", "warmup")  #: of the recipe, without influence on a step's cost
CALIBRATION_STEPS = 20  #: timed steps a phase, after a few that are not


def plan(runs: list[Run], store: Store) -> list[Planned]:
    """Address and steps of every run, a reference before what starts from it.

    Steps of runs the store knows are read from there; FLOPs are counted once for runs that differ in noise or seed.
    """
    ids: dict[str, str] = {}
    prices: dict[str, tuple[tuple[Phase, ...], dict[str, int]]] = {}
    planned = []
    for run in runs:
        reference = ids[run.reference.key] if run.reference else None
        seconds = _calibration(run, store) if run.budget.kind == "device_seconds" else None
        calibration = digest(seconds) if seconds else None
        data_hash, manifest_hash, kept_hash = hashes(run)
        identity = run.id(data_hash, manifest_hash, reference, calibration, kept_hash)
        ids[run.key] = identity
        known = store.run(identity).settings().get("resolved")
        if known is None:
            key = _cost_key(run)
            if key not in prices:
                prices[key] = _price(run)
            resolved = _resolve(run, *prices[key], seconds)
        else:
            resolved = Resolved.from_json(known)
        planned.append(Planned(run, identity, reference, resolved, False, data_hash, manifest_hash, kept_hash))
    return planned


def forecast(runs: list[Run], store: Store) -> list[Planned]:
    """As `plan`, where the training data is not there: steps and FLOPs for the stated number of rows, no ids.

    Raises UserError where the suite does not state `data.rows`.
    """
    names = {run.key: f"unknown-{digest(run.key)[:16]}" for run in runs}
    prices: dict[str, tuple[tuple[Phase, ...], dict[str, int]]] = {}
    planned = []
    for run in runs:
        stand_in = synthetic_of(run)
        key = _cost_key(stand_in)
        if key not in prices:
            prices[key] = _price(stand_in)
        seconds = _calibration(stand_in, store) if run.budget.kind == "device_seconds" else None
        reference = names[run.reference.key] if run.reference else None
        planned.append(
            Planned(run, names[run.key], reference, _resolve(stand_in, *prices[key], seconds), expected=True)
        )
    return planned


def costed(planned: Planned) -> Run:
    """The run that a planned one's cost is counted and timed on: itself, or what stands in while its data is away."""
    return synthetic_of(planned.run) if planned.expected else planned.run


def synthetic_of(run: Run) -> Run:
    """The same run on as many synthetic pairs as its data should have; its steps cost the same.

    Without a stated number of rows its own pairs, where they are there.
    """
    settings = run.data
    if settings.rows is None:
        if not missing.training(run):
            return dataclasses.replace(run, noise=None, noise_file=None, keep=_as_many(run))
        raise UserError(f"data.rows: {settings.name} is not there and its number of rows is not stated; add data.rows")
    rows = round(settings.rows * settings.share)
    found = settings.model_copy(update={"shards": f"{SYNTHETIC}{rows}", "index": None})
    return dataclasses.replace(run, data=found, noise=None, noise_file=None, keep=_as_many(run))


def _as_many(run: Run) -> KeepSettings:
    """What keeps about as many rows as the run does where nothing is known of noise."""
    return KeepSettings(kind="random", share=1 - run.rate) if run.keep.entry.truth_alone else run.keep


def _cost_key(run: Run) -> str:
    """Equal for runs whose steps cost the same. A temperature is a factor; no adapter does other work for another."""
    content = {key: value for key, value in run.content().items() if key != "keep"}
    train = {key: value for key, value in content["train"].items() if key not in _FREE}
    config = {key: value for key, value in content["config"].items() if key != "temperature"}
    kept = {**content, "noise": None, "seed": None, "budget": None, "reference": None, "train": train, "config": config}
    return digest({**kept, "adapter": adapter_source_hash(run.method)})


def _price(run: Run) -> tuple[tuple[Phase, ...], dict[str, int]]:
    towers, method = build(run)
    try:
        prepare(method, towers, run, torch.device("cpu"), None, starts="files")
        return method.phases(), count_step_flops(method, towers, run.train.batch, run.data.size)
    except UserError:
        raise
    except Exception as error:  # whatever an adapter raises is a mistake in that adapter, found before anything starts
        frames = traceback.extract_tb(error.__traceback__)
        path = str(discovery.source(run.method).path)
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == path), 1)
        raise UserError(f"{path}:{line}: counting a step failed: {type(error).__name__}: {error}") from error


def _resolve(run: Run, phases: tuple[Phase, ...], flops: dict[str, int], seconds: dict[str, float] | None) -> Resolved:
    rows, seen, value = len(training_pairs(run)), rows_seen(run), run.budget.value
    if run.treated and run.keep_rule == "passes":  # as many passes over fewer rows, whatever the unit
        value, rows = (value if run.budget.kind == "epochs" else value * seen / rows), seen
    return resolve(
        run.budget.kind,
        value,
        rows=rows,
        seen=seen,
        batch=run.train.batch,
        phases=phases,
        step_flops=flops,
        step_seconds=seconds,
    )


def _calibration(run: Run, store: Store) -> dict[str, float]:
    """Median seconds of a real step of each phase on this machine, measured once a store and kept: it enters the id."""
    machine = environment(available_device())["hardware"]
    key = digest({"cost": _cost_key(run), "train": run.train.model_dump(), "machine": machine})
    path = store.root / "calibrations" / f"{key}.json"
    found: dict[str, float] | None = read_json(path)
    if found is None:
        with device(alone=True):
            found = time_steps(run, CALIBRATION_STEPS)
        write_json(path, found)
    return found


def time_steps(run: Run, steps: int) -> dict[str, float]:
    """Median seconds of a real step of each phase, from `steps` of each; the first quarter is not counted."""
    phases, flops = _price(run)
    lengths = tuple((phase.name, steps) for phase in phases)
    trial = Resolved(lengths, flops, run.train.batch, steps_per_epoch(rows_seen(run), run.train.batch))
    rates: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        job = make_job(run, trial, Store(Path(folder)).run("calibration"), None, available_device(), "none")
        job.on_step = lambda *told: rates.append(told[-1])
        train(job)
    own = {name: rates[number * steps : (number + 1) * steps] for number, (name, _) in enumerate(lengths)}
    return {name: run.train.batch / statistics.median(told[steps // 4 :]) for name, told in own.items()}
