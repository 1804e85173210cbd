"""`bench features`: extract features of training pairs, convert external ones, verify a set."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bench.cli.options import DataFolder, Results, use_data
from bench.console.text import echo

app = typer.Typer(help="Features of frozen encoders, to train heads on.", no_args_is_help=True)


class StoredDtype(StrEnum):
    """Type of stored numbers."""

    float16 = "float16"
    float32 = "float32"


Out = Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the new feature set.")]

# Options of `extract`
DataSet = Annotated[
    str, typer.Argument(metavar="DATA", help="emoji-b, a folder of indexed shards, or a set's name in the data folder.")
]
ImageModel = Annotated[
    str,
    typer.Option("--images", metavar="MODEL", help="MODEL/TAG of open_clip, timm:NAME, suite:NAME, and others."),
]
TextModel = Annotated[
    str | None,
    typer.Option("--texts", metavar="MODEL", help="MODEL/TAG of open_clip, transformers:NAME, suite:NAME, ..."),
]
Evaluation = Annotated[
    list[str] | None,
    typer.Option("--evaluation", metavar="NAME", help="Also an evaluation set; may be repeated."),
]
ForSuite = Annotated[
    str | None,
    typer.Option("--for", metavar="SUITE", help="Also the evaluation sets that a suite on these features reads."),
]
Prompts = Annotated[
    Path | None, typer.Option("--prompts", metavar="FILE", help="Further texts besides the captions, one per line.")
]
Views = Annotated[int, typer.Option("--views", min=1, max=64, help="Stored views; all but the first are augmented.")]

# Options of `convert`
SourceFile = Annotated[
    Path, typer.Argument(metavar="SOURCE", help="A Parquet file with keys and captions, or a folder of clip-retrieval.")
]
Name = Annotated[str | None, typer.Option("--name", help="The set's name; default: that of OUT.", show_default=False)]
ImageFile = Annotated[
    str | None, typer.Option("--images", metavar="FILE", help="A .npy file, a row for each row of the Parquet file.")
]
TextFile = Annotated[
    str | None, typer.Option("--texts", metavar="FILE", help="A .npy file, a row for each caption, in their order.")
]
Key = Annotated[str | None, typer.Option("--key", metavar="COLUMN", help="The column of keys.")]
Caption = Annotated[str, typer.Option("--caption", metavar="COLUMN", help="The column of captions.")]
StoredAs = Annotated[
    StoredDtype | None,
    typer.Option("--dtype", help="How numbers are stored; default: as they are.", show_default=False),
]


@app.command()
def extract(
    data_set: DataSet,
    out: Out,
    images: ImageModel,
    texts: TextModel = None,
    evaluation: Evaluation = None,
    suite: ForSuite = None,
    prompts: Prompts = None,
    views: Views = 1,
    dtype: Annotated[StoredDtype, typer.Option("--dtype", help="How numbers are stored.")] = StoredDtype.float16,
    results: Results = Path("results"),
    data: DataFolder = None,
) -> None:
    """Encode images and captions once. A stopped extraction resumes and gives the same bytes."""
    from bench.console.progress import Progress
    from bench.models import extract_features
    from bench.suite.suite import load_suite

    use_data(data)
    sets = tuple(
        dict.fromkeys([*(evaluation or ()), *(extract_features.sets_of_suite(load_suite(suite)) if suite else ())])
    )
    request = extract_features.ExtractionRequest(
        data_set, out, images, texts, sets, prompts, views, dtype.value, results
    )
    echo(*extract_features.extract_sets(request, shown=Progress()))


@app.command()
def convert(
    source: SourceFile,
    out: Out,
    name: Name = None,
    images: ImageFile = None,
    texts: TextFile = None,
    key: Key = None,
    caption: Caption = "caption",
    dtype: StoredAs = None,
) -> None:
    """Bring features that others extracted into a feature set, sorted by key and bound to keys and captions."""
    from bench.data.features import imports, tables

    rows = tables.read_import(tables.ImportRequest(source, images, texts, key, caption))
    about = imports.save(out, rows, name or out.name, dtype.value if dtype else None, "bench features convert")
    echo(f"{out}: {about.rows:,} rows, {about.texts:,} texts, content {about.content_hash[:16]}")


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A feature set.")],
) -> None:
    """Read every byte of a feature set and compare it with its description: sizes, sums, and which row is whose."""
    from bench.data.features import verify_feature_set as compare

    echo(*compare(folder))
