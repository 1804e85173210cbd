"""The training loop on a device: micro-batches, resuming, compilation, a process group of one rank."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bench.checks.trainings import Training, make_training
from bench.distributed import current_group, join_group, leave_group
from bench.store import RunStore, writing
from bench.towers.blocks import compile_blocks
from bench.training.checkpoint import load_checkpoint
from bench.training.loop import Interrupted, NotFinite, train


def trained(training: Training, out: Path, device: torch.device) -> dict[str, Tensor]:
    with writing(RunStore(out)) as writer:
        job = make_training(training, writer, device=device)
        train(job)
    return {name: x.detach().cpu() for name, x in job.towers.state_dict().items()}


def assert_near(found: dict[str, Tensor], expected: dict[str, Tensor], rtol: float) -> None:
    for name, x in expected.items():
        if x.is_floating_point():
            torch.testing.assert_close(found[name], x, rtol=rtol, atol=rtol * max(1e-3, float(x.abs().max())), msg=name)


def test_micro_batches_change_nothing(trained_on: str, place: torch.device, tmp_path: Path) -> None:
    whole = Training(trained_on, steps=4, precision="fp64")
    cut = Training(trained_on, steps=4, precision="fp64", micro=16)
    assert_near(trained(cut, tmp_path / "cut", place), trained(whole, tmp_path / "whole", place), 1e-8)


def test_a_step_in_fp32_is_the_cpus_in_fp64(trained_on: str, place: torch.device, tmp_path: Path) -> None:
    """One step of each phase; a vision transformer, because a ResNet's BatchNorm blows up last bits."""
    one = Training(trained_on, steps=2, precision="fp32", towers="vit")
    exact = Training(trained_on, steps=2, precision="fp64", towers="vit")
    found = trained(one, tmp_path / "found", place)
    expected = trained(exact, tmp_path / "expected", torch.device("cpu"))
    assert_near({name: x.double() for name, x in found.items() if x.is_floating_point()}, expected, 1e-3)


def test_an_interrupted_training_ends_at_the_same_weights(trained_on: str, place: torch.device, tmp_path: Path) -> None:
    training = Training(trained_on, steps=6, precision="fp32", towers="vit")
    straight = trained(training, tmp_path / "straight", place)
    with writing(RunStore(tmp_path / "broken")) as out:
        job, asked = make_training(training, out, device=place), itertools.count(1)
        job.should_stop = lambda: next(asked) == 3
        with pytest.raises(Interrupted):
            train(job)
    resumed = trained(training, tmp_path / "broken", place)
    if place.type == "cpu":
        assert all(torch.equal(resumed[name], x) for name, x in straight.items())
    assert_near(resumed, straight, 1e-6)


def test_a_loss_that_is_no_number_is_named_and_not_kept(device: torch.device, tmp_path: Path) -> None:
    """A GPU's host looks at a step's numbers while the next step is computed."""
    with writing(RunStore(tmp_path)) as out:
        job = make_training(Training("clip", steps=6, precision="fp32", towers="vit"), out, device=device)
        job.log_every, calls, own = 100, itertools.count(), job.method.loss
        spoil = lambda x: x * (float("nan") if next(calls) == 3 else 1.0)  # noqa: E731
        job.method.loss = lambda *given: {name: spoil(x) for name, x in own(*given).items()}  # type: ignore[method-assign]
        with pytest.raises(NotFinite, match="contrastive is nan at step 3"):
            train(job)
    saved = load_checkpoint(RunStore(tmp_path))
    assert saved is None or saved["step"] <= 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; on the CPU: tests/train")
@pytest.mark.filterwarnings("ignore")  # the compiler's own, of its caches and of this machine
@pytest.mark.parametrize("towers", ["vit", "resnet"])
def test_compiled_blocks_train_alike(towers: str, tmp_path: Path) -> None:
    device = torch.device("cuda")
    for micro in (None, 16):
        training = Training("clip", steps=2, precision="fp32", towers=towers, micro=micro)
        plain = trained(training, tmp_path / f"plain {micro}", device)
        with writing(RunStore(tmp_path / f"compiled {micro}")) as out:
            job = make_training(training, out, device=device)
            compile_blocks(job.towers, device)
            train(job)
        assert_near({name: x.detach().cpu() for name, x in job.towers.state_dict().items()}, plain, 1e-4)


def test_a_group_of_one_rank_sums_and_gathers_by_its_backend(tmp_path: Path, device: torch.device) -> None:
    """NCCL for a GPU's tensors, gloo for the others: what one process does as a group is what it does alone."""
    training = Training("clip", steps=2, precision="fp64")
    alone = trained(training, tmp_path / "alone", device)
    join_group(0, 1, torch.distributed.FileStore(str(tmp_path / "meeting"), 1), near=True)
    try:
        group = current_group()
        x = torch.arange(6.0, device=device)
        torch.distributed.all_reduce(x)
        parts = [torch.empty_like(x)]
        torch.distributed.all_gather(parts, x)
        assert torch.equal(parts[0].cpu(), torch.arange(6.0))
        with writing(RunStore(tmp_path / "group")) as out:
            job = make_training(training, out, group, device=device)
            train(job)
    finally:
        leave_group()
    assert_near({name: x.detach().cpu() for name, x in job.towers.state_dict().items()}, alone, 1e-12)
