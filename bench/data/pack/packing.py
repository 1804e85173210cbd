"""Packs an input into shards: lists its samples, gives each shard the same samples every time, writes what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path

from bench import hashing, reading
from bench.console.text import csv_text, echo
from bench.data.pack.forms import list_samples
from bench.data.pack.writing import ListedSample, OmittedSample, PackJob, PackOptions, make_shard, read_shard_note
from bench.data.shards.indexing import in_processes
from bench.errors import UserError, one_line
from bench.machine.capacity import cores
from bench.store import files

SAMPLES_PER_SHARD = 10_000  #: samples of a shard, as img2dataset's
NOTES_FOLDER, FAULTS_FILE = ".pack", "faults.csv"


def pack_shards(
    source: Path,
    out: Path,
    options: PackOptions,
    per_shard: int = SAMPLES_PER_SHARD,
    workers: int | None = None,
) -> list[str]:
    """Pack an input into OUT/00000.tar and so on; return lines that say what was made and what was left out.

    workers: processes; by default one per core. A pack that was stopped resumes; bytes depend neither on `workers` nor
    on stops. What cannot be packed is listed in OUT/faults.csv. Raises UserError for a bad input, for a folder that
    holds other shards, and if nothing is left.
    """
    if source.resolve() == out.resolve():
        raise UserError(f"{out}: is the input; give another folder for the shards")
    listed, faults = _keyed(list_samples(source, options))
    try:
        jobs = _jobs(listed, out, per_shard)
        todo = [job for job in jobs if read_shard_note(job) is None]
        for number, _ in enumerate(in_processes(make_shard, todo, workers or cores()), 1):
            echo(f"{len(jobs) - len(todo) + number} of {len(jobs)} shards", err=True)
        notes = [note for job in jobs if (note := read_shard_note(job)) is not None]
        faults += [fault for _, own in notes for fault in own]
        text = csv_text([("key", "path", "reason", "detail"), *map(astuple, faults)])
        files.write_bytes(out / FAULTS_FILE, text.encode("utf-8", "backslashreplace"))
    except OSError as error:  # an image that cannot be read is a fault
        raise UserError(f"{out}: cannot be written: {one_line(error)}") from error
    packed = sum(number for number, _ in notes)
    if not packed:
        raise UserError(f"{source}: none of {len(faults):,} pairs can be packed; {out / FAULTS_FILE} says why of each")
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in Counter(one.reason for one in faults).items())
    left = f"omitted {len(faults):,} ({reasons}), listed in {out / FAULTS_FILE}" if faults else "omitted none"
    return [f"{out}: {packed:,} pairs in {len(jobs)} shards; {left}"]


def _keyed(listed: Sequence[ListedSample]) -> tuple[list[ListedSample], list[OmittedSample]]:
    """Give samples without a key their number; return those whose key is new, and a fault for each other."""
    unique: dict[str, ListedSample] = {}
    faults = []
    for number, sample in enumerate(listed):
        key = sample.key or f"{number:09d}"
        parts = key.split("/")
        if not all(parts) or "\0" in key or not key.isprintable():
            detail = "a key has printable parts between slashes"
            faults.append(OmittedSample(ascii(key), sample.path, "unsafe name", detail))
        elif key in unique:
            detail = f"{unique[key].path} has it; the first one is kept"
            faults.append(OmittedSample(key, sample.path, "duplicate key", detail))
        else:
            unique[key] = replace(sample, key=key)
    return list(unique.values()), faults


def _jobs(listed: Sequence[ListedSample], out: Path, per_shard: int) -> list[PackJob]:
    """Return the jobs of all shards. Raises UserError if the folder holds shards of another input."""
    stamp = {"samples": hashing.digest([list(astuple(sample)) for sample in listed]), "per_shard": per_shard}
    notes = out / NOTES_FOLDER
    mark = notes / "input.json"
    try:
        known = reading.parse_json(reading.read_file(mark, reading.JSON_BYTES)) if mark.is_file() else None
    except ValueError:  # cut by a full disk
        known = {}
    if known != stamp and (known is not None or any(out.glob("*.tar"))):
        raise UserError(f"{out}: holds shards of another input, or made with other options; give an empty folder")
    files.write_json(mark, stamp)
    parts = (tuple(listed[start : start + per_shard]) for start in range(0, len(listed), per_shard))
    return [PackJob(part, out / f"{i:05d}.tar", notes / f"{i:05d}.json") for i, part in enumerate(parts)]
