"""RoCLIP against six steps of the authors' code from a pool of noise, and from the empty pool of the default.

official: github.com/BigML-CS-UCLA/RoCLIP@f34a929 src/train.py (get_loss), src/memory_bank.py on lightly 1.2.39
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from methods.embedding_queue import EmbeddingQueue
from methods.protocol import Tensors
from methods.roclip import Roclip


def cases() -> Iterator[Case]:
    for number, trace in enumerate(values()["roclip"]["traces"]):
        yield Case(f"roclip/traces/{number}/steps", partial(_trace, trace))


def start(queue: EmbeddingQueue, entries: list[list[float]], pointer: int) -> None:
    """Put the entries with which a trace begins into a full queue."""
    queue.entries.copy_(torch.tensor(entries, dtype=torch.float64))
    queue.pointer.fill_(pointer)


def queue_after(queue: EmbeddingQueue, entries: list[list[float]], expected: dict[str, Any]) -> Iterator[Comparison]:
    """Compare what a queue holds after a step."""
    yield Comparison("entries", queue.entries[: len(entries)].clone(), entries)
    yield Comparison("pointer", queue.pointer.clone(), expected["pointer"])


def _trace(trace: dict[str, Any]) -> Iterator[Comparison]:
    given = values()["poisoning"]["traces"][trace["inputs"]]
    settings = {"pool": trace["size"], "every": trace.get("every", 1), "temperature": math.exp(-trace["log_scale"])}
    if "init" in trace:
        settings |= {"cycle": "pass", "pool_start": "noise"}
    method = lab.build(Roclip, given["rows"], 7, 8, **settings)
    if "init" in trace:
        start(method.pool, trace["init"]["bank"], trace["init"]["pointer"])
    for step, (rows, expected) in enumerate(zip(given["steps"], trace["steps"], strict=True)):
        z: Tensors = lab.leaves({name: rows[name] for name in ("image", "text")})
        if expected["nearest"] is not None:
            yield Comparison(f"nearest in step {step}", method.pool.places(z["image"]), expected["nearest"])
        when = lab.clock(step, epoch=expected.get("epoch_from_1", 1) - 1)
        yield Comparison(f"step {step} matches", float(method.matches(when)), float(expected.get("matching", True)))
        loss = lab.objective(method, z, when=when)  # ids in the order of the batch, as the code writes rows
        yield Comparison(f"loss of step {step}", loss, expected["loss"])
        yield from lab.gradients(loss, {**z, "log_scale": method.scale.rho}, expected)
        yield from queue_after(method.pool, expected["bank"], expected)
        if "filled" in expected:
            yield Comparison(f"entries of step {step}", method.pool.filled.clone(), expected["filled"])
