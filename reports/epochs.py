"""Budgets in FLOPs as epochs of the baseline, which a reader can picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def baseline_epochs(plan: Mapping[str, Any]) -> dict[str, float]:
    """Return how often the baseline passes over the pairs that it trains on, by noise, where that is known."""
    rows, batch = plan["data"]["rows"], plan["settings"]["train"]["batch"]
    own = [cell for cell in plan["cells"] if cell["method"] == plan["baseline"]]
    batches = {cell["noise"]: (cell["kept_rows"] or rows or 0) // batch for cell in own if batch}
    return {cell["noise"]: cell["steps"] / batches[cell["noise"]] for cell in own if batches.get(cell["noise"])}


def short(epochs: float) -> str:
    """Return a number of epochs to three digits."""
    return f"{float(f'{epochs:.3g}'):g}"


def in_epochs(plan: Mapping[str, Any], baseline: str) -> Mapping[str, Any]:
    """Return a plan of several budgets in FLOPs with labels that tell them as epochs of the baseline, which has a name.

    Its budget has them as `told`: "9e+12 FLOPs" -> "146 epochs of CLIP". A plan of one budget, another unit or several
    towers is returned as it is, and one whose epochs are not known or not distinct.
    """
    budget, blocks, known = plan["budget"], plan["noises"], baseline_epochs(plan)
    one_tower = len({block["towers"] for block in blocks}) == 1
    if budget["kind"] != "flops" or "values" not in budget or not one_tower or len(known) < len(blocks):
        return plan
    epochs = {block["budget"]: short(known[block["label"]]) for block in blocks}
    told = {f"{flops:g} {budget['unit']}": f"{number} epochs of {baseline}" for flops, number in epochs.items()}
    if len({*told.values()}) < len(epochs):
        return plan

    def renamed(label: str) -> str:
        noise, _, text = label.rpartition(", ")
        return f"{noise}, {told[text]}"

    return {
        **plan,
        "budget": {**budget, "told": told},
        "noises": [{**one, "label": renamed(one["label"])} for one in blocks],
        "cells": [{**cell, "noise": renamed(cell["noise"])} for cell in plan["cells"]],
        "added": [(renamed(label), seed) for label, seed in plan.get("added", ())],
    }
