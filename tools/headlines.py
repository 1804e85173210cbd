"""Which number tells most apart for its seeds: candidates for a suite's headline, measured on validation pairs.

    python tools/headlines.py --results /tmp/pilot --n 10 pilot-20 pilot-40

Needs finished runs of a pilot with final weights: the baseline, its oracle and other methods, three seeds or more each.
Every candidate is measured on emoji/validation, so that the choice sees no test image. A line a candidate and noise:
the oracle's difference from the baseline, the standard deviation of differences over seeds (median over methods), the
difference that n seeds would show, and the first in units of the last: the resolution. Printed for each suite with the
seconds that a run trains, so that the cheapest budget can be chosen as well.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import numpy as np
import torch

from bench import data
from bench.catalogue.families.random_guess import CAPTIONS
from bench.evaluation import PROTOCOL
from bench.evaluation.features import Features
from bench.evaluation.measures import held_back
from bench.evaluation.retrieval import retrieve
from bench.evaluation.zero_shot import class_vectors, classify, inverse_temperature, log_likelihoods, prompts
from bench.models.stored_run import rebuild
from bench.store import Store
from bench.store.files import write_json
from reports.statistics.power import detectable

Values = dict[str, float]


def measured(store: Store, identity: str) -> Values:
    """Every candidate of one run, on validation pairs; the temperature is fitted on half of them."""
    kept = store.root / "headlines" / f"{identity}.json"
    if kept.exists():
        values: Values = json.loads(kept.read_text())
        return values
    run, towers, method = rebuild(store.run(identity), torch.device("cpu"))
    features = Features(method, towers, identity, PROTOCOL, None)
    pairs = data.load("emoji/validation", run.data.size)
    images = features.images(pairs)
    templates, names = data.templates(pairs), pairs.classes["concept"]
    classes = class_vectors(features.texts(prompts(names, templates)), len(templates))
    labels = torch.from_numpy(pairs.labels["concept"])
    ranks = classify(images, classes, labels, "cosine")
    fits = torch.from_numpy(held_back(pairs.keys, 0.5))
    half, rest = ({name: x[rows] for name, x in images.items()} for rows in (fits, ~fits))
    sharpness = inverse_temperature(half, labels[fits], classes, "cosine")
    logs = log_likelihoods(rest, labels[~fits], classes, "cosine", sharpness)
    captions = data.evaluation_captions(pairs, CAPTIONS)
    texts = features.texts([text for some in captions for text in some])
    found = retrieve(images, texts, np.repeat(np.arange(len(pairs)), CAPTIONS), "cosine")
    recalls = found.metrics()
    values = {
        "zero-shot top-1": float(ranks.hits(1).mean()),
        "zero-shot top-5": float(ranks.hits(5).mean()),
        "zero-shot MRR": float(ranks.reciprocal().mean()),
        "zero-shot log-likelihood": float(logs.mean()),
        "retrieval mean recall": recalls["mean_recall"],
        "retrieval mean R@1": recalls["mean_r1"],
        "retrieval T>I MRR": float(found.t2i.reciprocal().mean()),
    }
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_json(kept, values)
    return values


def lines(store: Store, suite: str, n: int) -> list[str]:
    """The table of one suite."""
    plan: Any = store.plan(suite)
    cells: dict[tuple[str, str], dict[int, Values]] = {}
    seconds = []
    for one in plan["cells"]:
        out = store.run(one["run"])
        if out.status()["state"] == "done":
            cells.setdefault((str(one["noise"]), one["method"]), {})[one["seed"]] = measured(store, one["run"])
            seconds.append(out.ledger()["train_seconds"])
    made = [f"{suite}: {len(seconds)} runs of {mean(seconds):.1f} s"]
    for noise in dict.fromkeys(noise for noise, _ in cells):
        rows = {label: values for (own, label), values in cells.items() if own == noise}
        made += [f"  {noise:<14} {_line(rows, name, n)}" for name in next(iter(rows["clip"].values()))]
    return made


def _line(rows: Mapping[str, Mapping[int, Values]], name: str, n: int) -> str:
    def differences(label: str) -> list[float]:
        seeds = sorted(rows[label].keys() & rows["clip"].keys())
        return [rows[label][seed][name] - rows["clip"][seed][name] for seed in seeds]

    base = mean(one[name] for one in rows["clip"].values())
    spread = median(stdev(differences(label)) for label in rows if label != "clip" and len(rows[label]) > 1)
    shown = detectable(n) * spread
    gap = mean(differences("oracle")) if "oracle" in rows else float("nan")
    return (
        f"{name:<26} clip {base:8.4f}  gap {gap:8.4f}  sd {spread:8.4f}  shown by {n}: {shown:8.4f}  "
        f"resolution {gap / shown:6.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--n", type=int, default=10, help="seeds of the comparison")
    parser.add_argument("suites", nargs="+")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for suite in asked.suites:
        print("\n".join(lines(Store(asked.results), suite, asked.n)), flush=True)


if __name__ == "__main__":
    main()
