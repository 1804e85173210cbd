"""CRCL, GSC, NCR, its mixture and DECL (Qin) against official code: given labels or flags, and traces of six steps.

official: github.com/QinYang79/CRCL@4a96406 CRCL_NeurIPS23/model/CRCL.py (CRCL.train_self)
official: github.com/MediaBrain-SJTU/GSC@2759ba0 GSC/model/RINCE.py (RINCE.train_batch, RINCE.split_batch)
official: github.com/XLearning-SCU/2021-NeurIPS-NCR@60256ba NCR/model.py (ContrastiveLoss)
official: github.com/XLearning-SCU/2021-NeurIPS-NCR@60256ba NCR/co_train.py (eval_train, split_prob)
official: github.com/QinYang79/DECL@1b0a775 model/DECL.py (warmup_batch, train_batch, mse_loss, KL, RDH_loss)
official: github.com/QinYang79/DECL@1b0a775 train.py (get_correspondence)

NCR's traces are of our assembly of its parts for one network; its mixture is scikit-learn's GaussianMixture.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from bench.checks import lab
from bench.checks.oracles import KnownValue, KnownValues, OracleEntry, case
from methods.crcl import Crcl
from methods.decl_evidential import DeclEvidential
from methods.gsc import Gsc
from methods.mixture import fit, posteriors, scaled
from methods.ncr import Ncr, divided
from methods.protocol import Batch, Clock, Tensors

OFFICIAL_GSC = {"per_batch": False, "learnable_scale": True}
#: What a warm step of a later stage of CRCL does: it reads the labels, and moves them over the threshold alone.
WARM_LATER = {"alpha": 1.0, "warm": 0.0}


def _whole(z: Tensors) -> slice:
    return slice(0, len(z["image"]))


def _crcl(entry: OracleEntry, labels: torch.Tensor, **config: Any) -> Crcl:
    method: Crcl = lab.adapter_of(Crcl, entry, len(labels), **{"floor": 1e-10, "learnable_scale": True, **config})
    method.label.copy_(labels)
    return method


@case("crcl", "crcl/cases/*/out/*")
def _crcl_case(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    method = _crcl(entry, lab.exact_tensor(expected["labels"]), **WARM_LATER)
    yield from _crcl_step(method, lab.oracle_inputs(name), None, expected)
    yield KnownValue("labels after the step", method.label, expected["labels_after"])


@case("crcl", "crcl/traces/*/steps")
def _crcl_trace(entry: OracleEntry, steps: list[OracleEntry]) -> KnownValues:
    """A warm pass and another; a later stage has its warm pass under WARM_LATER."""
    labels = lab.exact_tensor(entry["start_labels"])
    for number, (z, batch, _) in enumerate(lab.trace_steps(entry["inputs"])):
        warm = batch.clock.epoch < entry["warm_epochs"]
        later = WARM_LATER if warm and entry["stage"] > 0 else {"alpha": entry["alpha"], "warm": 0.5}
        method = _crcl(entry, labels, **later)
        yield from _crcl_step(method, z, batch, steps[number])
        yield KnownValue(f"labels after step {number}", method.label, steps[number]["state"]["labels"])
        labels = method.label


def _crcl_step(method: Crcl, z: Tensors, batch: Batch | None, expected: OracleEntry) -> KnownValues:
    observed = lab.observe(method, z, batch)
    terms = method.loss(z, observed, _whole(z))
    yield from lab.compare_loss(method, terms["active"] + terms["complementary"], z, expected)
    complementary = terms["complementary"] / method.config.complementary_weight
    yield KnownValue("complementary", complementary, expected["complementary"])
    ones = method.loss(z, {"label": torch.ones_like(observed["label"])}, _whole(z))
    yield KnownValue("active loss if all labels were 1", ones["active"], expected["active_if_all_labels_1"])


@case("gsc", "gsc/cases/*/out/*")
def _gsc_case(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    method = lab.adapter_of(Gsc, entry, len(expected["targets"]), **OFFICIAL_GSC)
    method.target.copy_(lab.exact_tensor(expected["targets"]))
    yield from _gsc_step(method, lab.oracle_inputs(name), None, expected)
    yield KnownValue("prediction", method.share, expected["prediction"])
    yield KnownValue("structure score", 1 - method.disagreement, expected["structure_score"])


@case("gsc", "gsc/traces/*/steps")
def _gsc_trace(entry: OracleEntry, steps: list[OracleEntry]) -> KnownValues:
    method = lab.adapter_of(Gsc, entry, lab.correspondence(entry["inputs"])["N"], **OFFICIAL_GSC)
    names = {"targets": "target", "preds": "share", "preds_targets": "share_average"}
    names |= {"topo_targets": "agreement_average"}
    for number, (z, batch, ends) in enumerate(lab.trace_steps(entry["inputs"])):
        expected = steps[number]
        yield from _gsc_step(method, z, batch, expected)
        if ends:
            method.end_epoch(batch.clock.epoch)
        for theirs, ours in names.items():
            state = getattr(method, ours).clone()
            yield KnownValue(f"{theirs} after step {number}", state, expected["state"][theirs])
        yield KnownValue(f"topos after step {number}", 1 - method.disagreement, expected["state"]["topos"])


def _gsc_step(method: Gsc, z: Tensors, batch: Batch | None, expected: OracleEntry) -> KnownValues:
    observed = lab.observe(method, z, batch)
    terms = method.loss(z, observed, _whole(z))
    yield from lab.compare_loss(method, terms["cross_modal"] + terms["structure"], z, expected)
    yield KnownValue("cross-modal loss", terms["cross_modal"], expected["cross"])
    settings = {key: getattr(method.config, key) for key in ("temperature", "intra_scale", "per_batch")}
    alone = lab.build_adapter(Gsc, structure_weight=1.0, **settings)  # one case has weight 0
    yield KnownValue("structure loss", alone.loss(z, observed, _whole(z))["structure"], expected["structure"])
    # By default logits are multiplied by 128/B: as if the square root of that were part of each target.
    root = (128 / len(z["image"])) ** 0.5
    scaled = lab.build_adapter(Gsc, structure_weight=1.0, **{**settings, "per_batch": True}).loss(
        z, observed, _whole(z)
    )
    heavier = alone.loss(z, {"target": root * observed["target"]}, _whole(z))["structure"] / root
    yield KnownValue("structure loss at a batch of 128", scaled["structure"], heavier)


@case("ncr", "mixture/cases/*")
def _mixture(entry: OracleEntry) -> KnownValues:
    x = lab.exact_tensor(entry["values"])
    yield KnownValue("probability of the smaller mean", posteriors(x, "smaller"), entry["low_probability"])
    mixture = fit(scaled(x), iterations=10, tolerance=1e-2, added_variance=5e-4)
    yield KnownValue("iterations", float(mixture.iterations), entry["iterations"])
    for name in ("means", "variances", "weights"):
        yield KnownValue(name, getattr(mixture, name), entry[name])


#: name of a rule of margins in the values -> ours. A batch of noisy rows, or of clean ones, has one rule alone.
RULES = {"paper": "paper", "row": "official", "official_clean": "official", "official": "official"}


@case("ncr", "ncr/cases/*/out/*")
def _ncr_case(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    z = lab.oracle_inputs(name)
    total = len(z["image"])
    method = lab.adapter_of(Ncr, entry, margins=RULES.get(entry["margins"], "paper"))
    constants: Tensors = {}
    if entry["mode"] == "train":
        # As noisy rows have them, targets are predictions.
        clean = "clean_probability" in expected
        constants = {
            "clean": torch.full((total,), clean),
            "clean_probability": lab.exact_tensor(expected.get("clean_probability", [0.0] * total)),
            "prediction": lab.exact_tensor(expected["prediction" if clean else "targets"]),
            "used": torch.ones(total, dtype=torch.bool),
        }
    loss = lab.sum_of_tiles(method, z, constants)
    yield from lab.compare_loss(method, loss, z, expected)
    if "official_sum" in expected:
        yield KnownValue("loss as a sum", loss * total, expected["official_sum"])


@case("ncr", "ncr/parts/*")
def _ncr_part(entry: OracleEntry) -> KnownValues:
    method = lab.adapter_of(Ncr, entry)
    observed = lab.observe(method, lab.oracle_inputs(entry["inputs"]))
    for key in ("prediction", "row_loss"):
        yield KnownValue(key, observed[key], entry[key])

    left = torch.arange(40) / 200  # of the margin; the best tenth of the rows, and one more, has 37 / 200 on average
    by_tenth = method._predictions(2 * (entry["margin"] - left.double()))
    yield KnownValue("predictions of 40 rows", by_tenth, (left.double() * 200 / 37).clamp(max=1), 1e-6)


@case("ncr", "ncr/split/*")
def _ncr_split(entry: OracleEntry) -> KnownValues:
    sure = divided(torch.linspace(0.6, 0.9, 300))
    yield KnownValue("rows that one in a hundred leaves clean", float(sure.sum()), 296.0)
    yield KnownValue("clean rows", divided(lab.exact_tensor(entry["clean_probability"])).double(), entry["clean"])


@case("ncr", "ncr/traces/*/steps")
def _ncr_trace(entry: OracleEntry, steps: list[OracleEntry]) -> KnownValues:
    given = lab.correspondence(entry["inputs"])
    epochs = 1 + given["steps"][-1]["epoch"]
    shares = {"warm": entry["warm_epochs"] / epochs, "noisy_from": entry["noisy_rows_from_epoch"] / epochs}
    method = lab.adapter_of(Ncr, entry, given["N"], margins=RULES[entry["margins"]], **shares)
    for number, (z, batch, ends) in enumerate(lab.trace_steps(entry["inputs"])):
        expected = steps[number]
        for name, state in expected["state"].items():  # as the step uses it
            yield KnownValue(f"{name} before step {number}", getattr(method, name).double(), state)
        observed = lab.observe(method, z, batch)
        yield from lab.compare_step(method, z, expected, observed)
        for key in ("prediction", "row_loss"):
            yield KnownValue(f"{key} of step {number}", observed[key], expected[key])
        used = observed.get("used", torch.ones(len(batch.ids)))
        yield KnownValue(f"rows in use in step {number}", used.double(), expected["rows_used"])
        if ends:
            method.end_epoch(batch.clock.epoch)


@case("decl_evidential", "decl_evidential/cases/*/out/*")
def _decl_case(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    """Compare a step late in a run, when the number of negatives has come down to the one that is given."""
    z = lab.oracle_inputs(name)
    total = len(z["image"])
    method = lab.adapter_of(DeclEvidential, entry, total, hinge="sum", negatives=expected["negatives"])
    method.clean.copy_(torch.tensor(expected["clean"]))
    yield from _decl_step(method, z, Batch(torch.arange(total), Clock(9, "train", 0.9, 9)), expected)


def _decl_step(method: DeclEvidential, z: Tensors, batch: Batch, expected: OracleEntry) -> KnownValues:
    observed = lab.observe(method, z, batch)
    terms = method.loss(z, observed, _whole(z))
    yield KnownValue("number of negatives", observed["negatives"], expected["negatives"])
    yield KnownValue("flags in use", observed["clean"].double(), expected.get("clean", expected.get("clean_used")))
    yield KnownValue("evidential loss", terms["evidential"], expected["edl"])
    yield KnownValue("hinge", terms["hinge"], expected["hinge"])
    yield from lab.compare_loss(method, terms["evidential"] + terms["hinge"], z, expected)
    mean = DeclEvidential(replace(method.config, hinge="mean"), method.facts).double().loss(z, observed, _whole(z))
    yield KnownValue("hinge as the mean at a batch of 128", mean["hinge"], 128 / len(z["image"]) * expected["hinge"])


@case("decl_evidential", "decl_evidential/evidence/*")
def _evidence(entry: OracleEntry) -> KnownValues:
    z, single = lab.oracle_inputs(entry["inputs"]), 1e-7  # get_correspondence returns its predictions in fp32
    method = lab.adapter_of(DeclEvidential, entry, len(z["image"]))
    share, uncertainty = method.correspondence(z)
    yield KnownValue("share of the own pair", share, entry["share"], single)
    yield KnownValue("uncertainty", uncertainty, entry["uncertainty"], single)
    lab.observe(method, z)
    yield KnownValue("recorded flags", method.clean.double(), entry["clean"])


@case("decl_evidential", "decl_evidential/traces/*/steps")
def _decl_trace(trace: OracleEntry, steps: list[OracleEntry]) -> KnownValues:
    """Compare two passes of three steps, the first one warm; official counts of negatives end at 3 of 7 rows."""
    source = lab.correspondence(trace["inputs"])
    passes = source["steps"][-1]["epoch"] + 1
    settings: OracleEntry = {"hinge": "sum", "warm": trace["warm_epochs"] / passes, "negatives": 3, "anneal": 1.0}
    method = lab.adapter_of(DeclEvidential, trace, source["N"], **settings)
    for (z, batch, _), expected in zip(lab.trace_steps(trace["inputs"]), steps, strict=True):
        yield from _decl_step(method, z, batch, expected)
        flags = method.clean[batch.ids].double()
        yield KnownValue(f"flags after step {batch.clock.step}", flags, expected["clean_recorded"])
