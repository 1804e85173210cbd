"""What trials came to, as a table of its own."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from bench.store import Store
from reports.build import build
from reports.results import load

from . import stores

SUITE = "emoji_noisy"


def trials(*scores: float | None) -> dict[str, Any]:
    found = [{"changes": {"lr": 0.001 * n} if n else {}, "run": f"{n}" * 64, "score": s} for n, s in enumerate(scores)]
    best = max(found, key=lambda trial: -1 if trial["score"] is None else trial["score"])
    ledger = {"samples": 1.0, "flops": 3.6e12, "train_seconds": 93.0, "evaluate_seconds": 4.0}
    return {"chosen": best["changes"], "score": best["score"], "trials": found, "ledger": ledger}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite of which two methods were tuned and the others not yet."""
    store: Store = stores.write_store(tmp_path_factory.mktemp("tuned"), seeds=(0,))
    plan = store.plan(SUITE)
    tuned = {"clip": trials(0.05, 0.07, 0.06), "sogclr": trials(None, None, 0.02)}
    tuned["sogclr"]["chosen"]["temperature"] = 0.16
    settings = {"trials": 3, "budget": {"flops": 1.2e12}, "rate": 0.4, "seed": 1000, "lr": [5e-4, 8e-3]}
    plan["tuning"] = {**settings, "temperature": [0.02, 0.32], "methods": tuned}
    for entry in plan["methods"]:
        entry["lr"] = tuned.get(entry["label"], {"chosen": {}})["chosen"].get("lr", 0.002)
    store.write_plan(SUITE, plan)
    with stores.without_figures():
        build(SUITE, store)
    return store.suite(SUITE)


def test_trials_choices_and_their_cost(folder: Path) -> None:
    lines = {
        line["method"]: line for line in csv.DictReader(io.StringIO((folder / "tables" / "tuning.csv").read_text()))
    }
    clip, sogclr, ncu = (lines[name] for name in ("clip", "sogclr", "ncu"))
    score = "Validation, mean recall"
    assert [float(clip[f"{score} suite's own"]), float(clip[f"{score} best"])] == [0.05, 0.07]
    assert (clip["Chosen learning rate"], clip["Chosen temperature"]) == ("0.001", "as given")
    assert float(clip["Spent on trials FLOPs"]) == 3.6e12
    assert clip["runs"].split() == ["0" * 64, "1" * 64, "2" * 64]
    assert (sogclr[f"{score} suite's own"], sogclr["Chosen temperature"]) == ("failed", "0.16")
    assert ncu["Chosen learning rate"] == "missing"


def test_the_page_says_how_it_was_tuned(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    assert '<section id="tuning">' in page
    assert "learning rates 0.0005 to 0.008" in page
    assert "A trial has seed 1000, 40 % noise and a budget of 1.2e+12 flops." in page


@pytest.fixture(scope="module")
def halved(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A suite with spaces and two budgets."""
    store: Store = stores.write_store(tmp_path_factory.mktemp("halved"), seeds=(0,))
    plan = store.plan(SUITE)
    clip = {**trials(0.05, 0.07, 0.06), "points": 16, "default": 0.06, "score": 0.085, "edge": ["temperature"]}
    clip["outer"] = ["weight_decay", "temperature", "lr"]
    clip["chosen"] = {"lr": 0.001, "temperature": 0.4, "learnable_scale": False}
    sogclr = {**trials(0.05), "points": 16, "default": None, "edge": [], "outer": []}
    rungs = [{"budget": "10 epochs", "settings": 16, "seeds": [1000]}]
    rungs += [{"budget": "40 epochs", "settings": 4, "seeds": [1000, 1001, 1002]}]
    ranges = {"lr": [5e-4, 8e-3], "weight_decay": None}
    plan["tuning"] = {"rungs": rungs, "rate": 0.4, **ranges, "methods": {"clip": clip, "sogclr": sogclr}}
    for entry in plan["methods"]:
        entry["lr"] = 0.002
    store.write_plan(SUITE, plan)
    with stores.without_figures():
        build(SUITE, store)
    return store


def test_gain_edge_and_what_the_trials_saw(halved: Store) -> None:
    text = (halved.suite(SUITE) / "tables" / "tuning.csv").read_text()
    lines = {line["method"]: line for line in csv.DictReader(io.StringIO(text))}
    clip, sogclr = lines["clip"], lines["sogclr"]
    assert float(clip["trials"]) == 16
    assert float(clip["Validation, mean recall gain"]) == pytest.approx(0.025)
    assert clip["Chosen settings"] == "lr 0.001, temperature 0.4, learnable_scale false"
    assert (clip["Chosen at an edge"], sogclr["Chosen at an edge"]) == ("temperature", "no")
    assert (sogclr["Validation, mean recall gain"], sogclr["Chosen settings"]) == ("failed", "own")
    page = (halved.suite(SUITE) / "report.html").read_text()
    assert "16 settings at 10 epochs, then the best 4 at 40 epochs" in page
    assert "learning rates 0.0005 to 0.008 and the space of the method" in page
    assert "Trials have 40 % noise, and seeds 1000, 1001, 1002 at the last budget; " in page
    assert "validation pairs have clean captions. " in page
    assert "Best at an edge of its space, and worse away from it, so the space should be widened: CLIP. " in page
    assert "not counted, because a trial away from it scores within 3 % of the best: 2, in 1 of 2 methods." in page


def test_a_verdict_reads_which_rows_have_their_best_at_an_edge(halved: Store, folder: Path, three: Store) -> None:
    assert load(SUITE, halved).at_edge == {"clip": ["temperature"], "sogclr": []}
    assert load(SUITE, Store(folder.parent)).at_edge is None, "of a plan that was made before there were spaces"
    assert load(SUITE, three).at_edge is None


def test_a_suite_without_trials_has_no_such_table(three: Store) -> None:
    build(SUITE, three)
    assert not (three.suite(SUITE) / "tables" / "tuning.csv").exists()
