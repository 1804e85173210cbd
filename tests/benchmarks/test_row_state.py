"""What state of 3 million pairs adds to a step on stored features, as a share of a bare loop's step.

A batch is seen with a state of few rows and with one of 3 million, in turn; the difference is what many rows cost.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import torch
from pytest_benchmark.fixture import BenchmarkFixture

from bench.adapters import registry
from bench.checks import lab
from methods.protocol import Batch, Facts, Tensors

from .test_features import BATCH, DIM, WIDTH, BareLoop
from .test_loss import leaves_of

FEW, MANY = 8192, 3_000_000
TIMES, LIMIT = 30, 0.02
#: every method with a number a pair, and no second view of pixels; those of global contrastive losses first
GLOBAL = ["decomposable_cl", "drrho", "fastclip", "isogclr", "nuclr", "sogclr"]
METHODS = [*GLOBAL, "bicro", "cream", "crcl", "decl_evidential", "gsc", "l2rm", "ncr"]


class State:
    """A method with the state of `rows` pairs, which sees the same embeddings of other rows in every step."""

    def __init__(self, name: str, rows: int, leaves: Tensors) -> None:
        kind: Any = registry.find_method(name)
        self.method = kind(kind.Config(), Facts(rows=rows, batch=BATCH, dim=DIM, seed=0))
        self.leaves, self.clock = leaves, lab.a_clock(1, self.method.phases()[-1].name)
        self.draws, self.rows = torch.Generator().manual_seed(0), rows

    def seconds(self) -> float:
        """Seconds of the processor in what a step does beside loss and towers."""
        ids = torch.randperm(self.rows, generator=self.draws)[:BATCH]
        began = time.thread_time()
        with torch.no_grad():
            self.method.observe(self.leaves, Batch(ids, self.clock))
        self.method.after_step(self.clock)
        return time.thread_time() - began


def test_many_rows_cost_under_a_fiftieth_of_a_step(benchmark: BenchmarkFixture) -> None:
    draws = torch.Generator().manual_seed(0)
    bare = BareLoop(*(torch.randn(FEW, WIDTH, generator=draws) for _ in range(2)))
    shares: dict[str, float] = {}

    def every_method() -> None:
        for name in METHODS:
            leaves = leaves_of(name, BATCH, DIM)
            few, many = State(name, FEW, leaves), State(name, MANY, leaves)
            added, steps = [], []
            for _ in range(TIMES):
                added.append(many.seconds() - few.seconds())
                began = time.thread_time()
                bare.step()
                steps.append(time.thread_time() - began)
            shares[name] = statistics.median(added) / statistics.median(steps)

    torch.set_num_threads(1)
    benchmark.pedantic(every_method, rounds=1, iterations=1)
    text = ", ".join(f"{name} {share:.2%}" for name, share in shares.items())
    benchmark.extra_info.update(peer="a bare step", ratio=text)
    print(f"\n3 million rows add, as a share of a bare step: {text}", file=sys.stderr)
    assert max(shares.values()) < LIMIT


def test_every_method_with_state_of_rows_is_measured() -> None:
    """A method whose state grows with the pairs is in `METHODS`, unless it needs a second view of pixels or words."""
    grows = []
    for name in registry.method_names():
        kind: Any = registry.find_method(name)
        state = kind(kind.Config(), Facts(rows=1111, batch=16, dim=16, seed=0)).state_dict()
        if any(1111 in value.shape for value in state.values()) and not kind.needs:
            grows.append(name)
    assert sorted(grows) == sorted(METHODS)
