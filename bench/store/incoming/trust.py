"""What is checked before anything of another store is taken; nothing that it claims about itself is believed.

A run is taken if its id is the digest of its settings, its weights and records have the hashes that were stored with
them, and its records were measured on these weights. Nothing can show that the numbers were honestly computed: only
training the run again would.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.hashing import canonical, digest
from bench.store import files, reading
from bench.store.doctor import hashed, problems, sha256, verify
from bench.store.reading import ASIDE, Damaged
from bench.store.run import HASHES, RunStore, weights_name
from bench.store.writer import AGAIN, FEATURES

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  #: of a suite and of a calibration
ID = re.compile(r"[0-9a-f]{64}")  #: of a run
_EVALUATED = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}")
_OWN = "claim-"  #: prefix of files about processes of the other machine; they are not copied
_RESERVED = ("runs", "calibrations")
_PROVENANCE = ("file", "checkpoint", "run", "at", "label")  #: settings of an evaluated checkpoint that its name omits


class Untrusted(Exception):
    """Why something of another store is left out, in words that follow its name."""


@contextmanager
def naming(folder: Path) -> Iterator[None]:
    """Turn Damaged for a file below `folder` into Untrusted that names the file by its path in there."""
    try:
        yield
    except Damaged as error:
        if not error.path.is_relative_to(folder):
            raise
        raise Untrusted(f"{error.path.relative_to(folder)}: {error.reason}") from error


def refuse_links(root: Path, path: Path) -> None:
    """Raise Untrusted unless `path`, what is in it, and the folders between it and `root` are plain files and folders.

    Nothing is opened and no link is followed. What disappears meanwhile is no problem.
    """
    for above in reversed([path, *path.parents][: len(path.relative_to(root).parts)]):
        _refuse_link(root, above)
    for folder, folders, names in os.walk(path):  # links to folders are listed and not entered
        for name in (*folders, *names):
            _refuse_link(root, Path(folder, name))


def _refuse_link(root: Path, path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        what = "a link; links are not followed" if stat.S_ISLNK(mode) else "neither a file nor a folder"
        raise Untrusted(f"{path.relative_to(root)} is {what}")


def refuse_run(run: RunStore, trust: bool) -> None:
    """Raise Untrusted for the first thing in a run that is damaged, forged or cannot be checked.

    With `trust`, a run whose id cannot be checked, because an earlier version wrote its settings, is accepted.
    """
    with naming(run.folder):
        for error in verify(run):
            raise error
        settings, status = run.settings(), run.read_status()
        _refuse_id(run, settings, trust)
        weights = _refuse_other_weights(run)
        steps = sum(count for _, count in settings.get("resolved", {"phases": []})["phases"])
        if "resolved" in settings and (status.get("step") or 0) > steps:
            raise Damaged(run.path("status.json"), f"step {status['step']} is beyond the {steps} of its settings")
        if status["state"] == "done":
            if 1.0 not in weights and not run.path(weights_name(1.0)).exists():
                raise Damaged(run.path("status.json"), "says done, but there are neither final weights nor records")
            lacking = sorted({*hashed(run)} - {*run.hashes()}) if "address" in settings else []
            if lacking:
                raise Damaged(run.path(HASHES), f"holds no hash of {lacking[0]}; `bench run` adds it there")


def _refuse_id(run: RunStore, settings: Mapping[str, Any], trust: bool) -> None:
    """Raise Untrusted unless the run's id is the digest of the address in its settings, which they agree with."""
    path = run.path("settings.json")
    if settings.get("id") != run.id:
        raise Damaged(path, "holds no id")
    address = settings.get("address")
    if address is None:
        if trust:
            return
        raise Untrusted(
            "an earlier version made it, so its id cannot be computed from its settings; --trust takes such runs"
        )
    if not isinstance(address, dict) or digest(address) != run.id:
        raise Damaged(path, "the run's id is not the digest of its address")
    if odd := _disagreement(settings, address):
        raise Damaged(path, f"{odd}: differs from the address, which the run's id is the digest of")


def _disagreement(settings: Mapping[str, Any], address: Mapping[str, Any]) -> str:
    """Return the first field of readable settings that differs from the address; "" if there is none.

    The address has files by their bytes, and leaves out what changes no result. So only what both hold is compared.
    """
    whole = ("method", "seed", "budget", "training_version", "keep")
    pairs = [(name, settings.get(name), address.get(name)) for name in whole]
    for name in ("train", "data", "config", "noise"):
        own, other = settings.get(name), address.get(name)
        if other is None:  # noise of a run that sees clean rows alone
            continue
        if not isinstance(own, dict) or not isinstance(other, dict):
            return name
        plain = {key: value for key, value in other.items() if not (name == "config" and isinstance(value, str))}
        pairs += [(f"{name}.{key}", own.get(key), value) for key, value in plain.items() if key != "options"]
    return next((name for name, own, other in pairs if canonical(own) != canonical(other)), "")


def _refuse_other_weights(run: RunStore) -> dict[float, str]:
    """Return the hash of the weights by their share of the budget; Damaged if records and weights contradict."""
    weights: dict[float, str] = {}
    for key in run.evaluations():
        path = run.path(f"evaluations/{key}/records.json")
        for record in run.records_of(key):
            if not 0 <= record.at <= 1:
                raise Damaged(path, f"at: {record.at} is no share of a budget")
            if weights.setdefault(record.at, record.checkpoint) != record.checkpoint:
                raise Damaged(path, f"was measured on other weights than other records at {record.at}")
    for at, checkpoint in weights.items():
        path = run.path(weights_name(at))
        if path.exists() and sha256(path) != checkpoint:
            raise Damaged(path, "has another sha256 than the weights that its records were measured on")
    return weights


def refuse_evaluated(run: RunStore) -> None:
    """Raise Untrusted unless a checkpoint that `bench eval` measured is whole and is what its folder's name says."""
    with naming(run.folder):
        for error in problems(run, thorough=True):
            raise error
        settings, path = run.settings(), run.path("settings.json")
        content = {name: value for name, value in settings.items() if name not in _PROVENANCE}
        own = f"{str(settings.get('checkpoint'))[:16]}-{digest(content)[:8]}"
        if not _EVALUATED.fullmatch(run.id) or own != run.id:
            raise Damaged(path, "does not give the name of its folder")
        for key in run.evaluations():
            origin = (settings.get("run"), settings["checkpoint"])
            if any((record.run, record.checkpoint) != origin for record in run.records_of(key)):
                raise Damaged(run.path(f"evaluations/{key}/records.json"), "holds records of another checkpoint")


def suites(root: Path) -> list[str]:
    """Return the names of the folders in a store that are no links, and that a suite may have."""
    with os.scandir(root) as entries:
        names = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
    return sorted(name for name in names if NAME.fullmatch(name) and name not in _RESERVED)


def plan_of(root: Path, suite: str) -> dict[str, Any] | None:
    """Return the plan of a suite in another store; None without one. Raises Untrusted unless all of it is valid."""
    path = root / suite / "plan.json"
    refuse_links(root, path)
    with naming(root):
        plan: dict[str, Any] | None = reading.read_json(path, "plan", reading.PLAN)
        if plan is None:
            return None
        if plan.get("suite", suite) != suite:
            raise Damaged(path, f"suite: is not {suite}, as its folder says")
        chosen = (plan.get("tuning") or {"methods": {}})["methods"].values()
        trials = (trial for choice in chosen for trial in choice["trials"])
        for cell in (*plan["cells"], *trials):
            for field in ("run", "reference_run"):
                if (cell.get(field) is not None or field == "run") and not ID.fullmatch(cell[field]):
                    raise Damaged(path, f"{field}: {cell[field][:80]!r} should be 64 hex digits, as ids are")
    return plan


def calibration_of(root: Path, path: Path) -> dict[str, float]:
    """Return the measured seconds in a file of another store. Raises Untrusted unless they are valid."""
    refuse_links(root, path)
    if not NAME.fullmatch(path.stem):
        raise Untrusted(f"{path.relative_to(root)}: is no name of a calibration")
    with naming(root):
        seconds: dict[str, float] = reading.read_json(path, "seconds") or {}
    return seconds


def copy(source: Path, target: Path) -> None:
    """Copy the files of a folder; leave out claims, what can be made anew, what was moved aside, leftovers of kills.

    The order of names matters if the run goes on meanwhile: a checkpoint is copied before the metrics, so these are not
    behind. No link is followed, and nothing but files is opened. Raises Untrusted if they do not fit on the disk.
    """
    target.mkdir(parents=True)
    paths = [path for path in sorted(source.rglob("*")) if carried(path.relative_to(source).parts)]
    needed, free = sum(path.lstat().st_size for path in paths if path.is_file()), shutil.disk_usage(target).free
    if needed > free:
        raise Untrusted(f"has {needed:,} bytes, and {free:,} are free")
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            continue
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        with _opened(source, path) as descriptor, place.open("xb") as fresh:
            shutil.copyfileobj(os.fdopen(descriptor, "rb", closefd=False), fresh)
        files.sync(place)


def carried(parts: tuple[str, ...]) -> bool:
    """Return whether a file goes along when a run is copied, by the parts of its name in the run's folder."""
    own = any(part.startswith((files.TEMPORARY, _OWN)) or ASIDE.search(part) for part in parts)
    return not own and parts[0] not in (FEATURES, AGAIN)


@contextmanager
def _opened(source: Path, path: Path) -> Iterator[int]:
    """Open a file that is no link. Raises Untrusted if it is something else, or became it meanwhile."""
    _refuse_link(source, path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise Untrusted(f"{path.relative_to(source)}: cannot be read: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Untrusted(f"{path.relative_to(source)} is not a file")
        yield descriptor
    finally:
        os.close(descriptor)
