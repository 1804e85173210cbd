"""`bench noise`: show the pairs that a suite corrupts, and compare files of noise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.inside import write_page
from bench.cli.options import DataFolder, Overrides, SuiteName, use_data
from bench.console.text import echo
from bench.errors import UserError


def show(
    suite: SuiteName,
    rate: Annotated[
        float | None, typer.Option("--rate", help="One of the suite's rates; default: the highest.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="One of the suite's seeds; default: the first.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="One of the suite's kinds; default: the first.")] = None,
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

    pairs, manifest = noise_manifest(load_suite(suite, overrides or (), check_methods=False), rate, seed, kind)
    echo(*noise_text(pairs, manifest, count).rstrip("\n").split("\n"))
    if html is not None:
        write_page(html, noise_page(pairs, manifest, count))


def compare(
    one: Annotated[Path, typer.Argument(metavar="A", help="An index file (.npy) or a run's noise.parquet.")],
    other: Annotated[Path | None, typer.Argument(metavar="[B]", help="Another of the same data.")] = None,
) -> None:
    """Say what a file of noise does and who published it; with two, whether they overlap more than by chance."""
    from bench.data.noise.index_files import NoiseFile, compared

    read = [NoiseFile.read(path) for path in (one, other) if path is not None]
    for file in read:
        echo(*file.text())
    if len(read) == 2:
        echo(*compared(*read))


def published(
    name: Annotated[str | None, typer.Argument(help="A file that NCR's procedure makes from a known seed.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to write it.")] = None,
) -> None:
    """List the index files that papers publish; write one that follows from a seed, without a download."""
    from bench.catalogue.index_files import published as catalogue

    if name is None:
        for entry in catalogue():
            echo(f"{entry.title}; sha256 {entry.sha256}{'; can be made' if entry.seed is not None else ''}")
        return
    entry = catalogue()[name]
    if entry.seed is None:
        raise UserError(f"{name}: follows from no known seed; it is {entry.source}")
    from bench.data.noise.index_files import drawn

    path = Path(f"{name}.npy") if out is None else out
    try:
        path.write_bytes(drawn(entry.entries, entry.rate, entry.seed))
    except OSError as error:
        raise UserError(f"--out {path}: cannot be written: {error.strerror}") from error
    echo(path)
