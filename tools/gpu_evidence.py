"""What this machine's accelerator was seen to do, as one JSON file and one page.

    python tools/gpu_evidence.py [--out FOLDER] [--minutes M] [PART ...]

Without names all parts are made. A part has steps; each is written down as soon as it has ended, and a step that FOLDER
has is not made again (`--again`). So the same command goes on after a kill, or after `--minutes`, when the step at work
is ended and no other begins: calls of `--minutes 9` fit where a call may take ten minutes. A step that fails is written
down as failed, the others go on, and the next call tries it again. The exit code is 1 where a step failed, 75 where
time ran out.

    tests      the tests of a GPU (`pytest -m gpu tests/gpu`), a step for each file
    speeds     tools/gpu_bench.py, a step for each of its parts
    sweep      the rows of suites/cc3m_noisy.yaml as tiny towers on the embedded pack, at two rates and three seeds,
               some runs at a time; one at a time with the first seed alone
    reference  the runs of a committed comparison at the rate of its trials, a step for each seed; then which
               differences from the baseline lie in the committed intervals

FOLDER, by default results/reference/gpu where there is a GPU and build/gpu_evidence where there is none, gets
evidence.json, evidence.html, gpu_bench.json, the archive of the reference's runs and log.txt. Without a GPU the tests
run their CPU half, everything is small, and the page says so in its first line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed
sys.path.insert(0, str(Path(__file__).parent))
import gpu_reference
import torch
import yaml
from evidence_page import page

from bench.errors import UserError
from bench.machine.environment import environment
from bench.store import files
from bench.training.job import available_device

ROOT = Path(__file__).parents[1]
Part = dict[str, Any]
Step = Callable[[], Part]
PATIENCE = 20.0  #: seconds in which a command that was asked to stop has to end
RUNS = """
import json, sys
import bench
summary = bench.run_suite(sys.argv[1], sys.argv[2], jobs=json.loads(sys.argv[3]), seeds=json.loads(sys.argv[4]))
print(json.dumps({"done": len(summary.done), "failed": len(summary.failed), "left": len(summary.interrupted)}))
"""


class OutOfTime(Exception):
    """A step was ended because the call's minutes are over."""


@dataclass
class Evidence:
    """What is asked for, and where it goes."""

    folder: Path
    gpu: bool = field(default_factory=torch.cuda.is_available)
    until: float = float("inf")  #: of `time.monotonic`
    reference: Path = ROOT / "results" / "reference" / "emoji_noisy"
    seeds: int = 10  #: of the reference

    def left(self) -> float | None:
        """Seconds that are left; None: as many as it takes."""
        return None if self.until == float("inf") else self.until - time.monotonic()

    def call(self, *words: str) -> str:
        """Run Python with these arguments in the checkout, log what it says; return its standard output.

        Raises OutOfTime, after a request to stop, if the time is over, and RuntimeError for another exit code than 0.
        """
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with open(self.folder / "log.txt", "a") as log:
            print("$", *words, file=log, flush=True)
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # so that all of its processes end with it
            )
            try:
                said, _ = process.communicate(timeout=self.left())
            except subprocess.TimeoutExpired:
                process.terminate()
                raise OutOfTime from None
            finally:
                _end(process)
            log.write(said)
        if process.returncode:
            raise RuntimeError(f"exit code {process.returncode} of python {' '.join(words[:2])}; see log.txt")
        return said

    def runs(self, suite: Path, store: Path, jobs: int | None, seeds: Sequence[int] = ()) -> int:
        """Make the runs of a suite; return how many were done. Raises RuntimeError if one failed."""
        said = self.call("-c", RUNS, str(suite), str(store), json.dumps(jobs), json.dumps([*seeds]))
        found = json.loads(said.splitlines()[-1])
        if found["failed"] or found["left"]:
            raise RuntimeError(f"{found['failed']} runs failed and {found['left']} are left; see log.txt")
        return int(found["done"])


def _end(process: subprocess.Popen[str]) -> None:
    """Wait for a process that was asked to stop; end it and its own processes if it does not."""
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=PATIENCE)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def tests(asked: Evidence, path: Path) -> Part:
    """Outcome of the tests of a file: names of those that failed, counts of the others."""
    chosen = ["-m", "gpu"] if asked.gpu else []
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "tests.xml"
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, f"--junitxml={report}", str(path)]
        try:
            asked.call(*words)
        except RuntimeError:  # what failed is in the report, if there is one
            if not report.exists():
                raise
        cases = list(ET.parse(report).getroot().iter("testcase"))
    failed = [one.get("name", "?") for one in cases if any(one.find(end) is not None for end in ("failure", "error"))]
    skipped = sum(one.find("skipped") is not None for one in cases)
    return {"passed": len(cases) - len(failed) - skipped, "skipped": skipped, "failed": failed}


def speeds(asked: Evidence, part: str) -> Part:
    """A table of tools/gpu_bench.py, with the goals that it speaks of."""
    import gpu_bench

    path = (asked.folder / "gpu_bench.json").resolve()
    asked.call("tools/gpu_bench.py", str(path), part)
    found = json.loads(path.read_text())
    rows = found[part]
    return {"matmul TFLOP/s": found["matmul_flops"] / 1e12, "rows": rows, "goals": gpu_bench.goals({part: rows})}


def sweep(asked: Evidence, jobs: int | None) -> Part:
    """Small runs of every row of a large suite, some at a time: wall-clock seconds of the command, and runs an hour.

    One at a time is measured on the first seed: the others have the same rows and rates.
    """
    methods = yaml.safe_load((ROOT / "suites" / "cc3m_noisy.yaml").read_text())["methods"]
    suite = {
        "name": "sweep",
        "data": {"name": "emoji", "size": 32},
        "noise": {"kind": "shuffled_captions", "rates": [0.0, 0.4]},
        "seeds": [0, 1, 2] if asked.gpu else [0],
        "budget": {"samples": 12_800 if asked.gpu else 256},
        "towers": {"image": "tiny-resnet", "text": "tiny-transformer", "dim": 32, "vocabulary": 512},
        "train": {"batch": 128, "threads": 1},
        "evaluate": {"tasks": ["zero_shot"]},
        "methods": methods if asked.gpu else methods[:1],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sweep.yaml"
        path.write_text(yaml.safe_dump(suite))
        started = time.perf_counter()
        done = asked.runs(path, Path(folder) / "out", jobs, [0] if jobs == 1 else [])
        seconds = time.perf_counter() - started
    row = {"runs at a time": jobs or "auto", "runs": done, "seconds": seconds, "runs an hour": 3600 * done / seconds}
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))  # CUDA's own default
    return {"rows": [row], "NVIDIA's MPS daemon": "runs" if (pipes / "control").exists() else "does not run"}


def reference(asked: Evidence, seeds: int, base: Path) -> Part:
    """Runs of the first seeds of a committed comparison, and where their differences from the baseline lie."""
    found = gpu_reference.find(asked.reference, ROOT / "suites", None if asked.gpu else 2)
    own = asked.folder / gpu_reference.OWN
    rows = gpu_reference.train_seeds(
        found, base, own, range(seeds), lambda suite, store: asked.runs(suite, store, None)
    )
    headline = [row for row in rows if row["column"] == rows[0]["column"]]
    others = [row for row in rows if not row["as expected"] and row not in headline]
    told = {"rows": gpu_reference.counted(rows), "headline": headline, "others, not as expected": others}
    return {"comparison": found.name, **told}


def steps_of(asked: Evidence, base: Path) -> dict[str, dict[str, Step]]:
    """Part -> step -> what makes it. `base` is a folder for the time of this call."""
    import gpu_bench

    many: tuple[int | None, ...] = (1, 4, 8, 12, None) if asked.gpu else (1, 2)
    paths = sorted((ROOT / "tests" / "gpu").glob("test_*.py"))
    return {
        "tests": {path.name: partial(tests, asked, path) for path in paths},
        "speeds": {part: partial(speeds, asked, part) for part in gpu_bench.PARTS},
        "sweep": {f"{jobs} at a time" if jobs else "auto": partial(sweep, asked, jobs) for jobs in many},
        "reference": {f"up to seed {last}": partial(reference, asked, last + 1, base) for last in range(asked.seeds)},
    }


def gather(asked: Evidence, steps: Mapping[str, Mapping[str, Step]], again: bool = False) -> Part:
    """Make the steps that the folder does not have and write each down; return all that it has then.

    Raises UserError if the folder's evidence is of another machine, commit or set of packages.
    """
    path = asked.folder / "evidence.json"
    told = environment(available_device())
    found: Part = {"gpu": asked.gpu, "environment": told, "parts": {}}
    if path.exists():
        found = files_of(path)
        for key in ("hardware", "packages", "commit"):
            if found["environment"][key] != told[key]:
                raise UserError(f"{path}: is of another {key}; name another folder with --out, or remove it")
    for name, part in steps.items():
        for title, step in part.items():
            made = found["parts"].setdefault(name, {})
            if not again and title in made and "error" not in made[title]:
                continue
            started = time.perf_counter()
            try:
                left = asked.left()
                if left is not None and left <= 0:
                    raise OutOfTime
                result = step()
            except OutOfTime:
                return {**found, "out of time": f"{name}, {title}"}
            except Exception as error:  # one step that fails does not cost the others
                result = {"error": f"{type(error).__name__}: {error}"}
            made[title] = {"seconds": time.perf_counter() - started, **result}
            files.write_json(path, found)
            files.write_bytes(asked.folder / "evidence.html", page(found).encode())
            print(f"{name}, {title}: {made[title].get('error', 'done')}", flush=True)
    return found


def files_of(path: Path) -> Part:
    """Earlier evidence. Raises UserError if it is none."""
    try:
        found: Part = json.loads(path.read_text())
        assert {"gpu", "environment", "parts"} <= found.keys()
    except (OSError, ValueError, AssertionError, AttributeError) as error:
        raise UserError(f"{path}: is no evidence of this tool; name another folder with --out, or remove it") from error
    return found


def failed(found: Part) -> bool:
    """Whether a step has an error, or a test failed."""
    return any("error" in one or one.get("failed") for part in found["parts"].values() for one in part.values())


def main(arguments: Sequence[str] | None = None) -> None:
    """Gather, write, say where."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--out", type=Path, metavar="FOLDER")
    parser.add_argument("--minutes", type=float, metavar="M", help="end the step at work, begin no other, after these")
    parser.add_argument("--again", action="store_true", help="make steps that are there again")
    parser.add_argument("--reference", type=Path, default=Evidence.reference, metavar="FOLDER", help="a comparison")
    parser.add_argument("--seeds", type=int, metavar="N", help="of the reference; default: 10, without a GPU 1")
    asked = parser.parse_args(arguments)
    if asked.seeds is not None and asked.seeds < 1:
        parser.error(f"--seeds {asked.seeds}: should be 1 or more")
    gpu = torch.cuda.is_available()
    folder = asked.out or ROOT / (Path("results/reference/gpu") if gpu else Path("build/gpu_evidence"))
    until = float("inf") if asked.minutes is None else time.monotonic() + 60 * asked.minutes
    evidence = Evidence(folder, gpu, until, asked.reference, asked.seeds or (10 if gpu else 1))
    if not gpu:
        print("no GPU on this machine: the CPU half, at small sizes", flush=True)
    with tempfile.TemporaryDirectory() as base:
        steps = steps_of(evidence, Path(base))
        for name in asked.parts:
            if name not in steps:
                parser.error(f"{name}: is no part; parts are {', '.join(steps)}")
        chosen = {name: steps[name] for name in asked.parts or steps}
        try:
            if "reference" in chosen:
                gpu_reference.find(evidence.reference, ROOT / "suites")  # refuses what is no comparison
            folder.mkdir(parents=True, exist_ok=True)
            found = gather(evidence, chosen, asked.again)
        except UserError as error:
            parser.error(str(error))
        except OSError as error:
            parser.error(f"{folder}: cannot be written ({error.strerror}); name another folder with --out")
    if (folder / "evidence.json").exists():
        print(f"written to {folder / 'evidence.json'} and {folder / 'evidence.html'}")
    if "out of time" in found:
        print(f"out of time at {found['out of time']}; the same command goes on")
    sys.exit(1 if failed(found) else 75 if "out of time" in found else 0)


if __name__ == "__main__":
    main()
