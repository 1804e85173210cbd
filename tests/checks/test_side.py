"""A second pair of towers: frozen or averaged, the same for ranks, micro-batches and resumed runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bench.adapters import registry
from bench.checks.trainings import Training, make_training, train_alone
from bench.errors import UserError
from bench.planning.planner import plan
from bench.store import RunStore, Store, writing
from bench.suite.run import Run
from bench.suite.settings import SNAPSHOTS
from bench.suite.suite import load_suite
from bench.training.checkpoint import CHECKPOINT_FILE, weights_name
from bench.training.inputs import InputsReader
from bench.training.job import make_job
from bench.training.ledger import Ledger
from bench.training.loop import TrainingJob, train
from methods.protocol import Cost

from . import sides

SUITE = """\
name: sides
budget: {samples: 96}
budget_rule: additional
towers: {image: tiny-vit, dim: 16, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot]}
methods: [clip, beside_reference, from_reference, beside_itself, beside_average]
"""
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    files, folder = {}, tmp_path_factory.mktemp("plugins")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_plugins", {})
        registry.clear_caches()
        for name in sides.PLUGINS:
            files[name] = folder / f"{name}.py"
            files[name].write_text(sides.source(name))
            registry.add_plugin(files[name])
        yield files
    registry.clear_caches()


class Trained:
    """Runs of the suite by label, each trained once, its reference first."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, Store(folder / "out")
        (folder / "sides.yaml").write_text(SUITE)
        self.done: dict[str, RunStore] = {}
        self.jobs: dict[str, TrainingJob] = {}

    def runs(self, *overrides: str) -> list[Run]:
        return load_suite(self.folder / "sides.yaml", overrides).runs()

    def train(self, label: str, *overrides: str) -> RunStore:
        for planned in plan(self.runs(f"methods=[{label}]", *overrides), self.store):
            if planned.id not in self.done:
                out = self.done[planned.id] = self.store.run(planned.id)
                reference = self.done[planned.reference] if planned.reference else None
                with writing(out) as writer:
                    self.jobs[planned.run.method] = make_job(
                        planned.run, InputsReader().inputs(planned.run), planned.resolved, writer, reference, CPU
                    )
                    train(self.jobs[planned.run.method])
        return self.done[planned.id]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, plugins: dict[str, Path]) -> Trained:
    assert plugins
    return Trained(tmp_path_factory.mktemp("trained"))


def bytes_of(out: RunStore) -> list[bytes]:
    return [out.path(name).read_bytes() for name in ("metrics.jsonl", *(map(weights_name, (*SNAPSHOTS, 1.0))))]


def towers_of(out: RunStore) -> dict[str, torch.Tensor]:
    tensors = load_file(out.path(weights_name(1.0)))
    return {name.removeprefix("towers."): x for name, x in tensors.items() if name.startswith("towers.")}


def test_an_average_that_keeps_everything_is_the_reference(trained: Trained) -> None:
    reference = trained.train("clip")
    beside = trained.train("from_reference")
    start = reference.path(weights_name(1.0))
    row = f"{{method: beside_average, start: {start}, config: {{decay: 1.0}}}}"
    assert bytes_of(trained.train(row)) == bytes_of(beside)
    assert bytes_of(trained.train("beside_average")) != bytes_of(beside)


def test_an_average_that_keeps_nothing_is_the_current_weights(trained: Trained) -> None:
    average = trained.train("{method: beside_average, config: {decay: 0.0}}")
    assert bytes_of(average) == bytes_of(trained.train("beside_itself"))


def test_a_reference_side_is_frozen_and_its_start_another_matter(trained: Trained) -> None:
    out, reference = trained.train("beside_reference"), trained.train("clip")
    job = trained.jobs["beside_reference"]
    side, own = job.towers.side.state_dict(), towers_of(reference)
    assert all(torch.equal(side[name], x) for name, x in own.items())
    assert not job.towers.side.training
    assert not any(p.requires_grad for p in job.towers.side.parameters())
    assert "side" not in torch.load(out.path(CHECKPOINT_FILE), weights_only=True), "the run it is of has it"
    assert not any("side" in name for name in load_file(out.path(weights_name(1.0))))
    assert bytes_of(out) != bytes_of(trained.train("from_reference"))
    # At step 0 it stands where CLIP stood: what it says of the contrast is what CLIP said.
    assert out.metrics()[0]["terms"]["contrastive"] == reference.metrics()[0]["terms"]["contrastive"]


def test_a_side_stays_where_a_start_is_given(trained: Trained) -> None:
    start = trained.train("clip").path(weights_name(1.0))
    runs = trained.runs(f"methods=[{{method: from_reference, start: {start}}}]")
    assert [run.method for run in runs] == ["clip", "from_reference"]
    assert runs[1].start == str(start)
    (alone,) = trained.runs(f"methods=[{{method: gradient_ascent, start: {start}}}]")
    assert alone.reference is None


def test_an_average_follows_parameters_and_copies_buffers(tmp_path: Path, plugins: dict[str, Path]) -> None:
    plugin = str(plugins["beside_average"])
    training = Training("beside_average", {"decay": 0.75}, plugin=plugin, steps=1, precision="fp32", optimiser="adamw")
    with writing(RunStore(tmp_path / "run")) as out:
        job = make_training(training, out)
        before = {name: x.clone() for name, x in job.towers.named_parameters()}
        train(job)
    side = dict(job.towers.side.named_parameters())
    for name, x in job.towers.named_parameters():
        torch.testing.assert_close(side[name], 0.75 * before[name] + 0.25 * x, rtol=1e-5, atol=1e-7)
    assert any(not torch.equal(side[name], x) for name, x in job.towers.named_parameters())
    buffers = dict(job.towers.side.named_buffers())
    assert any(name.endswith("running_mean") and x.abs().sum() > 0 for name, x in buffers.items())
    assert all(torch.equal(buffers[name], x) for name, x in job.towers.named_buffers())
    saved = torch.load(tmp_path / "run" / CHECKPOINT_FILE, weights_only=True)["side"]
    assert all(torch.equal(saved[name], x) for name, x in job.towers.side.state_dict().items())


def test_a_forward_without_a_backward_is_a_third_of_a_pass(trained: Trained) -> None:
    clip, beside = (plan(trained.runs(f"methods=[{name}]"), trained.store)[-1] for name in ("clip", "beside_reference"))
    (flops,), (more,) = clip.resolved.step_flops.values(), beside.resolved.step_flops.values()
    assert more / flops == pytest.approx(4 / 3, rel=0.03)
    trained.train("beside_reference")
    job, ledger = trained.jobs["beside_reference"], Ledger()
    assert job.method.cost("train") == Cost(1.0, 1.0, 1.0, 1.0)
    ledger.charge(job.method, job.towers, "train", 16, more)
    assert (ledger.image_forwards, ledger.image_backwards) == (32, 16)
    assert (ledger.text_forwards, ledger.text_backwards) == (32, 16)


def test_costs_are_counted_where_the_reference_is_not_there(tmp_path: Path, trained: Trained) -> None:
    assert all(one.resolved.flops > 0 for one in plan(trained.runs(), Store(tmp_path)))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('side = "reference"', r'side = "reference" of Mutant takes a reference = "METHOD"'),
        ('reference = "clip"\nstarts_from_reference = False', "is neither its start nor its side"),
        ('side = "emma"', r"side of Mutant is 'emma'; did you mean 'ema'\?"),
    ],
)
def test_declarations_that_contradict_each_other_are_refused(body: str, message: str, mutant: Any) -> None:
    with pytest.raises(UserError, match=message):
        registry.find_method(mutant("Clip", body).name)


def test_a_decay_outside_its_range_is_named(tmp_path: Path, plugins: dict[str, Path]) -> None:
    training = Training("beside_average", {"decay": 1.5}, plugin=str(plugins["beside_average"]), steps=1)
    with pytest.raises(ValueError, match=r"beside_average\.side_decay gives 1\.5 at step 0"):
        train_alone(training, RunStore(tmp_path / "run"))


def test_towers_without_a_side_say_so(trained: Trained) -> None:
    trained.train("clip")
    with pytest.raises(RuntimeError, match="the method declares none"):
        _ = trained.jobs["clip"].towers.side
