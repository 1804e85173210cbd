"""CleanCLIP, RoCLIP and SafeCLIP against the authors' code: losses, banks from noise or empty, mixture and split.

official: github.com/nishadsinghi/CleanCLIP@d6e2f1d src/train.py (get_loss)
official: github.com/BigML-CS-UCLA/RoCLIP@f34a929 src/train.py (get_loss), src/memory_bank.py on lightly 1.2.39
official: github.com/BigML-CS-UCLA/SafeCLIP@91488ce src/train.py (get_loss), src/memory_bank.py on lightly 1.2.39
official: github.com/BigML-CS-UCLA/SafeCLIP@91488ce src/samplers.py (fit_gmm_to_cos_sim), src/main.py
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bench.checks import lab
from bench.checks.oracles import KnownValue, KnownValues, OracleEntry, case, values
from methods.cleanclip import Cleanclip
from methods.embedding_queue import EmbeddingQueue
from methods.mixture import fit, posteriors
from methods.protocol import Batch, Clock, Tensors
from methods.roclip import Roclip
from methods.safeclip import Safeclip, safest

VIEWED = ("image", "text", "image_view", "text_view")


def _viewed(name: str) -> Tensors:
    """Return one of the shared inputs as leaves, with their second views."""
    entry = values()["poisoning"]["inputs"][name]
    return lab.leaves({key: entry[key] for key in VIEWED})


@case("cleanclip", "cleanclip/cases/*/out")
def _cleanclip(entry: OracleEntry, expected: OracleEntry) -> KnownValues:
    yield from lab.compare_step(lab.adapter_of(Cleanclip, entry), _viewed(entry["inputs"]), expected)


def _start(queue: EmbeddingQueue, entries: list[list[float]], pointer: int) -> None:
    """Put the entries with which a trace begins into a full queue."""
    queue.entries.copy_(lab.exact_tensor(entries))
    queue.pointer.fill_(pointer)


def _queue_after(queue: EmbeddingQueue, entries: list[list[float]], expected: OracleEntry) -> KnownValues:
    yield KnownValue("entries", queue.entries[: len(entries)].clone(), entries)
    yield KnownValue("pointer", queue.pointer.clone(), expected["pointer"])


@case("roclip", "roclip/traces/*/steps")
def _roclip(trace: OracleEntry, steps: list[OracleEntry]) -> KnownValues:
    given = values()["poisoning"]["traces"][trace["inputs"]]
    from_noise: OracleEntry = {"cycle": "pass", "pool_start": "noise"} if "init" in trace else {"every": 1}
    method = lab.adapter_of(Roclip, trace, given["rows"], 7, dim=8, **from_noise)
    if "init" in trace:
        _start(method.pool, trace["init"]["bank"], trace["init"]["pointer"])
    by_default = [float(lab.build_adapter(Roclip).matches(Clock(k, "train", k / 48, 0))) for k in range(48)]
    yield KnownValue("steps of 48 that match by default", lab.exact_tensor(by_default), [0.0, 0.0, 1.0, 1.0] * 12)
    for step, (rows, expected) in enumerate(zip(given["steps"], steps, strict=True)):
        z = lab.pair(rows)
        if expected["nearest"] is not None:
            yield KnownValue(f"nearest in step {step}", method.pool.places(z["image"]), expected["nearest"])
        when = lab.a_clock(step, epoch=expected.get("epoch_from_1", 1) - 1)
        yield KnownValue(f"step {step} matches", float(method.matches(when)), float(expected.get("matching", True)))
        batch = Batch(torch.arange(len(z["image"])), when)  # ids in the order of the batch, as the code writes rows
        yield from lab.compare_step(method, z, expected, batch=batch)
        yield from _queue_after(method.pool, expected["bank"], expected)
        if "filled" in expected:
            yield KnownValue(f"entries of step {step}", method.pool.filled.clone(), expected["filled"])


@case("safeclip", "safeclip/cases/*/out")
def _safeclip(entry: OracleEntry, expected: OracleEntry) -> KnownValues:
    """Compare a loss of one phase, or the mixture of both over safe and risky rows."""
    method, z = lab.adapter_of(Safeclip, entry), _viewed(entry["inputs"])
    if entry["kind"] == "safeclip_mixed":
        safe = torch.tensor(entry["mask"])
        terms = method.loss(z, {"safe": safe}, slice(0, len(safe)))
        loss = terms["cross_modal"] + terms["in_modal"]
        yield KnownValue("loss of the safe rows", terms["cross_modal"] * len(safe) / safe.sum(), expected["safe"])
        yield KnownValue("loss of the risky rows", terms["in_modal"] * len(safe) / (~safe).sum(), expected["risky"])
    else:
        phase = {"safeclip_in_modal": "warm", "safeclip_cross_views": "slow"}[entry["kind"]]
        loss = lab.step_loss(method, z, when=lab.a_clock(phase=phase))
    yield from lab.compare_loss(method, loss, z, expected)


@case("safeclip", "safeclip/traces/*/steps")
def _banks(trace: OracleEntry, steps: list[OracleEntry]) -> KnownValues:
    given = values()["poisoning"]["traces"][trace["inputs"]]
    method = lab.adapter_of(Safeclip, trace, given["rows"], 7, dim=8, bank=True, bank_start="noise")
    banks = {"image": method.image_bank, "text": method.text_bank}
    for name, bank in banks.items():
        _start(bank, trace["init"][f"bank_{name}"], trace["init"]["pointer"])
    for step, (rows, expected) in enumerate(zip(given["steps"], steps, strict=True)):
        z = lab.leaves({name: rows[name] for name in VIEWED})
        for name, bank in banks.items():
            yield KnownValue(f"nearest {name}s in step {step}", bank.places(z[name]), expected[f"nearest_{name}"])
        batch = Batch(torch.arange(len(z["image"])), lab.a_clock(step, "warm"))  # ids in the order of the batch
        yield from lab.compare_step(method, z, expected, batch=batch)
        for name, bank in banks.items():
            yield from _queue_after(bank, expected[f"bank_{name}"], expected)


def _posterior(scores: Tensor) -> Tensor:
    return posteriors(scores, "larger", 100, 1e-3, 1e-6, rescaled=False)


@case("safeclip", "safeclip/mixture/*")
def _mixture(entry: OracleEntry) -> KnownValues:
    """Compare the fit, from its start on, and the first split that the adapter makes of it."""
    scores = lab.exact_tensor(entry["scores"])
    fits = {n: fit(scores, n, 1e-3, 1e-6) for n in (0, entry["iterations"] - 1, 100)}
    final, before = fits[100], fits[entry["iterations"] - 1]
    yield KnownValue("rows below the first cut", fits[0].weights[0] * len(scores), entry["start_lower"])
    for name in ("weights", "means", "variances"):
        yield KnownValue(name, getattr(final, name), entry[name])
    yield KnownValue("iterations", float(final.iterations), entry["iterations"])
    yield KnownValue("lower bound", before.log_joint(scores).logsumexp(0).mean(), entry["lower_bound"])
    yield KnownValue("posterior", _posterior(scores), entry["posterior"])
    method = _split_by(scores)
    yield KnownValue("safe rows", method.safe.double(), [float(safe) for safe in entry["safe_first"]])
    yield KnownValue("number of safe rows", float(method.first_safe), entry["safe_count"])
    small = 0.027 * scores  # where the added variance decides about rows near the threshold
    yield KnownValue("safe rows of small scores", _split_by(small).safe, _posterior(small) >= 0.9)


def _split_by(scores: Tensor) -> Any:
    """Make the first split by these similarities."""
    method = lab.build_adapter(Safeclip, rows=len(scores))
    method.similarity.copy_(scores)
    method.seen.fill_(True)
    method.split(Clock(10, "main", progress=0.25, epoch=3))
    return method


@case("safeclip", "safeclip/split/*/safe")
def _split(entry: OracleEntry, expected: list[int]) -> KnownValues:
    scores = lab.exact_tensor(values()["safeclip"]["mixture"][entry["gmm"]]["scores"])
    safe = safest(scores, _posterior(scores), math.floor(entry["share"] * len(scores)))
    yield KnownValue("safe rows", safe.sort().values, expected)


@case("safeclip", "safeclip/official_schedule/safe_share_of_epoch")
def _shares(expected: list[float]) -> KnownValues:
    epochs, hyper = len(expected), values()["safeclip"]["official_schedule"]["hyper"]
    assert math.isclose(epochs * hyper["update_filter_ratio"], 0.26), "the default growth over the rest of the run"
    method = lab.build_adapter(Safeclip, rows=1000)
    method.first_safe.fill_(round(hyper["filter_ratio"] * 1000))
    method.main_start.fill_(6 / 32)
    shares = [method.safe_share((6 + epoch) / 32) for epoch in range(epochs)]
    yield KnownValue("safe share of every main epoch", lab.exact_tensor(shares), expected)
