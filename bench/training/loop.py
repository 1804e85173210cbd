"""THE training loop, the same for every method, any number of ranks and micro-batches. Read it from top to bottom."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bench.errors import UserError
from bench.loading.loader import Loader
from bench.machine.environment import peak_memory
from bench.store import RunStore, RunWriter
from bench.store.histograms import store_diagnostics
from bench.suite.settings import TrainSettings
from bench.towers.batchnorm import grouped_norms, record_statistics
from bench.towers.build import OpenClipTowers
from bench.training import side_towers
from bench.training.checkpoint import CheckpointWriter, load_checkpoint, save_weights
from bench.training.distributed import Group
from bench.training.ledger import Ledger
from bench.training.optimizer import make_optimiser, named_parameters, set_learning_rate, set_trainable
from bench.training.schedule import Resolved
from bench.training.tiles import tiles
from methods.base import stream
from methods.protocol import Batch, Clock, Method, Rows, Tensors


class Interrupted(Exception):
    """Training was asked to stop; a checkpoint of the step it names is written."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}")
        self.step = step


class NotFinite(Exception):
    """A term of the loss, or the gradient, became NaN or infinite."""

    def __init__(self, step: int, term: str, value: float) -> None:
        super().__init__(f"{term} is {value} at step {step}")
        self.step = step
        self.term = term


@dataclass
class Job:
    """Everything one training needs, already built."""

    method: Method
    towers: OpenClipTowers
    loader: Loader
    settings: TrainSettings
    resolved: Resolved
    seed: int
    out: RunStore  #: a RunWriter for the first rank, which alone writes
    group: Group
    device: torch.device
    curve: tuple[float, ...] = ()  #: shares of the steps after which weights are kept; 1.0 is always kept
    log_every: int = 10
    on_step: Callable[[int, int, float, float], None] | None = None  #: gets steps done, steps, loss, samples per second
    should_stop: Callable[[], bool] | None = None


def train(job: Job) -> Ledger:
    """Train to the end of the budget, from the last checkpoint if there is one.

    Leaves weights-*.safetensors, metrics.jsonl and a checkpoint in the run's store. Raises Interrupted after a
    requested stop, NotFinite (with step and term) if the loss becomes NaN or infinite, and ClaimLost within a step
    after another process took the run over.
    """
    writer = _writer(job)
    checkpoints = None if writer is None else CheckpointWriter(writer, job.resolved.steps)
    with closing(job.loader), checkpoints or nullcontext():  # processes and thread end with the training
        return _train(job, writer, checkpoints)


def _train(job: Job, writer: RunWriter | None, checkpoints: CheckpointWriter | None) -> Ledger:
    method, towers, group, loader = job.method, job.towers, job.group, job.loader
    assert isinstance(method, nn.Module)
    batch, steps = job.settings.batch, job.resolved.steps
    share = group.share(batch)
    micro = min(job.settings.micro_batch or share.stop - share.start, share.stop - share.start)
    single = micro == share.stop - share.start
    per_epoch = job.resolved.epoch_steps
    keep_at = {at: math.ceil(at * steps) for at in (*job.curve, 1.0)}
    norms = grouped_norms(towers)
    if norms and micro % norms[0].group:
        raise ValueError(f"{micro} rows a forward pass are not a multiple of bn_group {norms[0].group}")
    phases = {phase.name: phase for phase in method.phases()}
    optimiser: torch.optim.AdamW | None = None

    first, ledger, optimiser_state = _resumed(job)
    seen = [int(step) for (step,) in group.rows(first)]
    if len({*seen}) > 1:
        raise UserError(
            f"ranks read checkpoints of the steps {seen}: --results must be one folder that all ranks share"
        )
    # After a kill the store's seconds exceed the checkpoint's by those of the steps that are now repeated.
    ledger.repeated_seconds = max(ledger.repeated_seconds, job.out.train_seconds() - ledger.train_seconds)
    if writer is not None:
        writer.truncate_metrics(first)
    if steps == 0 and writer is not None:  # a row that is measured as it begins
        for budget_share in keep_at:
            save_weights(writer, budget_share, method, towers)

    for step in range(first, steps):
        started, waited = time.perf_counter(), loader.seconds
        name, phase_start, phase_steps = _phase_of(job.resolved, step)
        if optimiser is None or step == phase_start:  # every phase has a fresh optimiser and schedule
            set_trainable(method, towers, phases[name])
            optimiser = make_optimiser(method, towers, phases[name], job.settings)
            if optimiser_state is not None and step > phase_start:
                optimiser.load_state_dict(optimiser_state)
            optimiser_state = None
            trained = [x for _, x in named_parameters(method, towers) if x.requires_grad]
        set_learning_rate(optimiser, step - phase_start, phase_steps, job.settings)
        clock = Clock(step=step, phase=name, progress=step / steps, epoch=step // per_epoch)

        # 1. Encode this rank's rows. With one micro-batch its graph is kept; with several, each is encoded again in 4.
        # Until then a micro-batch stays on the host as uint8 pixels, not as the towers' input.
        pieces, micro_batches = [], []
        for micro_batch in loader.micro_batches(clock, share, micro, method.extra_views):
            micro_batches.append(micro_batch)
            with torch.set_grad_enabled(single):
                pieces.append(_encode(job, loader.on_device(micro_batch)))
        local = pieces[0] if single else {key: torch.cat([piece[key] for piece in pieces]) for key in pieces[0]}

        # 2. Gather every rank's embeddings and make them leaves; the method sees all B rows, in at least fp32.
        z = {key: _leaf(key, group.gather(x.detach())) for key, x in local.items()}
        with torch.no_grad():
            observed = method.observe(z, Batch(loader.ids(step), clock))

        # 3. The loss in tiles of anchors, each sent back at once, so its memory grows linearly with the batch.
        terms: dict[str, Tensor] = {}
        weight = 1.0 / group.world if method.whole_batch else 1.0
        for anchors in tiles(method.whole_batch, share, batch):
            with torch.no_grad():
                constants = method.draw(z, observed, anchors)
            parts = method.loss(z, constants, anchors)
            (torch.stack(list(parts.values())).sum() * weight).backward()
            for key, part in parts.items():
                terms[key] = terms.get(key, 0.0) + part.detach() * weight
        values = dict(zip(terms, group.sum_(torch.stack(list(terms.values()))).tolist(), strict=True))
        for key, value in values.items():
            if not math.isfinite(value):
                raise NotFinite(step, key, value)

        # 4. Sum dL/dz over ranks, and send this rank's rows back through the towers. Sum the gradients of parameters.
        gradients = {
            key: group.sum_(torch.zeros_like(x) if x.grad is None else x.grad)[share].to(local[key].dtype)
            for key, x in z.items()
            if x.requires_grad
        }
        record_statistics(norms, False)  # the first encoding has recorded these rows
        for micro_batch in micro_batches:
            places = micro_batch.positions
            at = slice(places.start - share.start, places.stop - share.start)
            own = {key: gradient[at] for key, gradient in gradients.items()}
            again = local if single else _encode(job, loader.on_device(micro_batch))
            _backward(again, own)
        record_statistics(norms, True)
        group.sum_gradients(trained)

        # 5. Step, and let the method move its own scalars.
        if step % job.log_every == 0 or step + 1 == steps:
            norm = torch.nn.utils.get_total_norm([p.grad for p in trained if p.grad is not None]).item()
            if not math.isfinite(norm):
                raise NotFinite(step, "gradient norm", norm)
            if writer is not None:
                writer.append_metrics(_line(job, step, clock, values, optimiser, norm, z, observed))
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        group.commit_batchnorm(norms)
        method.after_step(clock)
        side_towers.follow(method, towers, clock)
        if (step + 1) % per_epoch == 0:
            method.end_epoch(clock.epoch)

        if step + 1 == steps and writer is not None:  # before the last checkpoint, so that a resumed run has them too
            with torch.no_grad():
                store_diagnostics(writer, "training", method.diagnostics(z, observed))

        # 6. Charge the ledger; save weights and a checkpoint when they are due or a stop was requested.
        ledger.charge(method, towers, name, batch, job.resolved.step_flops[name])
        seconds = time.perf_counter() - started
        asked = job.should_stop is not None and job.should_stop()
        per_rank = group.rows(seconds, loader.seconds - waited, peak_memory(job.device), asked)
        spent, waits, peaks, stops = zip(*per_rank, strict=True)
        ledger.train_seconds += sum(spent)
        ledger.data_seconds += sum(waits)
        ledger.peak_memory_bytes = max(ledger.peak_memory_bytes, *map(int, peaks))
        if writer is not None:
            writer.note_train_seconds(ledger.train_seconds + ledger.repeated_seconds)
        for budget_share, due in keep_at.items():
            if due == step + 1 and writer is not None:
                save_weights(writer, budget_share, method, towers)
        stop = any(stops)  # one rank was asked: all stop after the same step
        last = stop or step + 1 == steps
        if checkpoints is not None:
            if last or checkpoints.due(job.settings.checkpoint_seconds):
                checkpoints.save(step + 1, method, towers, optimiser, ledger)
            if last:
                checkpoints.wait()
            if job.on_step is not None:
                job.on_step(step + 1, steps, sum(values.values()), batch / seconds)
        if stop and step + 1 < steps:
            raise Interrupted(step + 1)
    return ledger


def _resumed(job: Job) -> tuple[int, Ledger, dict[str, Any] | None]:
    """Put the last checkpoint into towers and method; return its step, ledger and optimiser state."""
    saved, method = load_checkpoint(job.out), job.method
    if saved is None:
        return 0, Ledger(), None
    assert isinstance(method, nn.Module)
    job.towers.load_state_dict(saved["towers"])
    method.load_state_dict(saved["method"])
    side_towers.restore(method, job.towers, saved)
    return saved["step"], Ledger(**saved["ledger"]), saved["optimiser"]


def _writer(job: Job) -> RunWriter | None:
    """The writer of the run's store; further ranks have none. Raises TypeError if the first rank has no claim."""
    if job.group.rank:
        return None
    if not isinstance(job.out, RunWriter):
        raise TypeError("the first rank writes, so it needs a RunWriter, which holds the claim of the run")
    return job.out


def _phase_of(resolved: Resolved, step: int) -> tuple[str, int, int]:
    """(name, first step, number of steps) of the phase that `step` belongs to."""
    start = 0
    for name, length in resolved.phases:
        if step < start + length:
            return name, start, length
        start += length
    raise ValueError(f"step {step} lies beyond the last phase, which ends at {start}")


def _encode(job: Job, rows: Rows) -> Tensors:
    """Encode with dropout and the like drawn from (seed, step, first row), so that a second time gives the same."""
    key = stream(job.seed, "towers", rows.clock.step, rows.positions.start).initial_seed()
    lower = job.settings.precision == "bf16"
    with _seeded(key, job.device), torch.autocast(job.device.type, torch.bfloat16, enabled=lower):
        return job.method.encode(job.towers, rows)


@contextmanager
def _seeded(key: int, device: torch.device) -> Iterator[None]:
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(key)  # `torch.manual_seed` looks for every kind of device, each time
        if device.type == "cuda":
            torch.cuda.manual_seed_all(key)
        yield


def is_leaf(name: str, x: Tensor) -> bool:
    """Whether gradients of a tensor of `encode` flow back to the towers: not for integers, nor for side towers."""
    return x.is_floating_point() and not name.startswith("side_")


def _leaf(name: str, x: Tensor) -> Tensor:
    if not x.is_floating_point():
        return x
    return (x if x.dtype == torch.float64 else x.float()).clone().requires_grad_(is_leaf(name, x))


def _backward(local: Tensors, gradients: Tensors) -> None:
    reached = [key for key in gradients if local[key].requires_grad]
    if reached:
        torch.autograd.backward([local[key] for key in reached], [gradients[key] for key in reached])


def _line(
    job: Job,
    step: int,
    clock: Clock,
    values: dict[str, float],
    optimiser: torch.optim.Optimizer,
    norm: float,
    z: Tensors,
    observed: Tensors,
) -> dict[str, object]:
    """One line of metrics.jsonl. It holds no times, so that an interrupted run writes the same file."""
    with torch.no_grad():
        own = dict(job.method.monitor(z, observed))
    return {
        "step": step,
        "phase": clock.phase,
        "epoch": clock.epoch,
        "loss": sum(values.values()),
        "terms": values,
        "lr": optimiser.param_groups[0]["lr"],
        "gradient_norm": norm,
        **own,
    }
