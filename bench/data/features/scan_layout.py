"""Folders of SCAN and NCR, `{split}_ims.npy` with `{split}_caps.txt`, and Noise of Web, whose captions are token ids.

Rows are numbered in the order of the array; with a row for each caption, index files of NCR and DECL fit them.

layout: github.com/alipay/PC2-NoiseofWeb@5e3c603 NCR/data.py (PrecompDataset, get_dataset)
layout: github.com/alipay/PC2-NoiseofWeb@1264fcc README.md (Data Structure)
"""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

from bench.data.features.imports import Imported, Request, lists_of
from bench.data.features.stack import Stack, open_array, text_lines, utf8
from bench.errors import UserError

EACH = 5  #: captions of an image where there are more captions than images
TOKENIZERS = ("bert", "bpe", "jieba")
TSV_BYTES = 1 << 31


def scan(request: Request) -> Imported:
    """Read `{split}_ims.npy` [n, width] or [n, regions, width] with n or 5 n captions in `{split}_caps.txt` or `.tsv`.

    Raises UserError if a file is missing or damaged, or there is another number of captions.
    """
    texts, table = (request.source / f"{request.split}_caps.{kind}" for kind in ("txt", "tsv"))
    captions = _second_column(table) if table.is_file() and not texts.exists() else text_lines(texts)
    return _imported(request, texts if texts.exists() else table, captions, "SCAN's layout")


def noise_of_web(request: Request) -> Imported:
    """Read `{split}_ims.npy` [n, objects, 768] with n lines of token ids in `{split}_caps_{tokenizer}.txt`.

    A caption is its line: the ids with commas between them. Raises UserError as `scan` does, and for a line that is
    something else.
    """
    if request.tokenizer not in TOKENIZERS:
        raise UserError(f"--tokenizer {request.tokenizer}: Noise of Web has {', '.join(TOKENIZERS)}")
    path = request.source / f"{request.split}_caps_{request.tokenizer}.txt"
    captions = text_lines(path)
    for number, line in enumerate(captions, 1):
        if not all(token.strip().isdecimal() for token in line.rstrip(",").split(",")):
            raise UserError(f"{path}: line {number}, {line[:40]!r}, is no list of token ids such as 12,7,431")
    return _imported(request, path, captions, f"Noise of Web, token ids of {request.tokenizer}")


def _imported(request: Request, path: Path, captions: list[str], layout: str) -> Imported:
    file = request.source / f"{request.split}_ims.npy"
    images = Stack(str(file), (open_array(str(file)),))
    n, total = len(images), len(captions)
    if total not in (n, EACH * n):
        fault = f"{total:,} captions for the {n:,} images of {file.name}"
        raise UserError(f"{path}: has {fault}; there should be as many, or {EACH} for each")
    each, title = total // n, f"{request.source.name}, split {request.split}, in {layout}"
    if request.each_caption:
        images, each = replace(images, times=each), 1
    keys = [f"{row:08d}" for row in range(len(images))]
    return Imported(title, keys, lists_of(captions, [each] * len(images)), images, pooled="regions")


def _second_column(path: Path) -> list[str]:
    """Return the captions of NCR's CC152K: a table of id and caption with tabs between them."""
    text, captions = utf8(path, TSV_BYTES), []
    for number, row in enumerate(csv.reader(io.StringIO(text, newline=""), delimiter="\t"), 1):
        if len(row) < 2 or not row[1].strip():
            raise UserError(f"{path}: row {number} has no caption in its second column")
        captions.append(row[1].strip())
    return captions
