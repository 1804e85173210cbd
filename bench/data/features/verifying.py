"""`bench features verify`: read every byte of a feature set and compare it with what was stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench import reading
from bench.data.features.about import AGAIN, INDEX, MAPPED, NAME, ROWS, TEXT, evaluation_folders
from bench.data.features.pairs import FeaturePairs
from bench.data.features.rows import rows_hash
from bench.data.features.texts import TextPlan, prefixes, row_digests
from bench.data.strings import Strings
from bench.errors import UserError, one_line
from bench.hashing import file_hash

BLOCK = 1 << 12  #: rows that are compared at a time


def verify(folder: Path) -> list[str]:
    """Compare a feature set and the evaluation sets in it with their descriptions; return a line for each.

    The digest of each row shows that its features belong to its key or text, whatever the order of the array. Raises
    UserError with the first row or file that differs.
    """
    lines = []
    for one in (folder, *evaluation_folders(folder)):
        pairs = FeaturePairs(one)
        _verify_rows(pairs)
        _verify_texts(pairs)
        _verify_arrays(pairs)
        _verify_files(pairs)
        about = pairs.about
        lines.append(f"{one}: {about.rows:,} rows, {about.texts:,} texts, content {about.content_hash[:16]}: whole")
    return lines


def _verify_rows(pairs: FeaturePairs) -> None:
    """Compare the two forms of the rows, and the hash of their content."""
    path, mapped = pairs.folder / ROWS, pairs.folder / MAPPED
    batch = pa.ipc.open_file(pa.memory_map(str(mapped))).get_batch(0)
    try:
        batch.validate(full=True)
    except ValueError as error:
        raise UserError(f"{mapped}: is damaged ({one_line(error, 200)}); {AGAIN}") from error
    try:
        stored = reading.parquet(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({one_line(error, 200)}); {AGAIN}") from error
    if not stored.equals(pa.Table.from_batches([batch])):
        raise UserError(f"{path}: does not hold the rows of {MAPPED}; {AGAIN}")
    if rows_hash(Strings(batch["key"]), batch["captions"], dict(pairs.labels)) != pairs.about.rows_hash:
        raise UserError(f"{pairs.folder / NAME}: rows_hash: is not that of {ROWS}; {AGAIN}")


def _verify_texts(pairs: FeaturePairs) -> None:
    """Compare the index and the text rows of captions with what the strings say."""
    if pairs.texts is None:
        return
    plan = TextPlan.of(pairs.caption_lists(np.arange(len(pairs))), pairs.prompts)
    index, place = pairs.folder / INDEX, np.argsort(plan.hashes)
    if len(plan.hashes) != len(pairs.texts):
        fault = f"{len(pairs.texts):,} text features for {len(plan.hashes):,} different captions and prompts"
        raise UserError(f"{pairs.folder / TEXT}: {fault}; {AGAIN}")
    if not (pairs.texts.index[:2] == np.stack([plan.hashes[place], place.astype(np.uint64)])).all():
        raise UserError(f"{index}: is not the index of the captions and prompts in {ROWS}; {AGAIN}")
    rows = pairs.text_row_lists(np.arange(len(pairs))).flatten().to_numpy()
    wrong = np.flatnonzero(rows != plan.rows[: len(rows)])
    if len(wrong):
        fault = f"text_rows: caption {int(wrong[0])} has text row {rows[wrong[0]]}, not {plan.rows[wrong[0]]}"
        raise UserError(f"{pairs.folder / MAPPED}: {fault}; {AGAIN}")


def _verify_arrays(pairs: FeaturePairs) -> None:
    """Compare the digest of every row of both arrays."""
    if pairs.image_array is not None:
        stored = pairs.image_digests
        for start, stop in _blocks(len(pairs)):
            keys = [key.encode() for key in pairs.keys[start:stop]]
            wrong = np.flatnonzero(row_digests(keys, pairs.image_array[start:stop]) != stored[start:stop])
            for row in wrong[:1].tolist():
                pairs.check_image(start + row)
    if pairs.texts is not None:
        order = np.argsort(pairs.texts.index[1])  # text row -> place in the index
        for start, stop in _blocks(len(pairs.texts)):
            hashes, stored = pairs.texts.index[0, order[start:stop]], pairs.texts.index[2, order[start:stop]]
            wrong = np.flatnonzero(row_digests(prefixes(hashes), pairs.texts.array[start:stop]) != stored)
            for row in wrong[:1].tolist():
                pairs.check_text(int(order[start + row]))


def _verify_files(pairs: FeaturePairs) -> None:
    """Compare the sha256 of every file."""
    for name in pairs.about.expected():
        path, expected = pairs.folder / name, pairs.about.files[name].sha256
        own = file_hash(path)
        if own != expected:
            raise UserError(f"{path}: sha256 is {own[:16]}..., {NAME} says {expected[:16]}...; {AGAIN}")


def _blocks(n: int) -> Iterator[tuple[int, int]]:
    for start in range(0, n, BLOCK):
        yield start, min(start + BLOCK, n)
