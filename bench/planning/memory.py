"""Counts the bytes that a rank holds in a training step, by passes through towers whose tensors have no memory."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bench.adapters import hyperparameters
from bench.planning.flops import clock_of, example_leaf, example_rows, meta_towers
from bench.suite.run import Run
from bench.towers.blocks import recompute
from bench.towers.build import OpenClipTowers
from bench.training.distributed import Group
from bench.training.inputs import Inputs
from bench.training.job import build, prepare
from bench.training.optimizer import named_parameters, owners, set_trainable
from bench.training.step.buckets import buckets
from bench.training.step.tiles import SMALLEST, fitting_entries, tiles
from methods.protocol import Batch, Method, Phase, Tensors

LARGE = 4 * SMALLEST  #: similarities of the largest tile whose loss is computed to count its memory
_IS_META = torch.Tensor.is_meta.__get__  # type: ignore[attr-defined]


@dataclass(frozen=True)
class StepMemory:
    """Bytes on the device of the rank that holds most, in a step of one phase.

    Not in it: what CUDA, NCCL and the allocator take for themselves, what `train.compile` saves, the next micro-batch's
    pixels on their way (a byte a value), and data that lies on the device: stored features, or images by
    `data.augment_on` (at most a tenth of its memory).
    """

    phase: str
    weights: int  #: of towers and method, with their buffers, and of side towers
    gradients: int  #: of what the phase trains
    moments: int  #: AdamW's two, of the parameters that the rank owns
    message: int  #: the largest bucket of gradients a second time, as it is filled for several ranks to sum
    sent: int  #: the weights that the rank owns once more, flat, as a sharded optimiser sends them
    activations: int  #: at the highest point of encoding one micro-batch and of its backward pass, its images included
    features: int  #: embeddings of the rank's share and of the whole batch, and the gradients of these
    loss: int  #: at the highest point of `observe` and of the loss of one tile
    kept: bool  #: whether the activations stay while the loss is computed, as they do without micro-batches

    @property
    def peak(self) -> int:
        """Bytes at the step's highest point: in the loss, in the towers' backward pass, or as weights are sent."""
        lossy = self.besides_loss - self.gradients + self.loss
        backward = self.gradients + self.features + max(self.activations + self.message, self.sent)
        return max(lossy, self.weights + self.moments + backward)

    @property
    def besides_loss(self) -> int:
        """Bytes that the loss has to leave: gradients, which come after it, are counted all the same."""
        return self.weights + self.moments + self.gradients + self.features + self.activations * self.kept


def step_memory(run: Run, inputs: Inputs, ranks: int, on_gpu: bool = True, card: int | None = None) -> list[StepMemory]:
    """Count a step of each phase of a run that `ranks` processes train together.

    on_gpu: count layer norms of bf16 towers in fp32, as CUDA's autocast has them, and the CPU's does not. card: bytes
    of a GPU, whose free memory decides in the first phase how large tiles of the loss are; None: the smallest, as on a
    CPU. The loss of a tile, at most LARGE, runs on drawn embeddings of the whole batch, in real memory. Raises
    ValueError if the batch does not divide.
    """
    method, towers = _prepared(run, inputs)
    found, entries = list[StepMemory](), SMALLEST if card is None else None
    for phase in method.phases():
        one, leaves = _phase_memory(method, towers, run, phase, ranks, on_gpu)
        share = Group(0, ranks).share(run.train.batch)
        if entries is None:
            item = 8 if run.train.precision == "fp64" else 4
            entries = fitting_entries((card or 0) - one.besides_loss, share.stop, run.train.batch, item)
        found.append(replace(one, loss=_loss(method, leaves, phase, share, entries)))
    return found


def _prepared(run: Run, inputs: Inputs) -> tuple[Method, OpenClipTowers]:
    """Return a run's method and its towers, which are on meta unless a `prepare` needs values."""
    with suppress(Exception):  # whatever it is, real towers decide
        method, towers = hyperparameters.make(run.method, None, run.config, inputs.facts), meta_towers(run, inputs)[0]
        towers = towers.copied()
        prepare(method, towers, run, None, None, starts="none")
        return method, towers
    towers, method = build(run, inputs)
    prepare(method, towers, run, None, None, starts="none")
    return method, towers


def _phase_memory(
    method: Method, towers: OpenClipTowers, run: Run, phase: Phase, ranks: int, on_gpu: bool
) -> tuple[StepMemory, Tensors]:
    """Return all but the bytes of the loss, and leaves for it."""
    batch, share = run.train.batch, Group(0, ranks).share(run.train.batch)
    rows = min(run.train.micro_batch or share.stop, share.stop)
    with FakeTensorMode(allow_non_fake_inputs=True):
        own_method, own_towers = _without_memory(method, towers)
        assert isinstance(own_method, nn.Module)
        set_trainable(own_method, own_towers, phase)
        named = {name: x for name, x in named_parameters(own_method, own_towers) if x.requires_grad}
        trained = [*named.values()]
        weights = _bytes(_tensors(own_method, own_towers))
        if run.train.recompute:
            recompute(own_towers)
        activations, z = _encoding(own_method, own_towers, run, phase, rows, on_gpu)
    places = owners([x.numel() for x in trained], ranks if run.train.shard_optimizer else 1)
    held = [_bytes(x for x, owner in zip(trained, places, strict=True) if owner == rank) for rank in range(ranks)]
    leaves = {name: example_leaf(x if x.dtype == torch.float64 else x.float(), batch) for name, x in z.items()}
    local = _bytes(z.values()) * share.stop // rows
    whole = sum(x.nbytes * (1 + x.requires_grad) for x in leaves.values())
    found = StepMemory(
        phase=phase.name,
        weights=weights,
        gradients=_bytes(trained),
        moments=2 * max(held),
        message=max(map(_bytes, buckets(named))) if ranks > 1 else 0,
        sent=max(held) if ranks > 1 and run.train.shard_optimizer else 0,
        activations=activations,
        features=local + whole,
        loss=0,
        kept=rows == share.stop,
    )
    return found, leaves


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(x.nbytes for x in tensors)


def _tensors(*parts: nn.Module) -> Iterator[Tensor]:
    """Parameters and buffers, those of side towers as well."""
    for part in parts:
        yield from (*part.parameters(), *part.buffers())
        if "_side" in vars(part):
            yield from _tensors(vars(part)["_side"])


def _without_memory(method: Method, towers: OpenClipTowers) -> tuple[Method, OpenClipTowers]:
    """Return copies for the current FakeTensorMode, whose tensors say that they are on the CPU."""
    assert isinstance(method, nn.Module)
    copies: dict[int, Any] = {id(towers.tokenizer): towers.tokenizer}
    for x in _tensors(method, towers):
        blank = torch.empty_like(x, device="cpu")
        copies[id(x)] = nn.Parameter(blank) if isinstance(x, nn.Parameter) else blank
    return copy.deepcopy((method, towers), copies)


def _encoding(
    method: Method, towers: OpenClipTowers, run: Run, phase: Phase, rows: int, on_gpu: bool
) -> tuple[int, Tensors]:
    """Return the bytes at the highest point of encoding `rows` rows and of the backward pass, and the embeddings."""
    for _, parameter in named_parameters(method, towers):
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)  # as for every micro-batch but the first
    lower = run.train.precision == "bf16"
    with LiveBytes() as live, _layer_norms_in_fp32() if on_gpu and lower else nullcontext():
        with torch.autocast("cpu", torch.bfloat16, enabled=lower), _Valueless():
            z = method.encode(towers, example_rows(method, towers, rows, run.data.size, clock_of(phase), "cpu"))
        reached = [x for x in z.values() if x.requires_grad]
        torch.autograd.backward(reached, [torch.empty_like(x) for x in reached])
    return int(live.peak), z


def _loss(method: Method, leaves: Tensors, phase: Phase, share: slice, entries: int) -> int:
    """Return the bytes at the highest point of `observe`, and of the loss of one tile and its backward pass.

    Those of a tile of more than LARGE are counted on from two smaller ones, because they grow with its rows.
    """
    for x in leaves.values():
        if x.requires_grad:
            x.grad = torch.zeros_like(x)  # the gradients are counted with the features
    batch = len(next(iter(leaves.values())))
    asked, large = (next(tiles(method.whole_batch, share, batch, size)) for size in (entries, min(entries, LARGE)))
    top = _tile(method, leaves, phase, large)
    if asked == large:
        return top
    rows = large.stop // 64 * 32
    least = _tile(method, leaves, phase, slice(0, rows)) if rows else 0
    return top + int((top - least) * (asked.stop - large.stop) // (large.stop - rows))


def _tile(method: Method, leaves: Tensors, phase: Phase, anchors: slice) -> int:
    """Return the bytes at the highest point of `observe`, and of the loss of these anchors and its backward pass."""
    own, batch = copy.deepcopy(method), len(next(iter(leaves.values())))
    with LiveBytes() as live:
        with torch.no_grad():
            observed = own.observe(leaves, Batch(torch.arange(batch), clock_of(phase)))
            observed = own.draw(leaves, observed, anchors)
        torch.stack(list(own.loss(leaves, observed, anchors).values())).sum().backward()
    return int(live.peak)


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of tensors that are made while it is on, as long as they live; `peak` is the most at a time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = self._now = 0
        self._live: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count the memory of what it returns, unless it was given that."""
        given = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        out = func(*args, **(kwargs or {}))
        for storage in [x.untyped_storage() for x in tree_leaves(out) if isinstance(x, Tensor)]:
            if storage._cdata not in given | self._live:
                self._live.add(storage._cdata)
                self._now += storage.nbytes()
                self.peak = max(self.peak, self._now)
                weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes())
        return out

    def _freed(self, place: int, size: int) -> None:
        self._live.discard(place)
        self._now -= size


class _Valueless(TorchFunctionMode):
    """Has tensors say that they have no values, as those on meta do; methods ask."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch."""
        return True if func == _IS_META else func(*args, **(kwargs or {}))


@contextmanager
def _layer_norms_in_fp32() -> Iterator[None]:
    """Have layer norms compute in fp32, as CUDA's autocast does, also where a backward pass computes them again."""
    own = F.layer_norm
    F.layer_norm = lambda x, *more, **named: own(x.float(), *more, **named)
    try:
        yield
    finally:
        F.layer_norm = own
