"""Numbers of a committed comparison computed from its stored records by other code, which knows nothing of reports."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

ROWS = ("sogclr", "rince")  #: every committed comparison has a row of these; the first that it has is checked


def records_of(root: Path, run: str) -> list[dict[str, Any]]:
    """Return the records of all evaluations of a run."""
    paths = sorted(root.glob(f"runs/{run}/evaluations/*/records.json"))
    return [one for path in paths for one in json.loads(path.read_bytes())]


def check(root: Path, suite: str, tables: Mapping[str, bytes], over_budgets: Sequence[str]) -> int:
    """Compare a mean, a paired difference with its t-interval, its adjusted p, and what else the comparison has.

    That is a recovered gap, the share kept, the share memorised, and what its sentences `over_budgets` say. Return how
    many of these it has.
    """
    plan = _told_in_epochs(json.loads((root / suite / "plan.json").read_text()))
    wanted = plan["primary"]
    select = {entry["label"]: entry.get("select", "last") for entry in plan["methods"]}
    noises = [cell["noise"] for cell in plan["cells"]]
    checked = next(label for label in ROWS if any(cell["method"] == label for cell in plan["cells"]))
    cells = [
        (one["rate"] > 0, one.get("budget", 0), noises.count(one["label"]), one["label"]) for one in plan["noises"]
    ]
    noise = max(cells, key=lambda one: one[:3])[3]

    def values_of(label: str, noise: str, wanted: Mapping[str, object]) -> dict[int, float]:
        """Seed -> the one record of the run of a row that has these fields, at the point that the row is read at."""
        found = {}
        for cell in (one for one in plan["cells"] if (one["noise"], one["method"]) == (noise, label)):
            stored = records_of(root, cell["run"])
            fields = {"at": _read_at(stored, select[label]), **wanted}
            values = [one["value"] for one in stored if fields.items() <= one.items()]
            assert len(values) <= 1, "one run has one result"
            if values:
                found[cell["seed"]] = values[0]
        return found

    found = {label: values_of(label, noise, wanted) for label in ("clip", "oracle", checked)}
    clip, row = (np.array([found[label][seed] for seed in sorted(found["clip"])]) for label in ("clip", checked))

    def line(name: str, label: str = checked) -> tuple[str, dict[str, str]]:
        """The headline's column, the first of a table, and the line of the row."""
        lines = list(csv.DictReader(io.StringIO(tables[f"tables/{name}.csv"].decode())))
        return list(lines[0])[4], next(one for one in lines if one["row"] == label and one["noise"] in (noise, ""))

    column, shown = line("overview")
    assert float(shown[column]) == pytest.approx(row.mean(), rel=1e-9)
    column, shown = line("differences")
    assert float(shown[f"{column} p"]) == pytest.approx(stats.ttest_rel(row, clip).pvalue, rel=1e-6)
    lines = csv.DictReader(io.StringIO(tables["tables/differences.csv"].decode()))
    tested = [one for one in lines if one[f"{column} p"]]
    family = [one for one in tested if one["noise"] == noise]
    p_values = [float(one[f"{column} p"]) for one in family]
    rejected, steps = multipletests(p_values, 0.05, "holm")[:2]
    assert float(shown[f"{column} p adjusted"]) == pytest.approx(steps[family.index(shown)], rel=1e-6)
    rank = sum(p < float(shown[f"{column} p"]) for p in p_values)
    level = 0.05 / (len(p_values) - min(rank, rejected.sum()))  # of the step of Holm's procedure that tests the row
    ours = [(row - clip).mean(), *stats.t.interval(1 - level, len(row) - 1, (row - clip).mean(), stats.sem(row - clip))]
    assert [float(shown[f"{column}{end}"]) for end in ("", " low", " high")] == pytest.approx(ours, rel=1e-6)
    compared = 3
    if over_budgets:
        _check_over_budgets(plan, noise, column, tested, over_budgets)
        compared += 1
    gaps = list(csv.DictReader(io.StringIO(tables.get("tables/recovered.csv", b"").decode())))
    if gaps and f"{column} {noise}" in gaps[0]:  # nothing is measured on an oracle that no poison reaches
        gap = (row - clip).mean() / (np.array([found["oracle"][seed] for seed in sorted(found["clip"])]) - clip).mean()
        of_row = next(one for one in gaps if one["row"] == checked)
        assert float(of_row[f"{column} {noise}"]) == pytest.approx(gap, rel=1e-6)
        compared += 1
    if "tables/kept.csv" in tables:
        block = {one["label"]: (one["towers"], one.get("budget"), one["rate"] > 0) for one in plan["noises"]}
        clean = next(label for label, one in block.items() if one == (*block[noise][:2], False))
        own = values_of(checked, clean, wanted)
        both = sorted(own.keys() & found[checked].keys())
        kept = sum(found[checked][seed] for seed in both) / sum(own[seed] for seed in both)
        assert float(line("kept")[1]["Robustness kept"]) == pytest.approx(kept, rel=1e-6)
        compared += 1
    if "tables/memorisation.csv" in tables:
        learned = values_of("clip", noise, {"task": "memorisation", "metric": "memorised"})
        (column,) = (name for name in line("memorisation")[1] if name.endswith(" memorised"))
        assert float(line("memorisation", "clip")[1][column]) == pytest.approx(np.mean([*learned.values()]), rel=1e-6)
        compared += 1
    return compared


def _read_at(records: Sequence[Mapping[str, Any]], select: str) -> float:
    """The end, or the point with the best mean recall of validation pairs, the earlier of equal ones."""
    recalls = {one["at"]: one["value"] for one in records if (one["task"], one["metric"]) == (select, "mean_recall")}
    return 1.0 if select == "last" else max(recalls, key=lambda at: (recalls[at], -at))


def _told_in_epochs(plan: dict[str, Any]) -> dict[str, Any]:
    """Name blocks as reports do: by CLIP's epochs where budgets are in FLOPs."""
    names = {}
    for block in plan["noises"]:
        if block["label"].endswith(" FLOPs"):
            steps = next(c["steps"] for c in plan["cells"] if (c["method"], c["noise"]) == ("clip", block["label"]))
            epochs = float(f"{steps / (plan['data']['rows'] // plan['settings']['train']['batch']):.3g}")
            name = re.sub(r"[^ ]+ FLOPs$", f"{epochs:g} epochs of CLIP", block["label"])
            names[block["label"]] = block["label"] = name
    for cell in plan["cells"]:
        cell["noise"] = names.get(cell["noise"], cell["noise"])
    return plan


def _check_over_budgets(
    plan: Mapping[str, Any], noise: str, column: str, tested: Sequence[Mapping[str, str]], sentences: Sequence[str]
) -> None:
    """Compare from which budget on a method is better or worse under a noise: Holm over its budgets and rows."""
    blocks = {one["label"]: one for one in plan["noises"]}
    same = [one for one in blocks if all(blocks[one][key] == blocks[noise][key] for key in ("kind", "rate", "towers"))]
    longest_first = sorted(same, key=lambda one: -blocks[one]["budget"])
    family = [one for one in tested if one["noise"] in same]
    rejected = multipletests([float(one[f"{column} p"]) for one in family], 0.05, "holm")[0]
    signs = {
        (one["row"], one["noise"]): np.sign(float(one[column]))
        for one, significant in zip(family, rejected, strict=True)
        if significant
    }
    (sentence,) = (one for one in sentences if one.startswith(noise.rpartition(", ")[0]))
    parts = re.search("better than .*?: (.*); significantly worse than .*?: (.*) \\(Holm", sentence)
    for entry in plan["methods"]:
        label, method = entry["label"], entry["method"]
        name = entry["title"] + label[len(method) :] if label.startswith(method) else label
        for sign, part in zip((1, -1), parts.groups(), strict=True):
            since = [*takewhile(lambda noise, row=label, own=sign: signs.get((row, noise)) == own, longest_first)]
            told = re.search(rf"(?:^|, ){re.escape(name)} from (\S+) on", part)
            begins = re.search(r", (\S+) epochs[^,]*$", since[-1])[1] if since else None
            assert (told[1] if told else None) == begins, label
