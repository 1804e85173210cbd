"""ProLIP against the official loss and towers, inclusion against integrals.

official: github.com/naver-ai/prolip@59f6324 src/prolip/loss.py (ProLIPLoss)
official: github.com/naver-ai/prolip@59f6324 src/prolip/transformer.py, src/prolip/model.py
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bench.checks import lab
from bench.checks.oracles import KnownValue, KnownValues, OracleEntry, case, values
from bench.checks.oracles.pcmepp import gaussians, of_leaves
from methods.prolip import Prolip, inclusion, log_overlap
from methods.protocol import Tensors
from methods.siglip import Siglip


def masked_gaussians(name: str) -> Tensors:
    """Return the leaves of an input; its masked rows 0 and 1 become rows 0 and B / 2 of the batch."""
    given = values()["inputs"]
    total = len(given[name]["image"])
    z = gaussians(name, [0, *range(2, total // 2 + 1), 1, *range(total // 2 + 1, total)])
    for key in ("image", "text"):
        for new, old in ((f"masked_{key}", f"mean_{key}"), (f"masked_{key}_logvar", f"logvar_{key}")):
            z[new] = torch.zeros_like(z[key])
            z[new][[0, total // 2]] = lab.exact_tensor(given["masked"][name][old])
    return {key: x.requires_grad_() for key, x in z.items()}


def prolip_adapter(total: int, cfg: OracleEntry | None = None, **config: Any) -> Any:
    """Make ProLIP with two masked rows, and without regularisers unless the official options `cfg` or ours set them."""
    none = {"vib_beta": 0.0, "inclusion_alpha": 0.0, "inclusion_alpha_occ": 0.0}
    return lab.adapter_of(Prolip, none | (cfg or {}), batch=total, masked_share=2 / total, **config)


@case("prolip", "prolip/loss/cases/*/out/*")
def _loss(entry: OracleEntry, name: str, expected: OracleEntry) -> KnownValues:
    z = masked_gaussians(name)
    total = len(z["image"])
    method = prolip_adapter(total, entry["cfg"])
    terms = method.loss(z, lab.observe(method, z), slice(0, total))
    wanted = dict(expected["terms"])
    if "img_inclusion" in wanted:
        wanted["masked_inclusion"] = wanted.pop("img_inclusion") + wanted.pop("txt_inclusion")
    for key, value in wanted.items():
        yield KnownValue(f"term {key}", terms[key], value)
    loss = lab.step_loss(method, z)
    given = {"loss": expected["loss"], "grad_norms": of_leaves(expected["grad_norms"])}
    given["grad_log_scale"] = 10 * expected["grad_scale"]
    yield from lab.compare_loss(method, loss, z, given)
    yield from lab.gradients(loss, {"bias": method.bias}, expected)


@case("prolip", "prolip/loss/inclusion_1d_check/rows/*")
def _one_dimension(row: dict[str, float]) -> KnownValues:
    keys = ("mu1", "logvar1", "mu2", "logvar2")
    m1, v1, m2, v2 = (torch.tensor(row[key], dtype=torch.float64) for key in keys)
    code, exact = inclusion(m1, v1, m2, v2), inclusion(m1, v1, m2, v2, exact=True)
    yield KnownValue("I as the code has it", log_overlap(m1, v1, m2, v2), row["official_inc_eps0"])
    for key in ("numeric_log_integral", "our_corrected_closed_form"):
        yield KnownValue(f"{key}, exact", log_overlap(m1, v1, m2, v2, exact=True), row[key], 1e-9, 1e-10)
    yield KnownValue("H as the code has it", code, row["official_H"], 1e-9, 1e-10)
    yield KnownValue("H from integrals", exact, row["numeric_H"], 1e-9, 1e-10)
    for key in ("H_difference", "predicted_difference_half"):
        yield KnownValue(key, code - exact, row[key], 1e-9, 1e-10)


@case("prolip", "prolip/checks/ppcl_sigma0_equals_siglip")
def _siglip(expected: OracleEntry) -> KnownValues:
    z = masked_gaussians(expected["case"])
    with torch.no_grad():
        z["image_logvar"].fill_(-60.0)
        z["text_logvar"].fill_(-60.0)
    siglip = lab.step_loss(lab.build_adapter(Siglip), {"image": z["image"], "text": z["text"]})
    yield KnownValue("PPCL without variance", lab.step_loss(prolip_adapter(8), z), expected["ppcl_logvar_minus60"])
    yield KnownValue("SigLIP", siglip, expected["siglip"])


@case("prolip", "prolip/checks/inclusion_eps-100_*")
def _tiny_eps(key: str, _: list[list[float]]) -> KnownValues:
    """Compare both precisions; in single precision the official form is off, and NaN for large log-variances."""
    dtype = {"torch.float32": torch.float32, "torch.float64": torch.float64}[key.rpartition("_")[2]]
    for low, high, expected in values()["prolip"]["checks"]["inclusion_eps-100_torch.float64"]:
        mean, v1, v2 = (torch.tensor(x, dtype=dtype) for x in (0.0, low, high))
        value = inclusion(mean, v1, mean, v2, eps=-100.0)
        rtol = 1e-9 if dtype == torch.float64 else 2e-5
        yield KnownValue(f"H for log-variances {low} and {high}", value, expected, rtol)


@case("prolip", "prolip/checks/stable_form_max_diff_eps*")
def _stable_form(key: str, _: float) -> KnownValues:
    """Compare Equation 3 as printed, which computes 1/sigma^2, with the form that never does."""
    eps = float(key.rpartition("eps")[2])
    m1, v1, m2, v2 = torch.randn(4, 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = _literal(m1, v1, m2, v2, eps) - _literal(m2, v2, m1, v1, eps)
    yield KnownValue("H of random Gaussians", inclusion(m1, v1, m2, v2, eps), expected.tolist(), 1e-9, 1e-12)


def _literal(mean_1: Tensor, logvar_1: Tensor, mean_2: Tensor, logvar_2: Tensor, eps: float) -> Tensor:
    narrow, wider = (eps - logvar_1).exp(), (eps - logvar_2).exp()
    a, b = narrow + wider / 2, 2 * mean_1 * narrow + mean_2 * wider
    c = mean_1.square() * narrow + mean_2.square() * wider / 2
    return torch.as_tensor(-2 * logvar_1 - logvar_2 - a.log() / 2 + b.square() / (4 * a) - c)


@case("prolip", "prolip/checks/vib")
def _vib(expected: OracleEntry) -> KnownValues:
    z = {name: x.detach() for name, x in gaussians("C").items()}
    for form, keys in (
        ("code", ("official", "formula_reproduced_with_logsigma_half")),
        ("textbook", ("textbook_KL_mean_over_B_and_D",)),
    ):
        divergence = lab.build_adapter(Prolip, vib_form=form)._vib(z, "image") / z["image"].numel()
        for key in keys:
            yield KnownValue(key, divergence, expected[key])


def _prepared(**config: Any) -> tuple[Any, lab.TinyTowers]:
    """Return the method on a vision transformer with 16 patches, as in values.json, and its towers."""
    towers = lab.TinyTowers("vit")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        method = lab.build_adapter(Prolip, batch=16, **config).float()
        method.prepare(towers)
    return method, towers


@case("prolip", "prolip/checks/towers/text_std_equals_uncertainty_projection_of_projected_mean_maxdiff")
def _text_variance(expected: float) -> KnownValues:
    method, towers = _prepared(text_unc="official")
    rows = lab.some_rows(towers, 16)
    of_mean = method.text_head.head(towers.encode_text(rows.tokens))
    gap = (method.encode(towers, rows)["text_logvar"] - of_mean).abs().max()
    yield KnownValue("log-variance beside the head on the projected mean", gap, expected, 0.0, 1e-5)


@case("prolip", "prolip/checks/towers/*tokens*")
def _masked_tokens(key: str, expected: Any) -> KnownValues:
    """Compare tokens and rows of the calls of the image tower: on all 16 rows, then on the two masked ones."""
    method, towers = _prepared(keep_patches=True, masked_share=2 / 16)
    seen: list[tuple[int, int]] = []
    hook = towers.visual.get_submodule("transformer").register_forward_pre_hook(
        lambda _, given: seen.append((given[0].shape[1], given[0].shape[0]))
    )
    method.encode(towers, lab.some_rows(towers, 16))
    hook.remove()
    full, masked = seen
    wanted = (full, [expected, 16]) if key == "full_tokens" else (masked, expected[:2])
    yield KnownValue("tokens and rows", torch.tensor(wanted[0]), wanted[1], 0.0, 0.0)
