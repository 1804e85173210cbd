"""Checks of `observe`, `draw` and `loss` on embeddings in fp64."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from bench.checks import lab
from bench.checks.subject import (
    BATCH,
    WHOLE,
    Failed,
    Skipped,
    Subject,
    all_moments,
    constants,
    loss_and_gradients,
    moments,
    same,
    total_of,
)
from bench.errors import one_line
from methods.base import LogitScale
from methods.protocol import Batch, Tensors


def gradient(subject: Subject) -> None:
    """The gradient is that of the loss, in z and in the method's parameters, with `observe` and `draw` held fixed."""
    rows = 6
    for where, _, method, z, when in all_moments(subject):
        for module in method.modules():  # small logits, so that finite differences are exact enough
            if isinstance(module, LogitScale):
                module.rho.data.fill_(0.5)
        small = {name: x.detach()[:rows].clone().requires_grad_(x.requires_grad) for name, x in z.items()}
        _, drawn = constants(method, small, when)

        def value(_: Tensor, method: Any = method, small: Tensors = small, drawn: Tensors = drawn) -> Tensor:
            return total_of(method.loss(small, drawn, slice(0, rows)))  # gradcheck moves the tensor itself

        for name, x in [*small.items(), *method.named_parameters()]:
            if x.requires_grad:
                try:
                    torch.autograd.gradcheck(value, (x,), atol=1e-7, rtol=1e-5, fast_mode=True)
                except RuntimeError as error:
                    raise Failed(f"{where}: {name}: {one_line(error, 300)}") from error


def tiles(subject: Subject) -> None:
    """Any division of the anchors into tiles gives the loss and gradients of the whole."""
    if subject.kind.whole_batch:
        raise Skipped("needs all anchors at once")
    for where, _, method, z, when in all_moments(subject):
        with torch.no_grad():
            observed = method.observe(z, Batch(torch.arange(BATCH), when))
        whole = loss_and_gradients(method, lab.sum_of_tiles(method, z, observed), z)
        for cuts in ((32,), (8, 16, 24, 32), (7, 39)):
            for what, x in loss_and_gradients(method, lab.sum_of_tiles(method, z, observed, cuts), z).items():
                same(f"{where}: {what} in tiles cut at {cuts}", x, whole[what], 1e-9)


def permutation(subject: Subject) -> None:
    """Rows in another order, their ids with them, give the same loss, permuted gradients and the same state.

    If the constants do not depend on the seed, everything is computed again from the permuted batch. If they do,
    `draw`'s result is permuted with the batch: every dimension of length B, and the values of integer tensors, which
    name rows. Rows change places only with rows for which `encode` left the same tensors empty, because the rows that
    are encoded a second time are drawn by position.
    """
    for where, variant, method, z, when in all_moments(subject):
        order = _shuffled(subject.absent(variant))
        moved = {name: x.detach()[order].clone().requires_grad_(x.requires_grad) for name, x in z.items()}
        other, ids = copy.deepcopy(method), torch.arange(BATCH)
        (reseeded, _), (_, fresh) = subject.embedded(variant, seed=12345), subject.embedded(variant)
        _, redrawn = constants(reseeded, fresh, when)
        _, drawn = constants(method, z, when)
        if any(x.shape != redrawn[name].shape or not torch.equal(x, redrawn[name]) for name, x in drawn.items()):
            drawn_there = {name: _permuted(x, order) for name, x in drawn.items()}
            there = total_of(other.loss(moved, drawn_there, WHOLE))
        else:
            _, drawn_there = constants(other, moved, when, ids[order])
            there = total_of(other.loss(moved, drawn_there, WHOLE))
            for name, x in other.state_dict().items():
                same(f"{where}: state {name}", x, method.state_dict()[name], 1e-9)
        here = loss_and_gradients(method, total_of(method.loss(z, drawn, WHOLE)), z)
        for what, x in loss_and_gradients(other, there, moved).items():
            expected = here[what][order] if what.removeprefix("gradient of ") in z else here[what]
            same(f"{where}: {what}", x, expected, 1e-9)


def _shuffled(classes: Tensor) -> Tensor:
    """[B] positions such that row i of the permuted batch is row order[i], of the same class."""
    draws, order = torch.Generator().manual_seed(2), torch.arange(len(classes))
    for one in classes.unique().tolist():
        members = (classes == one).nonzero().flatten()
        order[members] = members[torch.randperm(len(members), generator=draws)]
    return order


def _permuted(x: Tensor, order: Tensor) -> Tensor:
    """Return a constant of the batch as the permuted batch has it."""
    for dimension, length in enumerate(x.shape):
        if length == BATCH:
            x = x.index_select(dimension, order)
    if x.dtype == torch.int64 and x.ndim and bool(((x >= 0) & (x < BATCH)).all()):
        x = order.argsort()[x]
    return x


def purity(subject: Subject) -> None:
    """`loss` gives the same value twice and changes neither state nor its inputs; constants carry no gradient."""
    for where, _, method, z, when in all_moments(subject):
        observed, drawn = constants(method, z, when)
        with torch.no_grad():
            again = method.draw(z, observed, WHOLE)
        given = {**{f"z[{n!r}]": x for n, x in z.items()}, **{f"constant {n}": x for n, x in drawn.items()}}
        given |= {f"state {name}": x for name, x in method.state_dict().items()}
        before = {name: x.detach().clone() for name, x in given.items()}
        losses = [total_of(method.loss(z, used, WHOLE)) for used in (drawn, drawn, again)]
        after = dict(given) | {f"state {name}": x for name, x in method.state_dict().items()}
        for name, x in after.items():
            same(f"{where}: {name} after loss", x.detach(), before[name], 0)
        same(f"{where}: loss a second time", losses[1], losses[0], 0)
        same(f"{where}: loss after drawing again", losses[2], losses[0], 0)
        with_graph = [name for name, x in drawn.items() if x.requires_grad]
        if with_graph:
            raise Failed(f"{where}: constants {', '.join(with_graph)} require a gradient")


def state(subject: Subject) -> None:
    """A fresh method that loads the state_dict continues to the same bits; state stays finite."""
    for variant in subject.variants:
        method, z = subject.embedded(variant)
        ids = torch.arange(BATCH).flip(0)
        for when in moments(method, (0, 1)):
            total_of(method.loss(z, constants(method, z, when, ids)[1], WHOLE))
            method.after_step(when)
        method.end_epoch(0)
        loaded, _ = subject.embedded(variant)
        loaded.load_state_dict({name: x.clone() for name, x in method.state_dict().items()})
        rolled = {name: x.detach().roll(1, 0).requires_grad_(x.requires_grad) for name, x in z.items()}
        for when in moments(method):
            losses = [total_of(m.loss(rolled, constants(m, rolled, when, ids)[1], WHOLE)) for m in (method, loaded)]
            same(f"{variant.label}, phase {when.phase}: loss after loading the state", losses[1], losses[0], 0)
        for name, x in method.state_dict().items():
            same(f"{variant.label}: state {name} one step after loading", loaded.state_dict()[name], x, 0)
            if x.is_floating_point() and not bool(x.isfinite().all()):
                raise Failed(f"{variant.label}: state {name} is not finite")
