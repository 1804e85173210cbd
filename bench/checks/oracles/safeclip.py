"""SafeCLIP against the authors' code: both losses, their mixture over safe and risky rows, banks, and the split.

official: github.com/BigML-CS-UCLA/SafeCLIP@91488ce src/train.py (get_loss), src/memory_bank.py on lightly 1.2.39
official: github.com/BigML-CS-UCLA/SafeCLIP@91488ce src/samplers.py (fit_gmm_to_cos_sim), src/main.py
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import Case, Comparison, values
from bench.checks.oracles.cleanclip import VIEWED, viewed
from bench.checks.oracles.roclip import queue_after, start
from methods.mixture import fit, posteriors
from methods.protocol import Clock
from methods.safeclip import Safeclip, safest

PHASES = {"safeclip_in_modal": "warm", "safeclip_cross_views": "slow"}


def cases() -> Iterator[Case]:
    section = values()["safeclip"]
    for number, entry in enumerate(section["cases"]):
        compare = _mixed if entry["kind"] == "safeclip_mixed" else _loss
        yield Case(f"safeclip/cases/{number}/out", partial(compare, entry))
    for number, trace in enumerate(section["traces"]):
        yield Case(f"safeclip/traces/{number}/steps", partial(_banks, trace))
    for number, entry in enumerate(section["mixture"]):
        yield Case(f"safeclip/mixture/{number}", partial(_mixture, entry))
    for number, entry in enumerate(section["split"]):
        yield Case(f"safeclip/split/{number}/safe", partial(_split, entry))
    yield Case("safeclip/official_schedule/safe_share_of_epoch", partial(_shares, section["official_schedule"]))


def _loss(entry: dict[str, Any]) -> Iterator[Comparison]:
    method, z = lab.build(Safeclip, temperature=math.exp(-entry["log_scale"])), viewed(entry["inputs"])
    loss = lab.objective(method, z, when=lab.clock(phase=PHASES[entry["kind"]]))
    yield Comparison("loss", loss, entry["out"]["loss"])
    yield from lab.gradients(loss, {**z, "log_scale": method.scale.rho}, entry["out"])


def _mixed(entry: dict[str, Any]) -> Iterator[Comparison]:
    method, z = lab.build(Safeclip, temperature=math.exp(-entry["log_scale"])), viewed(entry["inputs"])
    safe, out = torch.tensor(entry["mask"]), entry["out"]
    terms = method.loss(z, {"safe": safe}, slice(0, len(safe)))
    loss = terms["cross_modal"] + terms["in_modal"]
    yield Comparison("loss of the safe rows", terms["cross_modal"] * len(safe) / safe.sum(), out["safe"])
    yield Comparison("loss of the risky rows", terms["in_modal"] * len(safe) / (~safe).sum(), out["risky"])
    yield Comparison("loss", loss, out["loss"])
    yield from lab.gradients(loss, {**z, "log_scale": method.scale.rho}, out)


def _banks(trace: dict[str, Any]) -> Iterator[Comparison]:
    given = values()["poisoning"]["traces"][trace["inputs"]]
    settings = {"bank_size": trace["size"], "temperature": math.exp(-trace["log_scale"])}
    method = lab.build(Safeclip, given["rows"], 7, 8, bank=True, bank_start="noise", **settings)
    banks = {"image": method.image_bank, "text": method.text_bank}
    for name, bank in banks.items():
        start(bank, trace["init"][f"bank_{name}"], trace["init"]["pointer"])
    for step, (rows, expected) in enumerate(zip(given["steps"], trace["steps"], strict=True)):
        z = lab.leaves({name: rows[name] for name in VIEWED})
        for name, bank in banks.items():
            yield Comparison(f"nearest {name}s in step {step}", bank.places(z[name]), expected[f"nearest_{name}"])
        loss = lab.objective(method, z, when=lab.clock(step, "warm"))  # ids in the order of the batch
        yield Comparison(f"loss of step {step}", loss, expected["loss"])
        yield from lab.gradients(loss, {**z, "log_scale": method.scale.rho}, expected)
        for name, bank in banks.items():
            yield from queue_after(bank, expected[f"bank_{name}"], expected)


def _mixture(entry: dict[str, Any]) -> Iterator[Comparison]:
    """Compare the fit, from its start on, and the first split that the adapter makes of it."""
    scores = torch.tensor(entry["scores"], dtype=torch.float64)
    fits = {n: fit(scores, n, 1e-3, 1e-6) for n in (0, entry["iterations"] - 1, 100)}
    final, before = fits[100], fits[entry["iterations"] - 1]
    yield Comparison("rows below the first cut", fits[0].weights[0] * len(scores), entry["start_lower"])
    for name in ("weights", "means", "variances"):
        yield Comparison(name, getattr(final, name), entry[name])
    yield Comparison("iterations", float(final.iterations), entry["iterations"])
    yield Comparison("lower bound", before.log_joint(scores).logsumexp(0).mean(), entry["lower_bound"])
    method = lab.build(Safeclip, rows=len(scores))
    method.similarity.copy_(scores)
    method.seen.fill_(True)
    method.split(Clock(10, "main", progress=0.25, epoch=3))
    posterior = posteriors(scores, "larger", 100, 1e-3, 1e-6, rescaled=False)
    yield Comparison("posterior", posterior, entry["posterior"])
    yield Comparison("safe rows", method.safe.double(), [float(safe) for safe in entry["safe_first"]])
    yield Comparison("number of safe rows", float(method.first_safe), entry["safe_count"])


def _split(entry: dict[str, Any]) -> Iterator[Comparison]:
    given = values()["safeclip"]["mixture"][entry["gmm"]]
    scores = torch.tensor(given["scores"], dtype=torch.float64)
    posterior = posteriors(scores, "larger", 100, 1e-3, 1e-6, rescaled=False)
    safe = safest(scores, posterior, math.floor(entry["share"] * len(scores)))
    yield Comparison("safe rows", safe.sort().values, entry["safe"])


def _shares(given: dict[str, Any]) -> Iterator[Comparison]:
    epochs, hyper = len(given["safe_share_of_epoch"]), given["hyper"]
    first = round(hyper["filter_ratio"] * 1000)
    method = lab.build(Safeclip, rows=1000, growth=epochs * hyper["update_filter_ratio"])
    method.first_safe.fill_(first)
    method.main_start.fill_(6 / 32)
    shares = [method.safe_share((6 + epoch) / 32) for epoch in range(epochs)]
    actual = torch.tensor(shares, dtype=torch.float64)
    yield Comparison("safe share of every main epoch", actual, given["safe_share_of_epoch"])
