"""What is written is read back; bytes are the same for the same content."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.errors import UserError
from bench.store import Record, Store, writing

RECORD = Record(
    run="a1", at=1.0, dataset="emoji/iid", task="zero_shot/concept", metric="top1", score="cosine", value=0.25, n=400,
    low=0.21, high=0.29, higher_is_better=True, protocol="1", checkpoint="c0ffee",
)  # fmt: skip


def test_every_part_of_a_run_is_read_back(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a1")
    assert run.status() == {"state": "missing"}
    assert run.records() == []
    assert run.metrics() == []
    assert run.ledger() == run.settings() == run.environment() == {}
    outcomes = {"rank": np.arange(6), "top1": np.array([True, False])}
    with writing(run) as out:
        out.write_settings({"method": "clip"})
        out.write_json("ledger.json", {"samples": 5})
        out.write_json("environment.json", {"commit": "abc"})
        out.write_path("weights-100.safetensors", lambda path: path.write_bytes(b"weights"))
        assert out.write_records("zero_shot@1.0", [RECORD], outcomes)
    again = Store(tmp_path).run("a1")
    assert again.settings() == {"method": "clip"}
    assert again.ledger() == {"samples": 5}
    assert again.environment() == {"commit": "abc"}
    assert again.path("weights-100.safetensors").read_bytes() == b"weights"
    assert again.records() == [RECORD]
    assert again.has_records("zero_shot@1.0")
    assert not again.has_records("probe@1.0")
    np.testing.assert_array_equal(again.outcomes("zero_shot@1.0")["rank"], np.arange(6))
    assert again.outcomes("zero_shot@1.0")["top1"].dtype == np.bool_


def test_a_status_without_a_live_process_is_not_running(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a1")
    with writing(run) as out:
        out.set_status("running", step=3, steps=9, stage="train")
        assert run.status()["state"] == "running"
    assert run.status()["state"] == "interrupted"
    assert run.status()["step"] == 3
    with writing(run) as out:
        out.set_status("failed", error={"type": "NonFinite", "message": "loss", "step": 3, "term": "clip"})
        assert run.status()["error"]["term"] == "clip"
        with pytest.raises(ValueError, match="finished"):
            out.set_status("finished")


def test_the_first_publication_of_settings_and_records_stands(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a1")
    with writing(run) as out:
        out.write_settings({"threads": 1})
        out.write_settings({"threads": 2})
        assert run.settings() == {"threads": 1}
        assert out.write_records("k", [RECORD], {})
        assert not out.write_records("k", [replace(RECORD, value=0.5)], {})
    assert run.records() == [RECORD]


def test_a_folder_takes_the_place_of_what_is_no_folder(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a1")
    with writing(run) as out:
        run.path("evaluations").mkdir()
        for name in ("evaluations/k", "features"):
            os.mkfifo(run.path(name))
        assert out.write_records("k", [RECORD], {})
        out.own_claim.fence.write_path("features/a", lambda path: path.write_text("x"))
    assert run.records_of("k") == [RECORD]
    assert run.path("features/a").read_text() == "x"
    assert run.path("evaluations/k.damaged-1").is_fifo()
    assert run.path("features.damaged-1").is_fifo()


def test_bytes_of_an_evaluation_depend_on_its_content_only(tmp_path: Path) -> None:
    outcomes = {"b": np.arange(1000), "a": np.ones(10, dtype=bool)}
    shuffled = dict(reversed(outcomes.items()))
    for name, given in (("x", outcomes), ("y", shuffled)):
        with writing(Store(tmp_path / name).run("a1")) as out:
            out.write_records("k", [RECORD], given)
    for file in ("records.json", "outcomes.npz"):
        one, two = (tmp_path / name / "runs/a1/evaluations/k" / file for name in "xy")
        assert one.read_bytes() == two.read_bytes()
    assert b"1980" not in one.read_bytes()  # no date of any kind beside the archive's fixed epoch


def test_metrics_drop_what_a_resumed_run_writes_again(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a1")
    with writing(run) as out:
        for step in range(5):
            out.append_metrics({"step": step, "loss": math.nan if step == 4 else 1.0})
    with run.path("metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "lo')  # a kill in the middle of a write
    assert [line["step"] for line in run.metrics()] == [0, 1, 2, 3, 4]
    with writing(run) as out:
        out.truncate_metrics(3)
        out.append_metrics({"step": 3})
    assert [line["step"] for line in run.metrics()] == [0, 1, 2, 3]


def test_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a1")
    with writing(run) as out, pytest.raises(ValueError, match="JSON compliant"):
        out.write_records("k", [replace(RECORD, value=math.nan)], {})
    assert not run.has_records("k")


@pytest.mark.parametrize("key", ["", "a/b", ".hidden"])
def test_a_key_is_a_plain_name(tmp_path: Path, key: str) -> None:
    with pytest.raises(ValueError, match="plain file name"):
        Store(tmp_path).run("a1").has_records(key)


def test_records_older_than_their_datas_hash_are_read_and_written_as_they_were(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a1")
    with writing(run) as out:
        out.write_records("a", [RECORD], {})
        out.write_records("b", [replace(RECORD, data="5eed")], {})
    assert '"data"' not in run.path("evaluations/a/records.json").read_text()
    assert run.records() == [RECORD, replace(RECORD, data="5eed")]
    assert [record.data for record in run.records()] == ["", "5eed"]


def test_a_record_of_another_version_is_named(tmp_path: Path) -> None:
    run = Store(tmp_path).run("a1")
    with writing(run) as out:
        out.write_records("k", [RECORD], {})
    path = run.path("evaluations/k/records.json")
    path.write_text(path.read_text().replace('"protocol"', '"convention"'))
    with pytest.raises(UserError, match="convention"):
        run.records()


def test_a_plan_is_read_as_it_was_written(finished: Path, tmp_path: Path) -> None:
    store, plan = Store(tmp_path), Store(finished).plan("tiny")
    assert plan is not None
    assert store.plan("quick") is None
    store.write_plan("quick", {**plan, "suite": "quick"})
    assert store.plan("quick") == {**plan, "suite": "quick"}


def test_importing_the_store_loads_no_heavy_package() -> None:
    code = "import sys, bench.store; print(*(m for m in ('torch', 'pandas', 'numpy', 'pyarrow') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
