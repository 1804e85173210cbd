"""Where a suite stands: one line per run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.store import Store
from bench.store.jobs import SubmittedJob, submitted_jobs
from bench.store.run import SHORT_ID
from reports.results import Results, RunResult, load

HEAD = ("method", "noise", "seed", "state", "step", "run", "")


def status(suite: str, store: Store) -> list[tuple[str, ...]]:
    """Rows of `bench status`: the heading, every run, then how many runs are in each state that occurs.

    All rows have the columns of `HEAD`. UserError where the suite has no plan.
    """
    results = load(suite, store)
    totals = [("total", "", str(count), state, "", "", "") for state, count in results.states().items() if count]
    return [HEAD, *run_lines(results), *totals]


def run_lines(results: Results) -> list[tuple[str, ...]]:
    """A line for every run, with its job; only runs that are not done are looked up in SLURM's queue."""
    jobs = submitted_jobs(run.stored for run in results.runs if run.state != "done")
    return [_line(run, jobs.get(run.run)) for run in results.runs]


def _line(run: RunResult, job: SubmittedJob | None) -> tuple[str, ...]:
    state = run.state
    step = run.steps if state in ("done", "trained") else run.status.get("step", 0)
    error = run.status.get("error")
    said = describe_error(error) if error else run.status.get("stage", "") if state == "running" else ""
    if state == "trained":
        said = f"{run.unmeasured} evaluations of this suite are not stored; bench run computes them"
    elif run.costs_lost:
        said = "its costs are lost: its ledger was damaged"
    note = ", ".join(filter(None, (said, job.shown if job else "")))
    return (run.method, run.noise, str(run.seed), state, f"{step}/{run.steps}", run.run[:SHORT_ID], note)


def describe_error(error: Mapping[str, Any]) -> str:
    """ "NotFinite at step 312 (forget): the loss is nan"."""
    place = f" at step {error['step']}" if error.get("step") is not None else ""
    term = f" ({error['term']})" if error.get("term") else ""
    return f"{error.get('type', 'error')}{place}{term}: {error.get('message', '')}"
