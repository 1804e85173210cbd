"""Stores with real records of made-up numbers, written through the store's own functions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from bench.hashing import digest as address_digest
from bench.store import Record, RunWriter, Store, files, writing
from bench.store.histograms import store_diagnostics
from methods.protocol import Diagnostic

STYLES = ("openmoji", "openmoji-black", "fluent-high-contrast", "emojione-monotone", "near")
CHANCE = 1 / 750
RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "mean_recall", "mean_r1")
#: what the emoji suites measure at the end of a run; the first two along the way as well
MEASURES: tuple[tuple[str, str, tuple[str, ...], float], ...] = (
    ("emoji/iid", "zero_shot/concept", ("top1", "top5"), 0.25),
    ("emoji/iid", "zero_shot/subgroup", ("top1", "top5"), 0.3),
    ("emoji/novel", "zero_shot/concept", ("top1", "top5"), 0.13),
    ("emoji/novel", "zero_shot/subgroup", ("top1", "top5"), 0.2),
    *((f"emoji/{style}", "shift/concept", ("top1", "top5"), 0.1 - 0.015 * i) for i, style in enumerate(STYLES)),
    ("emoji/iid", "linear_probe/subgroup", ("accuracy",), 0.4),
    ("emoji/iid", "linear_probe/style", ("accuracy",), 0.8),
    ("digits/test", "linear_probe/digit", ("accuracy",), 0.9),
    ("emoji/iid", "retrieval", RECALLS, 0.3),
    ("emoji/openmoji", "retrieval", RECALLS, 0.15),
    ("emoji/train", "noise_detection", ("auroc", "average_precision"), 0.75),
)
PLAIN = ("linear_probe/subgroup", "linear_probe/style", "linear_probe/digit", "noise_detection")
METHODS: tuple[tuple[str, str, float, str], ...] = (  # label, title, quality, score
    ("clip", "CLIP", 1.0, "cosine"),
    ("siglip", "SigLIP", 0.97, "cosine"),
    ("permutation_0.1", "Label permutation", 1.08, "cosine"),
    ("sogclr", "SogCLR", 1.15, "cosine"),
    ("bayes", "Bayesian weights", 1.16, "cosine"),
    ("ncu", "NCU", 0.9, "cosine"),
    ("prolip", "ProLIP", 1.05, "csd"),
)
#: what a row labelled "oracle" keeps of the pairs; it is the baseline's method
ORACLE = {"label": "oracle", "about": "the pairs known to be clean", "uses": "the truth", "rule": "samples"}
ENVIRONMENT = {
    "packages": {"torch": "2.13.0", "numpy": "2.3.5"},
    "python": "3.11.9",
    "commit": "0123456789abcdef",
    "hardware": {"device": "a CPU", "cores": 2, "threads": 1},
}


def draw(*key: object) -> float:
    """A number in [-1, 1) that depends on the key only."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:6], "big") / 2**47 - 1


def write_store(root: Path, **what: Any) -> Store:
    """As `_write_store`, without waiting for the disk: nobody pulls the plug on a test."""
    with mock.patch.object(files, "sync"):
        return _write_store(root, **what)


def _write_store(
    root: Path,
    suite: str = "emoji_noisy",
    methods: Sequence[tuple[str, str, float, str]] = METHODS,
    rates: Sequence[float] = (0.0, 0.4),
    seeds: Sequence[int] = (0, 1, 2),
    curve: Sequence[float] = (0.25, 0.5, 0.75),
    states: Mapping[tuple[str, float, int], str] | None = None,
    over_budget: Sequence[str] = (),
    other_torch: Sequence[str] = (),
    diagnostics: bool = True,
    checkable: bool = False,
) -> Store:
    """A suite's plan and its runs; `states` names runs that are not done, by (label, rate, seed).

    Runs that are `checkable` have what an import checks: settings that their ids follow from, and hashes.
    """
    store = Store(root)
    cells = []
    for label, _, quality, score in methods:
        for rate in rates:
            for seed in seeds:
                cell = plan_cell(label, rate, seed)
                address = {"method": label.partition("_")[0], "label": label, "rate": rate, "seed": seed}
                cells.append(cell | ({"run": address_digest(address)} if checkable else {}))
                cell = cells[-1]
                run = store.run(cell["run"])
                state = (states or {}).get((label, rate, seed), "done")
                reference = label == "ncu"
                points = {"done": (*curve, 1.0), "missing": (), "failed": curve[:1]}.get(state, curve[:2])
                with writing(run) if state != "missing" else nullcontext() as out:
                    for at in points:
                        write_evaluations(out, quality, score, rate, seed, at)
                    if state == "done":
                        torch_version = "2.14.1" if label in other_torch else "2.13.0"
                        out.write_json("environment.json", {**ENVIRONMENT, "packages": {"torch": torch_version}})
                        out.write_json("ledger.json", ledger(quality, seed, reference, label in over_budget))
                        if diagnostics:
                            write_diagnostics(out, label, rate, seed)
                    if checkable and state != "missing":
                        out.write_settings({"id": out.id, "address": address, **address})
                    write_state(out, state, cell["steps"])
    store.write_plan(suite, plan(suite, methods, rates, seeds, cells))
    return store


def without_figures() -> AbstractContextManager[Any]:
    """Reports written in this context have no figures; only for a store that no other test draws from."""
    return mock.patch("reports.build.draw_all", lambda _results, _learned, names, _widths: dict.fromkeys(names))


def plan_cell(label: str, rate: float, seed: int) -> dict[str, Any]:
    """One cell of the plan, as the suite's planner writes it."""
    digest = hashlib.sha256(f"noise {rate} {seed}".encode()).hexdigest()
    return {
        "method": label,
        "noise": noise_label(rate),
        "seed": seed,
        "run": hashlib.sha256(f"{label} {rate} {seed}".encode()).hexdigest(),
        "reference_run": hashlib.sha256(f"clip-half {rate} {seed}".encode()).hexdigest() if label == "ncu" else None,
        "steps": 600,
        "phases": [{"name": "train", "steps": 600}],
        "manifest": {"hash": digest, "realised_rate": rate, "rows": round(rate * 4500)} if rate else None,
        "kept_rows": None,
        "evaluations": [],
    }


def noise_label(rate: float) -> str:
    return f"{100 * rate:g} % shuffled captions"


def write_state(run: RunWriter, state: str, steps: int) -> None:
    if state == "failed":
        error = {"type": "NotFinite", "message": "the loss is nan", "step": 312, "term": "forget"}
        run.set_status("failed", step=312, steps=steps, stage="train", error=error)
    elif state != "missing":
        run.set_status(state, step=steps if state == "done" else 400, steps=steps, stage="train")


def write_evaluations(run: RunWriter, quality: float, score: str, rate: float, seed: int, at: float) -> None:
    """Everything a run measures at one share of its budget: along the way, only zero-shot on the held-out pairs."""
    for dataset, task, metrics, base in MEASURES if at == 1 else MEASURES[:2]:
        if task == "noise_detection" and not rate:
            continue
        scores = [""] if task in PLAIN else ["cosine", *([score] if score != "cosine" else [])]
        records = []
        for metric in metrics:
            for name in scores:
                wide = 1.0 if metric in ("top1", "accuracy", "auroc", "i2t_r1", "t2i_r1") else 1.7
                level = base * quality * wide * (1 - 0.9 * rate) * (0.35 + 0.65 * at**0.5)
                level *= 0.93 if name == "cosine" and score != "cosine" else 1.0
                value = min(0.99, level + 0.006 * draw(run.id, task, metric) + 0.01 * draw(seed, dataset, task))
                low, high = max(0.0, value - 0.03), min(1.0, value + 0.03)
                records.append(
                    Record(
                        run.id, at, dataset, task, metric, name, value, 420, low, high, True, "1",
                        checkpoint=hashlib.sha256(f"{run.id} {at}".encode()).hexdigest(),
                    )
                )  # fmt: skip
        run.write_records(f"{task}@{dataset}@{at:g}".replace("/", "."), records, {})


def write_diagnostics(run: RunWriter, label: str, rate: float, seed: int) -> None:
    """What every run shows, and what only some methods do."""
    draws = torch.Generator().manual_seed(int(1e6 * (1 + draw(label, rate, seed))))

    def normal(centre: float, width: float, n: int = 400) -> torch.Tensor:
        return centre + width * torch.randn(n, generator=draws)

    pairs = {"positive": normal(0.55 - 0.3 * rate, 0.12), "negative": normal(0.05, 0.1, 4000)}
    pairs |= {"negative mean": normal(0.05, 0.02), "negative top": normal(0.25, 0.04)}
    found = [Diagnostic("similarity", "cosine similarity on emoji/iid", "cosine similarity", pairs)]
    if rate:
        pairs = {"clean": normal(0.7, 0.1), "corrupted": normal(0.2, 0.15)}
        found.append(Diagnostic("training_similarity", "cosine similarity on emoji/train", "cosine similarity", pairs))
    if label.startswith("prolip"):
        sides = {"images": normal(-6, 0.3).exp(), "texts": normal(-5, 0.5).exp()}
        found.append(Diagnostic("uncertainty", "uncertainty", "uncertainty, sum of σ²", sides, log=True))
    if label.startswith(("bayes", "sogclr")):
        weights = {"positive pairs": normal(0.2 - rate, 0.4).exp(), "negative pairs": normal(0, 0.3, 4000).exp()}
        weights["negative pairs"][:7] = torch.nan
        learned = [Diagnostic("weights", "Sampled weights of pairs", "weight w", weights, log=True)]
        store_diagnostics(run, "training", learned)
    store_diagnostics(run, "evaluation", found, "1")


def ledger(quality: float, seed: int, reference: bool, over: bool) -> dict[str, Any]:
    own = {
        "samples": 76_800,
        "image_forwards": 76_800.0 * (2 if quality > 1.1 else 1),
        "image_backwards": 76_800.0,
        "text_forwards": 76_800.0,
        "text_backwards": 76_800.0,
        "flops": int(4.2e12 * quality),
        "train_seconds": 61.0 + 3 * draw(quality, seed),
        "data_seconds": 4.1,
        "evaluate_seconds": 8.5,
        "repeated_seconds": 0.0,
        "peak_memory_bytes": 910 * 2**20,
    }
    share = 1.013 if over else 1.0
    about = {
        "budget": {"kind": "epochs", "value": 20},
        "planned": {"steps": 600, "flops": own["flops"]},
        "spent_share": share,
        "over_budget": over,
    }
    return {**own, **about, "reference": dict(own) if reference else None}


def plan(
    suite: str,
    methods: Sequence[tuple[str, str, float, str]],
    rates: Sequence[float],
    seeds: Sequence[int],
    cells: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The plan, as the suite's planner writes it."""
    chances: dict[str, dict[str, float]] = {}
    for dataset, task, metrics, _ in MEASURES:
        chance = {"noise_detection": 0.5, "linear_probe/digit": 0.1}.get(task, CHANCE)
        known = {f"{task}/{metric}": chance * (5 if metric == "top5" else 1) for metric in metrics}
        chances.setdefault(dataset, {}).update(known)
    return {
        "suite": suite,
        "description": "Methods on multi-artist icon art with shuffled captions",
        "suite_hash": "0" * 64,
        "made": 0.0,
        "budget": {"kind": "epochs", "value": 20.0, "unit": "epochs", "rule": "total"},
        "data": {
            "name": "emoji/train",
            "description": "emoji art of seven artists",
            "size": 32,
            "rows": 4500,
            "hash": "1" * 64,
        },
        "protocol": "1",
        "primary": {"dataset": "emoji/iid", "task": "zero_shot/concept", "metric": "top1"},
        "methods": [
            {
                "label": label,
                "method": methods[0][0] if label == "oracle" else label.partition("_")[0],
                "title": title,
                "summary": f"{title} pulls the two views of a pair together & pushes others <away>. This helps by 5 %.",
                "paper": "A. Author and B. Author, ICML 2025",
                "equations": "eq. 3",
                "fidelity": "official-checked" if quality < 1.1 else "derived",
                "bibtex": f"@inproceedings{{{label},\n  title = {{{title}}},\n  year = {{2025}}\n}}",
                "note": "The paper's ε is 1e-8 in code." if label == "sogclr" else "",
                "state": "none",
                "score": score,
                "config": {"temperature": 0.07},
                "preset": None,
                "lr": 0.001,
                "reference": "clip" if label == "ncu" else None,
                "start": None,
                "budget_rule": "total",
                "keep": ORACLE if label == "oracle" else None,
            }
            for label, title, quality, score in methods
        ],
        "noises": [
            {
                "label": noise_label(rate),
                "kind": "shuffled_captions" if rate else None,
                "title": "shuffled captions" if rate else "",
                "rate": rate,
                "towers": "",
            }
            for rate in rates
        ],
        "seeds": list(seeds),
        "baseline": methods[0][0],
        "tuning": None,
        "cells": list(cells),
        "datasets": {
            name: {"description": f"{name}: pictures of known concepts", "n": 420, "chance": chance}
            for name, chance in chances.items()
        },
        "settings": {
            "towers": {"image": "tiny-resnet", "text": "tiny-transformer", "dim": 128},
            "train": {"batch": 128, "lr": 0.001, "precision": "fp32"},
            "evaluate": {"tasks": ["zero_shot", "shift"], "curve": [0.25, 0.5, 0.75]},
        },
        "tables": None,
    }


#: one of everything that can happen to a cell
TROUBLED: dict[tuple[str, float, int], str] = {
    ("ncu", 0.4, 0): "failed",
    ("ncu", 0.4, 1): "failed",
    ("ncu", 0.4, 2): "failed",
    ("bayes", 0.4, 2): "running",
    ("prolip", 0.0, 1): "missing",
    ("siglip", 0.4, 0): "running",
    ("siglip", 0.4, 1): "running",
    ("siglip", 0.4, 2): "missing",
    ("permutation_0.1", 0.4, 0): "missing",
    ("permutation_0.1", 0.4, 1): "missing",
    ("permutation_0.1", 0.4, 2): "missing",
}


def noises_as_budgets(plan: dict[str, Any]) -> None:
    """Tell the two noise rates of a plan as two budgets, 40 and 10 epochs, of one rate."""
    names = {}
    for block, budget in zip(plan["noises"], (40.0, 10.0), strict=True):
        names[block["label"]] = f"40 % shuffled captions, {budget:g} epochs"
        block |= {"kind": "shuffled_captions", "title": "shuffled captions", "rate": 0.4}
        block |= {"budget": budget, "label": names[block["label"]]}
    for cell in plan["cells"]:
        cell["noise"] = names[cell["noise"]]
    plan["budget"] = {"kind": "epochs", "value": 40.0, "values": [10.0, 40.0], "unit": "epochs", "rule": "total"}
