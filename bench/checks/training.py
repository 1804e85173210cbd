"""Checks that train: over ranks and micro-batches, over interruptions, without the noise mask, downhill."""

from __future__ import annotations

import ast
import itertools
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, load_file

from bench.adapters import registry
from bench.checks.pool import RankPool
from bench.checks.subject import Failed, Subject, Variant, same
from bench.checks.trainings import Training, learnable_pairs, make_training, train_alone
from bench.data.noise.shuffled import shuffled_captions
from bench.data.pairs import MemoryPairs
from bench.store import RunStore, writing
from bench.training.loop import Interrupted, NotFinite, train


def training_of(subject: Subject, **settings: Any) -> Training:
    return Training(subject.name, plugin=str(subject.plugin) if subject.plugin else None, **settings)


def stateful(subject: Subject) -> Iterator[Variant]:
    """Yield the defaults, and the first variant of every further set of state tensors."""
    known = []
    for variant in subject.variants:
        method, _ = subject.embedded(variant)
        shapes = {name: x.shape for name, x in method.state_dict().items()}
        if shapes not in known:
            known.append(shapes)
            yield variant


def rank_trainings(subject: Subject) -> dict[str, Training]:
    """Return the trainings of `ranks`: in fp64 on a vision transformer, for each set of state tensors.

    They have three steps, or two of each phase. Nearly all rows are in every batch, so their state moves in every step
    and is read from the second one on. With its defaults a method trains a step of each phase, and at least two, on a
    ResNet in fp64 as well: every BatchNorm moves in each step, and nothing that a method keeps depends on the image
    tower. A step of each phase is in fp32.
    """
    trainings = {}
    for variant in stateful(subject):
        config, phases = variant.config, len(subject.embedded(variant)[0].phases())
        settings: dict[str, Any] = {"config": config, "towers": "vit", "rows": 50, "steps": max(3, 2 * phases)}
        trainings[f"{variant.label}, fp64, vit"] = training_of(subject, **settings)
        if variant.label == "default":
            settings["steps"] = phases
            trainings["default, fp32, vit"] = training_of(subject, **settings, precision="fp32")
            steps = max(2, phases)
            trainings["default, fp64, resnet"] = training_of(subject, config=config, towers="resnet", steps=steps)
    return trainings


def ranks(subject: Subject, pool: RankPool) -> None:
    """One, two and three processes, with micro-batches or without, give the same step.

    The loss, every parameter's gradient and every state tensor agree within 1e-9 in fp64 over several steps and
    within 1e-5 in fp32 over one step of each phase, relative to the largest of the gradients of a step. All ranks have
    the same bits.
    """
    trainings = rank_trainings(subject)
    pool.ask(subject.name, trainings)
    results = pool.answer(subject.name)
    (one,) = results["one process"]
    for name, training in trainings.items():
        rtol = 1e-9 if training.precision == "fp64" else 1e-5
        if len({json.dumps(line) for line in one[name]["losses"]}) < training.steps:
            raise Failed(f"{name}: the loss does not move over {training.steps} steps")
        for layout, by_rank in results.items():
            for rank, other in enumerate(by_rank):
                if rank and all(other[name][x] == by_rank[0][name][x] for x in ("gradients", "towers", "method")):
                    continue  # it has the bits of rank 0, which is compared
                where = f"{name}: {layout}" + (f", rank {rank}" if len(by_rank) > 1 else "")
                _equal_runs(where, other[name], one[name], rtol)
                first = load(by_rank[0][name]["method"])
                for key, x in load(other[name]["method"]).items():
                    same(f"{where} against rank 0: state {key}", x, first[key], 0)


def _equal_runs(where: str, actual: Mapping[str, Any], expected: Mapping[str, Any], rtol: float) -> None:
    # Only rank 0 writes metrics; their terms are summed over ranks.
    wanted_losses = expected["losses"] if actual["losses"] else []
    for step, (here, there) in enumerate(zip(actual["losses"], wanted_losses, strict=True)):
        scale = sum(abs(value) for value in there.values())
        for term, value in there.items():
            same(f"{where}: {term} of step {step}", torch.tensor(here[term]), torch.tensor(value), rtol, scale)
    for step, (grads, wanted) in enumerate(zip(actual["gradients"], expected["gradients"], strict=True)):
        _equal_gradients(f"{where}: gradient of {{}} in step {step}", grads, wanted, rtol)
    for part in ("towers", "method"):
        states = load(actual[part])
        for name, x in load(expected[part]).items():
            same(f"{where}: {part} {name} after the last step", states[name], x, rtol)


def _equal_gradients(what: str, actual: bytes, expected: bytes, rtol: float) -> None:
    """Raise Failed unless each gradient agrees relative to its own size, its tensor's and the largest of all."""
    tensors, wanted = load(actual), load(expected)
    largest = max((float(x.abs().max()) for x in wanted.values()), default=0.0)
    for name, x in wanted.items():
        same(what.format(name), tensors[name], x, rtol, floor=largest)


def resume(subject: Subject) -> None:
    """A training that is stopped in mid-epoch, after steps 2 and 4, and resumed by new objects writes the same bytes.

    The training has six steps, and an epoch has three.
    """
    for variant in stateful(subject):
        settings: dict[str, Any] = {"precision": "fp32", "steps": 6, "rows": 50, "batch": 16}
        training = training_of(subject, towers="vit", config=variant.config, **settings)
        with tempfile.TemporaryDirectory() as folder:
            straight, broken = RunStore(Path(folder) / "straight"), RunStore(Path(folder) / "broken")
            train_alone(training, straight)
            for _ in range(2):
                _train_on(training, broken, steps=2)
            train_alone(training, broken)
            _same_bytes(f"{variant.label}: stopped after steps 2 and 4 and resumed", broken, straight)


def _train_on(training: Training, out: RunStore, steps: int) -> None:
    """Train for some steps from the last checkpoint, as a run that is asked to stop."""
    with writing(out) as writer:
        job, asked = make_training(training, writer), itertools.count(1)
        job.should_stop = lambda: next(asked) == steps
        try:
            train(job)
        except Interrupted:
            return
    raise Failed(f"did not stop after {steps} steps")


def _same_bytes(where: str, actual: RunStore, expected: RunStore) -> None:
    metrics, weights = "metrics.jsonl", "weights-100.safetensors"
    if actual.path(metrics).read_bytes() != expected.path(metrics).read_bytes():
        lines = zip(actual.metrics(), expected.metrics(), strict=False)
        first = next((f", from step {one['step']} on" for one, other in lines if one != other), "")
        raise Failed(f"{where}: {metrics} has other bytes{first}")
    if actual.path(weights).read_bytes() != expected.path(weights).read_bytes():
        one, other = (load_file(run.path(weights)) for run in (actual, expected))
        bits = [{name: (x.dtype, x.numpy().tobytes()) for name, x in tensors.items()} for tensors in (one, other)]
        both = {name for name in one.keys() & other.keys() if bits[0][name] == bits[1][name]}
        raise Failed(f"{where}: {weights} has other bytes: {', '.join(sorted({*one, *other} - both)[:3])}")


def noise_mask(subject: Subject) -> None:
    """Noise changes nothing but captions: the method cannot see which pairs are wrong, and imports nothing of `bench`.

    The method trains twice on the same images and captions. Once the data itself is wrong and the runner does not know;
    once the data is right and a noise manifest makes it wrong. Both trainings write the same bytes.
    """
    imported: list[str] = []
    for node in ast.walk(ast.parse(Path(registry.method_source(subject.name).path).read_bytes())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        imported += [name for name in names if name.partition(".")[0] == "bench"]
    if imported:
        raise Failed(f"imports {', '.join(sorted(imported))}; methods do not know the runner")
    training = training_of(subject, towers="vit", precision="fp32", steps=3, rows=20, batch=16)
    clean = learnable_pairs(training.rows)
    manifest = shuffled_captions(clean, 0.5, seed=3)
    sources = manifest.donors_of(np.arange(len(clean)))
    texts = [clean.captions(row) for row in sources.tolist()]
    wrong = MemoryPairs.build(clean.name, "", clean.keys, texts, {}, {}, clean.pixels)
    with tempfile.TemporaryDirectory() as folder:
        unknown, known = RunStore(Path(folder) / "unknown"), RunStore(Path(folder) / "known")
        train_alone(training, unknown, data=wrong)
        train_alone(training, known, data=clean, noise=manifest)
        _same_bytes("with the noise mask known to the runner", known, unknown)


def learns(subject: Subject) -> None:
    """Ten steps of each phase on easy pairs, all of them in every batch, lower the value that the method monitors."""
    method, _ = subject.embedded(subject.variants[0])
    phases = [phase.name for phase in method.phases()]
    settings: dict[str, Any] = {"towers": "vit", "precision": "fp32", "rows": 48, "optimiser": "adamw"}
    training = training_of(subject, **settings, patch=8, steps=10 * len(phases))
    with tempfile.TemporaryDirectory() as folder:
        out = RunStore(Path(folder) / "easy")
        try:
            train_alone(training, out)
        except NotFinite as error:
            raise Failed(str(error)) from error
        lines = out.metrics()
    for phase in phases:
        values = [line[subject.kind.monitored] for line in lines if line["phase"] == phase]
        if not values[-1] < values[0]:
            path = ", ".join(f"{value:.4g}" for value in values)
            raise Failed(f"phase {phase}: {subject.kind.monitored} does not fall: {path}")
