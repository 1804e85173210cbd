"""Commands on models: evaluate a checkpoint, export the model of a run."""

from __future__ import annotations

from dataclasses import astuple, fields
from pathlib import Path
from typing import Annotated

import typer

from bench.cli import options
from bench.cli.options import RESULTS, load_plugins, store_at, use_data
from bench.console.text import echo
from bench.errors import EXIT_UNFINISHED


def evaluate(
    checkpoint: options.CheckpointFile,
    suite: options.TasksOf,
    method: options.ReadAs = None,
    towers: options.Architecture = None,
    csv: options.CsvFile = None,
    results: options.Results = RESULTS,
    overrides: options.Overrides = None,
    plugin: options.Plugins = None,
    data: options.DataFolder = None,
) -> None:
    """Evaluate a checkpoint without training. What is measured is stored below the suite and not measured again."""
    load_plugins(plugin)
    use_data(data)
    import bench
    from bench.cli.text import record_table, write_csv
    from bench.store import Busy, Record

    settings, root = bench.load_suite(suite, overrides or ()), store_at(results).root
    try:
        evaluated = bench.evaluate(checkpoint, settings, root, method=method, architecture=towers)
    except Busy as busy:
        echo(f"{checkpoint}: another process evaluates it ({busy})", err=True)
        raise typer.Exit(EXIT_UNFINISHED) from busy
    counts = f"{evaluated.measured} measured, {evaluated.known} measured before"
    echo(*record_table(evaluated.records), f"tasks: {counts}; stored in {evaluated.out.folder}")
    if csv is not None:
        write_csv(csv, [[field.name for field in fields(Record)], *map(astuple, evaluated.records)])


def export(
    run: options.RunId,
    out: Annotated[Path, typer.Argument(metavar="DIR", help="An empty or new folder.")],
    results: options.Results = RESULTS,
    plugin: options.Plugins = None,
    data: options.DataFolder = None,
) -> None:
    """Write a run's model as a folder that open_clip loads: configuration, weights and tokenizer."""
    import bench

    load_plugins(plugin)
    use_data(data)
    bench.export(run, out, store_at(results).root)
    echo(f"local-dir:{out}: open_clip loads it, with the bench's embeddings")
