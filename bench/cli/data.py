"""`bench data`: copy, shard and index data, show what is on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.cli.options import DataFolder, SuiteName, use_data
from bench.console.text import echo

app = typer.Typer(help="Training and evaluation data on disk.", no_args_is_help=True)


Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes; default: one per core.", show_default=False)
]


@app.command()
def index(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Shards: a folder, a brace pattern such as 'cc3m/{00000..00331}.tar', several of these in a fixed "
            "order, or the name of a set, whose shards lie in the data folder.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The index; default: index.parquet next to the first shard."),
    ] = None,
    workers: Workers = None,
    limit: Annotated[
        float, typer.Option("--limit", min=0, max=1, help="Share of samples that may be faulty before it is an error.")
    ] = 0.01,
    each_caption: Annotated[
        bool,
        typer.Option("--each-caption", help="One row per caption, not per image: for index files of NCR and DECL."),
    ] = False,
    data: DataFolder = None,
) -> None:
    """Scan shards once and write the index by which training reads them. A stopped indexing resumes."""
    from bench.data.shards.indexing import build_index
    from bench.data.shards.sources import expand_sources, resolve_set_name

    use_data(data)
    shards = expand_sources(resolve_set_name(sources))
    report = build_index(shards, out, workers=workers, limit=limit, each_caption=each_caption, progress=True)
    echo(*report.lines())


@app.command()
def get(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A training set, an evaluation set (pets, pets/train), or your own."),
    ],
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="Training shards: a pattern such as 'https://host/cc3m/{00000..00331}.tar', or pipe: and a command, "
            "'pipe:aws s3 cp s3://b/cc3m/{00000..00331}.tar -'. Of an evaluation set the folder above test/, which "
            "holds nshards.txt, 0.tar and so on; in a command {} stands for a file's name.",
        ),
    ],
    data: DataFolder = None,
) -> None:
    """Copy training shards, or an evaluation set in clip-benchmark's webdataset layout, into the data folder.

    Files that are there stay, so that a stopped copy resumes.
    """
    from bench.data import evaluation, fetching

    def say(line: str) -> None:
        echo(line, err=True)

    use_data(data)
    if fetching.names_shards(url):
        home = fetching.fetch_shards(name, url, say)
        echo(f"{home}: {len(list(home.glob('*.tar'))):,} shards; then: bench data index {name}")
        return
    home = fetching.fetch_evaluation(name, url, say)
    evaluation.check_evaluation_set(name)
    images, classes = evaluation.evaluation_set_counts(name)
    echo(f"{home}: {images:,} images" + (f" of {classes:,} classes" if classes else " with captions"))


@app.command("stand-in")
def stand_in(
    suite: SuiteName,
    out: Annotated[Path, typer.Argument(metavar="DIR", help="A new data folder, only for stand-ins.")],
    pairs: Annotated[int, typer.Option("--pairs", min=32, help="Maximum number of training pairs.")] = 2_000,
) -> None:
    """Write small data under the names of a suite's data sets, in the real formats, to try the suite without them.

    Images and captions are emoji, so numbers mean nothing. Weights that the suite names are not made.
    """
    from bench.models import stand_ins
    from bench.planning import requirements

    lines, loaded = stand_ins.write_stand_in(suite, out, pairs)
    own = f" --set data.shards={loaded.data.shards}" if loaded.data.shards else ""
    echo(*lines, *requirements.listing(requirements.missing_inputs(loaded)))
    echo(f"then: bench run {suite} --data {out}{own}, with further --set for what takes too long here")


@app.command()
def shard(
    source: Annotated[
        Path, typer.Argument(metavar="INPUT", help="A .csv, .tsv, .json or .parquet, or a folder of images or Parquet.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the shards, such as data/mine.")],
    images: Annotated[
        Path | None,
        typer.Option("--images", metavar="DIR", help="Folder that paths are relative to; default: the input's."),
    ] = None,
    image_column: Annotated[
        str | None, typer.Option("--image-column", metavar="NAME", help="Default: filepath; for Parquet: image.")
    ] = None,
    caption_column: Annotated[
        str | None,
        typer.Option("--caption-column", metavar="NAME", help="Default: title; for Parquet: caption or text."),
    ] = None,
    key_column: Annotated[
        str | None, typer.Option("--key-column", metavar="NAME", help="The column of keys; default: numbers.")
    ] = None,
    split: Annotated[
        list[str] | None, typer.Option("--split", metavar="NAME", help="A split of Karpathy's JSON; may be repeated.")
    ] = None,
    per_shard: Annotated[int, typer.Option("--per-shard", min=1, help="Pairs per shard.")] = 10_000,
    workers: Workers = None,
) -> None:
    """Pack images and captions into webdataset shards, which `bench data index` reads. A stopped packing resumes.

    Images are copied as they are. What cannot be packed is listed in OUT/faults.csv.
    """
    from bench.data.pack.packing import pack_shards
    from bench.data.pack.writing import PackOptions

    columns = (image_column, caption_column, key_column)
    options = PackOptions(str(images) if images else None, *columns, tuple(split or ()))
    echo(*pack_shards(source, out, options, per_shard, workers))
