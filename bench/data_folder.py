"""The folder of data that does not come with the package, given by `--data DIR` or $BENCH_DATA."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

DATA_VARIABLE = "BENCH_DATA"


def data_root() -> Path:
    """The data folder: $BENCH_DATA, or `data` in the working directory. It need not exist."""
    return Path(os.environ.get(DATA_VARIABLE) or "data")


def evaluation_folder() -> Path:
    """Return the folder of evaluation data."""
    return data_root() / "evaluation"


def use_data_folder(folder: Path) -> None:
    """Make `folder` the data folder of this process and of those it starts."""
    os.environ[DATA_VARIABLE] = str(folder.resolve())


@dataclass(frozen=True)
class Missing:
    """Something that a suite needs and that is missing."""

    what: str  #: "cc3m, training pairs"; "imagenet-a, shift"
    looked: tuple[str, ...]  #: where it was looked for
    get: str  #: the command or the place that gets it
    bytes: int | None  #: disk that it takes; None where that is not known
