"""What a suite lacks is said before anything starts, each thing once and with how to get it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.data_folder import Missing
from bench.errors import UserError
from bench.planning import requirements
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
    for name in ("there.npy", "there.safetensors"):
        (tmp_path / name).write_bytes(b"x")
    file = tmp_path / "lacking.yaml"
    file.write_text(SUITE.replace("%s", str(tmp_path)))
    return load_suite(file)


def test_a_file_of_weights_is_missing_once_for_all_rows_that_start_from_it(suite: Suite, tmp_path: Path) -> None:
    (gone,) = requirements.starts(suite)
    assert gone.what == "weights to start one, two from"
    assert gone.looked == (f"{tmp_path}/gone.safetensors",)


def test_a_file_of_noise_is_missing_if_it_is_not_there(suite: Suite, tmp_path: Path) -> None:
    (gone,) = requirements.noise(suite)
    assert gone.looked == (f"{tmp_path}/gone.npy",)
    (tmp_path / "gone.npy").write_bytes(b"x")
    assert requirements.noise(suite) == []


def test_everything_that_is_missing_is_refused_at_once(suite: Suite, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        requirements.refuse(suite)
    lines = str(caught.value).splitlines()
    assert lines[0] == "suite lacking needs what is not here:"
    assert [line for line in lines if line.startswith("missing: ")] == [
        "missing: weights to start one, two from",
        "missing: index file of the noise",
    ]
    for name in ("gone.npy", "gone.safetensors"):
        (tmp_path / name).write_bytes(b"x")
    assert requirements.missing(suite) == []
    requirements.refuse(suite)


def test_embedded_data_needs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "plain.yaml"
    file.write_text("name: plain\nbudget: {samples: 64}\ntrain: {batch: 16}\nmethods: [clip]\n")
    assert requirements.missing(load_suite(file)) == []


def test_a_listing_says_what_where_how_and_how_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    small = Missing("names", ("a", "b"), "ask", 999_999_999)
    unknown = Missing("weights", ("c",), "fetch", None)
    large = Missing("pairs", ("d",), "download", 1_600_000_000_000)
    assert requirements.listing([small, unknown]) == [
        "missing: names",
        "    looked for a",
        "    looked for b",
        "    get it: ask",
        "missing: weights",
        "    looked for c",
        "    get it: fetch",
    ]
    lines = requirements.listing([large, small])
    assert lines[0] == "missing: pairs, about 1,600 GB"
    assert lines[-1] == f"in all about 1,601 GB, below {tmp_path} (--data DIR or $BENCH_DATA says where)"
    assert requirements.listing([]) == []
    assert requirements.listing([small, small])[-1].startswith("in all about 2 GB"), "together they are worth a line"
