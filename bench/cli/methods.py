"""Commands that list, cite, check and create methods."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.options import Plugins, exit_if, load_plugins, output_file
from bench.console.text import echo
from bench.errors import UserError


def methods(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[METHOD]...", help="Describe these in full; default: one line per method."),
    ] = None,
    cite: Annotated[bool, typer.Option("--cite", help="Print their BibTeX entries, shared ones once.")] = False,
    suite: Annotated[str | None, typer.Option("--suite", metavar="SUITE", help="The methods of a suite.")] = None,
    plugin: Plugins = None,
) -> None:
    """List the methods, describe some of them (paper, fidelity, state, cost, presets, settings), or cite them."""
    load_plugins(plugin)
    from bench.adapters import registry
    from bench.adapters.describe import DEFAULT_WIDTH, describe_method, method_summaries
    from bench.console.text import terminal_width
    from bench.suite.suite import load_suite

    wanted = [*(names or ())]
    if suite is not None:
        wanted += [entry.method for entry in load_suite(suite).methods]
    chosen = list(dict.fromkeys(wanted)) or registry.method_names()
    if cite:
        entries = {name: registry.find_method(name).about.bibtex.strip() for name in chosen}
        echo(*"\n\n".join(dict.fromkeys(filter(None, entries.values()))).split("\n"))
        echo(*(f"note: {name} gives no BibTeX" for name, entry in entries.items() if not entry), err=True)
    elif names:
        echo(*"\n\n".join(describe_method(name, terminal_width(DEFAULT_WIDTH)) for name in chosen).split("\n"))
    else:
        echo(*method_summaries(chosen))


def new_method(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the method and its file, such as my_loss.")],
    folder: Annotated[Path, typer.Option("--folder", metavar="DIR", help="Where the two files go.")] = Path(),
) -> None:
    """Write a method to start from, a complete loss in 40 lines, and its test; docs/new_method.md continues from it."""
    from bench.adapters.scaffold import write_new_method as write

    echo(*write(name, folder))


def check(
    method: Annotated[str | None, typer.Argument(metavar="NAME|FILE", help="A method, or a file with one.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Check all methods; print a matrix.")] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", callback=output_file, help="Write the results there too, as JSON."),
    ] = None,
    plugin: Plugins = None,
) -> None:
    """Check that a method is what it says: known values, gradients, ranks, resuming, cost and more."""
    load_plugins(plugin)
    from bench.checks import suite
    from bench.cli.text import write_file

    if (method is None) != everything:
        raise UserError("bench check: give a method (a name or a file) or --all")
    results = suite.check_all(echo) if method is None else suite.check(method, echo)
    if everything:
        echo("", *suite.checks_matrix(results).split("\n"))
    echo(suite.checks_verdict(results))
    if report is not None:
        write_file(report, suite.results_json(results))
    exit_if(any(result.outcome == "failed" for result in results))
