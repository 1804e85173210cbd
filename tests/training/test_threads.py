"""A run computes with the suite's number of threads, whatever the machine and the process had before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bench.errors import UserError
from bench.planning.planner import plan
from bench.store import Store
from bench.suite.suite import load_suite
from bench.training.inputs import InputsReader
from bench.training.job import make_job

SUITE = """\
name: threads
budget: {samples: 32}
towers: {dim: 8, vocabulary: 300}
train: {batch: 16%s}
methods: [clip]
"""


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("said", "threads"), [("", 1), (", threads: 2", 2)])
def test_a_run_has_the_threads_of_its_suite(tmp_path: Path, said: str, threads: int) -> None:
    file = tmp_path / "threads.yaml"
    file.write_text(SUITE % said)
    (run,) = load_suite(file).runs()
    store = Store(tmp_path / "results")
    (planned,) = plan([run], store)
    torch.set_num_threads(3)
    make_job(run, InputsReader().inputs(run), planned.resolved, store.run(planned.id), None, torch.device("cpu"))
    assert torch.get_num_threads() == threads


def test_fp32_towers_mean_it_on_a_gpu_too() -> None:
    """Matrix products do by default, convolutions do not; whatever encodes imports the towers."""
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize("value", ["null", "0", "1.5", "all"])
def test_threads_are_a_whole_number(tmp_path: Path, value: str) -> None:
    file = tmp_path / "threads.yaml"
    file.write_text(SUITE % f", threads: {value}")
    with pytest.raises(UserError, match=r"threads\.yaml:4: train\.threads: "):
        load_suite(file)
