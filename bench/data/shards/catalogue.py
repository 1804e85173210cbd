"""Data sets of the papers: how many rows their lists name, where the lists come from, how to download them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Known:
    """One published list of pairs. Links die, so what a download gives is less than `rows`."""

    rows: int  #: pairs in the list
    page: str  #: where the list comes from
    gigabytes: int | None  #: of shards, about, images as `how` makes them; None where that is not known
    how: str  #: commands, with {folder} for where the shards go


def _img2dataset(source: str, form: str, url: str, caption: str) -> str:
    return (
        f"img2dataset --url_list {source} --input_format {form} --url_col {url} --caption_col {caption} "
        "--output_format webdataset --output_folder {folder} --image_size 256 --processes_count 16 --thread_count 64"
    )


KNOWN: dict[str, Known] = {
    "cc3m": Known(
        3_318_333,
        "https://ai.google.com/research/ConceptualCaptions/download",
        90,
        "sed -i '1s/^/caption\\turl\\n/' cc3m.tsv && " + _img2dataset("cc3m.tsv", "tsv", "url", "caption"),
    ),
    "cc12m": Known(
        12_423_374,
        "https://github.com/google-research-datasets/conceptual-12m",
        331,
        "wget https://storage.googleapis.com/conceptual_12m/cc12m.tsv && sed -i '1s/^/url\\tcaption\\n/' cc12m.tsv && "
        + _img2dataset("cc12m.tsv", "tsv", "url", "caption"),
    ),
    "yfcc15m-r": Known(
        15_000_000,
        "https://huggingface.co/datasets/Kaichengalex/YFCC15M",
        400,
        "write its images and captions as webdataset shards (key.jpg, key.txt) to {folder}",
    ),
    "redcaps": Known(
        12_011_121,
        "https://redcaps.xyz",
        320,
        "join the annotations' url and caption columns to redcaps.csv && "
        + _img2dataset("redcaps.csv", "csv", "url", "caption"),
    ),
    "datacomp-small": Known(
        12_800_000,
        "https://github.com/mlfoundations/datacomp",
        450,
        "python download_upstream.py --scale small --data_dir {folder}, then give its folder `shards`",
    ),
    "datacomp-1b": Known(
        1_400_000_000,
        "https://github.com/mlfoundations/datacomp",
        None,
        "python download_upstream.py --scale datacomp_1b --data_dir {folder}, then give its folder `shards`",
    ),
}


def known(name: str) -> Known | None:
    """The catalogue's entry of a data set's name: "cc3m", "CC3M" and "cc3m-part" are cc3m."""
    lower = name.lower()
    return next((KNOWN[one] for one in sorted(KNOWN, key=len, reverse=True) if lower.startswith(one)), None)


def how_to_get(name: str, folder: Path) -> str:
    """Commands that download a data set and index it; words where it is not in the catalogue."""
    entry, there = known(name), shlex.quote(str(folder))
    if entry is None:
        return f"put webdataset shards (key.jpg, key.txt in .tar files) in {there}, then: bench data index {there}"
    return f"list from {entry.page}; {entry.how.format(folder=there)}; then: bench data index {there}"
