"""Execute runs as tasks of a Ray cluster whose nodes share the folder of results.

A task does what the same command does on one machine: it claims its run, continues from its checkpoint, and publishes.
The calling process stays: it submits a run when its reference run is done, and submits it again if the task's process
or node is lost, as by preemption. Ray ends all tasks if the calling process dies; the same command then continues.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench import data_folder
from bench.adapters import registry
from bench.console.progress import Progress
from bench.console.text import echo
from bench.errors import DiskFull, UserError, one_line
from bench.launch.claimed import Call, mark_failed, run_progress
from bench.launch.launchers import Launch, LaunchOptions
from bench.launch.launchers.local import refuse_odd_shares, run_all
from bench.machine.processes import stop_requests
from bench.planning.outcomes import RunOutcome, RunOutcomes, is_complete, split_complete
from bench.planning.planned import Planned
from bench.store import Store
from bench.store.claim import live_holder
from bench.store.jobs import note_job
from bench.store.process import process_identity
from bench.store.run import SHORT_ID
from bench.suite.launcher_settings import RaySettings
from bench.suite.suite import Suite

MAX_LOSSES = 5  #: tasks of one run that are lost in a row without progress of the run; then it is failed
POLL_SECONDS = 0.5  #: seconds between checks for stop requests and of the claims of lost tasks


def prepare(suite: Suite, store: Store, options: LaunchOptions) -> Launch:
    """See `bench.launch.launchers.Launcher`. `options.gpus` overrides the suite's own number."""
    settings = suite.ray if options.gpus is None else suite.ray.model_copy(update={"gpus": float(options.gpus)})
    if suite.budget[0].timed:
        raise UserError("budget.device_seconds: is calibrated on the machine that trains; use --launcher local there")
    with _connected(settings.address):
        if settings.gpus is None:
            settings = settings.model_copy(update={"gpus": float(_most("GPU") > 0)})
    gpus = settings.gpus or 0.0
    if options.processes is not None and gpus:
        raise UserError(f"--processes {options.processes}: is for runs without GPUs; set ray.gpus: 0 in the suite")
    ranks = options.processes or max(1, int(gpus))
    settled = replace(options, jobs=1, ranks=ranks, ignore_second_sigint=True)

    def launch(planned: list[Planned], progress: Progress) -> RunOutcomes:
        with _connected(settings.address):
            return _Queue(Call(store, progress, settled), settings, suite.name).make(planned, options.jobs)

    return launch


@contextmanager
def _connected(address: str) -> Iterator[None]:
    """Connect this process to a cluster, unless it is. Raises UserError without Ray, and if no cluster answers."""
    if find_spec("ray") is None:
        raise UserError("--launcher ray: needs Ray; pip install 'robust-cl-bench[ray]'")
    import ray

    if ray.is_initialized():  # by the program that calls `bench.run_suite`
        yield
        return
    try:
        ray.init(address=address, logging_level=logging.WARNING, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        fix = "`ray start --head` starts one, ray.address in the suite or $RAY_ADDRESS names one"
        raise UserError(f"ray.address: {address}: no Ray cluster answers: {one_line(error, 200)}; {fix}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _most(resource: str) -> float:
    """Return the largest amount of a resource on one node of the cluster; in bytes if it is memory."""
    import ray

    return max((float(node["Resources"].get(resource, 0)) for node in ray.nodes() if node["Alive"]), default=0.0)


@dataclass
class _Attempt:
    """State of a submitted run as the calling process knows it."""

    one: Planned
    losses: int = 0  #: tasks lost in a row without progress of the run
    reached: object = None  #: how far the run was when the last of them was lost


@dataclass
class _Queue:
    """The runs of one call on a cluster."""

    call: Call
    settings: RaySettings
    suite: str
    _tasks: dict[Any, _Attempt] = field(default_factory=dict)  #: those that Ray has, by the reference of the outcome
    _lost: list[_Attempt] = field(default_factory=list)  #: to be submitted again

    def make(self, planned: list[Planned], jobs: int) -> RunOutcomes:
        """Execute every run that is not complete, at most `jobs` at a time (0: no limit).

        Returns when all have ended. Raises DiskFull once the disk is full, when the others have stopped.
        """
        planned, complete = split_complete(planned, self.call.store)
        self.call.summary.skipped += sorted(complete)
        waiting = [one for one in planned if one.id not in complete]
        refuse_odd_shares(waiting, self.call.options.ranks)
        if waiting:
            self._say_what_is_asked(waiting)
        with stop_requests() as requested:
            stopping = False
            while True:
                if (requested or self.call.summary.full) and not stopping:
                    stopping = True
                    import ray

                    for reference in self._tasks:
                        ray.cancel(reference)
                    self.call.summary.interrupted += [one.id for one in waiting]
                    self.call.summary.interrupted += [attempt.one.id for attempt in self._lost]
                    waiting, self._lost = [], []
                self._submit(waiting, jobs or len(planned))
                if not (self._tasks or self._lost):
                    if self.call.summary.full:
                        raise DiskFull(self.call.summary.full[0])
                    return self.call.summary
                self._listen(stopping)

    def _say_what_is_asked(self, waiting: list[Planned]) -> None:
        """Warn if no node has what a run asks for: Ray then waits until one does, as when a cluster grows."""
        asked = {"CPU": max(map(self._cpus, waiting)), "GPU": self.settings.gpus, "memory": self._memory()}
        for resource, amount in asked.items():
            if (amount or 0) > (there := _most(resource)):
                lacking = f"no node of the cluster has {resource} {amount:g}, at most {there:g}; runs wait for one"
                echo(lacking, err=True)
        self.call.progress.preparing(
            "with Ray", f"{len(waiting)} runs; bench status {self.suite} shows where they stand"
        )

    def _cpus(self, one: Planned) -> int:
        return self.settings.cpus or one.run.train.threads * self.call.options.ranks

    def _memory(self) -> int | None:
        return self.settings.memory_gb * 10**9 if self.settings.memory_gb else None

    def _submit(self, waiting: list[Planned], most: int) -> None:
        """Give Ray the runs that can start now, and lost ones that no process seems to hold any more."""
        for attempt in list(self._lost):
            if live_holder(self.call.store.run(attempt.one.id).folder) is None and len(self._tasks) < most:
                self._lost.remove(attempt)
                self._give(attempt)
        ahead = {attempt.one.id for attempt in (*self._tasks.values(), *self._lost)}
        for one in list(waiting):
            if one.reference in ahead or len(self._tasks) >= most:
                ahead.add(one.id)
                continue
            waiting.remove(one)
            if not self.call.cannot_start(one):
                ahead.add(one.id)
                self._give(_Attempt(one))

    def _give(self, attempt: _Attempt) -> None:
        """Submit a task and note it next to its run, for `bench status`."""
        import ray

        one = attempt.one
        log = self.call.store.suite(self.suite).resolve() / "ray" / f"{one.id[:SHORT_ID]}.log"
        root, data = self.call.store.root.resolve(), data_folder.data_root().resolve()
        remote = ray.remote(_make).options(
            num_cpus=self._cpus(one),
            num_gpus=self.settings.gpus,
            memory=self._memory(),
            max_retries=0,  # whether a lost task is started again is decided here
            name=one.run.title,
        )
        reference = remote.remote(one, root, data, registry.known_plugins(), self.call.options, log)
        self._tasks[reference] = attempt
        note_job(self.call.store.run(one.id), f"ray-{reference.task_id().hex()[:8]}", log, process_identity())

    def _listen(self, stopping: bool) -> None:
        """Wait for the end of tasks, and note what became of their runs."""
        import ray

        if not self._tasks:  # every run that is left has lost its task
            time.sleep(POLL_SECONDS)
            return
        ended, _ = ray.wait(list(self._tasks), timeout=POLL_SECONDS)
        for reference in ended:
            attempt = self._tasks.pop(reference)
            outcome = self._outcome(reference, attempt, stopping)
            if outcome is None:
                self._lost.append(attempt)
            else:
                self.call.end(attempt.one, *outcome)

    def _outcome(self, reference: Any, attempt: _Attempt, stopping: bool) -> tuple[RunOutcome, str] | None:
        """Return the final state of a task's run and a message; None if it is to be submitted again."""
        import ray
        from ray import exceptions

        one = attempt.one
        try:
            state, message = ray.get(reference)
        except exceptions.TaskCancelledError:
            done = is_complete(one, self.call.store)
            return ("done", "") if done else ("interrupted", "stopped")
        except exceptions.RayTaskError as error:  # the run itself raises nothing: the node cannot make it
            message = one_line(error.cause)
            return mark_failed(one, self.call.store, message, {"type": type(error.cause).__name__, "message": message})
        except exceptions.RayError as error:
            return self._after_loss(attempt, one_line(error, 300), stopping)
        if state == "busy" and attempt.losses and not stopping:  # the lost process still seems to hold it
            return None
        return state, message

    def _after_loss(self, attempt: _Attempt, message: str, stopping: bool) -> tuple[RunOutcome, str] | None:
        """Decide about a run whose task was lost with its process or node: None if it is to be submitted again."""
        if stopping:
            return "interrupted", "stopped, and its task was lost"
        now = run_progress(self.call.store.run(attempt.one.id))
        attempt.losses = 1 if now != attempt.reached else attempt.losses + 1
        attempt.reached = now
        if attempt.losses < MAX_LOSSES:
            echo(f"{attempt.one.run.title}: its Ray task was lost ({message}); it continues in another one", err=True)
            return None
        message = f"{MAX_LOSSES} consecutive Ray tasks were lost without progress: {message}"
        return mark_failed(attempt.one, self.call.store, message, {"type": "Process", "message": message})


def _make(
    one: Planned, root: Path, data: Path, plugins: list[str], options: LaunchOptions, log: Path
) -> tuple[RunOutcome, str]:
    """Execute one run in a process of Ray, in a log of its own; return its final state and a message.

    Ray cancels a task by SIGINT, again and again; `run_all` takes it for a request to stop at a checkpoint.
    """
    data_folder.use_data_folder(data)
    for plugin in plugins:
        registry.add_plugin(plugin)
    log.parent.mkdir(parents=True, exist_ok=True)
    store = Store(root)
    with log.open("a", encoding="utf-8") as stream:
        try:
            summary = run_all([one], store, Progress(stream), options)
        except DiskFull as full:
            return "full", str(full)
    if summary.failed:
        error = store.run(one.id).status().get("error", {})
        return "failed", f"{error['type']}: {error['message']}" if error else ""
    return "busy" if summary.busy else "interrupted" if summary.interrupted else "done", ""
