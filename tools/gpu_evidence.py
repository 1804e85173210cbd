"""What this machine's accelerator was seen to do, as one JSON file and one page.

    python tools/gpu_evidence.py [FOLDER]

Runs the tests under `tests/gpu` (pytest), `tools/gpu_bench.py`, and a sweep of small runs side by side; each part that
fails is written down as failed, and the others go on. Without a GPU the tests run their CPU half, everything is small,
and the page says so in its first line. FOLDER (default: gpu_evidence) gets evidence.json, evidence.html and the
output of each part. The exit code is 1 where a part failed.
"""

from __future__ import annotations

import html
import json
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import bench
from bench.machine.environment import environment
from bench.training.job import available_device

ROOT = Path(__file__).parents[1]
Part = dict[str, Any]
SWEEP = """\
name: sweep
seeds: [{seeds}]
budget: {{samples: {samples}}}
towers: {{dim: 32}}
train: {{batch: 128}}
evaluate: {{tasks: [zero_shot]}}
methods: [clip]
"""


def tests(folder: Path) -> Part:
    """Outcome of every test under tests/gpu: names of those that failed, counts of the others."""
    report = folder / "tests.xml"
    with_gpu = torch.cuda.is_available()
    chosen = ["-m", "gpu"] if with_gpu else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, f"--junitxml={report}"]
    with open(folder / "tests.txt", "w") as output:
        done = subprocess.run([*command, "tests/gpu"], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False)
    if not report.exists():
        raise RuntimeError(f"pytest gave no report (exit code {done.returncode}); see tests.txt")
    cases = list(ET.parse(report).getroot().iter("testcase"))
    failed = [
        case.get("name", "?") for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {"passed": len(cases) - len(failed) - skipped, "skipped": skipped, "failed": failed}


def speeds(folder: Path) -> Part:
    """The tables of tools/gpu_bench.py."""
    with open(folder / "gpu_bench.txt", "w") as output:
        command = [sys.executable, "tools/gpu_bench.py", str((folder / "gpu_bench.json").resolve())]
        subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=True)
    found: Part = json.loads((folder / "gpu_bench.json").read_text())
    return found


def sweep(folder: Path) -> Part:
    """Small runs of CLIP on the embedded pack, some at a time: wall-clock seconds and runs an hour."""
    with_gpu = torch.cuda.is_available()
    runs, samples, many = (8, 51_200, (1, 2, 4, 8)) if with_gpu else (2, 256, (1, 2))
    rows = []
    for jobs in many:
        with tempfile.TemporaryDirectory() as results:
            suite = Path(results) / "sweep.yaml"
            suite.write_text(SWEEP.format(seeds=", ".join(map(str, range(runs))), samples=samples))
            started = time.perf_counter()
            summary = bench.run_suite(
                suite, Path(results) / "out", jobs=jobs, gpus=1 if with_gpu and jobs == 1 else None
            )
            seconds = time.perf_counter() - started
        if len(summary.done) != runs:
            raise RuntimeError(f"{jobs} at a time: {len(summary.done)} of {runs} runs were done")
        rows.append({"runs at a time": jobs, "runs": runs, "seconds": seconds, "runs an hour": 3600 * runs / seconds})
    (folder / "sweep.json").write_text(json.dumps(rows, indent=1) + "\n")
    return {"samples of a run": samples, "rows": rows}


PARTS: Mapping[str, Callable[[Path], Part]] = {"tests": tests, "speeds": speeds, "sweep": sweep}


def gather(folder: Path, parts: Mapping[str, Callable[[Path], Part]] = PARTS) -> Part:
    """Every part with its seconds; "error" in place of the result of one that failed."""
    device = available_device()
    found: Part = {"gpu": torch.cuda.is_available(), "environment": environment(device), "parts": {}}
    for name, part in parts.items():
        started = time.perf_counter()
        try:
            result = part(folder)
        except Exception as error:  # one part that fails does not cost the others
            result = {"error": f"{type(error).__name__}: {error}"}
        found["parts"][name] = {"seconds": time.perf_counter() - started, **result}
        print(f"{name}: {found['parts'][name].get('error', 'done')}", flush=True)
    return found


def failed(found: Part) -> bool:
    """Whether a part has an error, or a test failed."""
    return any("error" in part or part.get("failed") for part in found["parts"].values())


def page(found: Part) -> str:
    """The evidence as one HTML page that stands alone."""
    hardware, packages = found["environment"]["hardware"], found["environment"]["packages"]
    first = f"On {hardware['device']}" if found["gpu"] else "No GPU on this machine: the CPU half, at small sizes"
    about = f"{first}; torch {packages.get('torch', '?')}, commit {found['environment'].get('commit') or 'unknown'}."
    body = [f"<h1>GPU evidence</h1><p><strong>{html.escape(about)}</strong></p>"]
    for name, part in found["parts"].items():
        body.append(f"<h2>{html.escape(name)}</h2><p>{part['seconds']:.0f} s</p>{_shown(part)}")
    style = (
        "body{font:15px/1.4 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "td,th{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #8884}"
        "div{overflow-x:auto}@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}"
    )
    head = '<!doctype html>\n<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    return f"{head}\n<title>GPU evidence</title>\n<style>{style}</style>\n{''.join(body)}\n"


def _shown(part: Part) -> str:
    """Lists of rows as tables, all else as a line."""
    found = []
    for key, value in part.items():
        if key == "seconds":
            continue
        if isinstance(value, list) and value and isinstance(value[0], dict):
            heads = "".join(f"<th>{html.escape(str(head))}</th>" for head in value[0])
            rows = "".join(
                "<tr>" + "".join(f"<td>{_cell(one)}</td>" for one in row.values()) + "</tr>" for row in value
            )
            found.append(f"<h3>{html.escape(key)}</h3><div><table><tr>{heads}</tr>{rows}</table></div>")
        else:
            found.append(f"<p>{html.escape(key)}: {html.escape(json.dumps(value))}</p>")
    return "".join(found)


def _cell(value: object) -> str:
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))


def main() -> None:
    """Gather, write, say where."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "gpu_evidence")
    folder.mkdir(parents=True, exist_ok=True)
    if not torch.cuda.is_available():
        print("no GPU on this machine: the CPU half, at small sizes", flush=True)
    found = gather(folder)
    (folder / "evidence.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "evidence.html").write_text(page(found))
    print(f"written to {folder / 'evidence.json'} and {folder / 'evidence.html'}")
    sys.exit(1 if failed(found) else 0)


if __name__ == "__main__":
    main()
