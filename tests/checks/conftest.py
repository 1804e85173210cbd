"""Ranks that start once a test process, and mutants: broken adapters as files of their own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from bench.checks.pool import RankPool
from bench.checks.subject import Subject

IMPORTS = """
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F

from methods.base import RowWise, directions, info_nce, stream
from methods.clip import Clip
from methods.label_reselection import LabelReselection
from methods.prolip import Prolip
from methods.protocol import Cost, Diagnostic, Identity
from methods.sogclr import Sogclr
"""

_numbers = itertools.count()


@pytest.fixture(scope="session")
def pool() -> Iterator[RankPool]:
    torch.set_num_threads(1)
    with RankPool() as ranks:
        yield ranks


@pytest.fixture
def mutant(tmp_path: Path, own_plugins: Callable[[Path], str]) -> Callable[[str, str], Subject]:
    """`mutant("Clip", body)`: a subclass of an adapter in a file, known to discovery for one test."""

    def write(base: str, body: str) -> Subject:
        lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
        name = f"mutant_{next(_numbers)}"  # ranks keep the files they were told of
        path = tmp_path / f"{name}.py"
        path.write_text(f'{IMPORTS}\n\nclass Mutant({base}):\n    name = "{name}"\n{lines}\n')
        return Subject(own_plugins(path), path)

    return write
