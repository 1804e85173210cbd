"""Losses without state against official code, retyped formulas and our own derivations.

official: github.com/mlfoundations/open_clip@89fb801 src/open_clip/loss.py (ClipLoss, SigLipLoss)
official: github.com/bokun-wang/NUCLR@ddaec8d models/losses.py (SigLipLoss, CyCLIP_Loss, DCL_Loss)
official: github.com/goel-shashank/CyCLIP@707e7c7 src/train.py (get_loss)
official: github.com/chingyaoc/DCL@7d6345f main.py (train)
official: github.com/chingyaoc/RINCE@c7f8534 ImageNet/simclr/simclr_module.py (sym_loss)
official: github.com/chingyaoc/RINCE@c7f8534 ImageNet/moco-v3/moco/builder.py
official: github.com/penghu-cs/RCL@1096a24 RCL-SGRAF/model.py (CCL)
official: github.com/leolee99/OSA@d64645b main_clip.py (weight_function, CrossEn)
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from bench.checks import lab
from bench.checks.oracles import KnownValue, KnownValues, OracleEntry, case, values
from methods.base import Adapter
from methods.clip import Clip
from methods.cyclip import Cyclip
from methods.dcl import Dcl
from methods.decomposable_cl import DecomposableCl
from methods.gradient_ascent import GradientAscent
from methods.osa import Osa
from methods.psd import Psd
from methods.rcl import Rcl
from methods.rince import Rince
from methods.siglip import Siglip
from methods.softclip_fallback import SoftclipFallback

#: losses of one step on the inputs of a name, or on A: the method, its values, hyper-parameters that these do not name
PLAIN: tuple[tuple[type[Adapter], str, OracleEntry], ...] = (
    (Clip, "clip/cases/*/out/*", {"learnable_scale": False}),
    (Cyclip, "cyclip/cases/*/out/*", {}),
    (Cyclip, "cyclip/cross_check_nuclr", {"lambda_in_modal": 0.25, "lambda_cross_modal": 0.25}),
    (Dcl, "dcl/cases/*/out/*", {}),
    # one modality, with in-modal negatives
    (
        Dcl,
        "dcl/unimodal_original_A_tau0.5_tp0.1/loss",
        {"tau_plus": 0.1, "temperature": 0.5, "in_modal_negatives": True},
    ),
    (Rince, "rince/bimodal/*/out/*", {}),
    (Rince, "rince/official_simclr_two_view/*/out/*", {"in_modal_negatives": True}),
)


def _plain(kind: type[Adapter], config: OracleEntry, *of_entry: Any) -> KnownValues:
    entry, name, expected = of_entry if len(of_entry) == 3 else ({}, "A", *of_entry)
    yield from lab.compare_step(lab.adapter_of(kind, entry, **config), lab.oracle_inputs(name), expected)


for _kind, _pattern, _config in PLAIN:
    case(_kind.name, _pattern)(partial(_plain, _kind, _config))


@case("clip", "clip/grad_log_scale_A_at_0.07")
def _clip_scale(expected: float) -> KnownValues:
    method, z = lab.build_adapter(Clip), lab.oracle_inputs("A")
    yield from lab.gradients(lab.step_loss(method, z), {"scale": method.scale.rho}, {"grad_scale": expected})


@case("siglip", "siglip/cases/*/out/*")
def _siglip(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    method, z = lab.adapter_of(Siglip, entry), lab.oracle_inputs(name)
    loss = lab.step_loss(method, z)
    yield from lab.compare_loss(method, loss, z, expected)
    own = torch.stack(torch.autograd.grad(loss, [method.scale.rho, method.bias]))
    yield KnownValue("gradient of log scale and bias", own, expected["grad_extra"])


@case("siglip", "siglip/nuclr_repo/*on_*")
def _siglip_unnormalised(key: str, expected: float) -> KnownValues:
    """NUCLR's repository gives raw projections, here the embeddings or three times as long ones."""
    z = {name: (3.0 if key.endswith("by_3") else 1.0) * x for name, x in lab.oracle_inputs("A").items()}
    yield from lab.compare_step(lab.build_adapter(Siglip, unnormalised=True), z, expected)


@case("cyclip", "cyclip/components/*/*")
def _cyclip_component(name: str, _: OracleEntry, key: str, expected: float) -> KnownValues:
    z = lab.oracle_inputs(name)
    method = lab.build_adapter(Cyclip, lambda_in_modal=1.0, lambda_cross_modal=1.0)
    terms = method.loss(z, {}, slice(0, len(z["image"])))
    yield KnownValue(key, terms[{"inmodal": "in_modal_cyclic", "crossmodal": "cross_modal_cyclic"}[key]], expected)


@case("cyclip", "cyclip/inmodal_option/A")
def _cyclip_in_modal(expected: OracleEntry) -> KnownValues:
    """The official run's second views are given, and its consistency weights are 0."""
    views = values()["inputs"]["A_aug"]
    z = lab.oracle_inputs("A") | lab.leaves({f"{name}_view": views[f"{name}_aug"] for name in ("image", "text")})
    method = lab.build_adapter(Cyclip, in_modal=True, lambda_in_modal=0.0, lambda_cross_modal=0.0)
    yield from lab.compare_step(method, z, expected)


@case("rince", "rince/official_moco_one_direction/*/out/*")
def _rince_moco(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    """MoCo's loss has image anchors only, is multiplied by twice the temperature, and normalises what it is given."""
    method, z = lab.adapter_of(Rince, entry), lab.oracle_inputs(name)
    unit = {key: F.normalize(x, dim=1) for key, x in z.items()}
    image_half = 2 * method.loss(unit, {}, slice(0, len(z["image"])))["image_anchored"]
    yield from lab.compare_loss(method, 2 * entry["temperature"] * image_half, z, expected)


@case("rince", "rince/unbounded_with_learnable_scale/rows/*/q0_*")
def _rince_unbounded(row: OracleEntry, key: str, expected: float) -> KnownValues:
    given = values()["rince"]["unbounded_with_learnable_scale"]
    method = lab.adapter_of(Rince, row, q={"q0_1": 0.1, "q0_5": 0.5}[key], lam=given["lam"])
    yield from lab.compare_step(method, lab.oracle_inputs(given["case"]), expected)


@case("rcl", "rcl/cases/*/out/*")
def _rcl(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    """The authors' code subtracts p from 1, which loses digits where a negative takes nearly all the mass, as on P."""
    yield from lab.compare_step(
        lab.adapter_of(Rcl, entry, learnable_scale=True), lab.oracle_inputs(name), expected, rtol=3e-9
    )


@case("osa", "osa/cases/*/out/*")
def _osa(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    method, z = lab.adapter_of(Osa, entry), lab.oracle_inputs(name)
    seen = lab.leaves({f"side_{key}": expected[f"estimator_{key}"] for key in z})
    observed = lab.observe(method, {**z, **seen})
    yield KnownValue("weights", observed["weights"], expected["weights"])
    yield from lab.compare_step(method, z, expected, observed)


@case("psd", "psd/cases/*/out/*")
def _psd(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    soft = torch.tensor(expected["soft_rows"]).bool()
    yield from lab.compare_step(lab.adapter_of(Psd, entry), lab.oracle_inputs(name), expected, {"soft": soft})


@case("softclip_fallback", "softclip/cases/*")
def _softclip(key: str, expected: OracleEntry) -> KnownValues:
    """Guides are given in place of its own."""
    method = lab.adapter_of(SoftclipFallback, expected, target_temperature=1 / expected["target_scale"])
    guides = {"image_guide": "roi_features", "text_guide": "tag_features"}
    given = {ours: lab.exact_tensor(expected[theirs]) for ours, theirs in guides.items()}
    yield from lab.compare_step(method, lab.oracle_inputs(key.partition("_")[0]), expected, given)


@case("decomposable_cl", "decomposable_cl/cases/*/u_mean_identity")
def _posterior_mean(name: str, entry: OracleEntry, expected: OracleEntry) -> KnownValues:
    z = lab.oracle_inputs(name)
    method = lab.adapter_of(DecomposableCl, entry, u="mean", alpha=0.0)
    observed = lab.observe(method, z)
    for direction in z:
        yield KnownValue(f"u of the {direction}s", observed[f"log_u_{direction}"].exp(), expected[f"u_{direction}"])
    losses = [lab.step_loss(m, z) for m in (method, lab.adapter_of(Clip, entry))]
    yield KnownValue("loss", losses[0], expected["loss"])
    own, clip = (torch.cat(torch.autograd.grad(loss, list(z.values()))) for loss in losses)
    yield KnownValue("distance from CLIP's gradient", (own - clip).abs().max(), expected["grad_equals_clip_maxdiff"])


@case("decomposable_cl", "decomposable_cl/cases/*/fixed_u")
def _fixed_rates(name: str, entry: OracleEntry, expected: OracleEntry) -> KnownValues:
    z = lab.oracle_inputs(name)
    rates = {f"log_u_{key}": lab.exact_tensor(expected[f"u_{key}"]).log() for key in z}
    yield from lab.compare_step(lab.adapter_of(DecomposableCl, entry), z, expected, rates)


@case("gradient_ascent", "gradient_ascent/cases/*")
def _gradient_ascent(expected: OracleEntry) -> KnownValues:
    # The values were computed without a limit of the ascent.
    method, z = lab.adapter_of(GradientAscent, expected, limit=None), lab.oracle_inputs("N")
    observed = lab.observe(method, z)
    forgotten = observed["forget"].nonzero().flatten()
    yield KnownValue("forgotten rows", forgotten, sorted(expected["forget_ids"]), rtol=0, atol=0)
    terms = method.loss(z, observed, slice(0, len(z["image"])))
    yield KnownValue("forget", -terms["forget"], expected["clip_on_forget"])
    yield KnownValue("retain", terms["retain"], expected["clip_ls_on_retain"])
    yield from lab.compare_loss(method, terms["forget"] + terms["retain"], z, expected)
