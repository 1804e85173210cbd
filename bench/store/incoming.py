"""The one reader of untrusted stores, for imports, the board and committed comparisons: everything is checked.

An archive is unpacked, and a run of a folder copied, to a private place, and checked there. A run is taken if its id is
the digest of its settings, its weights and records have the hashes that were stored with them, and its records were
measured on these weights. Nothing can show that the numbers were honestly computed: only training the run again would.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.errors import UserError
from bench.hashing import canonical, digest
from bench.store import files, reading
from bench.store.archive import SUM, unpack_archive, unpacked_limit
from bench.store.fence import CLAIM
from bench.store.format import NAME
from bench.store.reading import SET_ASIDE, Damaged
from bench.store.run import AGAIN_FOLDER, HASHES, RUN_ID, RunStore, Store, weights_name
from bench.store.verify import run_problems, sha256
from bench.store.writer import FEATURES, is_hashed

MEMORY_FOLDER = Path("/dev/shm")  #: where Linux has a file system in memory
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  #: of a suite and of a calibration
_OMITTED_PREFIXES = (files.TEMPORARY, CLAIM)  #: begin names of files about processes of the other machine


class Untrusted(Exception):
    """A part of another store is omitted; the message is printed after its name."""


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Turn Damaged for a file below `folder` into Untrusted that names the file by its path in there."""
    try:
        yield
    except Damaged as error:
        if not error.path.is_relative_to(folder):
            raise
        raise Untrusted(f"{error.path.relative_to(folder)}: {error.reason}") from error


@dataclass(frozen=True)
class Incoming:
    """Another store."""

    root: Path
    private: bool = False  #: whether it is a folder of this process, so that nothing changes in it
    sealed: bool = False  #: whether its archive holds one sum of all files, of which the hashes are therefore fresh

    def read(self, work: Callable[[RunStore], Any], run: RunStore) -> Any:
        """Return what `work` reads of a run. Raises Untrusted if it is damaged, or led to by a link."""
        _refuse_links_below(self.root, run.folder)
        with _naming(run.folder):
            return work(run)

    @contextmanager
    def checked(self, run: RunStore, scratch: Path) -> Iterator[RunStore]:
        """Yield a copy of a run below `scratch`, which may be renamed, and is whole and what its id says.

        Raises Untrusted for the first thing that is wrong with it.
        """
        _refuse_links_below(self.root, run.folder)
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            copy = RunStore(Path(folder, run.id))
            how = os.link if self.private else partial(shutil.copyfile, follow_symlinks=False)
            shutil.copytree(run.folder, copy.folder, True, partial(_left_out, run), how)
            _refuse_links_below(Path(folder), copy.folder)  # whatever happened there meanwhile
            refuse_run(copy, self.sealed)
            for path in copy.folder.rglob("*"):
                files.sync(path)
            yield copy

    def suites(self) -> list[str]:
        """Return the names of the folders that a suite may have."""
        names = (path.name for path in self.root.iterdir() if path.is_dir() and not path.is_symlink())
        return sorted(name for name in names if _NAME.fullmatch(name) and name not in ("runs", "calibrations"))

    def plan(self, suite: str) -> dict[str, Any] | None:
        """Return the plan of a suite; None without one. Raises Untrusted unless all of it is valid."""
        path = self.root / suite / "plan.json"
        _refuse_links_below(self.root, path)
        with _naming(self.root):
            plan: dict[str, Any] | None = reading.read_json(path, "plan", reading.MAX_PLAN)
            if plan is None:
                return None
            if plan["suite"] != suite:
                raise Damaged(path, f"suite: is not {suite}, as its folder says")
            chosen = (plan["tuning"] or {"methods": {}})["methods"].values()
            trials = (trial for choice in chosen for trial in choice["trials"])
            for cell in (*plan["cells"], *trials):
                for field in ("run", "reference_run"):
                    if (cell.get(field) is not None or field == "run") and not RUN_ID.fullmatch(cell[field]):
                        raise Damaged(path, f"{field}: {cell[field][:80]!r} should be 64 hex digits, as ids are")
        return plan

    def calibration(self, path: Path) -> dict[str, float]:
        """Return the measured seconds in a file. Raises Untrusted unless they are valid."""
        _refuse_links_below(self.root, path)
        if not _NAME.fullmatch(path.stem):
            raise Untrusted(f"{path.relative_to(self.root)}: is not a name of a calibration")
        with _naming(self.root):
            seconds: dict[str, float] = reading.read_json(path, "seconds") or {}
        return seconds


def _refuse_links_below(root: Path, path: Path) -> None:
    """Raise Untrusted unless `path`, what is in it, and the folders between it and `root` are files and folders.

    Nothing is opened and no link is followed. What disappears meanwhile is not a problem.
    """
    above = reversed([path, *path.parents][: len(path.relative_to(root).parts)])
    below = (Path(folder, name) for folder, *names in os.walk(path) for name in (*names[0], *names[1]))
    for one in (*above, *below):
        try:
            mode = one.lstat().st_mode
        except FileNotFoundError:
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            what = "a link; links are not followed" if stat.S_ISLNK(mode) else "neither a file nor a folder"
            raise Untrusted(f"{one.relative_to(root)} is {what}")


def _left_out(run: RunStore, folder: str, names: list[str]) -> list[str]:
    """Return the names that are not copied: claims, leftovers of kills, what was moved aside or can be recomputed."""
    again = (FEATURES, AGAIN_FOLDER) if Path(folder) == run.folder else ()
    return [name for name in names if name.startswith(_OMITTED_PREFIXES) or SET_ASIDE.search(name) or name in again]


@contextmanager
def open_incoming(source: Path, scratch: Path) -> Iterator[Incoming]:
    """Yield another store, a folder or an archive, which is unpacked below `scratch` for the time of the context.

    Raises UserError if `source` is not a store, or an archive that does not fit.
    """
    if source.is_dir():
        _refuse_other_folder(source, source)
        yield Incoming(source)
    elif source.is_file():
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            root, hashes = unpack_archive(source, Path(folder))
            _refuse_other_folder(root, source)
            yield Incoming(root, private=True, sealed=_seal(root, hashes, source))
    else:
        raise UserError(f"{source}: no such folder or archive")


def _seal(root: Path, hashes: Mapping[str, str], source: Path) -> bool:
    """Store the hashes of the files of packed runs, if all files have the sum that the archive states.

    Returns whether it states one. Raises UserError if they have not.
    """
    stated = reading.read_json(root / SUM)
    if stated is None:
        return False
    hashes = {name: one for name, one in hashes.items() if name != SUM}
    if stated != {"sha256": digest(hashes)}:
        raise UserError(f"{source}: a file in it was changed, added or removed since it was packed")
    runs = dict[str, dict[str, str]]()
    for name, one in sorted(hashes.items()):
        folder, _, below = name.removeprefix("runs/").partition("/")
        if name.startswith("runs/") and is_hashed(below):
            runs.setdefault(folder, {})[below] = one
    for folder, own in runs.items():
        (root / "runs" / folder / HASHES).write_bytes(files.dump(own))
    return True


def _refuse_other_folder(root: Path, source: Path) -> None:
    """Raise UserError unless a folder is that of a store; `source` is what the message names."""
    for name in ("runs", "calibrations", NAME):
        if (root / name).is_symlink():
            raise UserError(f"{source}: {name} is a link; links are not followed")
    if not (root / "runs").is_dir():
        raise UserError(f"{source}: is not a store: it has no folder runs/")


@contextmanager
def unpack_incoming(archive: Path) -> Iterator[Store]:
    """Yield the store in an archive, unpacked to a private folder for the time of the context, to be read only.

    Raises UserError that lists everything an import would leave out, and if this is not an archive of a store.
    """
    with tempfile.TemporaryDirectory(prefix="bench-", dir=_roomy(archive)) as folder:
        scratch, wrong = Path(folder), []
        with open_incoming(archive, scratch) as theirs:
            store = Store(theirs.root)
            for run in store.runs():
                try:
                    refuse_run(run, theirs.sealed)
                except Untrusted as reason:
                    wrong.append(f"{archive}: run {run.id}: {reason}")
            for suite in theirs.suites():
                try:
                    theirs.plan(suite)
                except Untrusted as reason:
                    wrong.append(f"{archive}: plan {suite}: {reason}")
            if wrong:
                raise UserError(*wrong)
            yield store


def _roomy(archive: Path) -> Path | None:
    """Return the in-memory file system if it has ample room; None stands for the temporary folder, or TMPDIR.

    A store is tens of thousands of small files. On a disk, removing them can take longer than reading them.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY_FOLDER, os.W_OK | os.X_OK):
        return None
    return MEMORY_FOLDER if shutil.disk_usage(MEMORY_FOLDER).free > 4 * unpacked_limit(archive) else None


def refuse_run(run: RunStore, sealed: bool = False) -> None:
    """Raise Untrusted for the first thing in a run that is damaged or forged; `sealed` as in `Incoming`."""
    with _naming(run.folder):
        for error in run_problems(run, thorough=True, compared=sealed):
            raise error
        settings, status = run.settings(), run.read_status()
        if status["state"] == "missing" or not settings:
            raise Untrusted("is not complete")
        path, address = run.path("settings.json"), settings.get("address")
        if settings.get("id") != run.id or not isinstance(address, dict) or digest(address) != run.id:
            raise Damaged(path, "the run's id is not the digest of its address")
        if odd := _disagreement(settings, address):
            raise Damaged(path, f"{odd}: differs from the address, of which the run's id is the digest")
        weights = _refuse_other_weights(run)
        steps = sum(count for _, count in settings.get("resolved", {"phases": []})["phases"])
        if "resolved" in settings and (status.get("step") or 0) > steps:
            raise Damaged(run.path("status.json"), f"step {status['step']} is beyond the {steps} of its settings")
        if status["state"] == "done":
            if 1.0 not in weights and not run.path(weights_name(1.0)).exists():
                raise Damaged(run.path("status.json"), "says done, but there are neither final weights nor records")
            if lacking := [] if sealed else _without_hash(run):
                raise Damaged(run.path(HASHES), f"holds no hash of {lacking[0]}")


def _without_hash(run: RunStore) -> list[str]:
    """Return the names of the files that should have a stored hash and have none, sorted."""
    names = {str(path.relative_to(run.folder)) for path in run.folder.rglob("*") if path.is_file()}
    return sorted(filter(is_hashed, names - {*run.hashes()}))


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
    """Return the hash of the weights by their share of the budget; Damaged if records are not of this run and these."""
    weights: dict[float, str] = {}
    for key in run.evaluations():
        path = run.path(f"evaluations/{key}/records.json")
        for record in run.records_of(key):
            if record.run != run.id:
                raise Damaged(path, "holds records of another run")
            if not 0 <= record.at <= 1:
                raise Damaged(path, f"at: {record.at} is not a share of a budget")
            if weights.setdefault(record.at, record.checkpoint) != record.checkpoint:
                raise Damaged(path, f"was measured on other weights than other records at {record.at}")
    for at, checkpoint in weights.items():
        path = run.path(weights_name(at))
        if path.exists() and sha256(path) != checkpoint:
            raise Damaged(path, "has another sha256 than the weights that its records were measured on")
    return weights
