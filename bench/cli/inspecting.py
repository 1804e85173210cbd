"""`bench inspect`: what finished runs learned of their training pairs."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli import options
from bench.cli.options import RESULTS, load_plugins, store_at, suite_name, use_data
from bench.console.text import echo
from bench.errors import UserError, nearest

if TYPE_CHECKING:
    from bench.evaluation.embedding_map import EmbeddingMap
    from reports.results import Results as SuiteResults

app = typer.Typer(help="What finished runs learned of their training pairs.", no_args_is_help=True)


@app.command()
def embeddings(
    suite: options.SuiteName,
    labels: Annotated[
        list[str] | None,
        typer.Argument(metavar="[LABEL]...", help="Labels of the suite; default: the baseline and the best other one."),
    ] = None,
    noise: Annotated[
        str | None, typer.Option("--noise", metavar="LABEL", help="Name in tables; default: that of the highest rate.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=5, max=5000, help="Number of training pairs.")] = 300,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of t-SNE; the same seed gives the same map.")
    ] = 0,
    results: options.Results = RESULTS,
    data: options.DataFolder = None,
    plugin: options.Plugins = None,
) -> None:
    """Map training pairs to the plane by their embeddings (PCA, t-SNE), with matched and corrupted ones marked.

    Writes one CSV per run below the suite; `bench report SUITE` draws them side by side as figures/embeddings.
    """
    load_plugins(plugin)
    use_data(data)
    from bench.evaluation.embedding_map import embedding_map, map_rows
    from bench.models import stored_run
    from bench.store.files import write_bytes
    from bench.training.inputs import InputsReader
    from reports.figures.embeddings import map_file
    from reports.results import load

    store, reader = store_at(results), InputsReader()
    name = suite_name(suite, store)
    read = load(name, store)
    for run in _runs(read, labels, noise):
        stored = stored_run.load_run(store, run)
        inputs = reader.inputs(stored.run)
        rows = map_rows(inputs.pairs, count)
        path = map_file(store.suite(name), run)
        write_bytes(path, _map_csv(embedding_map(stored.features, inputs.pairs, inputs.noise, rows, seed)))
        echo(f"{stored.title}: {path}")
    echo(f"draw them with: bench report {suite}")


@app.command()
def state(
    run: options.RunId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A vector of its state, such as zeta_image.")],
    count: Annotated[int, typer.Option("--count", min=1, max=1000, help="Number of pairs at each end.")] = 10,
    html: options.HtmlFile = None,
    csv_file: options.CsvFile = None,
    results: options.Results = RESULTS,
    data: options.DataFolder = None,
    plugin: options.Plugins = None,
) -> None:
    """Show the training pairs with the smallest and largest values of a state that a method keeps for each pair.

    --csv writes the values of all pairs.
    """
    load_plugins(plugin)
    use_data(data)
    from bench.cli.text import write_csv, write_file
    from bench.models import row_state, stored_run

    stored = stored_run.load_run(store_at(results), run)
    shown = row_state.find_state(stored, name)
    echo(f"run {stored.title}, {len(shown.values)} pairs of {shown.pairs.name}", *row_state.state_text(shown, count))
    if html is not None:
        from reports.pages.pictures import pictures_page

        spread, pictures = row_state.state_spread(shown), row_state.state_pictures(shown, count)
        write_file(html, pictures_page(stored.title, [spread], pictures))
    if csv_file is not None:
        write_csv(csv_file, [("key", shown.name), *zip(shown.pairs.keys, shown.values.tolist(), strict=True)])


def _runs(results: SuiteResults, labels: list[str] | None, noise: str | None) -> list[str]:
    """Return one finished run for each of the rows under a noise, the first seed that has one."""
    from reports.figures.chosen import baseline_and_best

    known = results.noises
    if noise is not None and noise not in known:
        raise UserError(f"--noise {noise}: suite {results.suite} has {', '.join(known)}{nearest(noise, known)}")
    block = noise or max(known, key=lambda one: (known[one]["rate"], results.budget(one)))
    chosen = labels or baseline_and_best(results, block)
    for label in chosen:
        if label not in results.methods:
            raise UserError(f"{label!r} is not a label of suite {results.suite}{nearest(label, results.methods)}")
    runs = {
        label: next((run.run for run in results.of(label, block) if run.status["state"] == "done"), None)
        for label in chosen
    }
    lacking = [label for label, run in runs.items() if run is None]
    if lacking:
        raise UserError(f"{', '.join(lacking)}: no finished run under {block}; bench run {results.suite} executes it")
    return [run for run in runs.values() if run is not None]


def _map_csv(made: EmbeddingMap) -> bytes:
    import pandas as pd

    frame = pd.DataFrame({"key": made.keys, "corrupted": made.corrupted.astype(int)})
    for side, places in (("image", made.images), ("text", made.texts)):
        frame[f"{side}_x"], frame[f"{side}_y"] = places.T
    text = io.StringIO()
    frame.to_csv(text, index=False, float_format="%.6g", lineterminator="\n")
    return text.getvalue().encode()
