"""The audit of training data: known shares of wrong pairs are estimated, and a stored run is audited."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.cli import app
from bench.errors import UserError
from bench.evaluation.noise.audit import Audit, audit
from bench.store import Store


def mixed(share: float, mean: float, seed: int = 0, n: int = 4000, skewed: bool = False) -> tuple[Audit, np.ndarray]:
    """Audit n pairs with a known share of wrong ones, beside 1,000 injected ones; return also which are wrong."""
    rng = np.random.default_rng(seed)
    wrong = rng.random(n) < share
    right = mean * rng.gamma(4, 1 / 4, n) + rng.normal(0, 0.5, n) if skewed else rng.normal(mean, 0.8, n)
    others = np.where(wrong, rng.normal(0, 1, n), right)
    return audit(*(np.tanh(x / 3) for x in (rng.normal(0, 1, 1000), others))), wrong


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.4])
def test_a_known_share_is_estimated_from_a_model_that_tells_pairs_apart(share: float, skewed: bool) -> None:
    result, wrong = mixed(share, 3.0, skewed=skewed)
    low, high = result.interval
    assert abs(result.share - wrong.mean()) < (0.05 if skewed else 0.02)
    assert low - 0.01 <= wrong.mean() <= high
    assert high - low < 0.12
    if share:
        assert result.wrong[wrong].mean() > result.wrong[~wrong].mean() + 0.5
        assert abs(result.wrong.mean() - result.share) < 0.02, "the probabilities add up to the share"


def test_a_poorer_model_gives_a_wider_interval_that_holds_the_share() -> None:
    results = [mixed(0.2, mean)[0].interval for mean in (1.3, 3.0)]
    assert results[0][0] <= 0.2 <= results[0][1]
    widths = [high - low for low, high in results]
    assert widths[0] > 1.5 * widths[1]


def test_only_the_order_of_confidences_matters_and_the_same_call_gives_the_same() -> None:
    rng = np.random.default_rng(1)
    injected, others = rng.normal(0, 1, 300), rng.normal(2, 1, 900)
    one, other = audit(injected, others), audit(np.exp(injected), np.exp(others))
    assert (one.share, one.interval, one.auroc) == (other.share, other.interval, other.auroc)
    assert (np.diff(one.wrong[np.argsort(others)]) <= 0).all(), "a higher confidence is never more suspicious"


def test_what_cannot_be_audited_is_refused() -> None:
    few, many = np.arange(20.0), np.arange(200.0)
    with pytest.raises(UserError, match="20 injected and 200 other pairs; an audit needs 50 of each"):
        audit(few, many)
    with pytest.raises(UserError, match=r"told apart with AUROC 0\.50, 0\.7 is needed; train longer"):
        audit(many, many)
    with pytest.raises(FloatingPointError):
        audit(many, np.full(200, np.nan))


SUITE = """\
name: tiny
budget: {samples: 48}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [noise_detection]}
noise: NOISE
methods: [clip]
"""


def stored(folder: Path, noise: str) -> Store:
    (folder / "tiny.yaml").write_text(SUITE.replace("NOISE", noise))
    CliRunner().invoke(app, ["run", str(folder / "tiny.yaml"), "--results", str(folder)], catch_exceptions=False)
    return Store(folder)


def called(store: Store, *arguments: object) -> str:
    (run,) = store.runs()
    done = CliRunner().invoke(app, ["noise", "audit", run.id[:12], "--results", str(store.root), *map(str, arguments)])
    if done.exception is not None:
        raise done.exception
    return done.output


def test_a_stored_run_is_audited_with_list_and_page(tmp_path: Path) -> None:
    store = stored(tmp_path, "{kind: shuffled_captions, rates: [0.2]}")
    with pytest.raises(UserError, match=r"told apart with AUROC 0\.\d\d, 0\.7 is needed"):  # three steps teach nothing
        called(store)
    (path,) = tmp_path.glob("runs/*/evaluations/*noise_detection*/outcomes.npz")
    noisy = np.load(path)["noisy"]
    rng = np.random.default_rng(0)
    suspect = ~noisy & (rng.random(len(noisy)) < 0.1)  # as if these had been wrong before, and the model had learned
    np.savez(path, confidence=rng.normal(np.where(noisy | suspect, 0, 3), 1).astype(np.float32), noisy=noisy)
    table, page = tmp_path / "pairs.csv", tmp_path / "page.html"
    lines = called(store, "--csv", table, "--html", page, "--count", 12).splitlines()
    share = float(re.search(r"most likely ([\d.]+)%", lines[0])[1]) / 100  # type: ignore[index]
    assert abs(share - suspect[~noisy].mean()) < 0.02
    assert lines[0].endswith(
        f"as far as wrong pairs look like the {noisy.sum()} that run {next(iter(store.runs())).id[:16]} trained with"
    )
    assert lines[2].startswith("  check: with half of the injected pairs hidden among the others, ")
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == (~noisy).sum()
    assert suspect[[int(row["row"]) for row in rows[:100]]].mean() > 0.95
    assert float(rows[0]["wrong"]) > 0.9
    text = page.read_text()
    assert text.count("<img ") == 12
    assert "http" not in text.replace("http-equiv", "")


def test_a_run_without_swapped_captions_is_no_calibration(tmp_path: Path) -> None:
    store = stored(tmp_path, "{kind: edited_captions, rates: [0.5]}")
    with pytest.raises(
        UserError, match="its noise, edited_captions, does not swap captions; audit a run with shuffled"
    ):
        called(store)
