"""Checks of the numbers a method hands out: finite, in range, in the form that tables and reports read."""

from __future__ import annotations

import copy
from typing import Any

import torch

from bench.checks.subject import (
    BATCH,
    WHOLE,
    Failed,
    Instance,
    Skipped,
    Subject,
    all_moments,
    constants,
    largest_gap,
    loss_and_gradients,
    moments,
    total_of,
)
from methods.base import LogitScale
from methods.protocol import Clock, Tensors


def extremes(subject: Subject) -> None:
    """Loss, gradients and state are finite at extreme embeddings and logit scales, in fp64, fp32 and from bf16.

    Embeddings are all equal, or every image is orthogonal or opposite to its text, or all pairs are perfectly aligned.
    A learned logit scale is set to 1 and to 100; a fixed temperature stays as configured.
    """
    for where, _, method, z, when in all_moments(subject):
        for kind in ("equal", "orthogonal", "opposite", "aligned"):
            for scale in (1.0, 100.0) if _scales(method) else (None,):
                for dtype in (torch.float64, torch.float32, torch.bfloat16):
                    at = f"{where}: {kind} embeddings in {str(dtype)[6:]}" + (f" at scale {scale:g}" if scale else "")
                    _finite_at(at, copy.deepcopy(method), _extreme(z, kind), when, dtype, scale)


def _scales(method: Any) -> list[LogitScale]:
    return [module for module in method.modules() if isinstance(module, LogitScale) and module.learnable]


def _extreme(z: Tensors, kind: str) -> Tensors:
    dim = z["image"].shape[1]
    one = torch.nn.functional.normalize(
        torch.randn(BATCH, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64), dim=1
    )
    axes, places = torch.eye(dim, dtype=torch.float64), torch.arange(BATCH) % (dim // 2)
    image, text = {
        "equal": (one[:1].expand(BATCH, -1),) * 2,
        "orthogonal": (axes[places], axes[places + dim // 2]),
        "opposite": (one, -one),
        "aligned": (one, one),
    }[kind]
    unit = {n: x.is_floating_point() and x.shape[1:] == (dim,) and "logvar" not in n for n, x in z.items()}
    return {n: (image if "image" in n else text).clone() if unit[n] else x.detach() for n, x in z.items()}


def _finite_at(where: str, method: Any, z: Tensors, when: Clock, dtype: torch.dtype, scale: float | None) -> None:
    method = method.to(torch.float32 if dtype == torch.bfloat16 else dtype)
    for module in _scales(method) if scale else ():
        module.rho.data.fill_(float(torch.tensor(scale).log()))
    leaves = {n: x.to(dtype).requires_grad_() if x.is_floating_point() else x for n, x in z.items()}
    for _ in range(2):  # the second time on the state that the first one left
        before = {n: x.clone() for n, x in method.state_dict().items()}
        loss = total_of(method.loss(leaves, constants(method, leaves, when)[1], WHOLE))
        if all(torch.equal(x, before[n]) for n, x in method.state_dict().items()):
            break  # without another state the second time would be the first one again
    if loss.dtype != (torch.float32 if dtype == torch.bfloat16 else dtype):
        raise Failed(f"{where}: the loss is {str(loss.dtype)[6:]}")
    values = {**loss_and_gradients(method, loss, leaves), **{f"state {n}": x for n, x in method.state_dict().items()}}
    for what, x in values.items():
        if x.is_floating_point() and not bool(x.isfinite().all()):
            raise Failed(f"{where}: {what} is not finite")


def scalars(subject: Subject) -> None:
    """`after_step` keeps every learned logit scale within [1, 100], in the last phase."""
    method, _ = subject.embedded(subject.variants[0])
    if not _scales(method):
        raise Skipped("has no learned logit scale")
    when = moments(method)[-1]
    for value in (99.0, -5.0):
        for module in _scales(method):
            module.rho.data.fill_(value)
        method.after_step(when)
        for module in _scales(method):
            scale = float(module().detach())
            if not 1 - 1e-6 <= scale <= 100 * (1 + 1e-6):
                raise Failed(f"from e^{value:g} the logit scale goes to {scale:.4g}, outside [1, 100]")


def reports(subject: Subject) -> None:
    """`monitor`, `diagnostics`, features and confidence have the form that metrics, tables and reports read."""
    for where, _, method, z, when in all_moments(subject):
        observed, _ = constants(method, z, when)
        with torch.no_grad():
            numbers = dict(method.monitor(z, observed))
            shown = method.diagnostics(z, observed)
        if method.monitored not in ("loss", *numbers):
            raise Failed(
                f"{where}: monitored = {method.monitored!r}, but monitor() has {', '.join(numbers) or 'nothing'}"
            )
        names = [one.name for one in shown]
        if len(set(names)) < len(names) or not all(name.isidentifier() for name in names):
            raise Failed(f"{where}: names of diagnostics should be identifiers, each once: {', '.join(names)}")
        for one in shown:
            for legend, x in one.series.items():
                if x.ndim != 1 or not bool(x.isfinite().all()) or (one.log and not bool((x > 0).all())):
                    raise Failed(f"{where}: diagnostic {one.name}, {legend}: should be 1-D, finite, positive where log")
    _features(subject.instance(subject.variants[0].config))


def _features(instance: Instance) -> None:
    rows = instance.rows()
    with torch.no_grad():
        image = instance.method.image_features(instance.towers, rows.images)
        text = instance.method.text_features(instance.towers, rows.tokens)
        confidence = instance.method.confidence(image, text)
    for side, features in (("image", image), ("text", text)):
        lengths = features["embedding"].norm(dim=1)
        if features["embedding"].shape != (BATCH, instance.towers.dim) or largest_gap(lengths, torch.ones(BATCH), 1e-4):
            raise Failed(f"{side}_features: embedding should be [b, D] of unit rows")
    if confidence.shape != (BATCH,) or not bool(confidence.isfinite().all()):
        raise Failed("confidence: should be [n] finite numbers")
