"""`bench noise`: look at what a suite corrupts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.options import DataFolder, Overrides, SuiteName, use_data
from bench.errors import UserError

if TYPE_CHECKING:
    from bench.data import Pairs
    from bench.data.noise import NoiseManifest
    from bench.suite.suite import Suite


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
    from bench.suite.suite import load_suite

    pairs, manifest = _manifest(load_suite(suite, overrides or (), check_methods=False), rate, seed)
    typer.echo(noise_text(pairs, manifest, count), nl=False)
    if html is not None:
        try:
            html.write_text(noise_page(pairs, manifest, count), encoding="utf-8")
        except OSError as error:
            raise UserError(f"--html {html}: cannot be written: {error.strerror}") from error
        typer.echo(html)


def _manifest(suite: Suite, rate: float | None, seed: int | None) -> tuple[Pairs, NoiseManifest]:
    """The training pairs and one of the suite's noise manifests."""
    from bench.data import training
    from bench.data.noise import NoiseManifest
    from bench.suite.noise_settings import NoiseSettings

    if not suite.noise.entry.fixed:
        raise UserError(
            f"suite {suite.name}: {suite.noise.kind} draws anew in every step; there is no fixed set to show"
        )
    rate = max(suite.noise.rates) if rate is None else rate
    seed = suite.seeds[0] if seed is None else seed
    for option, value, known in (("--rate", rate, suite.noise.rates), ("--seed", seed, suite.seeds)):
        if value not in known:
            raise UserError(f"{option} {value}: suite {suite.name} has {', '.join(map(str, known))}")
    pairs, settings = training(suite.data), suite.noise if rate else NoiseSettings(rates=(rate,))
    manifest = settings.entry.make(pairs, settings, rate, seed)
    assert isinstance(manifest, NoiseManifest)
    return pairs, manifest
