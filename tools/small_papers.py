"""Run the suites of the five papers with small towers on the embedded emoji, and looks for what docs/papers.md lists.

    python tools/small_papers.py OUT [SUITE ...] [--jobs N]

Each suite of suites/ that docs/papers.md names keeps its methods, noise, protocol, tasks, data sets and tables. Its
towers, recipe, budget and training pairs are replaced by small ones, published checkpoints by a short training of CLIP,
and the evaluation sets by emoji under their names (`bench data stand-in`). So shapes are those of the papers, and
numbers mean nothing. OUT gets the data, the suites, and the store with its reports.

A line for each table and figure that a report has: how many places of ours a table has and how many of them are filled.
Exits with 1 if something that the page calls "filled" or "in part" is missing, or if a cell of ours is empty.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench import data_folder
from bench.catalogue.evaluation_sets import evaluation_sets
from bench.models import stand_ins
from bench.store import Store

ROOT = Path(__file__).parents[1]
SMALL_NOTE = "IN SMALL, on emoji under the names of other sets, so numbers mean nothing"  #: before what a suite says
SIZE, IMAGES_PER_CLASS = 32, 6  #: pixels a side, images of a class of an evaluation set
TOWERS = {"image": "tiny-resnet", "text": "tiny-transformer", "dim": 32, "vocabulary": 512}
TRAIN = {"batch": 64, "lr": 1.0e-3, "threads": 1}
BUDGET = {"samples": 1024}
ONE_PASS = {"epochs": 1}  #: where pairs are chosen: scoring them is paid for, and shares set the number of steps
MAX_SEEDS = 2  #: at most
START_FILE = "weights-100.safetensors"
#: a run's model: weights, and what says how they are read
MODEL = (START_FILE, "settings.json", "hashes.json")
#: the diagnostics that stand for a figure, among others of a row
DIAGNOSTICS = {
    "bayes_weighted_cl, Figure 3": "weights",
    "nuclr, Figure 7": "popularity",
    "prolip, Figure 5": "uncertainty",
    "prolip, Figure 6": "uncertainty_by_length",
}


@dataclass(frozen=True)
class PrintedItem:
    """A printed table or figure of docs/papers.md."""

    printed: str  #: "ncu, Table 1"
    suites: tuple[str, ...]
    file: str  #: "tables/paper_ncu_1", below the report
    state: str  #: "filled", "in part", "not filled"


def printed_items() -> Iterator[PrintedItem]:
    """Yield the lines of docs/papers.md whose table or figure the run of a suite makes, without a further verb."""
    paper = ""
    for line in (ROOT / "docs" / "papers.md").read_text("utf-8").splitlines():
        if line.startswith("## "):
            paper = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not paper or not line.startswith("|") or cells[0] in ("printed", "---"):
            continue
        if cells[3].startswith("`tables/") or (cells[3] and "`bench " not in cells[2]):
            suites = tuple(re.findall(r"`suites/(\w+)\.yaml`", cells[2]))
            yield PrintedItem(f"{paper}, {cells[0]}", suites, cells[3].strip("`"), cells[4].partition(":")[0])


def small(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a paper's suite with small towers, the emoji, and a short training."""
    rule = {key: value for key, value in raw["data"].items() if key == "keep_rule"}
    kept_rows = any(isinstance(row, dict) and "keep" in row for row in raw["methods"])
    towers = raw["towers"] if isinstance(raw["towers"], list) else [raw["towers"]]
    kept = [{key: one[key] for key in ("label", "channels") if key in one} for one in towers]
    own = {key: value for key, value in raw.items() if key != "slurm"}
    return own | {
        "description": f"{SMALL_NOTE}: {raw['description']}",
        "data": {"name": "emoji", "size": SIZE} | rule,
        "seeds": raw["seeds"][:MAX_SEEDS],
        "budget": ONE_PASS if kept_rows else BUDGET,
        "towers": [TOWERS | one for one in kept],
        "train": TRAIN,
        "methods": [_small_row(row) for row in raw["methods"]],
    }


def _small_row(row: Any) -> Any:
    if isinstance(row, str):
        return row
    made = dict(row)
    if "start" in row:
        made["start"] = f"{{data}}/checkpoints/{{towers}}/{START_FILE}"
    if "weights" in row.get("keep", {}):
        name = "prolip" if row["keep"]["kind"] == "distance" else "clip"
        made["keep"] = row["keep"] | {"weights": f"{{data}}/{name}/{START_FILE}"}
    return made


@dataclass(frozen=True)
class Folders:
    """Folders of all output."""

    out: Path
    jobs: str

    @property
    def data(self) -> Path:
        return self.out / "data"

    @property
    def results(self) -> Path:
        return self.out / "results"

    def suite(self, name: str) -> Path:
        return self.out / "suites" / f"{name}.yaml"

    def report(self, name: str) -> Path:
        return self.results / name

    def bench(self, *words: object) -> str:
        """Run the command line and return what it prints. Raises SystemExit with its output if it fails."""
        command = [sys.executable, "-m", "bench", *map(str, words)]
        environment = {**os.environ, data_folder.DATA_VARIABLE: str(self.data)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            raise SystemExit(f"bench {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout

    def run(self, name: str, suite: dict[str, Any]) -> None:
        """Write a suite, make its runs and its report."""
        self.suite(name).parent.mkdir(parents=True, exist_ok=True)
        self.suite(name).write_text(yaml.safe_dump(suite, sort_keys=False))
        self.bench("run", self.suite(name), "--results", self.results, "--jobs", self.jobs)

    def runs(self, name: str) -> dict[str, str]:
        """Row of a suite, with several towers "row, towers" -> its first run."""
        plan = Store(self.results).plan(name)
        assert plan is not None
        return {cell["method"]: cell["run"] for cell in reversed(plan["cells"])}

    def model(self, run: str, name: str) -> None:
        """Put a run's model below the data folder."""
        folder = self.data / name
        folder.mkdir(parents=True, exist_ok=True)
        for file in MODEL:
            shutil.copy(Store(self.results).run(run).path(file), folder)

    def diagnostics(self, suite: str) -> set[str]:
        """Names of the diagnostics that runs of a suite have."""
        runs = [Store(self.results).run(run) for run in self.runs(suite).values()]
        return {entry["name"] for run in runs for entry in run.diagnostics()}


def train_starts(place: Folders, suites: dict[str, dict[str, Any]]) -> None:
    """Train what the suites start from and put it where published weights are looked for.

    These are a CLIP for each pair of towers, and a CLIP and a ProLIP that filter pairs.
    """
    towers = [one for suite in suites.values() for one in suite["towers"] if "checkpoints" in str(suite["methods"])]
    plain = {"data": {"name": "emoji", "size": SIZE}, "seeds": [90], "budget": BUDGET, "train": TRAIN}
    plain |= {"noise": {"natural": True, "rates": [0.0]}, "evaluate": {"tasks": ["zero_shot"]}}
    plain |= {"towers": TOWERS, "methods": ["clip"]}
    made: dict[str, dict[str, Any]] = {f"start_{one['label']}": plain | {"towers": [one]} for one in towers}
    if "prolip_filtering" in suites:
        made["start"] = plain | {"methods": ["clip", "prolip"]}
    for name, suite in made.items():
        place.run(name, {"name": name, **suite})
        label = name.removeprefix("start").removeprefix("_")
        for method, run in place.runs(name).items():
            place.model(run, f"checkpoints/{label}" if label else method)


def own_places(table: Path) -> tuple[int, int]:
    """Return the places of ours in a printed table that a row of the suite stands beside, and those with a number."""
    with table.open(newline="") as file:
        cells = [cell for row in csv.DictReader(file) for name, cell in row.items() if name.endswith(" ours")]
    beside = [cell for cell in cells if cell not in ("–", "")]
    return len(beside), sum(1 for cell in beside if re.fullmatch(r"-?[\d.]+(e-?\d+)?", cell))


def find_printed(place: Folders, line: PrintedItem, suite: str) -> tuple[bool, str]:
    """Return whether a suite's report has a line's table or figure, and what it has."""
    file = place.report(suite) / line.file
    if line.file.startswith("tables/"):
        table = file.with_suffix(".csv")
        beside, filled = own_places(table) if table.is_file() else (0, 0)
        return 0 < beside == filled, f"{filled} of {beside} places filled"
    figures = sorted(path.name for path in file.parent.rglob(f"{file.name}*.png"))
    wanted = DIAGNOSTICS.get(line.printed)
    if wanted and wanted not in place.diagnostics(suite):
        return False, f"no {wanted}"
    return bool(figures), ", ".join(figures) or "no figure"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, look, print; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a new folder, or that of an earlier call, which goes on")
    parser.add_argument("suites", nargs="*", help="names of the page's suites; all unless said")
    parser.add_argument("--jobs", default="auto", help="runs at a time")
    options = parser.parse_args(arguments)
    page = [line for line in printed_items() if line.state != "not filled"]
    names = options.suites or dict.fromkeys(name for line in page for name in line.suites)
    suites = {name: small(yaml.safe_load((ROOT / "suites" / f"{name}.yaml").read_text("utf-8"))) for name in names}
    place = Folders(options.out.resolve(), options.jobs)
    if not place.data.is_dir():
        stand_ins.write_evaluation_sets(place.data / "evaluation", SIZE, IMAGES_PER_CLASS, evaluation_sets().values())
    train_starts(place, suites)
    for name, suite in suites.items():
        place.run(name, suite)
        print(f"{name}: {len(place.runs(name))} rows", flush=True)
    whole = True
    for line in page:
        for suite in (one for one in line.suites if one in suites):
            there, what = find_printed(place, line, suite)
            whole &= there
            print(f"{line.printed:36} {suite:24} {line.state:8} {what}")
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
