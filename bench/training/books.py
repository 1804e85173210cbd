"""Books of a training next to its weights: ledger, metrics, checkpoints, requests to stop, a check for NaN."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bench.distributed import Group
from bench.errors import UserError
from bench.loading.loader import Loader
from bench.machine.environment import peak_memory
from bench.store import RunStore, RunWriter
from bench.store.histograms import store_diagnostics
from bench.suite.settings import TrainSettings
from bench.towers.build import OpenClipTowers
from bench.training import side_towers
from bench.training.checkpoint import CheckpointWriter, load_checkpoint, save_weights
from bench.training.ledger import Ledger
from bench.training.schedule import ResolvedSteps
from methods.protocol import Clock, Method, Tensors

NORM_TERM = "gradient norm"


class Interrupted(Exception):
    """Training was asked to stop; a checkpoint of the named step is written."""

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
class TrainingJob:
    """Everything one training needs, already built."""

    method: Method
    towers: OpenClipTowers
    loader: Loader
    settings: TrainSettings
    resolved: ResolvedSteps
    seed: int
    out: RunStore  #: a RunWriter for the first rank, which alone writes
    group: Group
    device: torch.device
    curve: tuple[float, ...] = ()  #: shares of the steps after which weights are kept; 1.0 is always kept
    log_every: int = 10
    on_step: Callable[[int, int, float, float], None] | None = None  #: gets steps done, steps, loss, samples per second
    should_stop: Callable[[], bool] | None = None


class Books:
    """The books of one training. `begin`, `note` and `end` are called in each step, by all ranks.

    A context, which ends the loader's processes and waits for the last checkpoint. Raises TypeError if the first rank
    has no claim.
    """

    def __init__(self, job: TrainingJob) -> None:
        if job.group.rank == 0 and not isinstance(job.out, RunWriter):
            raise TypeError("the first rank writes, so it needs a RunWriter, which holds the claim of the run")
        self._job, self.ledger, self.first = job, Ledger(), 0
        self._writer = job.out if job.group.rank == 0 and isinstance(job.out, RunWriter) else None
        self._checkpoints = None if self._writer is None else CheckpointWriter(self._writer, job.resolved.steps)
        self._keep_at = {at: math.ceil(at * job.resolved.steps) for at in (*job.curve, 1.0)}
        self._unread: list[tuple[int, list[str], Tensor, torch.cuda.Event | None]] = []
        self._values: dict[str, float] = {}  #: the last numbers that were read
        self._began = self._waited = 0.0

    def __enter__(self) -> Books:
        return self

    def __exit__(self, *error: Any) -> None:
        self._job.loader.close()
        if self._checkpoints is not None:
            self._checkpoints.__exit__(*error)

    def resume(self) -> dict[str, Any] | None:
        """Put the last checkpoint into towers and method; return the optimiser's state, None without a checkpoint.

        Raises UserError if ranks read different checkpoints.
        """
        job, method, optimiser = self._job, self._job.method, None
        assert isinstance(method, nn.Module)
        if (saved := load_checkpoint(job.out)) is not None:
            job.towers.load_state_dict(saved["towers"])
            method.load_state_dict(saved["method"])
            side_towers.restore_side(method, job.towers, saved)
            self.first, self.ledger, optimiser = saved["step"], Ledger(**saved["ledger"]), saved["optimiser"]
        seen = [int(step) for (step,) in job.group.rows(self.first)]
        if len({*seen}) > 1:
            fix = "--results must be one folder that all ranks share"
            raise UserError(f"ranks read checkpoints of the steps {seen}: {fix}")
        # After a kill the store's seconds exceed the checkpoint's by those of the steps that are now repeated.
        repeated = job.out.train_seconds() - self.ledger.train_seconds
        self.ledger.repeated_seconds = max(self.ledger.repeated_seconds, repeated)
        if self._writer is not None:
            self._writer.truncate_metrics(self.first)
        if job.resolved.steps == 0:  # a row that is measured as it begins
            self._keep_weights(0)
        return optimiser

    def begin(self) -> None:
        """Begin a step."""
        self._began, self._waited = time.perf_counter(), self._job.loader.seconds

    def note(
        self,
        clock: Clock,
        terms: dict[str, Tensor],
        trained: Sequence[nn.Parameter],
        lr: float,
        z: Tensors,
        observed: Tensors,
    ) -> None:
        """Look at the terms of the loss, of this rank, and at the gradients; write a line of metrics if it is due.

        Raises NotFinite: on a CPU for this step, on a GPU, which the host does not wait for, for the one before.
        """
        job, cuda = self._job, self._job.device.type == "cuda"
        norm = torch.nn.utils.get_total_norm([p.grad for p in trained if p.grad is not None])
        sums = job.group.sum_(torch.stack(list(terms.values())))
        numbers = torch.cat([sums.double(), norm.to(sums.device).double()[None]]).to("cpu", non_blocking=True)
        copied = torch.cuda.current_stream().record_event() if cuda else None
        self._unread.append((clock.step, [*terms, NORM_TERM], numbers, copied))
        due = clock.step % job.log_every == 0 or clock.step + 1 == job.resolved.steps
        self._read(0 if due or not cuda else 1)
        if due and self._writer is not None:
            with torch.no_grad():
                own = dict(job.method.monitor(z, observed))
            values = {key: value for key, value in self._values.items() if key != NORM_TERM}
            line = {"step": clock.step, "phase": clock.phase, "epoch": clock.epoch, "loss": sum(values.values())}
            line |= {"terms": values, "lr": lr, "gradient_norm": self._values[NORM_TERM]}
            self._writer.append_metrics({**line, **own})  # no times, so that an interrupted run writes the same file

    def end(self, clock: Clock, optimiser: torch.optim.Optimizer, z: Tensors, observed: Tensors) -> None:
        """Charge the step; keep weights and a checkpoint if they are due. Raises Interrupted if any rank is to stop."""
        job, ledger, done = self._job, self.ledger, clock.step + 1
        complete = done == job.resolved.steps
        if complete and self._writer is not None:  # before the last checkpoint, so that a resumed run has them too
            with torch.no_grad():
                store_diagnostics(self._writer, "training", job.method.diagnostics(z, observed))
        ledger.charge(job.method, job.towers, clock.phase, job.settings.batch, job.resolved.step_flops[clock.phase])
        seconds = time.perf_counter() - self._began
        asked = job.should_stop is not None and job.should_stop()
        wanted = self._checkpoints is not None and self._checkpoints.due(job.settings.checkpoint_seconds)
        own = (seconds, job.loader.seconds - self._waited, asked, wanted)
        spent, waits, stops, wants = zip(*job.group.rows(*own), strict=True)
        ledger.train_seconds += sum(spent)
        ledger.data_seconds += sum(waits)
        if self._writer is not None:
            self._writer.note_train_seconds(ledger.train_seconds + ledger.repeated_seconds)
        stop = any(stops)  # one rank was asked: all stop after the same step
        if stop or complete or any(wants):  # a maximum, and expensive compared with a small step
            peaks = (int(peak) for (peak,) in job.group.rows(peak_memory(job.device)))
            ledger.peak_memory_bytes = max(ledger.peak_memory_bytes, *peaks)
        if stop or complete or any(wants) or done in self._keep_at.values():
            self._read(0)  # what is not finite is not kept; all ranks look
        self._keep_weights(done)
        if self._checkpoints is not None:
            if stop or complete or wanted:
                self._checkpoints.save(done, job.method, job.towers, optimiser, ledger)
            if stop or complete:
                self._checkpoints.wait()
            if job.on_step is not None:
                loss = sum(value for key, value in self._values.items() if key != NORM_TERM)
                job.on_step(done, job.resolved.steps, loss, job.settings.batch / seconds)
        if stop and not complete:
            raise Interrupted(done)

    def _keep_weights(self, done: int) -> None:
        for share, due in self._keep_at.items():
            if due == done and self._writer is not None:
                save_weights(self._writer, share, self._job.method, self._job.towers)

    def _read(self, left: int) -> None:
        """Read the numbers of all but the last `left` steps, and wait for them. Raises NotFinite."""
        while len(self._unread) > left:
            step, names, numbers, copied = self._unread.pop(0)
            if copied is not None:
                copied.synchronize()
            self._values = dict(zip(names, numbers.tolist(), strict=True))
            for name, value in self._values.items():
                if not math.isfinite(value):
                    raise NotFinite(step, name, value)
