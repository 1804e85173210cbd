"""Intervals over test concepts, from outcomes that evaluation's own functions made."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.evaluation.ranks import rank
from bench.evaluation.retrieval import retrieve
from bench.store import Record, RunStore, Store, writing
from reports.compare import compare
from reports.results import Results, RunResult, load
from reports.statistics.components import interval_over_both
from reports.statistics.concepts import DRAWS, Outcomes, concept_draws, contributions, over_examples
from reports.tables.table import signed

from . import stores

SUITE = "emoji_noisy"
SET = "emoji/iid"
CONCEPTS = np.repeat(np.arange(20), 3)  #: three styles of each
OWNER = np.repeat(np.arange(60), 2)  #: two captions an image
TOP1 = (SET, "zero_shot/concept", "top1")


def features(*key: int, rows: int) -> dict[str, torch.Tensor]:
    draws = torch.Generator().manual_seed(sum(part * 1000**place for place, part in enumerate(key)))
    return {"embedding": torch.nn.functional.normalize(torch.randn(rows, 6, generator=draws), dim=1)}


def write_outcomes(run: RunStore, quality: float, seed: int) -> None:
    """Zero-shot, probe and retrieval of random features that know a share of the truth."""
    truth = features(7, rows=20)["embedding"][torch.from_numpy(CONCEPTS)]
    noise = features(seed, int(100 * quality), rows=60)["embedding"]
    images = {"embedding": torch.nn.functional.normalize(quality * truth + noise, dim=1)}
    texts = {"embedding": images["embedding"][torch.from_numpy(OWNER)] + features(seed, 3, rows=120)["embedding"]}
    ranks = rank(images, features(7, rows=20), torch.from_numpy(CONCEPTS)[:, None], "cosine")
    found = retrieve(images, texts, OWNER)
    correct = ranks.hits(1) > 0.5
    tasks = {
        "zero_shot/concept": (
            {"top1": float(ranks.hits(1).mean()), "top5": float(ranks.hits(5).mean())},
            {"label": CONCEPTS, **ranks.outcomes("cosine_")},
        ),
        "linear_probe/style": ({"accuracy": float(correct.mean())}, {"correct": correct, "strength": np.array([1.0])}),
        "retrieval": (found.metrics(), {f"cosine_{name}": values for name, values in found.outcomes().items()}),
    }
    with writing(run) as out:
        for task, (values, outcomes) in tasks.items():
            score = "" if task == "linear_probe/style" else "cosine"
            records = [
                Record(run.id, 1.0, SET, task, metric, score, value, 60, None, None, True, "1", checkpoint="0" * 64)
                for metric, value in values.items()
            ]
            out.write_records(f"v1.100.{task.replace('/', '-')}.emoji-iid", records, outcomes)
        out.set_status("done", step=600, steps=600, stage="train")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Two methods, three seeds, outcomes of three tasks on one data set."""
    methods, seeds = stores.METHODS[:2], (0, 1, 2)
    store = Store(tmp_path_factory.mktemp("outcomes"))
    cells = [stores.plan_cell(label, 0.0, seed) for label, *_ in methods for seed in seeds]
    for cell in cells:
        write_outcomes(store.run(cell["run"]), 0.9 if cell["method"] == "clip" else 0.5, cell["seed"])
    store.write_plan(SUITE, stores.plan(SUITE, methods, (0.0,), seeds, cells))
    return load(SUITE, store)


def pairs_of(results: Results) -> list[tuple[Outcomes, Outcomes]]:
    noise = next(iter(results.noises))
    runs: list[list[RunResult]] = [results.of(label, noise) for label in ("clip", "siglip")]
    return [(Outcomes(a, "1"), Outcomes(b, "1")) for a, b in zip(*runs, strict=True)]


@pytest.mark.parametrize(
    ("task", "metric"),
    [
        ("zero_shot/concept", "top1"),
        ("zero_shot/concept", "top5"),
        ("linear_probe/style", "accuracy"),
        ("retrieval", "i2t_r5"),
        ("retrieval", "t2i_r1"),
        ("retrieval", "mean_recall"),
        ("retrieval", "mean_r1"),
    ],
)
def test_an_interval_is_the_bootstrap_of_whole_concepts(results: Results, task: str, metric: str) -> None:
    pairs, named, score = pairs_of(results), (SET, task, metric), "" if metric == "accuracy" else "cosine"
    found = over_examples(pairs, named, (score, score))
    ends = found.over_concepts
    drawn, parts = [], [(a.hits(named, score), b.hits(named, score)) for a, b in pairs]
    for draw in concept_draws(20)[:: DRAWS // 250]:
        repeats = [[np.repeat(values, draw[of].astype(int)).mean() for values, of in own] for own, _ in parts]
        others = [[np.repeat(values, draw[of].astype(int)).mean() for values, of in own] for _, own in parts]
        drawn.append(np.mean(repeats) - np.mean(others))
    assert ends == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.02)
    for (a, b), run in zip(parts, results.of("clip", next(iter(results.noises))), strict=True):
        record = run.find(*named, score)
        assert np.mean([values.mean() for values, _ in a]) == pytest.approx(record.value)
        assert len(a) == len(b) > 0


def test_compare_shows_it_beside_the_interval_over_seeds_and_says_what_it_is(results: Results) -> None:
    store = Store(results.runs[0].stored.folder.parents[1])
    comparison = compare(SUITE, store, "clip", "siglip")
    (line,) = [line for line in comparison.lines if line.what == "zero-shot emoji/iid concept top-1"]
    assert line.examples == over_examples(pairs_of(results), TOP1, ("cosine", "cosine"))
    both = (line.examples.over_concepts, line.examples.over_both)
    for low, high in both:
        assert low < line.gap < high
    text = comparison.text()
    (row,) = [row for row in text.splitlines() if row.startswith(f"  {line.what}")]
    shown = [" to ".join(map(signed, ends)) for ends in both]
    assert re.split("  +", row)[-2:] == shown
    assert "note: over both: 95 %, other seeds and other test concepts together, by variance components" in text
    assert "note: over concepts: 95 %, test concepts resampled with all of their images and captions" in text


def test_over_both_is_the_model_on_what_each_concept_adds(results: Results) -> None:
    """The mean over concepts of what they add is the seed's difference; the interval is that of the components."""
    pairs = pairs_of(results)
    hits = [(a.hits(TOP1, "cosine"), b.hits(TOP1, "cosine")) for a, b in pairs]
    differences = np.array([own[0][0] - other[0][0] for own, other in hits])
    concepts = hits[0][0][0][1]
    known, counts = np.unique(concepts, return_counts=True)
    sums = np.array([[one[concepts == concept].sum() for concept in known] for one in differences])
    added = contributions(sums, counts.astype(float))
    assert added.mean(axis=1) == pytest.approx(differences.mean(axis=1))
    deviations = (sums - differences.mean() * counts) / counts.mean()
    assert added - differences.mean() == pytest.approx(deviations)
    found = over_examples(pairs, TOP1, ("cosine", "cosine"))
    assert found.over_both == pytest.approx(interval_over_both(added))
    alone = over_examples(pairs[:1], TOP1, ("cosine", "cosine"))
    assert alone.over_both is None, "one seed says nothing about others"


def test_nothing_is_said_without_concepts_or_outcomes(results: Results, three: Store, tmp_path: Path) -> None:
    assert "over concepts" not in compare(SUITE, three, "clip", "sogclr").text()  # stored without outcomes
    pairs = pairs_of(results)
    assert over_examples(pairs, ("digits/test", "linear_probe/digit", "accuracy"), ("", "")) is None
    assert over_examples(pairs, (SET, "zero_shot/concept", "auroc"), ("cosine", "cosine")) is None
    assert over_examples(pairs, TOP1, ("csd", "cosine")) is None
    assert over_examples([], TOP1, ("cosine", "cosine")) is None
    under_another_protocol = [(Outcomes(results.runs[0], "2"), pairs[0][1])]
    assert over_examples(under_another_protocol, TOP1, ("cosine", "cosine")) is None
    missing = replace(results.runs[0], records={}, stored=Store(tmp_path).run("0" * 64))
    assert Outcomes(missing, "1").hits(TOP1, "cosine") is None


def test_damaged_outcomes_are_named_and_the_rest_is_compared(results: Results, tmp_path: Path) -> None:
    shutil.copytree(results.runs[0].stored.folder.parents[1], tmp_path / "copy")
    store = Store(tmp_path / "copy")
    path = store.run(results.of("clip", next(iter(results.noises)))[1].run).path(
        "evaluations/v1.100.zero_shot-concept.emoji-iid/outcomes.npz"
    )
    content = path.read_bytes()
    path.write_bytes(content[:80] + bytes(byte ^ 255 for byte in content[80:120]) + content[120:])
    comparison = compare(SUITE, store, "clip", "siglip")
    assert [one for one in comparison.damaged if str(path) in one]
    assert {line.examples for line in comparison.lines} == {None}  # it holds the concepts of the data set
    assert all(line.test for line in comparison.lines if line.gap is not None)
    assert str(path) in comparison.text()
