"""The training loop, the same for every method, any number of ranks and micro-batches. Read it from top to bottom."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from bench.towers.batchnorm import grouped_norms, record_statistics
from bench.training import side_towers
from bench.training.books import Books
from bench.training.books import Interrupted as Interrupted
from bench.training.books import NotFinite as NotFinite
from bench.training.books import TrainingJob as TrainingJob
from bench.training.ledger import Ledger
from bench.training.optimizer import make_optimiser, named_parameters, set_learning_rate, set_trainable
from methods.base import stream
from methods.protocol import Batch, Clock, Rows, Tensors

TILE_ENTRIES = 2**22  #: similarities that a tile holds at once, 16 MiB in fp32; other tiles would round differently


def anchor_tiles(whole_batch: bool, share: slice, batch: int) -> Iterator[slice]:
    """This rank's anchors in tiles of whole blocks of 32; a whole-batch loss has one tile of all B."""
    if whole_batch:
        yield slice(0, batch)
        return
    size = max(32, TILE_ENTRIES // batch // 32 * 32)
    for start in range(share.start, share.stop, size):
        yield slice(start, min(start + size, share.stop))


def train(job: TrainingJob) -> Ledger:
    """Train to the end of the budget, from the last checkpoint if there is one.

    Leaves weights-*.safetensors, metrics.jsonl and a checkpoint in the run's store. Raises Interrupted after a
    requested stop, NotFinite (with step and term) if the loss becomes NaN or infinite, and ClaimLost within a step
    after another process took the run over.
    """
    with Books(job) as books:
        _train(job, books)
        return books.ledger


def _train(job: TrainingJob, books: Books) -> None:
    method, towers, group, loader = job.method, job.towers, job.group, job.loader
    assert isinstance(method, nn.Module)
    batch, steps, per_epoch = job.settings.batch, job.resolved.steps, job.resolved.epoch_steps
    share = group.share(batch)
    micro = min(job.settings.micro_batch or share.stop - share.start, share.stop - share.start)
    single = micro == share.stop - share.start
    norms = grouped_norms(towers)
    if norms and micro % norms[0].group:
        raise ValueError(f"a micro-batch of {micro} rows is not a multiple of bn_group {norms[0].group}")
    phases = {phase.name: phase for phase in method.phases()}
    optimiser: torch.optim.AdamW | None = None
    optimiser_state = books.resume()

    for step in range(books.first, steps):
        books.begin()
        name, phase_start, phase_steps = job.resolved.phase_of(step)
        if optimiser is None or step == phase_start:  # every phase has a fresh optimiser and schedule
            set_trainable(method, towers, phases[name])
            optimiser = make_optimiser(method, towers, phases[name], job.settings)
            if optimiser_state is not None and step > phase_start:
                optimiser.load_state_dict(optimiser_state)
            optimiser_state = None
            trained = [x for _, x in named_parameters(method, towers) if x.requires_grad]
        factor = set_learning_rate(optimiser, step - phase_start, phase_steps, job.settings)
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
        for anchors in anchor_tiles(method.whole_batch, share, batch):
            with torch.no_grad():
                constants = method.draw(z, observed, anchors)
            parts = method.loss(z, constants, anchors)
            (torch.stack(list(parts.values())).sum() * weight).backward()
            for key, part in parts.items():
                terms[key] = terms.get(key, 0.0) + part.detach() * weight

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
            reached = [key for key in own if again[key].requires_grad]
            if reached:
                torch.autograd.backward([again[key] for key in reached], [own[key] for key in reached])
        record_statistics(norms, True)
        group.sum_gradients(trained)

        # 5. Look for NaN, step, and let the method move its own scalars.
        books.note(clock, terms, trained, job.settings.lr * phases[name].lr_scale * factor, z, observed)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        group.commit_batchnorm(norms)
        method.after_step(clock)
        side_towers.update_average(method, towers, clock)
        if (step + 1) % per_epoch == 0:
            method.end_epoch(clock.epoch)

        # 6. Charge the ledger; save weights and a checkpoint when they are due or a stop was requested.
        books.end(clock, optimiser, z, observed)


def _encode(job: TrainingJob, rows: Rows) -> Tensors:
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
    """Return whether gradients of a tensor of `encode` flow back to the towers: not of integers or side towers."""
    return x.is_floating_point() and not name.startswith("side_")


def _leaf(name: str, x: Tensor) -> Tensor:
    if not x.is_floating_point():
        return x
    return (x if x.dtype == torch.float64 else x.float()).clone().requires_grad_(is_leaf(name, x))
