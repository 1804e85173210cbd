"""Numbers of a committed comparison computed from its stored records by other code, which knows nothing of reports."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

ROWS = ("sogclr", "rince")  #: every committed comparison has a row of these; the first that it has is checked


def records_of(root: Path) -> dict[str, dict[str, bytes]]:
    """Run -> evaluation -> the bytes of its records."""
    found: dict[str, dict[str, bytes]] = {}
    for path in root.glob("runs/*/evaluations/*/records.json"):
        found.setdefault(path.parents[2].name, {})[path.parent.name] = path.read_bytes()
    return found


def check(root: Path, suite: str, tables: Mapping[str, bytes]) -> int:
    """Compare a mean, a paired difference with its t-interval, a recovered gap, the share kept, the share memorised.

    Return how many of these the comparison has.
    """
    plan = json.loads((root / suite / "plan.json").read_text())
    wanted, records = {"at": 1.0, **plan["primary"]}, records_of(root)
    noises = [cell["noise"] for cell in plan["cells"]]
    checked = next(label for label in ROWS if any(cell["method"] == label for cell in plan["cells"]))
    cells = [
        (one["rate"] > 0, one.get("budget", 0), noises.count(one["label"]), one["label"]) for one in plan["noises"]
    ]
    noise = max(cells, key=lambda one: one[:3])[3]

    def values_of(label: str, noise: str, wanted: Mapping[str, object]) -> dict[int, float]:
        """Seed -> the one record of the run of a row that has these fields."""
        found = {}
        for cell in (one for one in plan["cells"] if (one["noise"], one["method"]) == (noise, label)):
            stored = (one for part in records.get(cell["run"], {}).values() for one in json.loads(part))
            values = [one["value"] for one in stored if wanted.items() <= one.items()]
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
    family = csv.DictReader(io.StringIO(tables["tables/differences.csv"].decode()))
    p_values = [float(one[f"{column} p"]) for one in family if one["noise"] == noise and one[f"{column} p"]]
    rejected = multipletests(p_values, 0.05, "holm")[0].sum()
    rank = sum(p < float(shown[f"{column} p"]) for p in p_values)
    level = 0.05 / (len(p_values) - min(rank, rejected))  # of the step of Holm's procedure that tests the row
    low, high = stats.t.interval(1 - level, len(row) - 1, (row - clip).mean(), stats.sem(row - clip))
    ours = sorted(abs(end) for end in ((row - clip).mean(), low, high))  # lower may be better: signs differ then
    assert sorted(abs(float(shown[f"{column}{end}"])) for end in ("", " low", " high")) == pytest.approx(ours, rel=1e-6)
    compared = 2
    lines = list(csv.DictReader(io.StringIO(tables.get("tables/recovered.csv", b"").decode())))
    if lines and f"{column} {noise}" in lines[0]:  # nothing is measured on an oracle that no poison reaches
        gap = (row - clip).mean() / (np.array([found["oracle"][seed] for seed in sorted(found["clip"])]) - clip).mean()
        of_row = next(one for one in lines if one["row"] == checked)
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
        learned = values_of("clip", noise, {"at": 1.0, "task": "memorisation", "metric": "memorised"})
        (column,) = (name for name in line("memorisation")[1] if name.endswith(" memorised"))
        assert float(line("memorisation", "clip")[1][column]) == pytest.approx(np.mean([*learned.values()]), rel=1e-6)
        compared += 1
    return compared
