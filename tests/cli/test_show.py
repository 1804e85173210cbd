"""`bench show` prints everything that is stored of one run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.cli.text import describe_run
from bench.console.text import align_columns
from bench.errors import UserError
from bench.store import Record, Store, writing
from bench.store.run import find_run

A, B = "ab" + "0" * 62, "ac" + "1" * 62


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    for identity in (A, B):
        with writing(store.run(identity)) as run:
            run.write_settings({"label": "clip", "train": {"lr": 1e-3, "micro_batch": None}, "seed": 0})
            if identity == A:
                run.write_json("ledger.json", {"samples": 1_280_000, "flops": 5})
            run.set_status("done", step=20, steps=20)
    common = {"run": A, "at": 1.0, "score": "cosine", "protocol": "1", "checkpoint": "c", "higher_is_better": True}
    records = [
        Record(
            dataset="emoji/iid", task="zero_shot/concept", metric="top1", value=0.25, n=40, low=0.2, high=0.3, **common
        ),
        Record(dataset="emoji/iid", task="retrieval", metric="i2t_r1", value=0.5, n=40, low=None, high=None, **common),
    ]
    with writing(store.run(A)) as run:
        run.write_records("k", records, {"top1": np.ones(3)})
    return store


def test_everything_stored_is_printed(store: Store) -> None:
    text = describe_run(find_run(store, A))
    lines = [line.split() for line in text.splitlines()]
    assert ["run", A] in lines
    assert ["state:", "done"] in lines
    assert ["train.lr:", "0.001"] in lines
    assert ["samples:", "1,280,000"] in lines
    assert "micro_batch" not in text
    assert [
        "100%",
        "emoji/iid",
        "zero_shot/concept",
        "top1",
        "cosine",
        "0.2500",
        "0.2000",
        "to",
        "0.3000",
        "40",
    ] in lines
    assert ["100%", "emoji/iid", "retrieval", "i2t_r1", "cosine", "0.5000", "40"] in lines


def test_a_run_without_records_says_so(store: Store) -> None:
    assert describe_run(find_run(store, "ac")).endswith("no records yet")


def test_a_unique_beginning_is_enough(store: Store) -> None:
    assert find_run(store, "ab").id == A
    assert find_run(store, A).id == A


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        ("a", f"2 runs start like this: {A[:16]}, {B[:16]}$"),
        ("x", r"has an id that starts like this \(2 are stored\)"),
        ("", "has"),
    ],
)
def test_anything_else_is_refused(store: Store, prefix: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        find_run(store, prefix)


def test_columns_are_aligned() -> None:
    assert align_columns([("a", "bb", ""), ("ccc", "d", "e")]) == ["a    bb", "ccc  d   e"]
    assert align_columns([]) == []
