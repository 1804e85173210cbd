"""Given weights as the start of a run, in place of fresh towers or of a reference run."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bench import hashing
from bench.errors import UserError
from bench.store import Store
from bench.suite.run import Run
from bench.suite.settings import TowerSettings
from bench.suite.suite import load_suite
from bench.towers.state_dicts import locate_weights, refuse_other_conventions
from bench.training.inputs import InputsReader
from bench.training.job import build_model, prepare_model
from methods.siglip import Siglip

SUITE = """\
name: started
budget: {samples: 64}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [emoji/iid]}}
methods:
  - clip
"""
STARTED = "  - {method: gradient_ascent, label: started, start: %s}\n"


def run_of(folder: Path, start: Path | str) -> Run:
    (folder / "started.yaml").write_text(SUITE + STARTED % start)
    return load_suite(folder / "started.yaml").cells()[1]


@pytest.fixture(scope="module")
def bench(
    start_bench: Callable[..., Any], unreported: Callable[[Path, str], Path]
) -> Callable[[Path], tuple[int, str]]:
    def run(folder: Path) -> tuple[int, str]:
        command = ("run", folder / "started.yaml", "--results", unreported(folder / "out", "started"))
        return start_bench(*command, env={"HF_HUB_OFFLINE": "1"}).finish()

    return run


@pytest.fixture(scope="module")
def trained(bench: Callable[[Path], tuple[int, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Final weights of a CLIP run."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "started.yaml").write_text(SUITE)
    code, output = bench(folder)
    assert code == 0, output
    return next((folder / "out" / "runs").glob("*/weights-100.safetensors"))


def begun(run: Run) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Towers and logit scale as training would find them."""
    towers, method = build_model(run, InputsReader().inputs(run))
    prepare_model(method, towers, run, torch.device("cpu"), None)
    return towers.state_dict(), method.scale.rho.detach()  # type: ignore[attr-defined]


def test_a_weights_file_takes_the_place_of_the_reference_run(
    bench: Callable[[Path], tuple[int, str]], tmp_path: Path, trained: Path
) -> None:
    run = run_of(tmp_path, trained)
    assert run.reference is None
    assert run.budget.value == 64, "nothing of the budget goes to a reference"
    towers, scale = begun(run)
    given = load_file(trained)
    assert all(torch.equal(x, given[f"towers.{name}"]) for name, x in towers.items())
    assert torch.equal(scale, given["method.scale.rho"])
    code, output = bench(tmp_path)
    assert code == 0, output
    assert "runs: 2 done" in output
    cell = Store(tmp_path / "out").plan("started")["cells"][1]
    assert cell["reference_run"] is None


def test_names_of_open_clip_are_understood(tmp_path: Path, trained: Path) -> None:
    given = load_file(trained)
    theirs = {name.removeprefix("towers.").removeprefix("text."): x for name, x in given.items() if "towers." in name}
    save_file({**theirs, "logit_scale": torch.tensor(3.5)}, tmp_path / "clip.safetensors")
    towers, scale = begun(run_of(tmp_path, tmp_path / "clip.safetensors"))
    assert all(torch.equal(x, given[f"towers.{name}"]) for name, x in towers.items())
    assert scale.item() == 3.5


def test_weights_of_other_pixels_are_refused() -> None:
    """Of open_clip's ViT-L-14 one tag has other statistics than the others."""
    towers = TowerSettings(image="ViT-L-14", text="ViT-L-14", dim=768)
    refuse_other_conventions("open_clip:ViT-L-14/laion400m_e32", towers)
    with pytest.raises(UserError, match=r"b82k: was trained with mean \(0\.5, 0\.5, 0\.5\) of pixels, but"):
        refuse_other_conventions("open_clip:ViT-L-14/laion2b_s32b_b82k", towers)


def test_the_id_is_of_the_bytes_not_of_the_path(tmp_path: Path, trained: Path) -> None:
    one, same, other = (tmp_path / f"{name}.safetensors" for name in ("one", "same", "other"))
    for path in (one, same):
        path.write_bytes(trained.read_bytes())
    save_file({name: x + 1 for name, x in load_file(trained).items()}, other)
    keys = [run_of(tmp_path, path).key for path in (one, same, other)]
    assert keys[0] == keys[1] != keys[2]
    assert run_of(tmp_path, "open_clip:ViT-B-32/openai").content()["start"] == "open_clip:ViT-B-32/openai"


def test_weights_that_are_not_there_or_do_not_fit_are_named(
    bench: Callable[[Path], tuple[int, str]], tmp_path: Path, trained: Path
) -> None:
    run_of(tmp_path, tmp_path / "nowhere.pt")
    code, output = bench(tmp_path)
    assert code == 2
    assert "missing: weights to start" in output
    assert f"looked in {tmp_path / 'nowhere.pt'}\n" in output
    with pytest.raises(UserError, match=r"open_clip knows no such weights.*ViT-B-32/laion2b_s34b_b79k"):
        locate_weights("open_clip:ViT-B-32/laion2b_s34b_b79")
    save_file({"visual.conv1.weight": torch.zeros(3, 3)}, tmp_path / "small.safetensors")
    with pytest.raises(UserError, match=r"small\.safetensors: does not fit"):
        begun(run_of(tmp_path, tmp_path / "small.safetensors"))
    assert hashing.weights_identity(str(trained)) == hashing.weights_identity(str(trained.resolve()))


def test_a_tag_that_cannot_be_fetched_says_what_to_do(bench: Callable[[Path], tuple[int, str]], tmp_path: Path) -> None:
    run_of(tmp_path, "open_clip:ViT-B-32/laion2b_s34b_b79k")
    code, output = bench(tmp_path)
    assert code == 2, output
    assert output.startswith("start: open_clip:ViT-B-32/laion2b_s34b_b79k: cannot be fetched")
    assert "fetch it elsewhere and give its path" in output


def test_the_scale_of_a_trainers_checkpoint_is_taken_and_a_fixed_one_is_kept(tmp_path: Path, trained: Path) -> None:
    given = load_file(trained)
    theirs = {f"module.{name.removeprefix('towers.')}": x for name, x in given.items() if "towers." in name}
    torch.save({"state_dict": {**theirs, "module.logit_scale": torch.tensor(3.5)}}, tmp_path / "trainer.pt")
    assert begun(run_of(tmp_path, tmp_path / "trainer.pt"))[1].item() == 3.5
    row = "  - {method: clip, label: fixed, start: %s, config: {temperature: 0.2, learnable_scale: false}}\n"
    (tmp_path / "started.yaml").write_text(SUITE + row % trained)
    fixed = load_suite(tmp_path / "started.yaml").cells()[1]
    assert begun(fixed)[1].exp().item() == pytest.approx(5.0)


@pytest.mark.parametrize("bias", [None, -7.5])
def test_a_scale_that_has_a_bias_is_taken_only_with_one(tmp_path: Path, trained: Path, bias: float | None) -> None:
    """SigLIP's bias of -10 belongs to its scale of 10: at CLIP's 100 the mean logit of a wrong pair is positive."""
    given = load_file(trained)
    theirs = {name.removeprefix("towers.").removeprefix("text."): x for name, x in given.items() if "towers." in name}
    named = {"logit_scale": 3.5, **({} if bias is None else {"logit_bias": bias})}
    save_file({**theirs, **{name: torch.tensor(x) for name, x in named.items()}}, tmp_path / "w.safetensors")
    (tmp_path / "started.yaml").write_text(f"{SUITE}  - {{method: siglip, start: {tmp_path / 'w.safetensors'}}}\n")
    run = load_suite(tmp_path / "started.yaml").cells()[1]
    towers, method = build_model(run, InputsReader().inputs(run))
    prepare_model(method, towers, run, torch.device("cpu"), None)
    assert isinstance(method, Siglip)
    expected = (10.0, -10.0) if bias is None else (math.exp(3.5), bias)
    assert (method.scale().item(), method.bias.item()) == pytest.approx(expected)
    assert run.content()["scale_and_bias"] == "together", "ids from before, when the scale alone was taken, are others"
    assert not {"scale_and_bias"} & load_suite(tmp_path / "started.yaml").cells()[0].content().keys()
