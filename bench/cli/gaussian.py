"""`bench gaussian` and `bench hierarchy`: measure what the embeddings of a stored run express."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench import reading
from bench.cli.inside import draw_levels, draw_weights, show_ends
from bench.cli.options import RESULTS, CsvFile, Plugins, Results, RunId, load_plugins, store_at
from bench.console.text import echo
from bench.errors import UserError, nearest

if TYPE_CHECKING:
    from torch import Tensor

    from bench.data import Pairs
    from bench.evaluation.probabilistic.prompt_filter import Filter, Line
    from bench.models.stored_run import Stored

Dataset = Annotated[str, typer.Option("--dataset", metavar="NAME", help="Pairs to measure on.")]
Label = Annotated[str, typer.Option("--label", help="What to classify, as in zero_shot/LABEL.")]
Templates = Annotated[
    Path | None,
    typer.Option("--templates", metavar="FILE", help='Prompts, one a line with "{}"; default: the data set\'s.'),
]
WeightsFile = Annotated[
    Path | None, typer.Option("--weights", metavar="FILE", help="Write each class's weight of each prompt as CSV.")
]
FiguresFolder = Annotated[
    Path | None, typer.Option("--figures", metavar="DIR", help="Draw the weights there, as PNG and PDF.")
]
DrawnClasses = Annotated[
    list[str] | None,
    typer.Option("--class", metavar="NAME", help="A class to draw, repeatable. Default: the 3 of largest weight."),
]
IID = "emoji/iid"

app = typer.Typer(help="What variances are good for (methods with Gaussian embeddings).", no_args_is_help=True)


@app.command()
def prompts(
    run: RunId,
    results: Results = RESULTS,
    dataset: Dataset = IID,
    label: Label = "concept",
    templates: Templates = None,
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="RULE=VALUE",
            help="by_ranking=K, std_per_class=C, std_all=N or abs=U; may be repeated. Default: one of each.",
        ),
    ] = None,
    csv_file: CsvFile = None,
    plugin: Plugins = None,
) -> None:
    """Zero-shot accuracy with the most uncertain prompts of each class left out."""
    stored, pairs = _with_variances(run, results, dataset, plugin)
    from bench.evaluation.probabilistic.prompt_filter import prompt_filtering

    chosen, texts = [_filter(text) for text in filters or ()], _templates(pairs, label, templates)
    _show(stored, pairs, prompt_filtering(stored.features, pairs, label, texts, chosen), csv_file)


@app.command()
def bprw(
    run: RunId,
    results: Results = RESULTS,
    dataset: Dataset = IID,
    label: Label = "concept",
    templates: Templates = None,
    shots: Annotated[
        list[int] | None,
        typer.Option("--shots", help="Labelled images a class, 0 for none; may be repeated. Default: 0 and 5."),
    ] = None,
    # official: github.com/naver-ai/prolip@59f6324 src/analysis/unc_zeroshot_prompts.py
    leak: Annotated[
        bool, typer.Option("--leak", help="Take images from the scored set, as paper and official code do.")
    ] = False,
    weights: WeightsFile = None,
    figures: FiguresFolder = None,
    classes: DrawnClasses = None,
    csv_file: CsvFile = None,
    plugin: Plugins = None,
) -> None:
    """Zero-shot accuracy with prompts weighted by how well they explain images (Bayesian prompt re-weighting)."""
    stored, pairs = _with_variances(run, results, dataset, plugin)
    from bench.evaluation.probabilistic.bprw import reweighting

    source = pairs if leak else _pairs(stored, f"{pairs.name.split('/')[0]}/train")
    if source.name == pairs.name and not leak:
        raise UserError(f"--dataset {dataset}: weights would be fitted to the images they are scored on; add --leak")
    texts = _templates(pairs, label, templates)
    names = pairs.classes[label]
    if classes:
        _check_classes(classes, pairs.name, names, figures)
    lines, fitted = reweighting(stored.features, pairs, source, label, texts, shots or (0, 5))
    note = f"weights were fitted to images of {source.name}{', the scored set: LEAK' if leak else ''}"
    _show(stored, pairs, lines, csv_file, [note])
    if weights is not None:
        _write_weights(weights, names, texts, fitted)
    if figures is not None:
        draw_weights(figures, pairs, label, texts, fitted, classes or ())


@app.command()
def uncertainty(
    run: RunId,
    results: Results = RESULTS,
    dataset: Dataset = IID,
    figures: Annotated[Path | None, typer.Option("--figures", metavar="DIR", help="Draw the levels there.")] = None,
    csv_file: CsvFile = None,
    plugin: Plugins = None,
) -> None:
    """Mean sum of variances of captions by length and level, and of images by style.

    Of levels also how often a more special caption is surer.
    """
    stored, pairs = _with_variances(run, results, dataset, plugin)
    from bench.evaluation.probabilistic.uncertainty import uncertainties

    _show(stored, pairs, uncertainties(stored.features, pairs), csv_file)
    if figures is not None:
        draw_levels(figures, stored, pairs)


@app.command()
def samples(
    run: RunId,
    results: Results = RESULTS,
    dataset: Dataset = IID,
    side: Annotated[str, typer.Option("--side", metavar="image|text", help="Whose variances.")] = "image",
    count: Annotated[int, typer.Option("--count", min=1, max=1000, help="Pairs at each end.")] = 10,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with the pictures.")] = None,
    csv_file: CsvFile = None,
    plugin: Plugins = None,
) -> None:
    """Show the most certain and the most uncertain pairs, by the sum of variances of the image or of its first text.

    Beside it stand the sum of the other's variances and the distance of the two (CSD).
    """
    if side not in ("image", "text"):
        raise UserError(f"--side {side}: should be image or text")
    stored, pairs = _with_variances(run, results, dataset, plugin)
    from bench.data.noise import Noise
    from bench.evaluation.probabilistic.uncertainty import of_pairs
    from bench.models.row_state import RowState

    known = of_pairs(stored.features, pairs)
    values = known.pop(name := f"variance of the {side}")
    show_ends(stored.title, RowState(name, values, pairs, Noise(), known), count, html, csv_file)


@app.command()
def cost(
    run: RunId, results: Results = RESULTS, dataset: Dataset = IID, csv_file: CsvFile = None, plugin: Plugins = None
) -> None:
    """Parameters and time of the parts that give images their variance, beside the image tower alone."""
    stored, pairs = _with_variances(run, results, dataset, plugin)
    from bench.evaluation.probabilistic.cost import head_costs

    _show(stored, pairs, head_costs(stored.features, pairs), csv_file)


@app.command("inclusion")
def included(
    run: RunId, results: Results = RESULTS, dataset: Dataset = IID, csv_file: CsvFile = None, plugin: Plugins = None
) -> None:
    """Share of images within their captions, and of inputs within themselves masked (H > 0)."""
    stored, pairs = _with_variances(run, results, dataset, plugin)
    from bench.evaluation.probabilistic.uncertainty import inclusions

    lines, notes = inclusions(stored.features, pairs, stored.run.train.batch)
    _show(stored, pairs, lines, csv_file, notes)


@app.command()
def manipulated(
    run: RunId,
    results: Results = RESULTS,
    dataset: Dataset = IID,
    label: Label = "concept",
    templates: Templates = None,
    hidden: Annotated[
        list[float] | None,
        typer.Option("--hidden", min=0, max=1, help="Share of the area, in the middle. Default: 0 to 0.1."),
    ] = None,
    pgd: Annotated[
        list[int] | None,
        typer.Option("--pgd", min=1, max=1000, help="Iterations of the attack on pixels. Default: 1, 5, 10, 40."),
    ] = None,
    csv_file: CsvFile = None,
    plugin: Plugins = None,
) -> None:
    """Zero-shot accuracy and image variances with the middle hidden, and with the pixels attacked by gradients."""
    stored, pairs = _with_variances(run, results, dataset, plugin)
    if stored.run.data.on_features:
        raise UserError(f"run {stored.title}: its images are stored features, which have no pixels to change")
    from bench.evaluation.probabilistic.manipulated import ITERATIONS, SHARES, manipulations

    texts, chosen = _templates(pairs, label, templates), (hidden or SHARES, pgd or ITERATIONS)
    _show(stored, pairs, manipulations(stored.features, pairs, label, texts, *chosen), csv_file)


def hierarchy(
    run: RunId,
    results: Results = RESULTS,
    dataset: Dataset = IID,
    steps: Annotated[int, typer.Option("--steps", min=1, max=1000, help="Points from a caption to the root.")] = 50,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page of images and the texts that they meet.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, max=1000, help="Images on the page.")] = 12,
    csv_file: CsvFile = None,
    plugin: Plugins = None,
) -> None:
    """Walk from images to a root and see which of their captions, from group to tags, are met. For any method."""
    stored, pairs = _opened(run, results, dataset, plugin)
    from bench.cli.text import write_file
    from bench.evaluation.probabilistic.hierarchy import traversals
    from bench.models.traversal_page import traversal_page

    _show(stored, pairs, traversals(stored.features, pairs, steps), csv_file)
    if html is not None:
        write_file("--html", html, traversal_page(stored.title, stored.features, pairs, count, steps).encode())
        echo(html)


def _write_weights(file: Path, names: Sequence[str], prompts: Sequence[str], fitted: Mapping[str, Tensor]) -> None:
    """Write weights [C, K] of C classes and K prompts to the file of `--weights`, a line each."""
    from bench.cli.text import write_file
    from bench.console.csv_text import csv_text

    rows: list[tuple[str, str, str, str | float]] = [("what", "class", "prompt", "weight")]
    for what, values in fitted.items():
        for name, own in zip(names, values.tolist(), strict=True):
            rows += [(what, name, prompt, weight) for prompt, weight in zip(prompts, own, strict=True)]
    write_file("--weights", file, csv_text(rows).encode())
    echo(file)


def _check_classes(wanted: Sequence[str], dataset: str, names: Sequence[str], figures: Path | None) -> None:
    """Raise UserError if a class of `--class` is none, or nothing is drawn."""
    for name in wanted:
        if figures is None:
            raise UserError(f"--class {name}: is for figures; --figures says where")
        if name not in names:
            raise UserError(f"--class {name}: no class of {dataset}{nearest(name, names)}")


def _opened(run: str, results: Path, dataset: str, plugin: list[str] | None) -> tuple[Stored, Pairs]:
    """Load a stored run's model and the pairs to measure it on."""
    load_plugins(plugin)
    from bench.models import stored_run

    stored = stored_run.load(store_at(results), run)
    return stored, _pairs(stored, dataset)


def _pairs(stored: Stored, dataset: str) -> Pairs:
    """Load a data set as the run's towers read it: pixels, or stored features that lie with those it trained on."""
    from bench import data
    from bench.data.features import training as features

    settings = stored.run.data
    return features.evaluation_set(settings, dataset) if settings.on_features else data.load(dataset, settings.size)


def _with_variances(run: str, results: Path, dataset: str, plugin: list[str] | None) -> tuple[Stored, Pairs]:
    """Load a stored run and pairs. Raises UserError if the run's method has no variances."""
    stored, pairs = _opened(run, results, dataset, plugin)
    if "logvar" not in stored.features.texts([""]):
        from bench.adapters import registry

        able = ", ".join(name for name, method in registry.all_methods().items() if method.score == "csd")
        raise UserError(f"run {stored.title}: {stored.run.method} gives no variances; methods that do: {able}")
    return stored, pairs


def _templates(pairs: Pairs, label: str, file: Path | None) -> Sequence[str]:
    """Read prompts from `file`, one a line; without a file return the data set's own."""
    from bench.data import templates

    if label not in pairs.classes:
        raise UserError(f"--label {label}: no label of {pairs.name}{nearest(label, pairs.classes)}")
    if file is None:
        return templates(pairs)
    try:
        lines = [line.strip() for line in reading.content(file, reading.TEXT_BYTES).decode("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--templates {file}: cannot be read: {getattr(error, 'strerror', error)}") from error
    prompts = list(dict.fromkeys(filter(None, lines)))
    wrong = [line for line in prompts if "{}" not in line]
    if wrong:
        raise UserError(f"--templates {file}: {wrong[0][:80]!r} lacks {{}} for the class name")
    if len(prompts) < 2:
        raise UserError(f"--templates {file}: {len(prompts)} prompts; give at least two")
    return prompts


def _filter(text: str) -> Filter:
    from bench.evaluation.probabilistic.prompt_filter import STRATEGIES, Filter

    strategy, _, value = text.partition("=")
    try:
        if strategy in STRATEGIES and math.isfinite(float(value)):
            return Filter(strategy, float(value))
    except ValueError:
        pass
    raise UserError(f"--filter {text}: should be one of {', '.join(STRATEGIES)} with a number, as in by_ranking=3")


def _number(value: float, metric: str) -> str:
    return f"{value:,.0f}" if metric == "parameters" else f"{value:{'.4g' if metric == 'variance' else '.4f'}}"


def _show(stored: Stored, pairs: Pairs, lines: Sequence[Line], file: Path | None, notes: Sequence[str] = ()) -> None:
    """Print the table and the notes; write the table to `file` as CSV."""
    from bench.cli.text import write_csv
    from bench.console.text import columns

    header = ("", "metric", "score", "value", "95 % interval", "n")
    rows = []
    for what, one in lines:
        value, low, high = (_number(x, one.metric) for x in (one.value, *one.interval))
        rows.append((what, one.metric, one.score, value, f"{low} to {high}", str(one.n)))
    echo(f"run {stored.title}, on {pairs.name}", *columns([header, *rows]), *notes)
    if file is not None:
        head = ("what", "metric", "score", "value", "low", "high", "n")
        write_csv(
            file, [head, *((what, one.metric, one.score, one.value, *one.interval, one.n) for what, one in lines)]
        )
        echo(file)
