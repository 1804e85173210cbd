"""Rows that keep the pairs which a reference run scores highest: what is kept, what it costs, what a kill leaves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import bench
from bench.catalogue.keep import KEEPS, SelectionInputs
from bench.data.noise.manifest import NoiseManifest
from bench.errors import UserError
from bench.models.stored_run import rebuild_model
from bench.planning import tune
from bench.planning.planner import Planner, plan
from bench.planning.trial_settings import settings_of
from bench.store import RunStore, Store
from bench.store.writer import KEPT_FILE
from bench.suite.suite import Suite, load_suite
from bench.towers.build import normalise
from bench.training.inputs import InputsReader
from reports.results import load
from reports.tables.suite_tables import spent, tables

SUITE = """\
name: scored
noise: {rates: [0.4]}
budget: {samples: 320}
budget_rule: additional
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 32, bn_group: 16, threads: 1, lr: 3.0e-3}
evaluate: {tasks: [noise_detection]}
methods:
- clip
- {method: clip, label: filtered, keep: {kind: score, share: 0.6}}
- {method: clip, label: stricter, keep: {kind: score, share: 0.3}}
"""


def suite_in(folder: Path, *overrides: str) -> Suite:
    file = folder / "scored.yaml"
    file.write_text(SUITE)
    return load_suite(file, overrides)


def run_it(folder: Path, out: Path, *overrides: str, only: Sequence[str] = ()) -> None:
    """Run the suite without its report, which no test here reads."""
    assert not bench.run_suite(suite_in(folder, *overrides), out, only=only).failed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    run_it(folder, folder / "out")
    return folder


def runs_of(store: Store) -> dict[str, RunStore]:
    return {run.method: run.stored for run in load("scored", store).runs}


def test_the_rows_of_highest_cosine_are_kept(made: Path) -> None:
    """Against the definition, written out: the scorer's own encoders on the pairs as training sees them."""
    runs = runs_of(Store(made / "out"))
    run, towers, method = rebuild_model(runs["clip"], torch.device("cpu"))
    inputs = InputsReader().inputs(run)
    assert isinstance(inputs.noise, NoiseManifest)
    rows = np.arange(len(inputs.pairs))
    texts = [texts[0] for texts in inputs.noise.texts(inputs.pairs, rows)]
    for part in (towers, method):
        part.eval()  # type: ignore[attr-defined]
    with torch.no_grad():
        images = normalise(inputs.pairs.images(rows), torch.device("cpu"), towers.channels)
        image = method.image_features(towers, images)["embedding"]
        text = method.text_features(towers, towers.tokenize(texts))["embedding"]
    cosine = (image * text).sum(1).numpy()
    previous: set[int] = set()
    for label, share in (("stricter", 0.3), ("filtered", 0.6)):
        table = pq.read_table(runs[label].path(KEPT_FILE))
        kept = table["row"].to_numpy()
        assert len(kept) == np.ceil(share * len(rows))
        assert np.allclose(table["score"].to_numpy(), cosine[kept], atol=1e-5)
        assert cosine[kept].min() >= np.delete(cosine, kept).max() - 1e-5
        assert previous <= set(kept.tolist()), "kept sets nest"
        previous = set(kept.tolist())
        assert table["key"].to_pylist() == [inputs.pairs.keys[row] for row in kept]


FILTERS = """\
methods=[clip, rcl,
{method: siglip, label: by rcl, keep: {kind: score, share: 0.6, by: rcl}},
{method: clip, label: s_clip_loss, keep: {kind: s_clip_loss, share: 0.6}},
{method: rcl, label: norm_sim, keep: {kind: norm_sim, share: 0.6}},
{method: clip, label: clean teacher, keep: {kind: score, share: 0.6, teacher: given_clean}}]
"""


def test_every_filter_keeps_the_rows_of_its_own_score(tmp_path: Path) -> None:
    """Against numpy, for the confidence of a row, s-CLIPLoss, NormSim, and a scorer of clean pairs."""
    run_it(tmp_path, tmp_path / "out", FILTERS)
    runs = runs_of(Store(tmp_path / "out"))
    noisy = InputsReader().inputs(rebuild_model(runs["clip"], torch.device("cpu"))[0])
    assert isinstance(noisy.noise, NoiseManifest)
    rows = np.arange(len(noisy.pairs))
    texts = [texts[0] for texts in noisy.noise.texts(noisy.pairs, rows)]

    def features(stored: RunStore) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        _, towers, method = rebuild_model(stored, torch.device("cpu"))
        for part in (towers, method):
            part.eval()  # type: ignore[attr-defined]
        with torch.no_grad():
            images = normalise(noisy.pairs.images(rows), torch.device("cpu"), towers.channels)
            image, text = method.image_features(towers, images), method.text_features(towers, towers.tokenize(texts))
        return method, image, text

    by_rcl = features(runs["rcl"])
    _, image, text = features(runs["clip"])
    v, t = (side["embedding"].double().numpy() for side in (image, text))
    s = v @ t.T
    apart = [(one - np.diag(s)[:, None]) / 0.01 for one in (s, s.T)]
    loss = -0.005 * sum(np.log(np.exp(one - one.max(1, keepdims=True)).sum(1)) + one.max(1) for one in apart)
    with torch.no_grad():
        confidence = by_rcl[0].confidence(by_rcl[1], by_rcl[2]).double().numpy()
    norm = np.sqrt(((v @ v.T) ** 2).sum(1))  # fewer pairs than the targets at most
    store = Store(tmp_path / "out")
    clean = store.run(runs["clean teacher"].settings()["address"]["reference"])
    assert clean.settings()["noise"]["rate"] == 0.0
    _, image, text = features(clean)
    cosine = (image["embedding"] * text["embedding"]).sum(1).numpy()
    asked = {"by rcl": confidence, "s_clip_loss": loss, "norm_sim": norm, "clean teacher": cosine}
    for label, score in asked.items():
        table = pq.read_table(runs[label].path(KEPT_FILE))
        kept = table["row"].to_numpy()
        assert len(kept) == np.ceil(0.6 * len(rows)), label
        assert np.allclose(table["score"].to_numpy(), score[kept], rtol=1e-4, atol=1e-4), label
        assert score[kept].min() >= np.delete(score, kept).max() - 1e-4, label
    assert len({tuple(pq.read_table(runs[label].path(KEPT_FILE))["row"].to_pylist()) for label in asked}) == len(asked)
    notes = {note for table in tables(load("scored", store)) for note in table.footnotes}
    assert any(note.startswith("by rcl: trained on the pairs of highest confidence under") for note in notes)
    assert any("clean teacher: " in note and "trained on clean pairs on top of its budget" in note for note in notes)


def test_precision_and_recall_of_the_choice_are_measured(made: Path) -> None:
    results = load("scored", Store(made / "out"))
    for run in results.runs:
        found = {record.metric: record.value for record in run.records.values()}
        if run.method == "clip":
            assert "kept_precision" not in found
            continue
        noise = pq.read_table(run.stored.path("noise.parquet"))
        kept = pq.read_table(run.stored.path(KEPT_FILE))["row"].to_numpy()
        n = json.loads(noise.schema.metadata[b"noise"])["n"]
        clean = np.setdiff1d(np.arange(n), noise["row"].to_numpy())
        right = len(np.intersect1d(kept, clean))
        assert found["kept_precision"] == pytest.approx(right / len(kept))
        assert found["kept_recall"] == pytest.approx(right / len(clean))


def test_the_scorer_is_the_baselines_run_and_both_are_charged(made: Path) -> None:
    store = Store(made / "out")
    runs, settings = runs_of(store), {}
    results = load("scored", store)
    for run in results.runs:
        settings[run.method] = run.stored.settings()
        assert run.reference == (None if run.method == "clip" else runs["clip"].id)
    ledger, paid = runs["filtered"].ledger(), runs["clip"].ledger()
    scoring = settings["filtered"]["resolved"]["scoring_flops"]
    n = len(InputsReader().inputs(suite_in(made).runs()[0]).pairs)
    assert scoring > 0
    assert ledger["scoring"]["image_forwards"] == ledger["scoring"]["text_forwards"] == n
    assert ledger["scoring"]["train_seconds"] > 0
    assert spent(ledger, "flops") == ledger["flops"] + paid["flops"] + scoring
    assert ledger["over_budget"] is False
    (said,) = {note for table in tables(results) for note in table.footnotes if note.startswith("filtered: ")}
    assert said.startswith(
        "filtered: trained on the pairs of highest cosine under a reference run, a shared run of clip"
    )


def test_under_the_total_rule_the_budget_pays_for_scorer_and_scores(tmp_path: Path) -> None:
    store = Store(tmp_path / "out")
    for budget in ("samples: 192000", "flops: 1.0e+13", "epochs: 60"):
        overrides = (f"budget={{{budget}}}",)
        free = {one.run.label: one for one in plan(suite_in(tmp_path, *overrides).runs(), store)}
        paid = {one.run.label: one for one in plan(suite_in(tmp_path, *overrides, "budget_rule=total").runs(), store)}
        assert paid["clip"].resolved == free["clip"].resolved
        scorer, scored = paid["clip (reference)"].resolved, paid["filtered"].resolved
        assert scored.scoring_flops == free["filtered"].resolved.scoring_flops
        whole = scorer.flops + scored.flops + scored.scoring_flops
        assert whole == pytest.approx(free["clip"].resolved.flops, rel=0.01)
        assert free["filtered"].resolved.steps == free["clip"].resolved.steps
        assert len({one.id for one in (*free.values(), *paid.values())}) == 6, "clip alone is in both"
    with pytest.raises(
        UserError, match=r"budget.samples: scoring [\d,]+ pairs takes .* FLOPs, and the budget is .*; increase it"
    ):
        plan(suite_in(tmp_path, "budget={samples: 256}", "budget_rule=total").runs(), store)


def test_identities(tmp_path: Path) -> None:
    """A share of 1 changes no run; another share, scorer, rule or seed is another run; costs need no data."""
    store = Store(tmp_path / "out")

    def ids(*overrides: str) -> dict[str, str]:
        return {one.run.label: one.id for one in plan(suite_in(tmp_path, *overrides).runs(), store)}

    share = "methods.1.keep.share"
    assert set(ids(f"{share}=1.0")) == {"clip", "stricter"}, "the run without a selection is one run"
    found = [ids()["filtered"], ids(f"{share}=0.5")["filtered"], ids("seeds=[1]")["filtered"]]
    found += [ids("methods.0.lr=1.0e-3")["filtered"], ids("data.keep_rule=passes")["filtered"]]
    assert len(set(found)) == len(found)
    assert ids("noise.rates=[0.2]")["filtered"] not in found
    away = ("data.name=far", "data.rows=1000", "train.augment=none", "budget={epochs: 4}")
    planned = {one.run.label: one.resolved for one in Planner(store, here=False).plan(suite_in(tmp_path, *away).runs())}
    assert planned["filtered"].epoch_steps == 600 // 32
    assert planned["filtered"].scoring_flops > 0


def test_a_method_that_starts_from_a_run_is_scored_by_it(tmp_path: Path) -> None:
    file = tmp_path / "scored.yaml"
    file.write_text(SUITE + "- {method: ncu, keep: {kind: score, share: 0.5}}\n")
    run = load_suite(file).runs()[-1]
    assert run.label == "ncu"
    assert run.reference is not None
    assert not run.reference.selects_data
    assert [one.reference is None for one in load_suite(file).runs()] == [True, False, False, False]


def test_every_rank_trains_on_the_recorded_rows(
    tmp_path: Path, start_bench: Callable[..., Any], unreported: Callable[[Path, str], Path]
) -> None:
    """Two real processes; then one process goes on with the same record, and sees the same batches."""
    suite_in(tmp_path)
    start = ("run", tmp_path / "scored.yaml", "--results", unreported(tmp_path / "out", "scored"), "--processes", 2)
    code, output = start_bench(*start, "--only", "filtered", "--set", "budget.samples=320").finish()
    assert code == 0, output
    run = next(run for label, run in runs_of(Store(tmp_path / "out")).items() if label == "filtered")
    together, record = [line["loss"] for line in run.metrics()], run.path(KEPT_FILE).read_bytes()
    unfinish(run)
    run_it(tmp_path, tmp_path / "out", "budget.samples=320", only=["filtered"])
    assert run.path(KEPT_FILE).read_bytes() == record
    alone = [line["loss"] for line in run.metrics()]
    assert alone[0] == pytest.approx(together[0], rel=1e-5), "another batch on one rank"
    assert alone == pytest.approx(together, rel=0.05)  # AdamW's first steps turn last bits into whole steps


def test_trials_of_a_filtered_row_wait_for_the_baselines_choice_and_are_scored_by_it(tmp_path: Path) -> None:
    suite = suite_in(tmp_path, "tune={trials: 2, budget: {samples: 320}}", "methods.0.config={temperature: 0.1}")
    first, late = tune.stages(suite)
    assert [entry.label for entry in first] == ["clip"]
    assert [entry.label for entry in late] == ["filtered", "stricter"]
    chosen = tune.Choice((), (({"lr": 1e-3}, 0.5),), {})
    assert suite.tune is not None
    asked = {entry.label: dict(enumerate(settings_of(suite.tune, entry))) for entry in late}
    for run in tune.trial_suite(suite, asked, {"clip": chosen}).runs():
        if run.label.startswith(("filtered", "stricter")):
            assert run.reference is not None
            assert run.reference.train.lr == 1e-3, "the baseline as it was chosen"
            assert run.reference.config["temperature"] == 0.1
            assert not run.reference.selects_data


@pytest.fixture
def again(made: Path, tmp_path: Path) -> Callable[[str], RunStore]:
    """A store in which one run of those made is made once more, after its folder was changed."""
    shutil.copytree(made / "out", tmp_path / "out")
    store = Store(tmp_path / "out")
    return lambda label: runs_of(store)[label]


def bytes_of(run: RunStore) -> list[bytes]:
    return [run.path(name).read_bytes() for name in ("metrics.jsonl", "weights-100.safetensors")]


def unfinish(run: RunStore) -> None:
    """Leave what a kill before the first checkpoint leaves."""
    for path in run.folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in ("settings.json", "noise.parquet", KEPT_FILE):
            path.unlink()


def test_a_killed_run_goes_on_with_the_rows_that_it_recorded(again: Callable[[str], RunStore], tmp_path: Path) -> None:
    run = again("filtered")
    before, recorded = bytes_of(run), run.path(KEPT_FILE).read_bytes()
    unfinish(run)
    run_it(tmp_path, tmp_path / "out")
    assert run.path(KEPT_FILE).read_bytes() == recorded, "not scored again"
    assert bytes_of(run) == before


@pytest.mark.parametrize("content", [b"", b"PAR1 cut", None])
def test_a_damaged_record_is_moved_aside_and_made_again(
    again: Callable[[str], RunStore], tmp_path: Path, content: bytes | None
) -> None:
    run = again("filtered")
    before = bytes_of(run)
    unfinish(run)
    if content is None:  # sound Parquet about other rows
        table = pq.read_table(run.path(KEPT_FILE))
        pq.write_table(table.set_column(1, "row", [np.arange(len(table))]), run.path(KEPT_FILE))
    else:
        run.path(KEPT_FILE).write_bytes(content)
    run_it(tmp_path, tmp_path / "out")
    assert run.status()["state"] == "done"
    assert run.path(f"{KEPT_FILE}.damaged-1").exists()
    assert bytes_of(run) == before


def test_a_score_that_is_not_finite_is_refused() -> None:
    scores = np.array([0.1, np.nan])
    with pytest.raises(ValueError, match="a score is NaN or infinite"):
        KEEPS["score"].choose(SelectionInputs(["a", "b"], None, 0, 0.5, None, scores))
