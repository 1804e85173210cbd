"""The verb that hands a run's model to other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.options import RESULTS, DataFolder, Plugins, Results, RunId, load_plugins, store_at, use_data
from bench.console.text import echo


def export(
    run: RunId,
    out: Annotated[Path, typer.Argument(metavar="DIR", help="An empty or new folder.")],
    results: Results = RESULTS,
    plugin: Plugins = None,
    data: DataFolder = None,
) -> None:
    """Write a run's model as a folder that open_clip loads: configuration, weights, tokenizer and a card."""
    import bench

    load_plugins(plugin)
    use_data(data)
    bench.export(run, out, store_at(results).root)
    echo(f"local-dir:{out}: open_clip loads it, with the bench's embeddings")
