"""What several verbs share: options, the store, a suite's name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.errors import UserError

if TYPE_CHECKING:
    from bench.store import Store

SuiteName = Annotated[str, typer.Argument(metavar="SUITE", help="A YAML file, or the name of a shipped suite.")]
Results = Annotated[Path, typer.Option("--results", metavar="DIR", help="Where results are stored.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=VALUE", help="Change a value of the suite, as in --set train.lr=1e-3."),
]
Plugins = Annotated[
    list[str] | None, typer.Option("--plugin", metavar="FILE", help="A file with one more method in it.")
]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="The data folder; $BENCH_DATA or ./data unless said.", show_default=False
    ),
]
RESULTS = Path("results")


def store_at(results: Path) -> Store:
    """The store below a folder; UserError where something else has its name."""
    from bench.store import Store

    if results.exists() and not results.is_dir():
        raise UserError(f"--results {results}: is no folder")
    return Store(results)


def use_data(folder: Path | None) -> None:
    """Make the folder of `--data` the data folder; UserError where something else has its name."""
    from bench import data_folder

    if folder is not None:
        if folder.exists() and not folder.is_dir():
            raise UserError(f"--data {folder}: is no folder")
        data_folder.use(folder)


def write_report(name: str, store: Store, outline: Mapping[str, Any] | None = None) -> list[str]:
    """Build a suite's report, of its `outline` where it has no plan; returns what was written."""
    from reports.build import build

    return [str(path) for path in build(name, store, outline).paths]


def suite_name(suite: str, store: Store) -> str:
    """The name of a suite given by file or name; a note where its plan was made from other settings.

    A suite whose file is gone can still be reported on by name.
    """
    from bench import resources

    plan = store.plan(suite) if Path(suite).name == suite else None
    if plan is not None and not resources.is_suite(suite):
        return suite
    from bench.suite.suite import load_suite

    loaded = load_suite(suite, check_methods=False)
    plan = store.plan(loaded.name)
    if plan is not None and plan["suite_hash"] != loaded.hash:
        note = f"note: the last plan of {loaded.name} was made from other settings than {suite} has now"
        typer.echo(f"{note}; 'bench run {suite} --dry-run' brings it up to date", err=True)
    return loaded.name


def load_plugins(files: list[str] | None) -> None:
    """Make the methods of these files known."""
    from bench.adapters import registry

    for file in files or ():
        registry.add_plugin(file)
