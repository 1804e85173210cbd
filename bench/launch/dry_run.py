"""`bench run --dry-run` and `bench.dry_run`: list the runs of a suite, estimate their cost, name missing inputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.adapters import registry
from bench.catalogue import gpus as cards
from bench.console import progress
from bench.console.text import align_columns
from bench.errors import UserError
from bench.launch.launchers import find_launcher
from bench.planning import requirements, tune
from bench.planning.estimate import on_gpu, on_this_machine
from bench.planning.outcomes import split_complete
from bench.planning.planned import Planned
from bench.planning.planner import Planner
from bench.store import Store
from bench.store.run import SHORT_ID
from bench.store.verify import run_problems
from bench.suite.suite import Suite, load_suite
from bench.suite.unfit import omitted_towers

DEFAULT_GPU = "A100"  #: the card of the estimate if the suite cannot be timed here and no card is named


def dry_run(
    suite: Suite | str | Path,
    results: Path | str = "results",
    *,
    only: Sequence[str] | str = (),
    seeds: Sequence[int] | int = (),
    gpus: int | None = None,
    launcher: str = "local",
    gpu: str | None = None,
    utilisation: float | None = None,
    plugins: Sequence[str | Path] = (),
) -> list[str]:
    """Describe in lines of text what `run_suite` would do: its runs, their steps, estimated hours, missing inputs.

    suite, results, only, seeds, gpus, launcher, plugins: as `run_suite` takes them. gpu: the card whose hours are
    estimated, such as "a100", at the share `utilisation` of its peak.

    Trains nothing and writes nothing. Raises UserError for bad settings and for options that contradict each other.

    >>> print(*bench.dry_run("quickstart"), sep="\\n")  # doctest: +SKIP
    """
    if utilisation is not None and gpu is None:
        raise UserError(f"--utilisation {utilisation:g}: applies to a GPU; name one with --gpu")
    card, share = cards.find_gpu(gpu or DEFAULT_GPU), cards.UTILISATION if utilisation is None else utilisation
    cards.refuse_utilisation(share)
    for file in plugins:
        registry.add_plugin(file)
    asked = (suite if isinstance(suite, Suite) else load_suite(suite)).narrowed(only, seeds)
    devices = find_launcher(launcher).gpus(asked, gpus)
    with progress.progress_on() as shown:
        shown.preparing("looking for data", asked.data.name)
        lacking = requirements.missing_inputs(asked)
        here = requirements.ids_are_known(asked)
        planner = Planner(Store(Path(results)), here, dry=True, shown=shown)
        trials = tune.follow_trials(asked, planner) if here else tune.Followed()
        planned = [*trials.todo.values(), *planner.plan(tune.tuned_suite(asked, trials.choices).runs())]
        planned, complete = split_complete(planned, planner.store)
        states = {one.id: "done" if one.id in complete else _stored(one, planner.store) for one in planned}
        rows = [("run", "stored", "steps", "")]
        rows += [(one.id[:SHORT_ID], states[one.id], f"{one.resolved.steps:,}", one.run.title) for one in planned]
        unfit = [reason for entry in asked.methods for reason in omitted_towers(asked, entry).values()]
        lines = [*align_columns(rows), *(f"not applicable: {reason}" for reason in dict.fromkeys(unfit))]
        lines += [f"cannot be executed: {label}: {why}" for label, why in planner.refused.items()]
        if trials.todo:
            later = ", trials only at their next budget" if asked.tune and len(asked.tune.rungs) > 1 else ""
            lines.append(f"entries whose trials are not finished are shown at the suite's settings{later}")
        if asked.tune and not here:
            lines.append(f"{asked.tune.runs} trials per entry come on top; they are planned once the data is here")
        todo = [one for one in planned if states[one.id] != "done"]
        if todo:
            shown.preparing("estimating", f"{len(todo)} runs")
            on_card = gpu or devices or not here
            cost = on_gpu(todo, card, share, devices or 1) if on_card else on_this_machine(todo, planner.store)
            lines += cost.lines
        named = dict(requirements.named_weights(asked))
        lines += [f"downloaded when runs start, unless open_clip's cache has them: {weights}" for weights in named]
        return [*lines, *requirements.listing(lacking)]


def _stored(one: Planned, store: Store) -> str:
    """The state of a run of which the suite needs more, in the words of `bench status`."""
    if one.expected:
        return "no data"
    state = "damaged" if run_problems(store.run(one.id)) else str(store.run(one.id).status()["state"])
    return "trained" if state == "done" else state
