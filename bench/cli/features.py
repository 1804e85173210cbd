"""`bench features`: extract features of training pairs, import those of others, compare a set with its description."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bench.cli.options import DataFolder, Results, use_data
from bench.console.text import echo

app = typer.Typer(help="Features of frozen encoders, to train heads on.", no_args_is_help=True)
Out = Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the feature set; it must not exist.")]


class Dtype(StrEnum):
    """How numbers are stored."""

    float16 = "float16"
    float32 = "float32"


@app.command()
def extract(
    data_set: Annotated[
        str,
        typer.Argument(metavar="DATA", help="emoji, a folder of indexed shards, or a set's name in the data folder."),
    ],
    out: Out,
    images: Annotated[
        str | None,
        typer.Option("--images", metavar="MODEL", help="MODEL/TAG of open_clip, timm:NAME, run:ID; see docs."),
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option("--texts", metavar="MODEL", help="MODEL/TAG of open_clip, transformers:NAME, run:ID; see docs."),
    ] = None,
    evaluation: Annotated[
        list[str] | None,
        typer.Option("--evaluation", metavar="NAME", help="An evaluation set as well; may be repeated."),
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option("--prompts", metavar="FILE", help="Further texts, one a line, beside the captions.")
    ] = None,
    views: Annotated[
        int, typer.Option("--views", min=1, max=64, help="Stored views; those after the first augmented.")
    ] = 1,
    dtype: Annotated[Dtype, typer.Option("--dtype", help="How numbers are stored.")] = Dtype.float16,
    device: Annotated[
        str | None, typer.Option("--device", metavar="cpu|cuda:N", help="Default: the first GPU, or the CPU.")
    ] = None,
    part: Annotated[
        str | None,
        typer.Option("--part", metavar="I/N", help="Extract each N-th block alone; without it, the rest, and join."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show hours and disk, measured on one batch.")] = False,
    results: Results = Path("results"),
    data: DataFolder = None,
) -> None:
    """Encode images and captions once. A stopped extraction goes on where it was, to the same bytes."""
    from bench.models import extract_features

    use_data(data)
    request = extract_features.Request(
        data=data_set,
        out=out,
        images=images,
        texts=texts,
        evaluation=tuple(evaluation or ()),
        prompts=prompts,
        views=views,
        dtype=dtype.value,
        device=device,
        part=part,
        results=results,
    )
    echo(*(extract_features.estimate(request) if dry_run else extract_features.extract(request, progress=True)))


@app.command("import")
def import_features(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A folder of SCAN, NCR, Noise of Web or clip-retrieval; a table.")
    ],
    out: Out,
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="scan, noise-of-web, clip-retrieval or table.")
    ],
    name: Annotated[
        str | None, typer.Option("--name", help="The set's name; default: that of OUT.", show_default=False)
    ] = None,
    split: Annotated[str, typer.Option("--split", help="Of scan and noise-of-web.")] = "train",
    tokenizer: Annotated[str, typer.Option("--tokenizer", help="Of noise-of-web: bert, bpe or jieba.")] = "bert",
    images: Annotated[
        str | None,
        typer.Option("--images", metavar="FILE", help="Of a table: .npy, .safetensors[:NAME], or a column."),
    ] = None,
    texts: Annotated[str | None, typer.Option("--texts", metavar="FILE", help="Of a table, as --images.")] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="COLUMN", help="The column of keys.")] = None,
    caption: Annotated[str, typer.Option("--caption", metavar="COLUMN", help="The column of captions.")] = "caption",
    dtype: Annotated[
        Dtype | None, typer.Option("--dtype", help="How numbers are stored; default: as they are.", show_default=False)
    ] = None,
) -> None:
    """Bring features that others extracted into a feature set, sorted by key and bound to keys and captions."""
    from bench.data.features import imports

    request = imports.Request(source, split, tokenizer, images, texts, key, caption)
    command = f"bench features import --format {form}"
    about = imports.save(out, imports.read(form, request), name or out.name, dtype.value if dtype else None, command)
    echo(f"{out}: {about.rows:,} rows, {about.texts:,} texts, content {about.content_hash[:16]}")


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A feature set.")],
) -> None:
    """Read every byte of a feature set and compare it with its description: sizes, sums, and which row is whose."""
    from bench.data.features.verifying import verify as compare

    echo(*compare(folder))
