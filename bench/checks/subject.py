"""The subject of a check: one method with some hyper-parameters, its embeddings, its failures."""

from __future__ import annotations

import copy
import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from bench.adapters import registry
from bench.checks import lab
from bench.training import side_towers
from bench.training.loop import is_leaf
from methods.base import Adapter
from methods.protocol import Batch, Clock, Facts, Rows, Tensors

ROWS = 50  #: training rows of an instance
BATCH = 40  #: batch: more than a block of 32 anchors, and no multiple of it
WHOLE = slice(0, BATCH)
FINITE_IN_ONE = "finite in one and not in the other"


class Failed(Exception):
    """A check does not hold; the message says where and by how much."""


class Skipped(Exception):
    """A check does not apply; the message says why."""


@dataclass(frozen=True)
class Variant:
    """Hyper-parameters to check a method under, besides its defaults."""

    label: str
    config: Mapping[str, Any]


@dataclass
class Instance:
    """A method that was prepared, with tiny towers."""

    method: Any
    towers: lab.TinyTowers

    def rows(self, part: slice | None = None, when: Clock | None = None, total: int = BATCH) -> Rows:
        """Some fixed rows, with the views the method asks for."""
        return lab.some_rows(self.towers, total, part, when, self.method.extra_views)


@dataclass(frozen=True)
class Subject:
    """One method as `bench check` sees it."""

    name: str
    plugin: Path | None = None  #: the file it comes from, if it is not a shipped method
    #: what variants encode, by label and seed
    memory: dict[tuple[str, int], tuple[Any, Tensors]] = field(default_factory=dict, compare=False)

    @cached_property
    def kind(self) -> type[Adapter]:
        return typing.cast("type[Adapter]", registry.find_method(self.name))

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """The defaults, every preset, and every other choice of every field that names its choices."""
        candidates = [Variant("default", {})]
        candidates += [Variant(f"preset {preset}", dict(config)) for preset, config in self.kind.presets.items()]
        hints = typing.get_type_hints(self.kind.Config)
        for option in dataclasses.fields(self.kind.Config):
            candidates += [Variant(f"{option.name}={x}", {option.name: x}) for x in _choices(hints[option.name])]
        by_config: dict[str | None, Variant] = {}
        for variant in candidates:
            by_config.setdefault(_resolved(self.kind, variant.config), variant)
        by_config.pop(None, None)
        return tuple(by_config.values())

    def instance(
        self,
        config: Mapping[str, Any],
        towers: str = "vit",
        batch: int = BATCH,
        seed: int = 0,
        tiny: lab.TinyTowers | None = None,
        **geometry: Any,
    ) -> Instance:
        """A prepared method in single precision, on towers of a kind or on `tiny`; equal arguments, equal weights."""
        tiny = tiny or lab.TinyTowers(towers, **geometry)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            method = self.kind(self.kind.Config(**config), Facts(rows=ROWS, batch=batch, dim=tiny.dim, seed=seed))
            side_towers.hold_reference(method, tiny, None)
            method.prepare(tiny)
            side_towers.hold_average(method, tiny)
        return Instance(method, tiny)

    def _encoded(self, variant: Variant, seed: int = 0) -> tuple[Any, Tensors]:
        """Return the method in fp64 and what it encodes in fp32, kept from call to call: nobody may change it."""
        key = (variant.label, seed)
        if key not in self.memory:
            instance = self.instance(variant.config, seed=seed)
            with torch.no_grad():
                z = instance.method.encode(instance.towers, instance.rows())
            self.memory[key] = instance.method.double(), z
        return self.memory[key]

    def embedded(self, variant: Variant, seed: int = 0) -> tuple[Any, Tensors]:
        """Return the method in fp64 and the leaves that it encodes, with noise added; the caller may change both."""
        method, z = self._encoded(variant, seed)
        moved = {name: _moved(x).clone() for name, x in z.items()}
        return copy.deepcopy(method), {name: x.requires_grad_(is_leaf(name, x)) for name, x in moved.items()}

    def absent(self, variant: Variant) -> Tensor:
        """Return [TOTAL]: equal numbers for rows of which `encode` left the same tensors empty (all zero)."""
        _, z = self._encoded(variant)
        empty = torch.stack([(x.flatten(1) == 0).all(1) for _, x in sorted(z.items())]).long()
        return empty.mul(2 ** torch.arange(len(empty))[:, None]).sum(0)


def moments(method: Any, steps: Sequence[int] = (0,)) -> list[Clock]:
    """Return the first step of every phase, or these `steps`, and one far into the run, as `observe` gets them."""
    names = [phase.name for phase in method.phases()]
    first_steps = [Clock(step=step, phase=name, progress=0.0, epoch=0) for name in names for step in steps]
    return [*first_steps, Clock(step=90, phase=names[-1], progress=0.9, epoch=9)]


def all_moments(subject: Subject) -> Iterator[tuple[str, Variant, Any, Tensors, Clock]]:
    """(where, variant, method, leaves, moment) for every variant, at its moments.

    The method is each time in the state in which training starts, and the leaves are the same.
    """
    for variant in subject.variants:
        method, z = subject.embedded(variant)
        for when in moments(method):
            yield f"{variant.label}, {moment_name(when)}", variant, copy.deepcopy(method), z, when


def moment_name(when: Clock) -> str:
    return f"phase {when.phase}, step {when.step}"


def total_of(terms: Mapping[str, Tensor]) -> Tensor:
    return torch.stack(list(terms.values())).sum()


def constants(method: Any, z: Tensors, when: Clock, ids: Tensor | None = None) -> tuple[Tensors, Tensors]:
    """Return the results of `observe` and then of `draw` for all anchors at once. Moves the method's state."""
    total = z["image"].shape[0]
    with torch.no_grad():
        observed = method.observe(z, Batch(torch.arange(total) if ids is None else ids, when))
        return observed, method.draw(z, observed, slice(0, total))


def loss_and_gradients(method: Any, loss: Tensor, z: Tensors) -> dict[str, Tensor]:
    """Return the loss and its gradients in every leaf and parameter, zeros if the loss does not depend on one."""
    inputs = {name: x for name, x in [*z.items(), *method.named_parameters()] if x.requires_grad}
    grads = torch.autograd.grad(loss, list(inputs.values()), allow_unused=True)
    values = {"loss": loss.detach()}
    for (name, x), gradient in zip(inputs.items(), grads, strict=True):
        values[f"gradient of {name}"] = torch.zeros_like(x) if gradient is None else gradient
    return values


def largest_gap(actual: Tensor, expected: Tensor, rtol: float, floor: float = 0.0) -> str | None:
    """Return None if |actual - expected| <= rtol (|expected| + max |expected| + floor) everywhere, else the gap."""
    if actual.shape != expected.shape:
        return f"shape {list(actual.shape)} instead of {list(expected.shape)}"
    actual, expected = actual.detach().double(), expected.detach().double()
    finite = expected.isfinite()
    if not bool(finite.all()):
        if bool((actual.isfinite() != finite).any()):
            return FINITE_IN_ONE
        if not torch.equal(actual[~finite].nan_to_num(), expected[~finite].nan_to_num()):
            return "another infinity"
        actual, expected = actual[finite], expected[finite]
    if not expected.numel():
        return None
    gap, size = (actual - expected).abs(), expected.abs()
    if bool((gap <= rtol * (size + size.max() + floor)).all()):
        return None
    if not bool(actual.isfinite().all()):
        return FINITE_IN_ONE
    worst = float(gap.max())
    return f"off by {worst:.3g} where the largest value is {float(size.max()):.3g} (tolerance {rtol:.0e} relative)"


def same(what: str, actual: Tensor, expected: Tensor, rtol: float, floor: float = 0.0) -> None:
    """Raise Failed with the name `what` unless the two agree as in `largest_gap`; rtol 0 asks for the same bits."""
    if rtol == 0:
        equal = actual.shape == expected.shape and torch.equal(actual.nan_to_num(), expected.nan_to_num())
        gap = None if equal else largest_gap(actual, expected, 0.0) or "other bits"
    else:
        gap = largest_gap(actual, expected, rtol, floor)
    if gap is not None:
        raise Failed(f"{what}: {gap}")


def _moved(x: Tensor) -> Tensor:
    if not x.is_floating_point():
        return x
    lengths = x.flatten(1).norm(dim=1)
    unit = bool(((lengths - 1).abs() < 1e-3).logical_or(lengths == 0).all())
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    moved = x.double() + 0.2 * noise
    return normalize(moved, dim=-1) if unit else moved


def _choices(hint: Any) -> tuple[Any, ...]:
    """Return the values to try for a field of this type: all of a closed set, 0.5 for an optional number."""
    if hint is bool:
        return False, True
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) or typing.get_origin(hint) else ()
    return (0.5,) if float in members and type(None) in members else ()


def _resolved(kind: type[Adapter], config: Mapping[str, Any]) -> str | None:
    """Return the whole configuration as text, or None if the method refuses this combination."""
    try:
        return repr(kind.Config(**config))
    except ValueError:
        if not config:
            raise
        return None
