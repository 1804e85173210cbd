"""Commands: arguments and printing. Heavy modules are imported by the commands that need them."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from bench.cli import board, data, features, inspecting, methods, models, noise, reporting, runs, stats, store
from bench.cli.guard import guard, refuse_non_utf8
from bench.console.text import echo

app = typer.Typer(
    help="Compare noise-robust contrastive image-text learning methods: same budget, same noise, more than chance.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (
    runs.run,
    runs.worker,
    runs.status,
    runs.show,
    reporting.report,
    reporting.compare,
    methods.check,
    models.export,
    methods.methods,
    methods.new_method,
):
    app.command()(verb)
app.command("eval")(models.evaluate)
for name, group in (
    ("stats", stats.app),
    ("store", store.app),
    ("inspect", inspecting.app),
    ("board", board.app),
    ("noise", noise.app),
    ("data", data.app),
    ("features", features.app),
):
    app.add_typer(group, name=name)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        from bench.machine.commit import commit

        source = commit()
        echo(f"bench {version('robust-cl-bench')}" + (f" (commit {source})" if source else ""))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version, and the commit if it is known."
        ),
    ] = False,
) -> None:
    """Options that stand before a verb."""


def main() -> None:
    """Run the `bench` command."""
    # OpenMP's threads spin 300,000 times while they wait, which slows down a busy machine: a step of a small ResNet on
    # two cores took 32 ms on an idle machine and 1,200 ms with another process; with 1,000 spins 41 ms and 96 ms.
    # The variable is read when torch loads.
    if not os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        os.environ["GOMP_SPINCOUNT"] = "1000"
    if sys.stdout is None:  # closed by the caller, as `>&-` does
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  for the whole process
    with guard():
        refuse_non_utf8(sys.argv[1:])
        app(prog_name="bench")
