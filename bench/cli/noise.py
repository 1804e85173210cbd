"""`bench noise`: the pairs that a suite corrupts, and how noisy data is."""

from __future__ import annotations

from typing import Annotated

import typer

from bench.cli import options
from bench.cli.options import RESULTS, load_plugins, store_at, use_data
from bench.console.text import echo

app = typer.Typer(help="The noise of a suite, and how noisy data is.", no_args_is_help=True)

Rate = Annotated[float | None, typer.Option("--rate", help="One of the suite's rates; default: the highest.")]
Seed = Annotated[int | None, typer.Option("--seed", help="One of the suite's seeds; default: the first.")]
Kind = Annotated[str | None, typer.Option("--kind", help="One of the suite's kinds; default: the first.")]
Count = Annotated[int, typer.Option("--count", min=1, help="Pairs to show.")]


@app.command()
def show(
    suite: options.SuiteName,
    rate: Rate = None,
    seed: Seed = None,
    kind: Kind = None,
    count: Count = 20,
    html: options.HtmlFile = None,
    overrides: options.Overrides = None,
    data: options.DataFolder = None,
) -> None:
    """Show corrupted pairs of a suite: the image's own caption and the one that it got."""
    use_data(data)
    from bench.cli.text import write_file
    from bench.data.noise.shown import caption_changes, noise_lines, noise_manifest, noise_summary, spaced_places
    from bench.suite.suite import load_suite

    pairs, manifest = noise_manifest(load_suite(suite, overrides or (), check_methods=False), rate, seed, kind)
    echo(*noise_lines(pairs, manifest, count))
    if html is not None:
        from bench.data.pairs import webp_images
        from reports.pages.pictures import pictures_page

        places = spaced_places(manifest, count)
        pictures = webp_images(manifest.applied(pairs), manifest.rows[places])
        changes = caption_changes(pairs, manifest, places)
        items = [
            (picture, own, f"{manifest.keys[i]}{f' ← {source}' * bool(source)}", given)
            for i, picture, (own, given, source) in zip(places, pictures, changes, strict=True)
        ]
        page = pictures_page(
            f"Noise in {pairs.name}", [noise_summary(pairs, manifest)], [(f"Shown: {len(places)}", items)]
        )
        write_file(html, page)


@app.command()
def audit(
    run: options.RunId,
    results: options.Results = RESULTS,
    csv_file: options.CsvFile = None,
    html: options.HtmlFile = None,
    count: Count = 60,
    data: options.DataFolder = None,
    plugin: options.Plugins = None,
) -> None:
    """Estimate how many of a run's own training pairs are wrong, besides those that its noise made wrong.

    --csv and --html write the audited pairs, of least confidence first; the page shows the first of them.
    """
    load_plugins(plugin)
    use_data(data)
    from bench.cli.text import write_csv, write_file
    from bench.evaluation.noise.audit import audit_run
    from bench.store.run import find_run

    audited = audit_run(find_run(store_at(results), run))
    confidences = list(zip(audited.rows.tolist(), audited.confidence.tolist(), strict=True))
    echo(*audited.lines)
    if csv_file is not None:
        keys, captions = audited.pairs.keys, audited.pairs.captions
        write_csv(csv_file, [("key", "confidence", "caption"), *((keys[i], c, captions(i)[0]) for i, c in confidences)])
    if html is not None:
        from bench.data.pairs import webp_images
        from reports.pages.pictures import pictures_page

        pictures = webp_images(audited.pairs, audited.rows[:count])
        items = [
            (picture, audited.pairs.captions(row)[0], f"confidence {confidence:.3f}", None)
            for picture, (row, confidence) in zip(pictures, confidences[:count], strict=True)
        ]
        heading = f"The {len(items)} pairs of lowest confidence, not all of them wrong"
        page = pictures_page(f"Pairs of {audited.pairs.name} that look wrong", audited.lines, [(heading, items)])
        write_file(html, page)
