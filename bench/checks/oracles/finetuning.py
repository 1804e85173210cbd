"""SuperCLIP, m2-Mix, OTTER and PAU against official code.

official: github.com/hustvl/SuperCLIP@fb59c6d superclip/open_clip/loss.py (SuperClipLoss), transformer.py (MixClsHead)
official: github.com/changdaeoh/multimodal-mixup@f8e05fc main.py (sph_inter), loss.py (clip_loss2), README.md
official: github.com/facebookresearch/OTTER@605d317 models/model.py (DistillationModel), model_util.py, ema.py
official: github.com/leolee99/PAU@1604ccc Image-Text-Retrieval/modules/criterions.py (TotalLoss), modules/model.py
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bench.checks import lab
from bench.checks.oracles import KnownValue, KnownValues, OracleEntry, case, values
from methods.m2mix import M2mix
from methods.otter import Otter
from methods.pau import Pau
from methods.protocol import Batch, Clock, Tensors
from methods.superclip import Superclip


def _pair(name: str) -> Tensors:
    return lab.pair(lab.correspondence(name, "finetuning"))


@case("superclip", "superclip/traces/*/steps")
def _superclip(trace: OracleEntry, steps: list[OracleEntry]) -> KnownValues:
    """The counts of every step are its state times the batch, which makes them shares of captions and batches."""
    z = _pair(trace["inputs"])
    method, total = lab.adapter_of(Superclip, trace), len(z["image"])
    method.add_head(trace["width"], trace["vocabulary"])
    method.double()
    theirs = {"ln_weight": method.norm.weight, "ln_bias": method.norm.bias}
    theirs |= {"head_weight": method.head.weight, "head_bias": method.head.bias}
    yield KnownValue("epsilon of the norm", method.norm.eps, trace["head"]["ln_eps"])
    for name, parameter in theirs.items():
        parameter.data.copy_(lab.exact_tensor(trace["head"][name.removeprefix("head_")]))
    for number, expected in enumerate(steps):
        tokens = torch.tensor(expected["tokens"]).sort(1).values
        rows = {**z, **lab.leaves({"pooled": expected["pooled"]}), "tokens": tokens}
        observed = lab.observe(method, rows)
        targets: Tensor = rows["image"].new_zeros(total, trace["vocabulary"])
        targets.scatter_add_(1, tokens, observed["targets"])
        yield KnownValue(f"targets of step {number}", targets, expected["targets"])
        for name, share in (("frequency", method.captions_with), ("batches", method.captions)):
            yield KnownValue(f"{name} after step {number}", share.double() / total, expected["state_after"][name])
        terms = method.loss(rows, observed, slice(0, total))
        yield KnownValue("contrastive", terms["contrastive"], expected["contrastive_loss"])
        yield KnownValue("loss over tokens", terms["tokens"], expected["class_loss"])
        yield from lab.compare_loss(method, lab.sum_of_tiles(method, rows, observed, cuts=(3,)), rows, expected)
        yield from lab.gradients(sum(terms.values()), theirs, expected)


@case("m2mix", "m2mix/cases/*/out/*")
def _m2mix(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    """Lambda is given; the weight that a stage of the nine leaves is not."""
    script = entry["form"] == "main"
    config: OracleEntry = {"form": "script" if script else "readme", "stages": 9 if entry.get("schedule") else 1}
    config["mix_temperature"] = entry["mix_temperature"] if script else 1 / entry["m_tau"]
    if script and not entry["separate_scale"]:
        config["mix_temperature"] = None
    z, stage = _pair(name), entry.get("epoch", 0)
    method = lab.adapter_of(M2mix, {**entry, **config})
    observed = lab.observe(method, z, Batch(torch.arange(len(z["image"])), Clock(0, "train", stage / 9, stage)))
    yield KnownValue("weight", observed["mix_weight"], entry["weight"] / (1 + stage))
    given = {**observed, "image_share": lab.exact_tensor(entry["lam"])}
    yield from lab.compare_step(method, z, expected, given)


@case("otter", "otter/cases/*/out/*")
def _otter(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    temperature, distill = (math.exp(-entry[f"rho_{name}"]) for name in ("contrastive", "distill"))
    method = lab.adapter_of(Otter, entry, temperature=temperature, distill_temperature=distill)
    z = {**_pair(name), **lab.leaves({f"side_{key}": entry[f"teacher_{key}"] for key in ("image", "text")})}
    observed = lab.observe(method, z)
    for key in ("image", "text"):
        yield KnownValue(f"targets of {key}s", observed[f"{key}_targets"], expected[f"target_{key}"], atol=1e-20)
    loss = lab.sum_of_tiles(method, z, observed)
    yield from lab.compare_loss(method, loss, z, expected)
    rho = {"rho_contrastive": method.scale.rho, "rho_distill": method.distill_scale.rho}
    yield from lab.gradients(loss, rho, expected)


@case("otter", "otter/ema/shadow_after_update")
def _otter_teacher(expected: list[list[float]]) -> KnownValues:
    """Update k comes before step k; the first finds the teacher's own weights, ours is after the step before."""
    given = values()["otter"]["ema"]
    student, method = lab.exact_tensor(given["student"]), lab.build_adapter(Otter, decay=given["decay"])
    teacher = student[0]
    yield KnownValue("teacher at the start", teacher, expected[0])
    for step in range(len(student) - 1):
        teacher = torch.lerp(student[step + 1], teacher, method.side_decay(lab.a_clock(step)))
        yield KnownValue(f"teacher after step {step}", teacher, expected[step + 1])
    yield KnownValue("decay far into the run", method.side_decay(lab.a_clock(10**6)), given["decay"])


@case("pau", "pau/cases/*/out/*")
def _pau(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    z, count = _pair(name), len(entry["image_prototypes"])
    total = len(z["image"])
    temperature = math.exp(-entry["rho"])
    method = lab.build_adapter(
        Pau,
        dim=z["image"].shape[1],
        prototypes=count,
        certainty_temperature=entry["tau"],
        uncertainty_weight=entry["uncertainty_weight"],
        variance_weight=entry["variance_weight"],
        least_mean=None,
        temperature=temperature,
    )
    own = {key: method.get_parameter(key) for key in ("image_prototypes", "text_prototypes")}
    for key, prototypes in own.items():
        prototypes.data.copy_(lab.exact_tensor(entry[key]))
    observed = lab.observe(method, z)
    mean = observed["mean_other"] * (total - 1) / total  # they divide by B
    yield KnownValue("mean logit", mean / temperature, expected["mean_off_diagonal_logit"])
    for certainties in method.diagnostics(z, observed):
        for key, found in certainties.series.items():
            yield KnownValue(f"certainty of {key}", found, expected[f"{key.removesuffix('s')}_certainty"])
    terms = method.loss(z, observed, slice(0, total))
    for ours, theirs in (("contrastive", "sim_loss"), ("uncertainty", "uct_loss"), ("variance", "var_loss")):
        yield KnownValue(ours, terms[ours], expected["parts"][theirs])
    yield from lab.compare_loss(method, lab.sum_of_tiles(method, z, observed, cuts=(3,)), z, expected)
    yield from lab.gradients(sum(terms.values()), own, expected)
