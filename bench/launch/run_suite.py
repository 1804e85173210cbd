"""Take a suite from its settings to its stored results: trials of `tune`, plan, runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.adapters import registry
from bench.console import progress
from bench.errors import UserError
from bench.launch.launchers import Launch, LaunchOptions, find_launcher
from bench.launch.torchrun import launcher_place
from bench.launch.trackers import refuse_missing_tracker
from bench.planning import plan_file, requirements, tune
from bench.planning.outcomes import RunOutcomes
from bench.planning.planned import Planned
from bench.planning.planner import Planner
from bench.store import Store
from bench.suite.suite import Suite, load_suite


def run_suite(
    suite: Suite | str | Path,
    results: Path | str = "results",
    *,
    only: Sequence[str] | str = (),
    seeds: Sequence[int] | int = (),
    jobs: int | None = None,
    gpus: int | None = None,
    processes: int | None = None,
    launcher: str = "local",
    track: str | None = None,
    plugins: Sequence[str | Path] = (),
) -> RunOutcomes:
    """Train and evaluate the runs of a suite that are not complete in the store; return the final state of each.

    suite: a loaded suite, a YAML file, or the name of a shipped suite. results: the folder of the store. only, seeds:
    the label and the seed to run, or several; empty means all. jobs: runs at a time, by default as many as suit this
    machine. gpus, processes: ranks per run. launcher: "local", "slurm" or "ray". track: a tracker, such as "wandb".
    plugins: files with methods that the suite's YAML names; their code is run. If you pass a loaded suite, call
    `bench.add_plugin` before you load it.
    Trials of the suite's `tune` come first; if one of them is not finished, no other run is started.

    A run that fails does not stop the others. Progress goes to stderr. Raises UserError, before anything is trained,
    for bad settings and for missing data, packages or devices.

    >>> summary = bench.run_suite("quickstart", jobs=2)  # doctest: +SKIP
    >>> len(summary.done), summary.failed  # doctest: +SKIP
    """
    for file in plugins:
        registry.add_plugin(file)
    loaded = (suite if isinstance(suite, Suite) else load_suite(suite)).narrowed(only, seeds)
    make = find_launcher(launcher)
    if launcher != "local" and (here := launcher_place()) is not None:
        raise UserError(f"--launcher {launcher}: not under torchrun, which started {here.world} ranks (WORLD_SIZE)")
    if track is not None:
        refuse_missing_tracker(track)
    requirements.refuse_missing_inputs(loaded)
    store = Store(Path(results))
    # The launcher looks at the machine before planning times any steps.
    launch = make.prepare(loaded, store, LaunchOptions(jobs or 0, gpus, processes, track))
    return SuiteRuns(loaded, Planner(store), launch).make()


@dataclass
class SuiteRuns:
    """The selected runs of a suite: trials of `tune` first, then those that are planned by their results."""

    suite: Suite
    planner: Planner
    launch: Launch
    _planned: list[Planned] | None = field(default=None, init=False)  #: once the trials are finished

    def make(self) -> RunOutcomes:
        """Have `launch` make the runs that are left, none if trials are not finished. A second call plans nothing."""
        with progress.progress_on() as shown:
            if self._planned is None:
                self.planner.shown = shown
                work = lambda planned: self.launch(planned, shown)  # noqa: E731
                choices, trials = tune.search_settings(self.suite, self.planner, work)
                if trials.busy or trials.interrupted or trials.failed or trials.queued:
                    return trials
                self._planned = plan_file.write_plan(tune.tuned_suite(self.suite, choices), choices, self.planner)
            return self.launch(self._planned, shown)
