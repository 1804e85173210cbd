"""`bench noise`: show the pairs that a suite corrupts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.options import DataFolder, Overrides, SuiteName, use_data
from bench.console.text import echo
from bench.errors import UserError


def show(
    suite: SuiteName,
    rate: Annotated[
        float | None, typer.Option("--rate", help="One of the suite's rates; default: the highest.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="One of the suite's seeds; default: the first.")] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Corrupted pairs to show.")] = 20,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with the pictures as well.")
    ] = None,
    overrides: Overrides = None,
    data: DataFolder = None,
) -> None:
    """Show corrupted pairs of a suite: the picture's own caption and the one it got."""
    use_data(data)
    from bench.data.noise_page import noise_page, noise_text
    from bench.planning.noise_manifest import noise_manifest
    from bench.suite.suite import load_suite

    pairs, manifest = noise_manifest(load_suite(suite, overrides or (), check_methods=False), rate, seed)
    echo(*noise_text(pairs, manifest, count).rstrip("\n").split("\n"))
    if html is not None:
        try:
            html.write_text(noise_page(pairs, manifest, count), encoding="utf-8")
        except OSError as error:
            raise UserError(f"--html {html}: cannot be written: {error.strerror}") from error
        echo(html)
