"""The forms of input that `bench data pack` reads. A new one is a file of this folder and an entry here."""

from __future__ import annotations

import csv
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import reading
from bench.data.pack.sample import Options, Sample
from bench.errors import UserError, one_line
from bench.registry import Registry, lazy

#: of lists, by their endings: CC12M's table has 2.7 GB, and is read by lines; Karpathy's JSON of COCO has 144 MB
LIST_BYTES = {".csv": 1 << 32, ".tsv": 1 << 32, ".json": 1 << 29}
#: what a form raises for a file that is in another one
ERRORS = (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, csv.Error)


@dataclass(frozen=True)
class Form:
    """One form of input."""

    name: str  #: the word of `--form NAME`
    about: str  #: one line for the documentation
    endings: tuple[str, ...]  #: of names of files in this form; "/" is a folder
    fits: Callable[[Path], bool]  #: whether a file or folder with such a name is in this form
    read: Callable[[Path, Options], Iterator[Sample]]  #: raises UserError for what is not in this form


def _entry(name: str, about: str, *endings: str) -> Form:
    module = f"{__name__}.{name}"
    return Form(name, about, endings, lazy(f"{module}:fits"), lazy(f"{module}:read"))


FORMS: Registry[Form] = Registry(
    "a form of input",
    (
        _entry("table", "CSV or TSV with paths and captions (open_clip's columns: filepath, title)", ".csv", ".tsv"),
        _entry("coco", "captions JSON of COCO (images and annotations)", ".json"),
        _entry("karpathy", "Karpathy's JSON (dataset_coco.json, dataset_flickr30k.json)", ".json"),
        _entry("parquet", "Parquet with image bytes, a file or a folder, as Hugging Face datasets", ".parquet", "/"),
        _entry("folder", "folder of images, each with a .txt of the same name, one caption a line", "/"),
    ),
)


def _refuse_endless(path: Path) -> None:
    """Raise OSError for what would be waited for or read without end: a FIFO, a device, a list of gigabytes."""
    if path.is_dir():
        return
    with reading.opened(path) as file:
        most = LIST_BYTES.get(path.suffix.lower())
        if most is not None and os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most:,} bytes; cut it into several", str(path))


def form_of(path: Path, name: str | None) -> Form:
    """Return the form `name`, or else the first that fits. Raises UserError if none does or nothing is there."""
    if not path.exists():
        raise UserError(f"{path}: no such file or folder")
    if name is not None:
        if message := FORMS.wrong(name):
            raise UserError(f"--form: {message}")
        return FORMS[name]
    ending = "/" if path.is_dir() else path.suffix.lower()
    fitting = (form for form in FORMS if ending in form.endings and form.fits(path))
    try:
        _refuse_endless(path)
        form: Any = next(fitting, None)
    except ERRORS as error:
        raise UserError(f"{path}: cannot be read: {one_line(error, 200)}") from error
    if form is None:
        raise UserError(f"{path}: is in no form that is known; --form takes {', '.join(FORMS.names())}")
    return FORMS[form.name]


def samples(path: Path, form: Form, options: Options) -> list[Sample]:
    """Return all samples of an input, in its order. Raises UserError if it cannot be read or has none."""
    try:
        _refuse_endless(path)
        listed = list(form.read(path, options))
    except ERRORS as error:
        reason = f"{type(error).__name__}: {one_line(error, 200)}"
        raise UserError(f"{path}: cannot be read as {form.name} ({form.about}): {reason}") from error
    if not listed:
        raise UserError(f"{path}: holds no pairs in the form {form.name}{' of these splits' if options.splits else ''}")
    return listed
