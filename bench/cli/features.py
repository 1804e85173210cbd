"""`bench features`: extract features of training pairs, import those of others, compare a set with its description."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bench.cli.options import DataFolder, Results, use_data
from bench.console.text import echo

app = typer.Typer(help="Features of frozen encoders, to train heads on.", no_args_is_help=True)


class Dtype(StrEnum):
    """How numbers are stored."""

    float16 = "float16"
    float32 = "float32"


Out = Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the feature set, which is made.")]

# Options of `extract`
DataSet = Annotated[
    str, typer.Argument(metavar="DATA", help="emoji-b, a folder of indexed shards, or a set's name in the data folder.")
]
ImageModel = Annotated[
    str | None,
    typer.Option("--images", metavar="MODEL", help="MODEL/TAG of open_clip, timm:NAME, suite:NAME, and others."),
]
TextModel = Annotated[
    str | None,
    typer.Option("--texts", metavar="MODEL", help="MODEL/TAG of open_clip, transformers:NAME, suite:NAME, ..."),
]
Evaluation = Annotated[
    list[str] | None,
    typer.Option("--evaluation", metavar="NAME", help="An evaluation set as well; may be repeated."),
]
ForSuite = Annotated[
    str | None,
    typer.Option("--for", metavar="SUITE", help="The evaluation sets of a suite on these features as well."),
]
Prompts = Annotated[
    Path | None, typer.Option("--prompts", metavar="FILE", help="Further texts, one a line, beside the captions.")
]
Views = Annotated[int, typer.Option("--views", min=1, max=64, help="Stored views; all but the first are augmented.")]
Device = Annotated[
    str | None, typer.Option("--device", metavar="cpu|cuda:N", help="Default: the first GPU, or the CPU.")
]
Share = Annotated[
    str | None,
    typer.Option("--part", metavar="I/N", help="Each N-th block alone; without it, all that are missing, and join."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show hours and disk, measured on one batch.")]

# Options of `import`
Source = Annotated[
    Path, typer.Argument(metavar="SOURCE", help="A folder of SCAN, NCR, Noise of Web or clip-retrieval; a table.")
]
Form = Annotated[str, typer.Option("--format", metavar="FORMAT", help="scan, noise-of-web, clip-retrieval or table.")]
Name = Annotated[str | None, typer.Option("--name", help="The set's name; default: that of OUT.", show_default=False)]
Split = Annotated[str, typer.Option("--split", help="Of scan and noise-of-web.")]
Tokenizer = Annotated[str, typer.Option("--tokenizer", help="Of noise-of-web: bert, bpe or jieba.")]
ImageFile = Annotated[
    str | None, typer.Option("--images", metavar="FILE", help="Of a table: .npy, .safetensors[:NAME], or a column.")
]
TextFile = Annotated[str | None, typer.Option("--texts", metavar="FILE", help="Of a table, as --images.")]
Key = Annotated[str | None, typer.Option("--key", metavar="COLUMN", help="The column of keys.")]
Caption = Annotated[str, typer.Option("--caption", metavar="COLUMN", help="The column of captions.")]
EachCaption = Annotated[
    bool, typer.Option("--each-caption", help="Of scan: one row a caption, for index files of NCR and DECL.")
]
StoredAs = Annotated[
    Dtype | None, typer.Option("--dtype", help="How numbers are stored; default: as they are.", show_default=False)
]


@app.command()
def extract(
    data_set: DataSet,
    out: Out,
    images: ImageModel = None,
    texts: TextModel = None,
    evaluation: Evaluation = None,
    suite: ForSuite = None,
    prompts: Prompts = None,
    views: Views = 1,
    dtype: Annotated[Dtype, typer.Option("--dtype", help="How numbers are stored.")] = Dtype.float16,
    device: Device = None,
    part: Share = None,
    dry_run: DryRun = False,
    results: Results = Path("results"),
    data: DataFolder = None,
) -> None:
    """Encode images and captions once. A stopped extraction goes on where it was, to the same bytes."""
    from bench.models import extract_features

    use_data(data)
    sets = tuple(dict.fromkeys([*(evaluation or ()), *(extract_features.evaluation_sets(suite) if suite else ())]))
    request = extract_features.Request(
        data_set, out, images, texts, sets, prompts, views, dtype.value, device, part, results
    )
    echo(*(extract_features.estimate(request) if dry_run else extract_features.extract(request, progress=True)))


@app.command("import")
def import_features(
    source: Source,
    out: Out,
    form: Form,
    name: Name = None,
    split: Split = "train",
    tokenizer: Tokenizer = "bert",
    images: ImageFile = None,
    texts: TextFile = None,
    key: Key = None,
    caption: Caption = "caption",
    each_caption: EachCaption = False,
    dtype: StoredAs = None,
) -> None:
    """Bring features that others extracted into a feature set, sorted by key and bound to keys and captions."""
    from bench.data.features import imports

    request = imports.Request(source, split, tokenizer, images, texts, key, caption, each_caption)
    rows, command = imports.read(form, request), f"bench features import --format {form}"
    about = imports.save(out, rows, name or out.name, dtype.value if dtype else None, command)
    echo(f"{out}: {about.rows:,} rows, {about.texts:,} texts, content {about.content_hash[:16]}")


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A feature set.")],
) -> None:
    """Read every byte of a feature set and compare it with its description: sizes, sums, and which row is whose."""
    from bench.data.features.verifying import verify as compare

    echo(*compare(folder))
