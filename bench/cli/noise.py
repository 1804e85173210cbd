"""`bench noise`: the pairs that a suite corrupts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bench.cli.options import DataFolder, Overrides, SuiteName, use_data
from bench.console.text import echo

Rate = Annotated[float | None, typer.Option("--rate", help="One of the suite's rates; default: the highest.")]
Seed = Annotated[int | None, typer.Option("--seed", help="One of the suite's seeds; default: the first.")]
Kind = Annotated[str | None, typer.Option("--kind", help="One of the suite's kinds; default: the first.")]
Count = Annotated[int, typer.Option("--count", min=1, help="Corrupted pairs to show.")]
Page = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with the pictures as well.")]


def show(
    suite: SuiteName,
    rate: Rate = None,
    seed: Seed = None,
    kind: Kind = None,
    count: Count = 20,
    html: Page = None,
    overrides: Overrides = None,
    data: DataFolder = None,
) -> None:
    """Show corrupted pairs of a suite: the picture's own caption and the one it got."""
    use_data(data)
    from bench.cli.text import write_file
    from bench.data.noise.shown import changes, noise_lines, noise_manifest, shown, summary
    from bench.suite.suite import load_suite

    pairs, manifest = noise_manifest(load_suite(suite, overrides or (), check_methods=False), rate, seed, kind)
    echo(*noise_lines(pairs, manifest, count))
    if html is not None:
        from bench.data.pairs import drawn
        from reports.pages.pictures import pictures_page

        places = shown(manifest, count)
        pictures = drawn(manifest.applied(pairs), manifest.rows[places])
        items = [
            (replace(picture, captions=(own,)), f"{manifest.keys[i]}{f' ← {source}' * bool(source)}", given)
            for i, picture, (own, given, source) in zip(places, pictures, changes(pairs, manifest, places), strict=True)
        ]
        page = pictures_page(f"Noise in {pairs.name}", [summary(pairs, manifest)], [(f"Shown: {len(places)}", items)])
        write_file("--html", html, page.encode())
        echo(html)
