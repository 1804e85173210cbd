"""A budget turned into steps before the first one, and the ledger of what was spent."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from bench.data.order import steps_per_epoch
from bench.errors import UserError
from bench.optimiser import set_trainable
from bench.towers import OpenClipTowers
from methods.protocol import Batch, Clock, Method, Phase, Rows

TOWER_ROWS = 128  #: of a batch that are counted through the towers; each row costs the same
TOLERANCE = {"epochs": 0.01, "samples": 0.01, "flops": 0.01, "device_seconds": 0.05}


@dataclass(frozen=True)
class Resolved:
    """What a run's budget comes to."""

    phases: tuple[tuple[str, int], ...]  #: (name, steps) in order
    step_flops: Mapping[str, int]  #: of one step of each phase
    batch: int  #: B
    epoch_steps: int  #: steps of one pass over the rows that the run sees
    budget_epoch_steps: int = 0  #: of one pass as a budget in epochs counts it; 0 = `epoch_steps`

    def to_json(self) -> dict[str, Any]:
        """For settings.json."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Resolved:
        """The inverse of `to_json`."""
        return cls(**{**value, "phases": tuple((name, steps) for name, steps in value["phases"])})

    @property
    def steps(self) -> int:
        """Of all phases."""
        return sum(steps for _, steps in self.phases)

    @property
    def flops(self) -> int:
        """Of all steps."""
        return sum(steps * self.step_flops[name] for name, steps in self.phases)


def resolve(
    kind: str,
    value: float,
    *,
    rows: int,
    batch: int,
    seen: int | None = None,
    phases: Sequence[Phase],
    step_flops: Mapping[str, int],
    step_seconds: Mapping[str, float] | None = None,
) -> Resolved:
    """Turn `{kind: value}` into steps of each phase; a dearer step means fewer of them where the budget is a cost.

    `rows` is N, `batch` is B; of the rows only `seen` may be trained on (None: all).
    `step_seconds` is the stored calibration that `device_seconds` needs.
    Raises UserError if a phase would get no step, or a batch is larger than the data.
    """
    per_epoch = steps_per_epoch(rows, batch)
    if kind in ("epochs", "samples"):
        total = int(value * per_epoch + 1e-9) if kind == "epochs" else int(value // batch)
        counts = _split(total, [phase.share for phase in phases])
    else:
        if kind == "device_seconds" and step_seconds is None:
            raise UserError("budget.device_seconds: needs a calibration of this machine")
        price: Mapping[str, float] = step_seconds if kind == "device_seconds" else step_flops  # type: ignore[assignment]
        counts = [int(value * phase.share / price[phase.name]) for phase in phases]
    for phase, steps in zip(phases, counts, strict=True):
        if steps < 1:
            raise UserError(f"budget.{kind}: {value:g} leaves no step for phase {phase.name!r}; give more")
    steps_of = tuple((phase.name, steps) for phase, steps in zip(phases, counts, strict=True))
    own = steps_per_epoch(rows if seen is None else seen, batch)
    return Resolved(steps_of, dict(step_flops), batch, own, per_epoch if own != per_epoch else 0)


def _split(total: int, shares: Sequence[float]) -> list[int]:
    """Whole steps in proportion to `shares`, summing to `total` (largest remainder)."""
    exact = [total * share / sum(shares) for share in shares]
    counts = [int(x) for x in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts


def count_step_flops(method: Method, towers: OpenClipTowers, batch: int, image_size: int) -> dict[str, int]:
    """Algorithmic FLOPs (matmul and convolution) of one unrecomputed step of each phase, forward and backward.

    Towers are counted on meta tensors with at most TOWER_ROWS rows, and scaled by B / rows. Pairwise losses are counted
    on real tensors with at most 64 rows, because they may look at values, and scaled by (B / rows)^2.
    """
    return {phase.name: _phase_flops(method, towers, batch, image_size, phase) for phase in method.phases()}


def count_forward_flops(towers: OpenClipTowers, image_size: int) -> tuple[int, int]:
    """Algorithmic FLOPs to encode one image of `image_size` px, and one text. Towers on meta stay there."""
    meta = copy.deepcopy(towers).to("meta").eval()
    dtype = next(meta.visual.parameters()).dtype
    # with gradients: without, torch's attention takes a fused path on some devices, which is not counted
    with FlopCounterMode(display=False) as image:
        meta.encode_image(torch.empty(1, 3, image_size, image_size, device="meta", dtype=dtype))
    with FlopCounterMode(display=False) as text:
        meta.encode_text(torch.empty(1, meta.context_length, dtype=torch.int64, device="meta"))
    return image.get_total_flops(), text.get_total_flops()


def _phase_flops(method: Method, towers: OpenClipTowers, batch: int, image_size: int, phase: Phase) -> int:
    meta_towers, meta_method = copy.deepcopy(towers).to("meta"), copy.deepcopy(method)
    assert isinstance(meta_method, nn.Module)
    meta_method.to("meta")
    set_trainable(meta_method, meta_towers, phase)
    clock = Clock(step=0, phase=phase.name, progress=0.0, epoch=0)
    rows = min(batch, TOWER_ROWS)
    with FlopCounterMode(display=False) as towers_counter:
        z = meta_method.encode(meta_towers, _example_rows(meta_method, meta_towers, rows, image_size, clock))
        outputs = [x for x in z.values() if x.requires_grad]
        torch.autograd.backward(outputs, [torch.empty_like(x) for x in outputs])
    small = min(batch, 64)
    leaves = {name: _example_leaf(x, small) for name, x in z.items()}
    loss_method = copy.deepcopy(method)
    with FlopCounterMode(display=False) as loss_counter:
        ids = torch.arange(small)
        with torch.no_grad():
            observed = loss_method.observe(leaves, Batch(ids, clock))
            observed = loss_method.draw(leaves, observed, slice(0, small))
        torch.stack(list(loss_method.loss(leaves, observed, slice(0, small)).values())).sum().backward()
    pairwise = (batch / small) ** 2
    towers_flops = round(towers_counter.get_total_flops() * batch / rows)
    return int(towers_flops + round(loss_counter.get_total_flops() * pairwise))


def _example_rows(method: Method, towers: OpenClipTowers, batch: int, size: int, clock: Clock) -> Rows:
    images = torch.empty(batch, 3, size, size, device="meta", dtype=next(towers.parameters()).dtype)
    ids = torch.arange(batch, device="meta")
    tokens = torch.empty(batch, towers.context_length, dtype=torch.int64, device="meta")
    return Rows(images, tokens, ["a"] * batch, ids, range(batch), clock, (images,) * method.extra_views)


def _example_leaf(x: Tensor, rows: int) -> Tensor:
    if not x.is_floating_point():
        return torch.zeros(rows, *x.shape[1:], dtype=x.dtype)
    draws = torch.randn(rows, *x.shape[1:], generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    return torch.nn.functional.normalize(draws, dim=-1).requires_grad_(x.requires_grad)


@dataclass
class Ledger:
    """What a run spent. Counts are algorithmic: micro-batches encoded twice count once; seconds are measured.

    Of a run on several ranks, counts are of the global batch, seconds of training are summed over ranks (device
    seconds), and memory is that of the rank that needed most. Only the first rank evaluates, so `evaluate_seconds`
    are one device's.

    `repeated_seconds` are those of finished steps that a kill took back, because they lay after the last checkpoint.
    After every step the run's store notes `train_seconds + repeated_seconds`; on resume, what it noted beyond the
    checkpoint's `train_seconds` was lost. So it is exact after any number of kills, to the step: the step in which a
    process died was never finished and is in neither number.
    """

    samples: int = 0
    image_forwards: float = 0.0
    image_backwards: float = 0.0
    text_forwards: float = 0.0
    text_backwards: float = 0.0
    flops: int = 0
    train_seconds: float = 0.0
    data_seconds: float = 0.0  #: of train_seconds, waiting for data, on every rank
    evaluate_seconds: float = 0.0
    repeated_seconds: float = 0.0  #: lost to kills: of finished steps that had to be done again
    peak_memory_bytes: int = 0

    def charge(self, method: Method, towers: nn.Module, phase: str, batch: int, step_flops: int) -> None:
        """Book one optimiser step on the global batch."""
        cost = method.cost(phase)
        self.samples += batch
        self.flops += step_flops
        self.image_forwards += (cost.image + cost.side_image) * batch
        self.text_forwards += (cost.text + cost.side_text) * batch
        if _trains(towers.visual):
            self.image_backwards += cost.image * batch
        if _trains(towers.text):
            self.text_backwards += cost.text * batch

    def statement(
        self, kind: str, value: float, resolved: Resolved, reference: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """The ledger as stored: what was spent, what was planned, and whether the budget was kept."""
        spent = self.spent(kind, resolved)
        return {
            **asdict(self),
            "budget": {"kind": kind, "value": value},
            "planned": {"steps": resolved.steps, "flops": resolved.flops},
            "spent_share": spent / value,
            "over_budget": spent > value * (1 + TOLERANCE[kind]),
            "reference": reference,
        }

    def spent(self, kind: str, resolved: Resolved) -> float:
        """What was spent in the budget's own unit."""
        if kind == "epochs":
            return self.samples / ((resolved.budget_epoch_steps or resolved.epoch_steps) * resolved.batch)
        measured: dict[str, float] = {
            "samples": self.samples,
            "flops": self.flops,
            "device_seconds": self.train_seconds,
        }
        return measured[kind]


def _trains(module: object) -> bool:
    assert isinstance(module, nn.Module)
    return any(parameter.requires_grad for parameter in module.parameters())
