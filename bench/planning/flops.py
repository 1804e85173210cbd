"""Counts the FLOPs of a training step."""

from __future__ import annotations

import contextlib
import copy
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from bench.adapters import hyperparameters, registry
from bench.adapters.reach import adapter_source_hash
from bench.errors import UserError
from bench.hashing import digest
from bench.planning.priced_towers import Passes, count_flops
from bench.suite.run import Run
from bench.towers.build import OpenClipTowers
from bench.training.inputs import Inputs
from bench.training.job import begins_with_files, build_model, fresh_towers, prepare_model
from bench.training.optimizer import set_trainable
from methods.base import Adapter
from methods.protocol import Batch, Clock, Method, Phase, Rows, Tensors

TOWER_ROWS = 128  #: rows of a batch that are counted through the towers; each row costs the same


def count_forward_flops(towers: OpenClipTowers, image_size: int) -> tuple[int, int]:
    """Count the algorithmic FLOPs to encode one image of `image_size` px, and one text. Towers may be on meta."""
    meta = towers.copied().to("meta").eval()
    # with gradients: without, torch's attention takes a fused path on some devices, which is not counted
    with FlopCounterMode(display=False) as image:
        meta.encode_image(meta.blank_images(1, image_size, "meta"))
    with FlopCounterMode(display=False) as text:
        meta.encode_text(meta.blank_texts(1, "meta"))
    return image.get_total_flops(), text.get_total_flops()


def count_step_flops(
    method: Method, towers: OpenClipTowers, batch: int, image_size: int, passes: Passes
) -> dict[str, int]:
    """Count algorithmic FLOPs (matmul, convolution) of a step of each phase, forward and backward, not recomputed.

    Method and towers may be changed. Towers, which are on meta, are counted with at most TOWER_ROWS rows, and scaled
    by B / rows. Pairwise losses are counted on real tensors with at most 64 rows, because they may look at values, and
    scaled by (B / rows)^2. passes: as `count_flops` takes them.
    """
    rows, small = min(batch, TOWER_ROWS), min(batch, 64)
    of_step: dict[str, int] = {}
    for phase in method.phases():
        encoding, z = tower_flops(method, towers, rows, image_size, phase, passes)
        leaves = {name: example_leaf(x, small) for name, x in z.items()}
        with FlopCounterMode(display=False) as loss_counter:
            with torch.no_grad():
                observed = method.observe(leaves, Batch(torch.arange(small), clock_of(phase)))
                observed = method.draw(leaves, observed, slice(0, small))
            torch.stack(_terms(method.loss(leaves, observed, slice(0, small)))).sum().backward()
        pairwise = (batch / small) ** 2
        of_step[phase.name] = round(encoding * batch / rows) + round(loss_counter.get_total_flops() * pairwise)
    return of_step


def _terms(loss: object) -> list[Tensor]:
    """Return the terms of a loss. Raises TypeError that names the first that is not one number."""
    if not isinstance(loss, Mapping) or not loss:
        raise TypeError(f"loss returned {type(loss).__name__}, not its terms by name: a dict of scalar tensors")
    for name, term in loss.items():
        given = f"of shape {[*term.shape]}" if isinstance(term, Tensor) else type(term).__name__
        if not isinstance(term, Tensor) or term.ndim:
            raise TypeError(f"term {name!r} of the loss is {given}; it should be one number, a tensor of shape []")
    return [*loss.values()]


def tower_flops(
    method: Method, towers: OpenClipTowers, rows: int, image_size: int, phase: Phase, passes: Passes
) -> tuple[int, Tensors]:
    """Count what encoding `rows` rows in a phase takes, forward and backward; return the embeddings too, on meta.

    towers: on meta; passes: as `count_flops` takes them.
    """
    assert isinstance(method, nn.Module)
    meta_method = copy.deepcopy(method, {id(state): state.to("meta") for state in method.buffers()})
    meta_method.to("meta")
    set_trainable(meta_method, towers, phase)
    images, tokens = towers.blank_images(rows, image_size, "meta"), towers.blank_texts(rows, "meta")
    ids, views = torch.arange(rows, device="meta"), (images,) * method.extra_views
    with count_flops(towers, passes) as count:
        z = meta_method.encode(towers, Rows(images, tokens, ["a"] * rows, ids, range(rows), clock_of(phase), views))
        outputs = [x for x in z.values() if x.requires_grad]
        torch.autograd.backward(outputs, [torch.empty_like(x) for x in outputs])
    return count.total, z


def clock_of(phase: Phase) -> Clock:
    """Return the clock of a step that begins a phase, to count costs by."""
    return Clock(step=0, phase=phase.name, progress=0.0, epoch=0)


def example_leaf(x: Tensor, rows: int) -> Tensor:
    """Return a substitute for x [b, ...] in a loss: drawn values [rows, ...] of length 1, on the CPU."""
    if not x.is_floating_point():
        return torch.zeros(rows, *x.shape[1:], dtype=x.dtype)
    draws = torch.randn(rows, *x.shape[1:], generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    return torch.nn.functional.normalize(draws, dim=-1).requires_grad_(x.requires_grad)


#: settings of the recipe that do not change the cost of a step
_COST_FREE = ("lr", "weight_decay", "betas", "eps", "warmup")


def cost_key(run: Run) -> str:
    """Return equal keys for runs whose steps cost the same. The temperature is a factor and changes no work."""
    content = run.content()
    content["train"] = {key: value for key, value in content["train"].items() if key not in _COST_FREE}
    content["config"] = {key: value for key, value in content["config"].items() if key != "temperature"}
    content |= dict.fromkeys(("noise", "seed", "budget", "reference"))
    content.pop("keep", None)  # which most runs lack
    return digest({**content, "adapter": adapter_source_hash(run.method)})


@dataclass(frozen=True)
class StepPrices:
    """The phases of a run and the FLOPs of one step of each, by name."""

    phases: tuple[Phase, ...]  #: their names, shares and scales of the learning rate; not what they train
    flops: Mapping[str, int]


_steps: dict[tuple[str, str], StepPrices] = {}  #: what this process has counted, by `_key`
_towers: dict[str, tuple[OpenClipTowers, Passes]] = {}  #: see `meta_towers`
_pairs: dict[tuple[str, str], int] = {}


def _key(run: Run, inputs: Inputs) -> tuple[str, str]:
    """Return all that the towers, the method and the cost of a step follow from; the pairs give the vocabulary."""
    return cost_key(run), inputs.pairs.content_hash


def pair_price(run: Run, inputs: Inputs) -> int:
    """Return the FLOPs with which a run's towers encode one image and one text; a process counts them once."""
    key = _key(run, inputs)
    if key not in _pairs:
        _pairs[key] = sum(count_forward_flops(meta_towers(run, inputs)[0], run.data.size))
    return _pairs[key]


def step_prices(run: Run, inputs: Inputs) -> StepPrices:
    """Return a run's phases and the FLOPs of a step of each. A process counts runs that differ in noise or seed once.

    Raises UserError, with the adapter's file and line, if the method fails while a step is counted.
    """
    key = _key(run, inputs)
    if key not in _steps:
        _steps[key] = _step_prices(run, inputs)
    return _steps[key]


def meta_towers(run: Run, inputs: Inputs) -> tuple[OpenClipTowers, Passes]:
    """Return a run's fresh towers on meta and their known passes: the same ones for all runs with towers like these.

    Nobody may change the towers, but for what of them is trained.
    """
    content = run.content()
    settings = [content["towers"], run.train.bn_group, run.train.precision, run.data.size, run.start]
    key = digest([*settings, inputs.pairs.content_hash])
    if key not in _towers:
        try:
            towers = fresh_towers(run, inputs, "meta")
        except Exception:  # towers that need values to be built; whatever else is wrong is wrong again
            towers = build_model(run, inputs)[0].to("meta")
        _towers[key] = towers, {}
    return _towers[key]


def _step_prices(run: Run, inputs: Inputs) -> StepPrices:
    """Count a run's steps on towers without values, or on real ones if files or the method's `prepare` need values."""
    if not begins_with_files(run):
        with contextlib.suppress(Exception):  # whatever it is, real towers decide
            towers, passes = meta_towers(run, inputs)
            method = hyperparameters.make_method(run.method, None, run.config, inputs.facts)
            kind = registry.find_method(run.method)
            changed = kind.prepare is not Adapter.prepare or kind.side != "none"
            return _prepared_prices(method, towers.copied() if changed else towers, run, passes)
    towers, method = build_model(run, inputs)
    try:
        return _prepared_prices(method, towers, run, {})
    except UserError:
        raise
    except Exception as error:  # whatever an adapter raises is a mistake in that adapter, found before anything starts
        frames = traceback.extract_tb(error.__traceback__)
        path = str(registry.method_source(run.method).path)
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == path), 1)
        raise UserError(f"{path}:{line}: counting a step failed: {type(error).__name__}: {error}") from error


class _ValuesLeft(TorchDispatchMode):
    """Tensors on meta meet others: the result is on meta, and what would be overwritten by it keeps its values.

    A method can thereby encode draws of its own while it is prepared, without the work of real towers.
    """

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = args, kwargs or {}
        on_meta = {one.is_meta for one in tree_leaves(given) if isinstance(one, Tensor)}
        if len(on_meta) == 2:
            if op._schema.is_mutable:
                return args[0]
            given = tree_map_only(Tensor, lambda one: one.to("meta"), given)
        return op(*given[0], **given[1])


def _prepared_prices(method: Method, towers: OpenClipTowers, run: Run, passes: Passes) -> StepPrices:
    """Begin as the run does, and count. Method and towers are changed."""
    with _ValuesLeft():  # type: ignore[no-untyped-call]
        prepare_model(method, towers, run, None, None, starts="files")
    towers.to("meta")
    phases = tuple(Phase(phase.name, phase.share, phase.lr_scale) for phase in method.phases())
    return StepPrices(phases, count_step_flops(method, towers, run.train.batch, run.data.size, passes))
