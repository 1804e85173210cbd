"""The fields of an entry in a plan. They are checked where the file is read (bench/store/content.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

TREATMENTS = {
    "samples": "as many samples as without selection, so kept pairs are repeated",
    "passes": "as many passes as without selection, so fewer samples",
}  #: rule of `keep` -> its meaning
#: `teacher` of `keep` -> who trains the run that scores the pairs, and on what
TEACHERS = {
    "paid": "paid from its own budget",
    "given": "on top of its budget",
    "given_clean": "trained on clean pairs on top of its budget",
}


def begins_at(entry: Mapping[str, Any]) -> str | None:
    """The weights that an entry of the plan starts from: given ones, or a reference run's; None if they are fresh."""
    return entry.get("start") or entry.get("reference")


def recipe(entry: Mapping[str, Any]) -> str:
    """All settings of an entry in a plan except label and data selection: entries of one recipe differ in their pairs.

    A plan does not hold the weight decay, which trials may have chosen.
    """
    fields = ("method", "preset", "lr", "start", "reference", "config", "select", "average", "untrained")
    return json.dumps([entry.get(name) for name in fields], sort_keys=True)
