"""Budgets in FLOPs as epochs of the baseline, which a reader can picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def baseline_epochs(plan: Mapping[str, Any]) -> dict[str, float]:
    """Return how often the baseline passes over its pairs, by noise; {} for data whose size is not known."""
    batches = (plan["data"]["rows"] or 0) // plan["settings"]["train"]["batch"]
    own = [cell for cell in plan["cells"] if cell["method"] == plan["baseline"]]
    return {cell["noise"]: cell["steps"] / batches for cell in own} if batches else {}


def epochs_unit(plan: Mapping[str, Any]) -> str:
    """ "epochs of CLIP"."""
    return "epochs of " + next(one["title"] for one in plan["methods"] if one["label"] == plan["baseline"])


def in_epochs(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a plan with each of several budgets in FLOPs as the epochs that it pays the baseline, to three digits.

    Other plans are returned as they are, and those of several towers, whose epochs cost differently.
    """
    budget, blocks, known = plan["budget"], plan["noises"], baseline_epochs(plan)
    one_tower = len({block["towers"] for block in blocks}) == 1
    if budget["kind"] != "flops" or "values" not in budget or not one_tower or len(known) < len(blocks):
        return plan
    epochs = {block["budget"]: float(f"{known[block['label']]:.3g}") for block in blocks}
    unit = epochs_unit(plan)
    texts = {f"{flops:g} {budget['unit']}": f"{number:g} {unit}" for flops, number in epochs.items()}
    labels = {
        block["label"]: f"{block['label'].rpartition(', ')[0]}, {epochs[block['budget']]:g} {unit}" for block in blocks
    }
    spent = {"kind": "epochs", "unit": unit, "value": epochs[budget["value"]], "flops": budget["values"]}
    spent["values"] = [epochs[value] for value in budget["values"]]
    tuning = plan["tuning"]
    if tuning and "rungs" in tuning:
        rungs = [{**one, "budget": texts.get(one["budget"], one["budget"])} for one in tuning["rungs"]]
        tuning = {**tuning, "rungs": rungs}
    return {
        **plan,
        "budget": {**budget, **spent},
        "noises": [{**one, "label": labels[one["label"]], "budget": epochs[one["budget"]]} for one in blocks],
        "cells": [{**cell, "noise": labels[cell["noise"]]} for cell in plan["cells"]],
        "tuning": tuning,
    }
