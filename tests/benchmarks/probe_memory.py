"""A sweep over random features in a process of its own: the memory that it takes beside them.

Usage: probe_memory.py ROWS WIDTH CLASSES ITERATIONS. Prints JSON, in MB. A fit ends after ITERATIONS, and two strengths
are tried in place of 97: how many there are changes nothing but the solutions that are kept.
"""

from __future__ import annotations

import json
import resource
import sys
import time

import torch

from bench.evaluation import probe
from bench.evaluation.logistic import descent
from bench.evaluation.logistic.streamed import working_bytes

ROWS_AT_A_TIME = 1 << 12


def peak() -> float:
    """MB that were resident at the highest point so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(rows: int, width: int, classes: int) -> probe.Labelled:
    """Classes around centres, made without a second copy."""
    draws = torch.Generator().manual_seed(0)
    centres = torch.randn(classes, width, generator=draws) / 24
    features, labels = torch.empty(rows, width), torch.arange(rows) % classes
    for start in range(0, rows, ROWS_AT_A_TIME):
        some = labels[start : start + ROWS_AT_A_TIME]
        features[start : start + ROWS_AT_A_TIME] = torch.randn(len(some), width, generator=draws) + centres[some]
    return probe.Labelled(features, labels)


def main() -> None:
    rows, width, classes, iterations = map(int, sys.argv[1:])
    descent.MAX_ITERATIONS = iterations
    probe._COARSE, probe._SPANS = len(probe.STRENGTHS) - 1, ()
    small = table(200, 8, 4)
    probe.sweep_probe(small, small, 4)  # libraries are loaded and threads started
    before = peak()
    whole = table(rows, width, classes)
    with_features, validates = peak(), torch.arange(rows) % 5 == 0
    started = time.process_time()
    found = probe.sweep_probe(whole.select(~validates), whole.select(validates), classes)
    told = {
        "process": before,
        "features": whole.table.nbytes / 2**20,
        "with features": with_features,
        "peak": peak(),
        "beside features": peak() - before - whole.table.nbytes / 2**20,
        "formula": working_bytes(width, classes) / 2**20,
        "iterations": found.solution.iterations,
        "cpu seconds": time.process_time() - started,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
