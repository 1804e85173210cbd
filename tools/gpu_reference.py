"""A committed comparison trained again on this machine, seed by seed, and its differences beside the committed ones.

The trials that chose each row's settings are taken from the comparison's archive, so that the runs are those that are
committed: the same ids. A store is made in a folder of its own; what is finished is packed after each seed, without
weights, and a later call goes on from there.
"""

from __future__ import annotations

import math
import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

import bench
from bench.errors import UserError
from bench.store import Store
from bench.store.merge import merge
from bench.store.pack import ARCHIVE, pack
from reports.reference.render import TABLES, opened

Row = dict[str, Any]
STORE, COMMITTED = "store", "committed"  #: folders of a base
OWN = "reference.tar.xz"  #: the archive of the runs that were made here
#: train the runs of a suite into a store; return how many are done; raise if one failed or time ran out
Train = Callable[[Path, Path], int]


@dataclass(frozen=True)
class Reference:
    """A committed comparison: its folder, its suite, and the part of it that is trained again."""

    folder: Path
    suite: dict[str, Any]  #: as YAML
    rate: float

    @property
    def name(self) -> str:
        """The suite's name."""
        return str(self.suite["name"])

    def part(self, seeds: Sequence[int]) -> str:
        """The suite with some of its seeds at one rate, as YAML."""
        noise = {key: value for key, value in self.suite["noise"].items() if key != "seeds"}
        return yaml.safe_dump({**self.suite, "noise": {**noise, "rates": [self.rate]}, "seeds": [*seeds]})


def find(folder: Path, shipped: Path, rows: int | None = None) -> Reference:
    """Read a comparison's suite from its folder, or from the shipped suites by its name.

    The rate of noise is that of the suite's trials, or its largest. rows: how many rows that are a method's name alone,
    the first ones; by default all rows. Raises UserError if the archive, the tables or the suite are not there.
    """
    path = next((one for one in (folder / "suite.yaml", shipped / f"{folder.name}.yaml") if one.is_file()), None)
    if path is None or not (folder / ARCHIVE).is_file() or not (folder / TABLES).is_dir():
        raise UserError(f"{folder}: is no committed comparison; it should have {ARCHIVE}, {TABLES}/ and suite.yaml")
    suite = yaml.safe_load(path.read_text())
    if rows is not None:
        suite["methods"] = [entry for entry in suite["methods"] if isinstance(entry, str)][:rows]
    return Reference(folder, suite, (suite.get("tune") or {}).get("rate", max(suite["noise"]["rates"])))


def prepare(reference: Reference, base: Path, own: Path) -> None:
    """Unpack the comparison to `base`/committed; put its trials and the runs of `own` into a store at `base`/store.

    Does nothing where `base` has both. Raises UserError for a damaged archive.
    """
    if (base / STORE).exists():
        return
    with opened(reference.folder) as (suite, store):
        shutil.copytree(store.root, base / COMMITTED)
        plan = store.plan(suite)
    tuning = (plan or {}).get("tuning") or {"methods": {}}
    keep = {trial["run"] for row in tuning["methods"].values() for trial in row["trials"]}
    with tempfile.TemporaryDirectory(dir=base) as folder:
        trials = Path(folder) / "trials"
        shutil.copytree(base / COMMITTED, trials, ignore=lambda where, names: _others(where, names, keep))
        for source in (trials, *([own] if own.is_file() else [])):
            if problems := merge(source, Store(base / STORE)).problems:
                raise UserError(*problems)


def _others(folder: str, names: list[str], keep: set[str]) -> list[str]:
    """Names in a folder of a store that belong to other runs than those to `keep`, or to a plan."""
    if Path(folder).name == "runs":
        return [name for name in names if name not in keep]
    return [name for name in names if name == "plan.json"]


def train_seeds(reference: Reference, base: Path, own: Path, seeds: Sequence[int], train: Train) -> list[Row]:
    """Train all runs of some seeds that are not there, pack what is finished to `own`, and return the comparison."""
    prepare(reference, base, own)
    store, path = Store(base / STORE), base / "suite.yaml"
    path.write_text(reference.part(seeds))
    try:
        train(path, store.root)
    finally:
        if store.plan(reference.name) is not None:
            pack(reference.name, store, own)
    return compared(reference, base)


def compared(reference: Reference, base: Path) -> list[Row]:
    """For each row and column of the committed table of differences: ours from the same baseline, and where it lies.

    "committed" is the mean of all committed seeds, "same seeds" that of ours alone. "inside" says whether ours lies in
    the committed interval of the mean; "as expected" whether it lies where the mean of as many new seeds lies in 95 of
    100 cases, were both machines the same: half the interval, times the square root of 1 + (its seeds / ours).
    """
    name, keys = reference.name, ["noise", "row"]
    plan = Store(base / STORE).plan(name)
    assert plan is not None
    Store(base / COMMITTED).write_plan(name, plan)
    ours, same = (bench.Results(base / root).table("overview", name).set_index(keys) for root in (STORE, COMMITTED))
    whole, lines = (
        pd.read_csv(reference.folder / TABLES / f"{table}.csv").set_index(keys) for table in ("overview", "differences")
    )
    columns = [one.removesuffix(" low") for one in lines.columns if one.endswith(" low")]
    found = []
    for noise, row in [key for key in lines.index if key in ours.index]:
        for column in columns:
            line, baseline = lines.loc[(noise, row)], (noise, plan["baseline"])
            known, low, high = (number(line[f"{column}{end}"]) for end in ("", " low", " high"))
            value, known_here = (difference(table, column, (noise, row), baseline) for table in (ours, same))
            if None in (known, low, high, value, known_here):
                continue
            n, seeds = (number(table.loc[(noise, row)][f"{column} n"]) for table in (whole, ours))
            room = (high - low) / 2 * math.sqrt(1 + n / seeds)
            place = {"inside": low <= value <= high, "as expected": abs(value - known) <= room}
            numbers = {"ours": value, "same seeds": known_here, "committed": known, "low": low, "high": high}
            found.append({"noise": noise, "row": row, "column": column, "seeds": int(seeds), **numbers, **place})
    return found


def difference(table: pd.DataFrame, column: str, row: Any, baseline: Any) -> float | None:
    """The mean of a row of a table less that of the baseline; None if one of them is no number."""
    one, other = (number(table.loc[key].get(column)) for key in (row, baseline))
    return None if one is None or other is None else one - other


def number(value: Any) -> float | None:
    """A finite number of a table, or None for what is none."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def counted(rows: Sequence[Row]) -> list[Row]:
    """For each column of the table, how many rows were compared, and how many differences lie where."""
    found = []
    for column in dict.fromkeys(row["column"] for row in rows):
        own = [row for row in rows if row["column"] == column]
        inside = {
            "inside the committed interval": sum(row["inside"] for row in own),
            "as expected of as many seeds": sum(row["as expected"] for row in own),
        }
        apart = statistics.median(abs(row["ours"] - row["same seeds"]) for row in own)
        found.append({"column": column, "rows": len(own), **inside, "from the same seeds, median": apart})
    return found
