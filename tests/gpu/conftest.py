"""What is tested on a GPU is tested on the CPU as well, by the same lines; `-m gpu` runs the GPU's half."""

from __future__ import annotations

from typing import Any

import pytest
import torch

GPU = pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=GPU)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """The CPU, then the first GPU."""
    return torch.device(request.param)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`trained_on`: a method with a device. `bench check` trains all of them on the CPU, so here the CPU trains one."""
    if "trained_on" in metafunc.fixturenames:
        cases: list[Any] = [pytest.param("clip", torch.device("cpu"), id="cpu-clip")]
        # row-wise, stateful, whole-batch in phases, with variances, with masks
        for method in ("clip", "sogclr", "ncu", "prolip", "nuclr"):
            cases.append(pytest.param(method, torch.device("cuda"), id=f"cuda-{method}", marks=GPU))
        metafunc.parametrize(("trained_on", "place"), cases)
