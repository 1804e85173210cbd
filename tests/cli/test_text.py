"""What verbs print and check by themselves: tables of records, options, exit codes."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from bench.cli import app, options
from bench.cli.text import describe_run, record_table
from bench.console.text import align_columns
from bench.errors import UserError
from bench.store import Record, Store, writing

CELL = st.text("abc xyz01.%", max_size=12)


def record(**changed: object) -> Record:
    plain = {
        "run": "a1", "at": 1.0, "dataset": "emoji/iid", "task": "retrieval", "metric": "i2t_r1", "score": "cosine",
        "value": 0.5, "n": 400, "low": None, "high": None, "higher_is_better": True, "protocol": "1", "checkpoint": "c",
    }  # fmt: skip
    return Record(**{**plain, **changed})  # type: ignore[arg-type]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(CELL, min_size=width, max_size=width), min_size=1)))
def test_every_column_begins_at_one_place(rows: list[list[str]]) -> None:
    lines = align_columns(rows)
    starts = [0]
    for place in range(len(rows[0]) - 1):
        starts.append(starts[-1] + max(len(row[place]) for row in rows) + 2)
    for row, line in zip(rows, lines, strict=True):
        assert line == line.rstrip()
        for start, cell in zip(starts, row, strict=True):
            assert line[start : start + len(cell)].rstrip() == cell.rstrip()


def test_rows_of_unequal_length_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="zip"):
        align_columns([["a", "b"], ["c", "d", "e"]])


def test_a_record_is_a_line_with_its_interval_if_it_has_one() -> None:
    lines = record_table([record(), record(at=0.25, low=0.1, high=0.9, n=7), record(low=0.1)])
    head, plain, with_interval, half = (line.split("  ") for line in lines)
    assert head[0].strip() == "budget"
    assert [cell.strip() for cell in plain if cell] == [
        "100%", "emoji/iid", "retrieval", "i2t_r1", "cosine", "0.5000", "400",
    ]  # fmt: skip
    assert "0.1000 to 0.9000" in [cell.strip() for cell in with_interval]
    assert with_interval[0].strip() == "25%"
    assert not any(" to " in cell for cell in half), "an interval has two ends"
    assert record_table([]) == []


def test_the_protocol_is_shown_where_there_are_several() -> None:
    assert "protocol" not in record_table([record(), record()])[0]
    lines = record_table([record(), record(protocol="ncu 2")])
    assert lines[0].endswith("protocol")
    assert lines[2].endswith("ncu 2")


def test_nested_settings_are_dotted_as_set_takes_them(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a1")
    with writing(run) as out:
        out.write_settings({"train": {"lr": 0.001, "deep": {"x": 12345, "gone": None}}, "empty": {}, "steps": 9999})
    lines = describe_run(run).splitlines()
    for line in ("  train.lr: 0.001", "  train.deep.x: 12,345", "  steps: 9999", "  empty: {}"):
        assert line in lines
    assert not any("gone" in line for line in lines)
    assert "ledger" not in lines, "no heading without content"
    with writing(run) as out:
        out.write_json("ledger.json", {"samples": 10_000})
    assert "  samples: 10,000" in describe_run(run).splitlines()


def test_times_and_sizes_are_in_their_own_units(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a1")
    with writing(run) as out:
        out.write_json("ledger.json", {"train_seconds": 3725.5, "data_seconds": 2.5, "peak_memory_bytes": 3 << 29})
        out.set_status("running", step=3)
        updated = run.status()["updated"]
    lines = describe_run(run).splitlines()
    for line in ("  train_seconds: 1:02 h (3,726 s)", "  data_seconds: 2.5", "  peak_memory_bytes: 1.50 GiB"):
        assert line in lines
    assert f"  updated: {datetime.fromtimestamp(updated, UTC):%Y-%m-%d %H:%M:%S} UTC" in lines


def test_folders_are_refused_where_a_file_has_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("BENCH_DATA", "before")
    with pytest.raises(UserError, match=r"--results .*file: not a folder"):
        options.store_at(tmp_path / "file")
    with pytest.raises(UserError, match=r"--data .*file: not a folder"):
        options.use_data(tmp_path / "file")
    options.use_data(None)
    assert os.environ["BENCH_DATA"] == "before"
    options.use_data(tmp_path / "later")
    assert os.environ["BENCH_DATA"] == str(tmp_path / "later")
    assert options.store_at(tmp_path / "new").root == tmp_path / "new"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpu", "a100"], "--gpu and --utilisation estimate hours; they need --dry-run"),
        (["--dry-run", "--utilisation", "0.5"], "--utilisation 0.5: applies to a GPU; name one with --gpu"),
        (["--dry-run", "--gpu", "a1000"], "--gpu a1000: no known GPU"),
        (["--dry-run", "--gpu", "a100", "--utilisation", "2"], "--utilisation 2: should be above 0 and at most 1"),
        (
            ["--plan-only", "--jobs", "2"],
            "--plan-only: not with --dry-run, and --track, --jobs",
        ),
        (["--launcher", "slrum"], "--launcher 'slrum' should be 'local', 'slurm' or 'ray'; did you mean 'slurm'?"),
        (["--seeds", "0;1"], "--seeds 0;1: should be whole numbers separated by commas"),
    ],
)
def test_options_that_do_not_go_together_start_nothing(tmp_path: Path, arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["run", "quickstart", "--results", str(tmp_path / "out"), *arguments])
    assert isinstance(result.exception, UserError)
    assert said in str(result.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [["run", "quickstart", "--jobs", "0"], ["data", "index", "x", "--limit", "2"], ["no-such-verb"], ["run"]],
)
def test_what_the_options_cannot_be_is_exit_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_check_is_told_one_thing() -> None:
    for arguments in (["check"], ["check", "clip", "--all"]):
        result = CliRunner().invoke(app, arguments)
        assert "give a method (a name or a file) or --all" in str(result.exception)
