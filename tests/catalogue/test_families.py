"""Families of evaluation tasks: one entry each, from which suites, records, chance, tables and docs follow."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from bench import data
from bench.catalogue import evaluation_sets, families
from bench.catalogue.families import FAMILIES, DatasetFacts, PackageTask, TaskFamily, random_guess
from bench.catalogue.protocols import PROTOCOLS
from bench.errors import UserError
from bench.evaluation import EvaluationPlan
from bench.evaluation.bootstrap import mean_interval
from bench.evaluation.measures import Measured, MeasureInputs, Number
from bench.evaluation.tasks import Task
from bench.evaluation.workload import Workload, evaluation_workload
from bench.store import Store
from bench.suite.settings import DataSettings, EvaluateSettings
from bench.suite.suite import load_suite
from tools.handbook import settings_page

from ..command import call_bench

Folder = Callable[..., Path]
ROOT = Path(__file__).parents[2]
TINY = """\
name: tiny
noise: {rates: [0.4]}
budget: {samples: 32}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
methods: [clip]
evaluate: {tasks: [TASKS]}
"""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(FAMILIES, "_entries", dict(FAMILIES._entries))


def neighbours(task: Task, bench: MeasureInputs) -> Measured:
    """Share of images whose nearest other image has the same class."""
    pairs = bench.plan.load(task.dataset)
    cosine = (images := bench.features.images(pairs)["embedding"]) @ images.T
    nearest = cosine.fill_diagonal_(-2).argmax(1).cpu().numpy()
    labels = pairs.labels[task.label]
    hits = (labels[nearest] == labels).astype(np.float64)
    return [Number("agreement", "", float(hits.mean()), len(hits), mean_interval(hits))], {"nearest": nearest}


def entry(name: str = "neighbours", **changed: object) -> TaskFamily:
    """All that a new family takes."""
    fields = {
        "title": "Nearest neighbours",
        "short": "Neighbours",
        "text": "The nearest other image has the same class.",
        "metrics": {"agreement": "same class"},
        "main": "agreement",
        "measure": f"{__name__}:neighbours",
        "chance": lambda label, facts: {"agreement": 1 / facts.classes[label]},
        "embedded": {"emoji": (PackageTask("emoji/iid", "subgroup"),)},
    }
    return TaskFamily(name=name, **{**fields, **changed})  # type: ignore[arg-type]


def table() -> str:
    """The table of the page of settings."""
    lines = ["| `evaluate.tasks` | title | measures | metrics, the main one first |", "| --- | --- | --- | --- |"]
    for family in FAMILIES:
        metrics = sorted(family.metrics, key=lambda metric: metric != family.main)
        codes = ", ".join(f"`{metric}`" for metric in metrics)
        lines.append(f"| `{family.name}` | {family.title} | {family.text} | {codes} |")
    return "\n".join(lines) + "\n"


def written(folder: Path, text: str) -> Path:
    (folder / "tiny.yaml").write_text(text)
    return folder / "tiny.yaml"


@pytest.mark.promise("a family of evaluation tasks is one entry")
@pytest.mark.usefixtures("registry")
def test_a_family_is_one_entry(tmp_path: Path) -> None:
    FAMILIES.add(entry())
    suite = written(tmp_path, TINY.replace("TASKS", "neighbours"))
    call_bench("run", suite, "--results", tmp_path / "out")
    plan = Store(tmp_path / "out").plan("tiny")
    assert plan is not None
    assert plan["primary"] == {"dataset": "emoji/iid", "task": "neighbours/subgroup", "metric": "agreement"}
    chance = plan["datasets"]["emoji/iid"]["chance"]["neighbours/subgroup/agreement"]
    (record,) = Store(tmp_path / "out").run(plan["cells"][0]["run"]).records()
    assert (record.task, record.metric, record.dataset) == ("neighbours/subgroup", "agreement", "emoji/iid")
    assert 0 < chance < record.value <= 1
    out = tmp_path / "out" / "tiny"
    page = (out / "report.html").read_text()
    for text in ("Nearest neighbours", "The nearest other image has the same class.", "same class"):
        assert text in page
    assert list(out.rglob("neighbours.csv"))
    assert "| `neighbours` | Nearest neighbours | The nearest other image" in table()
    said = r"'neighbour' is not a family of evaluation tasks; did you mean 'neighbours'\?"
    with pytest.raises(UserError, match=said):
        load_suite(suite, ["evaluate.tasks=[neighbour]"])
    assert "'flickr30k' has no classes" in families.why_unmeasurable("neighbours", "flickr30k")


@pytest.mark.usefixtures("registry")
def test_a_name_is_given_once_and_its_main_metric_is_its_own() -> None:
    FAMILIES.add(entry())
    with pytest.raises(UserError, match="'neighbours' is already a family of evaluation tasks"):
        FAMILIES.add(entry())
    with pytest.raises(ValueError, match=r"main metric 'top1' is not one of \['agreement'\]"):
        FAMILIES.add(entry("others", main="top1"))


def own_set(folder: Path, webdataset_folder: Folder) -> None:
    from ..evaluation.test_protocols import CLASSES, TEMPLATES, classified

    webdataset_folder(folder, classified(21), classes=CLASSES, templates=TEMPLATES)


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the catalogue of evaluation data, to add an entry to."""
    copy = tmp_path / "evaluation_sets.yaml"
    copy.write_text(evaluation_sets.CATALOGUE_FILE.read_text())
    monkeypatch.setattr(evaluation_sets, "CATALOGUE_FILE", copy)
    evaluation_sets.evaluation_sets.cache_clear()
    yield copy
    evaluation_sets.evaluation_sets.cache_clear()


def measured_on_birds(folder: Path) -> str:
    """The report of a tiny run that is measured on "birds" alone, after its plan and its records were looked at."""
    suite = written(folder, TINY.replace("[TASKS]", "[zero_shot], datasets: {zero_shot: [birds]}"))
    call_bench("run", suite, "--results", folder / "out")
    store = Store(folder / "out")
    plan = store.plan("tiny")
    assert plan is not None
    assert plan["primary"] == {"dataset": "birds", "task": "zero_shot/class", "metric": "top1"}
    assert plan["datasets"]["birds"]["chance"]["zero_shot/class/top1"] == pytest.approx(1 / 7)
    records = store.run(plan["cells"][0]["run"]).records()
    assert {(one.dataset, one.metric, one.n) for one in records} == {("birds", "top1", 21), ("birds", "top5", 21)}
    with pytest.raises(UserError, match=r"evaluate\.datasets\.retrieval\.0: 'birds' has no captions to be scored by"):
        load_suite(suite, ["evaluate.datasets.retrieval=[birds]"])
    return (folder / "out" / "tiny" / "report.html").read_text()


def test_a_data_set_of_ones_own_is_one_folder(
    tmp_path: Path, evaluation_folder: Path, webdataset_folder: Folder
) -> None:
    own_set(evaluation_folder / "wds_birds", webdataset_folder)
    assert "birds, 7 classes (n = 21)" in measured_on_birds(tmp_path)


def test_a_data_set_of_the_catalogue_is_one_entry(
    tmp_path: Path, catalogue: Path, evaluation_folder: Path, webdataset_folder: Folder
) -> None:
    with catalogue.open("a") as file:
        file.write("birds: {title: Birds of Prey, test: 900, classes: 7, webdataset: raptors, publisher: ''}\n")
    plan = EvaluationPlan(DataSettings(), EvaluateSettings.model_validate({"datasets": {"zero_shot": ("birds",)}}))
    assert plan.datasets()["birds"]["n"] == 900  # as published, until it is there
    assert [one.what for one in plan.missing()] == ["Birds of Prey (birds), zero_shot"]
    with pytest.raises(UserError, match="'bird' is not an evaluation data set; did you mean 'birds'"):
        evaluation_sets.parse_dataset("bird")
    own_set(evaluation_folder / "wds_raptors", webdataset_folder)
    assert "Birds of Prey, 7 classes (n = 21)" in measured_on_birds(tmp_path)


def test_an_unknown_family_fails_everywhere_with_the_nearest_one() -> None:
    said = "'zeroshot' is not a family of evaluation tasks; did you mean 'zero_shot'"
    with pytest.raises(UserError, match=said):
        families.chance("zeroshot", "", DatasetFacts("pairs", 10))
    with pytest.raises(UserError, match=said):
        FAMILIES["zeroshot"]
    with pytest.raises(UserError, match=said):
        families.why_unmeasurable("zeroshot", "pets")
    assert families.why_unmeasurable("zero_shot", "hierarcaps") == "'hierarcaps' has no classes to be scored by"
    for asked in ({"tasks": ("zeroshot",)}, {"datasets": {"zeroshot": ("pets",)}}):
        with pytest.raises(ValidationError, match=said):
            EvaluateSettings.model_validate(asked)


def test_suites_say_where_an_unknown_family_stands(tmp_path: Path) -> None:
    suite = written(tmp_path, TINY.replace("TASKS", "zero_shot, linear-probe"))
    with pytest.raises(UserError) as error:
        load_suite(suite)
    said = "evaluate.tasks.1: 'linear-probe' is not a family of evaluation tasks; did you mean 'linear_probe'?"
    assert str(error.value) == f"{suite}:7: {said}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            ["evaluate.tasks=[zero_shot, novel]"],
            "'novel': emoji has no data set for it; name one in evaluate.datasets.novel",
        ),
        (
            ["data.name=cc3m", "train.augment=none", "evaluate={protocol: ncu, tasks: [zero_shot, shift]}"],
            "evaluate.tasks.1: 'shift': protocol 'ncu' names no data set for it; name one in evaluate.datasets.shift",
        ),
        (
            ["evaluate.tasks=[validation]"],
            "methods are not compared by validation; add one of zero_shot, class_ranking, ",
        ),
        (["evaluate.tasks=[noise_detection]", "noise.rates=[0.0]"], "'noise_detection' needs corrupted pairs"),
        (
            ["evaluate.tasks=[noise_detection]", "noise.kind=resampled_positives"],
            "'noise_detection' needs corrupted pairs",
        ),
    ],
)
@pytest.mark.usefixtures("registry")
def test_a_suite_that_cannot_measure_what_it_asks_is_refused(tmp_path: Path, changes: list[str], message: str) -> None:
    FAMILIES.add(entry("novel", embedded={}))
    with pytest.raises(UserError) as error:
        load_suite(written(tmp_path, TINY.replace("TASKS", "zero_shot")), changes)
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.usefixtures("registry")
def test_a_family_without_embedded_tasks_runs_on_data_sets_that_are_named(tmp_path: Path) -> None:
    FAMILIES.add(entry("novel", embedded={}))
    suite = load_suite(written(tmp_path, TINY.replace("TASKS", "novel")), ["evaluate.datasets.novel=[pets]"])
    (task,) = EvaluationPlan(suite.data, suite.evaluate).tasks(1.0, None)
    assert (task.name, task.dataset) == ("novel/class", "pets")


def plan_on_shards(protocol: str = "common", **datasets: tuple[str, ...]) -> EvaluationPlan:
    asked = {"tasks": tuple(datasets), "protocol": protocol, "datasets": {k: v for k, v in datasets.items() if v}}
    return EvaluationPlan(DataSettings(name="cc3m", rows=100), EvaluateSettings.model_validate(asked))


@pytest.mark.parametrize(
    ("datasets", "headline"),
    [
        ({"retrieval": ("flickr30k",), "zero_shot": ("pets", "cars")}, ("pets", "zero_shot/class", "top1")),
        ({"retrieval": ("flickr30k",), "shift": ("imagenet-r",)}, ("imagenet-r", "shift/class", "top1")),
        ({"noise_detection": (), "retrieval": ("flickr30k",)}, ("flickr30k", "retrieval", "mean_recall")),
        ({"retrieval": ("winogavil", "flickr30k")}, ("winogavil", "retrieval", "jaccard_10_12")),
        ({"adamw_probe": ("dtd",), "validation": ()}, ("dtd", "adamw_probe/class", "accuracy")),
        ({"noise_detection": (), "validation": ()}, ("cc3m/pairs", "noise_detection", "auroc")),
    ],
)
def test_the_headline_is_of_a_task_that_the_suite_has(
    datasets: dict[str, tuple[str, ...]], headline: tuple[str, str, str]
) -> None:
    plan = plan_on_shards(**datasets)
    found = plan.primary()
    assert (found["dataset"], found["task"], found["metric"]) == headline
    assert (found["dataset"], found["task"]) in {(task.dataset, task.name) for task in plan.chosen}


def test_a_suite_chooses_its_headline(tmp_path: Path) -> None:
    file = written(tmp_path, TINY.replace("TASKS", "zero_shot, retrieval, validation"))
    for asked, task in (("null", "zero_shot/concept"), ("retrieval", "retrieval")):
        suite = load_suite(file, [f"evaluate.headline={asked}"])
        assert EvaluationPlan(suite.data, suite.evaluate).primary()["task"] == task
    for wrong in ("validation", "shift"):
        with pytest.raises(UserError, match=f"evaluate.headline: '{wrong}' should be one of .*: zero_shot, retrieval$"):
            load_suite(file, [f"evaluate.headline={wrong}"])
    assert load_suite(file).runs()[0].content() == load_suite(file, ["evaluate.headline=retrieval"]).runs()[0].content()


def test_without_a_task_that_compares_there_is_no_headline() -> None:
    with pytest.raises(UserError, match=r"evaluate\.tasks: validation: has no task by which methods are compared"):
        plan_on_shards(validation=()).primary()


@pytest.mark.usefixtures("registry")
def test_a_new_family_is_a_headline_before_noise_detection() -> None:
    FAMILIES.add(entry())
    assert plan_on_shards(noise_detection=(), neighbours=("pets",)).primary()["task"] == "neighbours/class"


@pytest.mark.usefixtures("registry")
def test_an_entry_says_what_its_evaluation_encodes() -> None:
    on = {"emoji": (PackageTask("emoji/iid", "subgroup"),)}
    FAMILIES.add(entry("nothing", embedded=on))
    FAMILIES.add(entry("prompted", embedded=on, texts="prompts"))
    FAMILIES.add(entry("elsewhere", embedded=on, reads="pooled"))

    def counted(*tasks: str) -> Workload:
        return evaluation_workload(EvaluationPlan(DataSettings(), EvaluateSettings(tasks=tasks)), 1.0)

    images = len(data.load_dataset("emoji/iid", 32))
    assert counted("nothing") == Workload(images, 0)
    prompts = len(data.load_dataset("emoji/iid", 32).classes["subgroup"]) * len(data.TEMPLATES["emoji"])
    assert counted("nothing", "prompted") == Workload(images, prompts)
    assert counted("nothing", "elsewhere") == Workload(2 * images, 0)


def test_no_torch_is_loaded_by_what_settings_and_reports_read() -> None:
    code = "import sys, bench.catalogue.families, bench.suite.suite, reports.build, reports.vocabulary\n"
    code += "reports.vocabulary.metric_label('top1'); print(*(set(sys.modules) & {'torch', 'open_clip'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == ""


def test_every_entry_is_whole() -> None:
    facts = DatasetFacts("pairs", 100, {"class": 10})
    for family in FAMILIES:
        assert callable(family.measures())
        assert set(family.chance("class", facts)) <= set(family.metrics)
        assert family.main in family.metrics or (family.split, family.main) == ("validation", "")
    for protocol in PROTOCOLS.values():
        assert set(protocol.datasets) <= set(FAMILIES.names())


def test_the_page_on_suites_lists_every_family() -> None:
    assert table() in settings_page().replace("\\", "")


def test_chance_is_none_of_what_is_not_known() -> None:
    assert families.chance("zero_shot", "class", DatasetFacts("birds, not downloaded yet", 0)) == {}
    assert families.chance("retrieval", "", DatasetFacts("puzzles", 9, metric="jaccard_10_12")) == {}
    six = families.chance("retrieval", "", DatasetFacts("pairs", 9))
    assert six == random_guess.of_captions("", DatasetFacts("pairs", 9))
    assert json.dumps(six)
