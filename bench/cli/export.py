"""The verb that hands a run's model to other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.options import RESULTS, DataFolder, Plugins, Results, load_plugins, store_at, use_data


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or enough of its beginning.")],
    out: Annotated[Path, typer.Argument(metavar="DIR", help="An empty or new folder.")],
    results: Results = RESULTS,
    plugin: Plugins = None,
    data: DataFolder = None,
) -> None:
    """Write a run's model as a folder that open_clip loads: configuration, weights, tokenizer and a card."""
    load_plugins(plugin)
    use_data(data)
    from bench.models.export import export as exported
    from bench.store.lookup import find_run

    exported(find_run(store_at(results), run), out)
    typer.echo(f"local-dir:{out}: open_clip loads it, with the bench's embeddings")
