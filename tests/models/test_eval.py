"""`bench eval` on the weights of real tiny runs and on external files."""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from click.testing import Result
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from bench.catalogue.architectures import IMAGE_TOWERS, TEXT_TOWERS
from bench.cli import app
from bench.errors import UserError
from bench.store import Record, RunStore, Store
from bench.suite.settings import TowerSettings
from bench.towers.build import build_towers
from bench.towers.state_dicts import load_tensors
from bench.towers.tokenization import SmallVocabulary
from methods.protocol import Facts

SUITE = """\
name: tiny
noise: {rates: [0.4]}
budget: {samples: 64}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot, noise_detection]}
methods: [clip, {method: siglip, label: pairs}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, unreported: Callable[[Path, str], Path]) -> Path:
    folder = tmp_path_factory.mktemp("eval")
    unreported(folder / "out", "tiny")
    (folder / "tiny.yaml").write_text(SUITE)
    assert bench(folder, "run", str(folder / "tiny.yaml")).exit_code == 0
    return folder


def bench(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--results", str(folder / "out")], catch_exceptions=False)


def evaluate(folder: Path, checkpoint: Path, *more: str) -> Result:
    return bench(folder, "eval", str(checkpoint), "--suite", str(folder / "tiny.yaml"), *more)


def run_of(folder: Path, label: str) -> RunStore:
    store = Store(folder / "out")
    plan = store.plan("tiny")
    assert plan is not None
    return store.run(next(cell["run"] for cell in plan["cells"] if cell["method"] == label))


def records_of(result: Result) -> list[Record]:
    """What the last line of a successful call says is stored."""
    assert result.exit_code == 0, result.output
    return RunStore(Path(result.stdout.splitlines()[-1].rpartition("stored in ")[2])).records()


def numbers(records: list[Record]) -> dict[tuple[str, str, str, str], tuple[float, float | None]]:
    return {(one.dataset, one.task, one.metric, one.score): (one.value, one.low) for one in records}


def test_final_weights_score_as_the_run_did_and_only_once(folder: Path) -> None:
    run = run_of(folder, "pairs")
    result = evaluate(folder, run.path("weights-100.safetensors"))
    assert "tasks: 5 measured, 0 measured before" in result.stdout
    assert numbers(records_of(result)) == numbers(run.records())
    assert {(one.run, one.at, one.checkpoint) for one in records_of(result)} == {
        (run.id, 1.0, run.records()[0].checkpoint)
    }
    again = evaluate(folder, run.path("weights-100.safetensors"))
    assert "tasks: 0 measured, 5 measured before" in again.stdout
    assert again.stdout.splitlines()[:-1] == result.stdout.splitlines()[:-1]


def test_a_checkpoint_holds_the_final_weights(folder: Path) -> None:
    run = run_of(folder, "clip")
    records = records_of(evaluate(folder, run.path("checkpoint.pt")))
    assert numbers(records) == numbers(run.records())
    assert {one.at for one in records} == {1.0}


def test_earlier_weights_are_measured_on_everything(folder: Path) -> None:
    run = run_of(folder, "clip")
    result = evaluate(folder, run.path("weights-050.safetensors"), "--csv", str(folder / "half.csv"))
    found = RunStore(Path(result.stdout.splitlines()[-2].rpartition("stored in ")[2])).records()
    assert {one.at for one in found} == {0.5}
    assert numbers(found).keys() == numbers(run.records()).keys()
    assert numbers(found) != numbers(run.records())
    with (folder / "half.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [float(line["value"]) for line in lines] == [one.value for one in found]
    assert {line["checkpoint"] for line in lines} == {found[0].checkpoint}


def test_a_run_is_measured_wherever_its_data_lies_now(folder: Path) -> None:
    """Only what the pairs are must be equal; the number of processes that read them is none of it."""
    weights = run_of(folder, "clip").path("weights-100.safetensors")
    result = evaluate(folder, weights, "--set", "data.workers=0")
    assert numbers(records_of(result)) == numbers(run_of(folder, "clip").records())
    with pytest.raises(UserError, match=r"measures on emoji at 32 px: they differ in data\.block$"):
        evaluate(folder, weights, "--set", "data.block=4")


def test_a_bare_state_dict_needs_only_the_towers(folder: Path) -> None:
    """The text tower's names as in open_clip's CLIP, below "state_dict" and "module." as its trainer saves them."""
    run = run_of(folder, "clip")
    weights = load_file(run.path("weights-100.safetensors"))
    names = {name: name.removeprefix("towers.").removeprefix("text.") for name in weights if name.startswith("towers.")}
    bare = {f"module.{short}": weights[name] for name, short in names.items()}
    bare["module.logit_scale"] = torch.tensor(2.0)
    torch.save({"epoch": 3, "state_dict": bare, "optimizer": {}}, folder / "bare.pt")
    records = records_of(evaluate(folder, folder / "bare.pt"))
    expected = {key: value for key, value in numbers(run.records()).items() if key[1] != "noise_detection"}
    assert numbers(records) == expected
    assert {(one.run, one.at) for one in records} == {("", 1.0)}


def test_the_same_file_read_by_another_method_is_another_evaluation(folder: Path) -> None:
    weights = load_file(run_of(folder, "clip").path("weights-100.safetensors"))
    save_file({name: x for name, x in weights.items() if name.startswith("towers.")}, folder / "towers.safetensors")
    for method in ("clip", "pairs", "label_permutation"):  # a label of the suite, and a method it does not have
        result = evaluate(folder, folder / "towers.safetensors", "--method", method)
        assert "tasks: 4 measured, 0 measured before" in result.stdout


def test_names_of_open_clip_are_understood(tmp_path: Path) -> None:
    vocabulary = SmallVocabulary(["a red apple", "a blue car"], 40, TEXT_TOWERS["tiny-transformer"]["context_length"])
    vision = {**IMAGE_TOWERS["tiny-vit"], "image_size": 32}
    clip = open_clip.model.CLIP(16, vision, {**TEXT_TOWERS["tiny-transformer"], "vocab_size": vocabulary.size}).eval()
    torch.save(clip.state_dict(), tmp_path / "clip.pt")
    towers = build_towers(TowerSettings(image="tiny-vit", dim=16), vocabulary, 32, 8).eval()
    images, tokens = torch.randn(2, 3, 32, 32), vocabulary(["a red car", "an apple"])
    assert not torch.equal(towers.encode_image(images), clip.encode_image(images))
    load_tensors(tmp_path / "clip.pt", {"towers": towers, "method": _clip()})
    torch.testing.assert_close(towers.encode_image(images), clip.encode_image(images))
    torch.testing.assert_close(towers.encode_text(tokens), clip.encode_text(tokens))


def _clip() -> Any:
    from bench.adapters import hyperparameters

    return hyperparameters.make_method("clip", None, {}, Facts(rows=8, batch=8, dim=16, seed=0))


class Evil:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, ("evil",)


def spoiled(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    """A copy of the final weights of clip, without settings.json beside it, changed."""
    weights = load_file(run_of(folder, "clip").path("weights-100.safetensors"))
    change(weights)
    save_file(weights, folder / "spoiled.safetensors")
    return folder / "spoiled.safetensors"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda w: w.update({"towers.text.token_embedding.weight": torch.zeros(500, 64)}),
            r"towers.text.token_embedding.weight is \[500, 64\] in the file, but \[300, 64\] in the model",
        ),
        (lambda w: w.pop("towers.visual.head.proj.weight"), r"lacks towers.visual.head.proj.weight \[8, 96\]"),
        (lambda w: w.update({"visual.extra": torch.zeros(2)}), r"has visual.extra \[2\](.|\n)*--towers MODEL"),
        (lambda w: w["towers.visual.head.proj.weight"].fill_(torch.nan), "not finite|NaN"),
    ],
)
def test_weights_that_do_not_fit_are_named(folder: Path, change: Callable[[Any], object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        evaluate(folder, spoiled(folder, change))


def test_other_bad_input_is_said(folder: Path) -> None:
    run = run_of(folder, "clip")
    (folder / "text.pt").write_text("no weights")
    (folder / "hi.pt").write_text("hi\n")
    torch.save([1], folder / "list.pt")
    torch.save({"epoch": 3}, folder / "epoch.pt")
    cases: list[tuple[Path, list[str], str]] = [
        (folder / "none.pt", [], "none.pt: no such file"),
        (folder / "text.pt", [], "text.pt: neither safetensors nor a state dict"),
        (folder / "hi.pt", [], "hi.pt: neither safetensors nor a state dict"),
        (folder / "list.pt", [], "list.pt: holds a list, not a state dict"),
        (folder / "epoch.pt", [], "'epoch' is of type int; a state dict"),
        (folder / "epoch.pt", ["--method", "clpi"], "--method clpi: neither a label .* did you mean 'clip'"),
        (run.path("weights-100.safetensors"), ["--method", "clip"], "settings.json says what weights-100"),
        (run.path("weights-100.safetensors"), ["--set", "data.size=64"], "was trained on emoji at 32 px, but suite"),
    ]
    for path, more, said in cases:
        with pytest.raises(UserError, match=said):
            evaluate(folder, path, *more)


def test_a_pickle_is_never_executed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    torch.save({"weights": Evil()}, folder / "evil.pt")
    with pytest.raises(UserError, match="neither safetensors nor a state dict"):
        evaluate(folder, folder / "evil.pt")
    assert not (folder / "evil").exists()


def test_while_another_process_evaluates_it_the_same_command_resumes(folder: Path) -> None:
    weights = run_of(folder, "pairs").path("weights-075.safetensors")
    assert evaluate(folder, weights, "--set", "evaluate.tasks=[noise_detection]").exit_code == 0
    (out,) = [
        path
        for path in (folder / "out" / "tiny" / "evaluated").iterdir()
        if RunStore(path).settings()["file"] == str(weights)
    ]
    with RunStore(out).claim():
        result = evaluate(folder, weights)
    assert result.exit_code == 75
    assert "another process evaluates it" in result.stderr


def test_nothing_to_measure_is_an_error(folder: Path, tmp_path: Path) -> None:
    """Weights without a noise manifest, and a suite that asks for noise detection alone."""
    weights = Path(shutil.copy(run_of(folder, "clip").path("weights-100.safetensors"), tmp_path / "elsewhere"))
    with pytest.raises(UserError, match=r"elsewhere: suite tiny asks for nothing .*\(tasks: noise_detection\)"):
        evaluate(folder, weights, "--set", "evaluate.tasks=[noise_detection]")


def test_bad_input_is_exit_code_2(start_bench: Callable[..., Any], tmp_path: Path) -> None:
    process = start_bench("eval", "none.pt", "--suite", "smoke", cwd=tmp_path, merged=False)
    code, _ = process.finish()
    assert (code, process.errors) == (2, "none.pt: no such file\n")
    assert not list(tmp_path.iterdir())
