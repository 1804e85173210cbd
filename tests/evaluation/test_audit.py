"""The audit of training data: its interval holds known shares, and a stored run is audited."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.cli import app
from bench.errors import UserError
from bench.evaluation.noise.audit import estimate_wrong_share
from bench.store import Store

from .audit_coverage import coverage


@pytest.mark.parametrize(
    ("separation", "share", "injected", "others"),
    [
        (2.0, 0.05, 1000, 1000),
        (2.0, 0.5, 300, 300),
        (3.0, 0.2, 1000, 5000),
        (4.0, 0.05, 5000, 5000),
        (4.0, 0.5, 300, 5000),
    ],
)
def test_the_interval_holds_the_share_as_often_as_it_says(
    separation: float, share: float, injected: int, others: int
) -> None:
    """Of 400 draws 95 %, give or take three standard errors."""
    held, _, _ = coverage(separation, share, injected, others, 400)
    assert 0.917 <= held <= 0.983


def test_a_model_that_tells_too_little_apart_gives_an_upper_end_alone() -> None:
    rng = np.random.default_rng(0)
    injected, others = rng.normal(0, 1, 1000), rng.normal(np.where(np.arange(4000) < 400, 0, 1), 1)
    found = estimate_wrong_share(injected, others)
    assert found.auroc < 0.9
    assert found.interval[0] == 0 < 0.1 < found.interval[1]
    assert coverage(3.0, 0.2, 1000, 1000, 50)[1] == 0, "both ends where it tells them apart"


def test_only_the_order_of_confidences_matters() -> None:
    rng = np.random.default_rng(1)
    injected, others = rng.normal(0, 1, 300), rng.normal(2, 1, 900)
    assert estimate_wrong_share(injected, others) == estimate_wrong_share(np.exp(injected), np.exp(others))


def test_extremes_have_intervals() -> None:
    same, apart = np.arange(500.0), np.arange(500.0) + 1000
    assert estimate_wrong_share(same, apart).share == 0 == estimate_wrong_share(same, apart).interval[0]
    assert 0.01 < estimate_wrong_share(same, apart).interval[1] < 0.1
    assert estimate_wrong_share(same, same).share == 1 == estimate_wrong_share(same, same).interval[1]
    assert estimate_wrong_share(apart, same).interval[1] == 1, "more suspicious than injected ones"


def test_what_cannot_be_audited_is_refused() -> None:
    few, many = np.arange(20.0), np.arange(200.0)
    with pytest.raises(UserError, match="20 injected and 200 other pairs; an audit needs 100 of each"):
        estimate_wrong_share(few, many)
    with pytest.raises(FloatingPointError):
        estimate_wrong_share(many, np.full(200, np.nan))


SUITE = """\
name: tiny
budget: {samples: 48}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [noise_detection]}
noise: {kind: shuffled_captions, rates: [0.2]}
methods: [clip]
"""


def called(store: Store, *arguments: object) -> str:
    (run,) = store.runs()
    done = CliRunner().invoke(app, ["noise", "audit", run.id[:12], "--results", str(store.root), *map(str, arguments)])
    if done.exception is not None:
        raise done.exception
    return done.output


def test_a_stored_run_is_audited_with_list_and_page(tmp_path: Path, unreported: Callable[[Path, str], Path]) -> None:
    (tmp_path / "tiny.yaml").write_text(SUITE)
    unreported(tmp_path, "tiny")
    CliRunner().invoke(app, ["run", str(tmp_path / "tiny.yaml"), "--results", str(tmp_path)], catch_exceptions=False)
    store = Store(tmp_path)
    assert re.match(r"emoji/train: at most \d+\.\d% \(95 %\) of 3,172 pairs are wrong", called(store)), (
        "nothing is learned"
    )
    (path,) = tmp_path.glob("runs/*/evaluations/*noise_detection*/outcomes.npz")
    noisy = np.load(path)["noisy"]
    rng = np.random.default_rng(0)
    suspect = ~noisy & (rng.random(len(noisy)) < 0.1)  # as if these had been wrong before, and the model had learned
    confidence = rng.normal(np.where(noisy | suspect, 0, 3), 1).astype(np.float32)
    np.savez(path, confidence=confidence, noisy=noisy)
    table, page = tmp_path / "pairs.csv", tmp_path / "page.html"
    lines = called(store, "--csv", table, "--html", page, "--count", 12).splitlines()
    share = r"(\S+)% to (\S+)% \(95 %, most likely (\S+)%\) of 3,172 pairs are wrong"
    said = re.fullmatch(rf"emoji/train: {share}, if they look like the 793 injected ones", lines[0])
    assert said is not None, lines
    low, high, share = (float(number) / 100 for number in said.groups())
    assert low < suspect[~noisy].mean() < high
    assert abs(share - suspect[~noisy].mean()) < 0.04
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == (~noisy).sum()
    confidences = [float(row["confidence"]) for row in rows]
    assert confidences == sorted(confidences)
    text = page.read_text()
    assert text.count("<img ") == 12
    assert rows[0]["caption"] in text
    assert "http" not in text.replace("http-equiv", "")
    np.savez(path, confidence=confidence, noisy=noisy[::-1])
    with pytest.raises(UserError, match="trained on other pairs than those of emoji/train here; put its data back"):
        called(store)
    shutil.rmtree(path.parent)
    with pytest.raises(UserError, match=r"stored no confidences; add noise_detection to evaluate\.tasks and"):
        called(store)
    settings = path.parents[2] / "settings.json"
    settings.write_text(settings.read_text().replace("shuffled_captions", "edited_captions"))
    with pytest.raises(UserError, match="its noise swaps no captions, so no wrong pairs are known; audit a run with"):
        called(store)
