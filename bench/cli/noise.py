"""`bench noise`: the pairs that a suite corrupts, files of noise, and how noisy data is."""

from __future__ import annotations

import io
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli.options import RESULTS, CsvFile, DataFolder, Overrides, Results, RunId, SuiteName, store_at, use_data
from bench.console.text import echo
from bench.errors import UserError

if TYPE_CHECKING:
    from bench.data import Pairs
    from bench.data.noise import NoiseManifest


class Unit(StrEnum):
    """What has an entry in an index file."""

    caption = "caption"
    image = "image"


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
    from bench.planning.noise_manifest import noise_manifest
    from bench.suite.suite import load_suite

    _show(*noise_manifest(load_suite(suite, overrides or (), check_methods=False), rate, seed, kind), count, html)


def _show(pairs: Pairs, manifest: NoiseManifest, count: int, html: Path | None) -> None:
    from bench.cli.text import write_file
    from bench.data.noise_page import noise_page, noise_text

    echo(*noise_text(pairs, manifest, count).rstrip("\n").split("\n"))
    if html is not None:
        write_file("--html", html, noise_page(pairs, manifest, count).encode())
        echo(html)


def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An index file (.npy), an entry a caption or an image.")],
    suite: SuiteName,
    rate: Annotated[float | None, typer.Option("--rate", help="Refuse a file of another rate.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the manifest, as a run's noise.parquet.")
    ] = None,
    count: Count = 20,
    html: Page = None,
    overrides: Overrides = None,
    data: DataFolder = None,
) -> None:
    """Read an index file for a suite's training pairs: who published it, and which pairs it corrupts."""
    use_data(data)
    from bench.cli.text import write_file
    from bench.data import training
    from bench.data.noise import import_ncr
    from bench.data.noise.index_files import NoiseFile
    from bench.suite.suite import load_suite

    pairs = training(load_suite(suite, overrides or (), check_methods=False).data)
    manifest = import_ncr(file, pairs, rate)
    echo(*NoiseFile.read(file).text())
    _show(pairs, manifest, count, html)
    if out is not None:
        manifest.save(content := io.BytesIO())
        write_file("--out", out, content.getvalue())
        echo(out)


def export_file(
    suite: SuiteName,
    out: Annotated[Path, typer.Argument(metavar="FILE", help="The index file (.npy) to write.")],
    rate: Rate = None,
    seed: Seed = None,
    kind: Kind = None,
    manifest: Annotated[
        Path | None, typer.Option("--manifest", metavar="FILE", help="Of a run, noise.parquet, in place of these.")
    ] = None,
    unit: Annotated[
        Unit | None, typer.Option("--unit", help="What has an entry; default: a caption where each has a row.")
    ] = None,
    captions: Annotated[
        int, typer.Option("--captions", min=1, help="Rows an image, of a feature set with a row for each caption.")
    ] = 1,
    overrides: Overrides = None,
    data: DataFolder = None,
) -> None:
    """Write a suite's noise as an index file for the code of RCL and DECL (by image) or NCR and others (by caption)."""
    use_data(data)
    from bench.cli.text import write_file
    from bench.data import training
    from bench.data.noise import NoiseManifest, exported
    from bench.data.noise.index_files import NoiseFile
    from bench.planning.noise_manifest import noise_manifest
    from bench.suite.suite import load_suite

    loaded = load_suite(suite, overrides or (), check_methods=False)
    if manifest is None:
        pairs, noise = noise_manifest(loaded, rate, seed, kind)
    else:
        pairs, noise = training(loaded.data), NoiseManifest.load(manifest)
    content = exported.exported(pairs, noise, unit.value if unit else None, captions)
    write_file("FILE", out, content)
    echo(out)
    echo(*NoiseFile.read(out).text())
    if lost := exported.unsaid(pairs, noise, captions):
        echo(f"  {lost:,} rows have another caption of their own image; an index file does not say that")


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
    from bench.cli.text import write_file
    from bench.data.noise.index_files import drawn

    path = Path(f"{name}.npy") if out is None else out
    write_file("--out", path, drawn(entry.entries, entry.rate, entry.seed))
    echo(path)


def audit(
    run: RunId,
    results: Results = RESULTS,
    csv: CsvFile = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the pairs of least confidence with pictures.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Pairs on the page.")] = 60,
    data: DataFolder = None,
) -> None:
    """Estimate how many of a run's own training pairs are wrong, beside those that its noise made wrong."""
    use_data(data)
    from bench.cli.text import write_csv, write_file
    from bench.evaluation.noise.audited_run import audited_run

    audited = audited_run(store_at(results), run)
    echo(*audited.lines())
    if csv is not None:
        write_csv(csv, audited.table())
        echo(csv)
    if html is not None:
        from bench.data.examples import drawn
        from reports.pages.audit_page import audit_page

        notes = (f"confidence {c:.3f}" for c in audited.confidence[:count].tolist())
        shown = zip(drawn(audited.pairs, audited.rows[:count]), notes, strict=True)
        write_file("--html", html, audit_page(audited.pairs.name, audited.lines(), shown).encode())
        echo(html)
