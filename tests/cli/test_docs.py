"""The pages on new methods and on suites work as printed: their files, their commands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from bench.adapters import registry
from bench.adapters.oracle_file import oracle_path
from bench.adapters.scaffold import template_source
from bench.checks.pool import RankPool
from bench.checks.suite import CHECKS, run_checks, subject_of
from bench.planning import trial_settings
from bench.settings_base import Model
from bench.suite.suite import Suite, load_suite
from tools.handbook import settings_page

PAGE = Path(__file__).parents[2] / "docs" / "new_method.md"
SHORTER = ["budget={samples: 128}", "train.batch=64", "seeds=[0]", "noise.rates=[0.4]", "evaluate.tasks=[zero_shot]"]


def block(kind: str, page: Path = PAGE) -> str:
    """The page's one code block of a kind."""
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", page.read_text(), re.S | re.M)
    return str(found)


@pytest.fixture
def bench(start_bench: Callable[..., Any]) -> Callable[..., str]:
    def run(folder: Path, *arguments: str) -> str:
        process = start_bench(*arguments, cwd=folder, merged=False)
        code, output = process.finish()
        assert code == 0, process.errors
        return str(output)

    return run


def settings_below(model: type[Model]) -> Iterator[tuple[type[Model], str]]:
    """Every field of a section of a suite and of the sections in it."""
    for name, field in model.model_fields.items():
        yield model, name
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, Model):
                yield from settings_below(part)


def test_every_setting_is_on_the_page_of_settings_with_type_default_and_meaning() -> None:
    models = {model for model, _ in settings_below(Suite)}
    assert {"TrainSettings", "DataSettings", "SlurmSettings", "KeepSettings"} <= {model.__name__ for model in models}
    parts = re.split(r"^## `?([\w. ]+)`?$", settings_page(), flags=re.M)[1:]
    row = re.compile(r"^\| `(\w+)`†? \| (.+) \| (.*) \| (.+) \|$", re.M)
    texts = zip(parts[::2], parts[1::2], strict=True)
    sections = {title: {line[0]: line[1:] for line in row.findall(text)} for title, text in texts}
    shown = {frozenset(rows) for rows in sections.values()}
    assert [model.__name__ for model in models if frozenset(model.model_fields) not in shown] == []
    assert sections["train"]["betas"] == ("list of float, float", "`[0.9, 0.98]`", "of AdamW")
    assert sections["train"]["freeze"][:2] == ("'image', 'text' or null", "`null`")
    assert sections["Top level"]["name"][:2] == ("str", "required")


def test_the_example_is_what_new_method_writes() -> None:
    assert block("python") == template_source("my_loss")
    assert len(block("python").splitlines()) <= 40


def test_from_a_formula_to_a_comparison_and_on(bench: Callable[..., str], tmp_path: Path) -> None:
    bench(tmp_path, "new-method", "my_loss")
    (tmp_path / "mine.yaml").write_text(block("yaml"))
    shorter = [part for one in SHORTER for part in ("--set", one)]
    run = ["run", "mine.yaml", "--plugin", "my_loss.py", *shorter]
    bench(tmp_path, *run)
    plan = json.loads((tmp_path / "results" / "mine" / "plan.json").read_text())
    assert [entry["label"] for entry in plan["methods"]] == ["clip", "my_loss", "my_loss 0.3"]
    assert "My loss" in (tmp_path / "results" / "mine" / "report.html").read_text()
    assert "My loss" in bench(tmp_path, "compare", "mine", "clip", "my_loss")

    file = tmp_path / "my_loss.py"
    file.write_text(file.read_text().replace("epsilon: float = 0.1", "epsilon: float = 0.2"))
    lines = bench(tmp_path, *run, "--dry-run").splitlines()
    stored = {line.split(maxsplit=3)[3]: line.split()[1] for line in lines if "seed 0" in line}
    noise = "40 % shuffled captions, seed 0"
    assert stored == {f"clip, {noise}": "done", f"my_loss, {noise}": "missing", f"my_loss 0.3, {noise}": "missing"}
    assert any(line.startswith("to do: 2 runs,") for line in lines)


def test_the_example_of_values_is_in_order_and_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_plugins", {})
    file = tmp_path / "my_loss.py"
    file.write_text(block("python").replace('fidelity="derived"', 'fidelity="official-checked"'))
    oracle_path(file).write_text(block("json"))
    (check,) = [check for check in CHECKS if check.name == "oracles"]
    (result,) = run_checks(subject_of(str(file)), RankPool(), (check,))
    assert (result.outcome, result.reason) == ("passed", "")
    oracle_path(file).write_text(block("json").replace("2.1987", "2.1988"))
    (result,) = run_checks(subject_of(str(file)), RankPool(), (check,))
    assert "my_loss.oracles.json, case 'two pairs': loss of step 0" in result.reason
    monkeypatch.undo()
    registry.clear_caches()


def test_the_suite_of_the_tutorial_has_the_runs_that_it_says(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(block("yaml", PAGE.with_name("suites.md")))
    suite = load_suite(tmp_path / "mine.yaml")
    assert (len(suite.cells()), len(suite.runs())) == (18, 15)
    assert (
        "make 18 cells. On clean pairs the oracle is CLIP itself, so 15 runs" in PAGE.with_name("suites.md").read_text()
    )


def sections_of_suites() -> list[tuple[str, str]]:
    """Every part of a suite that a page shows, with the page's name."""
    pages = sorted(PAGE.parent.glob("*.md"))
    found = [
        (page.name, text)
        for page in pages
        for text in re.findall(r"^```text\n(.*?)^```", page.read_text(), re.S | re.M)
    ]
    return [(name, text) for name, text in found if re.match(r"(noise|evaluate|tune|data):", text)]


@pytest.mark.promise("every part of a suite that the docs show is one that a suite takes")
@pytest.mark.parametrize(("page", "text"), sections_of_suites())
def test_parts_of_suites_on_the_pages_are_valid(page: str, text: str, tmp_path: Path) -> None:
    given = yaml.safe_load(text)
    whole = yaml.safe_load(block("yaml", PAGE.with_name("suites.md")))
    if "datasets" in given.get("evaluate", {}):  # sets of one's own, which no machine of the tests has
        given["data"] = {"name": "own"}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**whole, **given}))
    assert load_suite(tmp_path / "mine.yaml").name == "mine", page


def test_the_suite_that_shows_every_key_is_one(tmp_path: Path) -> None:
    (tmp_path / "clip.safetensors").touch()
    written = (PAGE.parent / "examples" / "every_section.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(written.replace("clip.safetensors", str(tmp_path / "clip.safetensors")))
    suite = load_suite(tmp_path / "mine.yaml")
    assert suite.tune is not None
    shown = {key for key, value in suite.model_dump().items() if value not in (None, ())}
    assert set(type(suite).model_fields) == shown | {"start", "start_trained_on"}, "the page shows every section"
    assert "| `start` | str or null | `null` | weights of every entry" in settings_page()
    assert len(suite.runs()) == 3 * 3 * 4, "the start takes the place of a reference run"
    trials = trial_settings.settings_of(suite.tune, suite.methods[1])
    assert [sorted(trial) for trial in trials] == [[], *[["gamma", "lr", "temperature", "weight_decay"]] * 7]
