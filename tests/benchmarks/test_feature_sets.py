"""Opening a feature set of many rows: seconds and memory, in a process of its own.

BENCH_FEATURE_ROWS=3000000 makes it CC3M's size, BENCH_FEATURE_WIDTH=768 (9 GB) that of a ViT-B/32; memory does not
depend on the width, because arrays are mapped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.data.features.about import Encoder
from bench.data.features.texts import TextPlan
from bench.data.features.writing import Array, Content, write_feature_set
from bench.data.strings import TEXT_LISTS, Strings

ROWS = int(os.environ.get("BENCH_FEATURE_ROWS", "20000"))
WIDTH = int(os.environ.get("BENCH_FEATURE_WIDTH", "16"))
OPEN = """
import json, sys, time
from bench.data.features import FeaturePairs
began, worked = time.perf_counter(), time.process_time()
pairs = FeaturePairs(sys.argv[1])
opening, working = time.perf_counter() - began, time.process_time() - worked
assert pairs.captions(7) and pairs.texts.array[pairs.texts.rows([pairs.captions(7)[0]])].size and pairs.content_hash
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
memory = {name: int(status[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile", "VmHWM")}
print(json.dumps({"rows": len(pairs), "opening": opening, "cpu": working, **memory}))
"""


def drawn(rows: int, seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, *shape)).astype(np.float16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    numbers = pa.array(np.arange(ROWS)).cast(pa.large_string())
    keys = pc.utf8_lpad(numbers, 10, "0")
    words = (pa.scalar(text, pa.large_string()) for text in ("a photo of the old red house by the sea, number", " "))
    texts = pc.binary_join_element_wise(next(words), numbers, next(words))
    captions = pa.ListArray.from_arrays(pa.array(np.arange(ROWS + 1, dtype=np.int32)), texts).cast(TEXT_LISTS)
    encoder = Encoder("drawn", "", "none", "float16", WIDTH)
    image = Array(encoder, lambda start, stop: drawn(stop - start, start, 1, WIDTH))
    text = Array(encoder, lambda start, stop: drawn(stop - start, start, WIDTH))
    out = tmp_path_factory.mktemp("features") / "set"
    write_feature_set(out, Content("made", "Drawn.", Strings(keys), captions, image, text, TextPlan.of(captions)))
    return out


def test_opening_takes_less_than_three_seconds_and_a_gigabyte(benchmark: BenchmarkFixture, folder: Path) -> None:
    command = [sys.executable, "-c", OPEN, str(folder)]
    result = benchmark.pedantic(
        subprocess.run, (command,), {"capture_output": True, "check": True}, rounds=3, warmup_rounds=1
    )
    measured = json.loads(result.stdout)
    print(measured)
    assert measured["rows"] == ROWS
    assert measured["cpu"] < 3  # seconds of work, whatever else the machine does
    assert measured["VmHWM"] < 1024
