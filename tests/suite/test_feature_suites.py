"""The suites on stored features: what they compare, and the commands that make what they lack."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from pydantic import ValidationError

from bench import dry_run, run_suite
from bench.errors import UserError
from bench.models import stored_run
from bench.models.extract_features import sets_of_suite
from bench.planning import requirements
from bench.resources import suite_path
from bench.store import Store
from bench.suite.settings import DataSettings
from bench.suite.suite import Suite, load_suite
from bench.suite.unfit import omitted_towers

from ..command import call_bench

PAGE = Path(__file__).parents[2] / "docs" / "features.md"
#: name -> rows, rates, seeds, methods, of which not applicable
FACTS = {
    "features_quickstart": (1947, (0.0, 0.4), 3, 7, 0),
    "features_filters": (1947, (0.0, 0.4), 5, 24, 0),
    "features_regimes": (1947, (0.0, 0.2, 0.4, 0.6, 0.8), 10, 38, 0),
    "cc3m_features": (3_000_000, (0.0, 0.2, 0.4, 0.6, 0.8), 5, 47, 9),
    "flickr30k_features": (29_000, (0.0, 0.2, 0.4, 0.6, 0.8), 5, 47, 1),
    "now_features": (98_000, (0.0,), 5, 30, 1),
}
TOWERS = "towers={image: tiny-resnet, text: tiny-transformer, dim: 8, vocabulary: 300}"
SMALL = ["budget={samples: 32}", TOWERS, "train.batch=16", "evaluate.tasks=[retrieval]"]


@pytest.fixture(scope="module")
def suites() -> dict[str, Suite]:
    return {name: load_suite(name) for name in FACTS}


@pytest.mark.parametrize("name", FACTS)
def test_what_a_suite_compares(suites: dict[str, Suite], name: str) -> None:
    suite = suites[name]
    away = sum(bool(omitted_towers(suite, entry)) for entry in suite.methods)
    own = (suite.data.rows, suite.noise[0].rates, len(suite.seeds), len(suite.methods), away)
    assert own == FACTS[name]
    assert suite.towers[0].image == "features"


def test_the_committed_comparison_is_sized_and_has_its_bounds(suites: dict[str, Suite]) -> None:
    suite = suites["features_regimes"]
    assert len(suite.cells()) == 4750
    assert {"oracle", "clip filtered", "clip random", "clip early"} < {entry.label for entry in suite.methods}


@pytest.mark.parametrize("name", FACTS)
def test_one_command_that_gets_all_features_is_printed_once(
    suites: dict[str, Suite], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    suite = suites[name]
    lines = requirements.listing(requirements.missing_inputs(suite))
    (command,) = [line for line in lines if line.startswith("    get them: ")]
    assert command.removeprefix("    get them: ") == suite.data.how_to_get
    assert str(suite.data.feature_folder) in command
    assert suite.data.feature_folder.parent == tmp_path
    assert sum("stored features" in line for line in lines) == 1 + len(sets_of_suite(load_suite(name)))
    with pytest.raises(UserError, match="lacks these inputs"):
        run_suite(suite, tmp_path / "results")
    short = load_suite(
        name, ["tables=null", "methods=[clip]", "seeds=[0]", f"noise={{rates: [{suite.noise[0].rates[-1]}]}}"]
    )
    counted = dry_run(short, tmp_path / "results")
    assert "no data" in counted[1], "its steps and FLOPs are counted all the same"
    assert f"    get them: {suite.data.how_to_get}" in counted


def test_the_quickstarts_command_makes_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two commands as printed, on an encoder of two steps and with the sets of retrieval alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BENCH_DATA", raising=False)
    text = suite_path("features_quickstart").read_text()
    short = tmp_path / "features_quickstart.yaml"
    start, _, end = text.partition("evaluate: {tasks: [")
    short.write_text(f"{start}evaluate: {{tasks: [retrieval{end[end.index(']') :]}")
    command = load_suite(short).data.how_to_get
    assert command is not None
    first, second = (shlex.split(part)[1:] for part in command.split("&&"))
    assert second[-2:] == ["--for", "features_quickstart"]
    (printed,) = re.findall(r"## Start\n\n```sh\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    lines = [shlex.split(line, comments=True)[1:] for line in printed.splitlines()]
    assert lines == [first, second, ["run", "features_quickstart"]]

    with pytest.raises(UserError, match=r"suite:features_encoder: is not in .*bench run features_encoder --results"):
        call_bench(*second[:-1], short)
    call_bench(*first, *(part for one in SMALL for part in ("--set", one)))
    call_bench(*second[:-1], short)
    assert sets_of_suite(load_suite(short)) == ["emoji-b/iid", "emoji-b/openmoji"]
    suite = load_suite(short, ["budget={samples: 32}", "train.batch=16"])
    assert requirements.missing_inputs(suite) == []
    summary = run_suite(suite, only=["clip"], seeds=[0])
    assert (len(summary.done), summary.failed) == (2, [])
    records = [one for run in Store(tmp_path / "results").runs() for one in run.records()]
    sums = {(one.run, one.dataset): one for one in records if one.metric == "rsum"}
    means = {(one.run, one.dataset): one.value for one in records if one.metric == "mean_recall"}
    assert {dataset for _, dataset in sums} == {"emoji-a/iid", "emoji-a/openmoji", "emoji-b/iid", "emoji-b/openmoji"}
    assert {key: one.value for key, one in sums.items()} == pytest.approx({key: 6 * one for key, one in means.items()})
    with pytest.raises(
        UserError, match=r"suite:features_quickstart: has 39 runs; .*`bench status features_quickstart`"
    ):
        stored_run.single_run_of(Store(tmp_path / "results"), suite.name)


def test_a_suite_on_pixels_has_no_sets_of_features() -> None:
    with pytest.raises(UserError, match=r"--for quickstart: reads pixels; name a suite with data\.features"):
        sets_of_suite(load_suite("quickstart"))


def test_the_folder_and_its_command_follow_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    settings = DataSettings(name="mine", features="{data}/x", get="make {data}/x")
    told = "do what data.get of the suite says, if you trust whoever wrote it"
    assert (settings.feature_folder, settings.how_to_get) == (tmp_path / "x", told), "never a stranger's command"
    assert settings.content() == DataSettings(name="mine").content(), "neither is part of a run's id"
    assert DataSettings(name="mine", get="make {data}/x").how_to_get_shards == told, "shards have one too"
    assert settings.how_to_get_shards is None
    for wrong in (DataSettings(), DataSettings(name="mine")):
        field = {"get": "make x"} if wrong.embedded else {"widths": (8, 8)}
        with pytest.raises(ValidationError, match=r"is of stored features; name their folder in data\.features"):
            DataSettings.model_validate({"name": wrong.name, **field})
