"""What a suite lacks is said before anything starts, each thing once and with how to get it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import bench
from bench.data_folder import Missing
from bench.errors import UserError
from bench.evaluation.tasks import EvaluationPlan
from bench.planning import requirements
from bench.resources import suite_names
from bench.suite.suite import Suite, load_suite

SUITE = """\
name: lacking
noise: {kind: imported, rates: [0.0, 0.2, 0.4], files: [%s/there.npy, %s/gone.npy]}
budget: {samples: 64}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16}
evaluate: {tasks: [zero_shot]}
methods:
  - clip
  - {method: ncu, label: one, start: %s/gone.safetensors}
  - {method: ncu, label: two, start: %s/gone.safetensors}
  - {method: clip, label: three, start: %s/there.safetensors}
"""


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    np.save(tmp_path / "there.npy", np.arange(4))
    (tmp_path / "there.safetensors").write_bytes(b"x")
    file = tmp_path / "lacking.yaml"
    file.write_text(SUITE.replace("%s", str(tmp_path)))
    return load_suite(file)


def test_a_file_of_weights_is_missing_once_for_all_rows_that_start_from_it(suite: Suite, tmp_path: Path) -> None:
    (gone,) = requirements.missing_weights(suite)
    assert gone.what == "weights to start one, two from"
    assert gone.looked == (f"{tmp_path}/gone.safetensors",)


def test_a_file_of_noise_is_missing_if_it_is_not_there(suite: Suite, tmp_path: Path) -> None:
    (gone,) = requirements.missing_noise_files(suite)
    assert gone.looked == (f"{tmp_path}/gone.npy",)
    (tmp_path / "gone.npy").write_bytes(b"x")
    assert requirements.missing_noise_files(suite) == []


def test_everything_that_is_missing_is_refused_at_once(suite: Suite, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        requirements.refuse_missing_inputs(suite)
    lines = str(caught.value).splitlines()
    assert lines[0] == "suite lacking lacks these inputs:"
    assert [line for line in lines if line.startswith("missing: ")] == [
        "missing: weights to start one, two from",
        "missing: index file of the noise",
    ]
    np.save(tmp_path / "gone.npy", np.arange(4))
    (tmp_path / "gone.safetensors").write_bytes(b"x")
    assert requirements.missing_inputs(suite) == []
    requirements.refuse_missing_inputs(suite)


def test_a_noise_file_that_is_broken_is_refused_before_anything_trains(suite: Suite, tmp_path: Path) -> None:
    (tmp_path / "gone.npy").write_text("0 1 2 3")
    message = r"gone\.npy: not a NumPy index file \(it is not a complete \.npy file of numbers: EOF"
    with pytest.raises(UserError, match=message):
        requirements.refuse_missing_inputs(suite)


SCORED = """\
name: scored
budget: {samples: 64}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16}
evaluate: {tasks: [zero_shot], datasets: {zero_shot: [pets]}}
methods: [clip]
"""


def picture() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("sample", "files", "message"),
    [
        ({"png": b"no picture"}, {}, r"image 's0000001' cannot be read: UnidentifiedImageError"),
        ({"cls": 2}, {}, r"labels go to 2, but there are 2 class names; .*classnames\.txt should have one a line"),
        ({"cls": b"-1"}, {}, r"sample 's0000001' has class b'-1', which is not a whole number from 0 on"),
        ({"cls": b"1" * 30}, {}, r"sample 's0000001' has class b'1+'; there are at most 1,000,000 classes"),
        ({}, {"test/nshards.txt": b"999999999999"}, r"nshards\.txt: should hold the number of shards, 1 to 100,000"),
        ({}, {"test/nshards.txt": b"-1"}, r"nshards\.txt: should hold the number of shards"),
        ({}, {"classnames.txt": b"na\xefve\ntree\n"}, r"classnames\.txt: line 1 is not UTF-8"),
        ({}, {"classnames.txt": b"cat\n\ntree\n"}, r"classnames\.txt: line 2 is blank"),
        (
            {},
            {"zeroshot_classification_templates.txt": b"a {c}\na photo\n"},
            r"templates\.txt: line 2, 'a photo', has no place for the class name; write {c} there",
        ),
    ],
)
def test_a_broken_evaluation_set_is_refused_before_anything_trains(
    evaluation_folder: Path,
    webdataset_folder: Callable[..., Path],
    tmp_path: Path,
    sample: dict[str, object],
    files: dict[str, bytes],
    message: str,
) -> None:
    """By `bench run` and by `bench run --dry-run`."""
    samples = [{"png": picture(), "cls": 0}, {"png": picture(), "cls": 1} | sample]
    home = webdataset_folder(evaluation_folder / "wds_pets", samples, classes=("cat", "tree"), templates=("a {c}",))
    for name, content in files.items():
        (home / name).write_bytes(content)
    (tmp_path / "scored.yaml").write_text(SCORED)
    suite = load_suite(tmp_path / "scored.yaml")
    for refusing in (partial(bench.run_suite, suite), partial(bench.dry_run, suite)):
        with pytest.raises(UserError, match=message) as caught:
            refusing(tmp_path / "results")
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "results").exists()


def test_the_suite_says_how_to_get_its_shards_and_sets_of_no_catalogue(tmp_path: Path) -> None:
    file, own = tmp_path / "made.yaml", "make {data}/mine && bench data index mine"
    file.write_text(
        f"name: made\ndata: {{name: mine, get: '{own}'}}\nbudget: {{epochs: 1}}\nmethods: [clip]\n"
        "evaluate: {tasks: [zero_shot, retrieval], datasets: {zero_shot: [mine, cars], retrieval: [my_captions]}}\n"
    )
    gets = {one.what.split(",")[0]: one.get for one in requirements.missing_inputs(load_suite(file))}
    own_ones = {what for what, get in gets.items() if get == load_suite(file).data.how_to_get}
    assert own_ones == {"mine", "mine (mine)", "my_captions (my_captions)"}
    assert not any("make" in get for get in gets.values()), "a command of somebody else's suite is not repeated"
    assert gets["Stanford Cars (cars)"].startswith("hf download")


@pytest.mark.parametrize("name", suite_names())
def test_a_shipped_suite_says_what_it_lacks_and_where_to_get_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`bench run` refuses with the lines that its dry run ends with, and trains nothing."""
    monkeypatch.setenv("BENCH_DATA", str(tmp_path / "data"))
    suite = load_suite(name)
    lacking = requirements.missing_inputs(suite)
    data = [one for one in lacking if not one.what.startswith("weights")]  # of which the suite's comments say more
    if suite.data.embedded:
        assert data == []
        return
    with pytest.raises(UserError) as caught:
        bench.run_suite(suite, tmp_path / "results")
    assert not (tmp_path / "results").exists()
    assert str(caught.value).splitlines() == [f"suite {name} lacks these inputs:", *requirements.listing(lacking)]
    pairs, *others = data
    assert pairs.what.startswith(f"{suite.data.name}, ")
    assert all(place.startswith(str(tmp_path / "data")) for place in pairs.looked)
    wanted = EvaluationPlan(suite.data, suite.evaluate).wanted()
    assert [one for one in wanted if not any(one.split("/")[0] in gone.what for gone in others)] == []
    for one in data:
        assert re.search(r"\bbench (data|features) |\bhf download |\.(com|co)/", one.get), one
        assert not re.search(r"put webdataset shards|\b(DATA|MODEL|DIR|URL)\b|\{\w+\}", one.get), one


def test_embedded_data_needs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "plain.yaml"
    file.write_text("name: plain\nbudget: {samples: 64}\ntrain: {batch: 16}\nmethods: [clip]\n")
    assert requirements.missing_inputs(load_suite(file)) == []


def test_a_listing_says_what_where_how_and_how_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    small = Missing("names", ("a", "b"), "ask", 999_999_999)
    unknown = Missing("weights", ("c",), "fetch", None)
    large = Missing("pairs", ("d",), "download", 1_600_000_000_000)
    assert requirements.listing([small, unknown]) == [
        "missing: names",
        "    looked in a",
        "    looked in b",
        "    get it: ask",
        "missing: weights",
        "    looked in c",
        "    get it: fetch",
    ]
    lines = requirements.listing([large, small])
    assert lines[0] == "missing: pairs, about 1,600 GB"
    assert lines[-1] == f"in total about 1,601 GB, below {tmp_path} (--data DIR or $BENCH_DATA sets it)"
    assert requirements.listing([]) == []
    assert requirements.listing([small, small])[-1].startswith("in total about 2 GB"), "together they are worth a line"
