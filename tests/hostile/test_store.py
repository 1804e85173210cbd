"""Mutated stores: files of every kind are damaged, and every verb is called on them.

No verb hangs or ends in an unexpected error. Each shows the runs that were left alone and changes nothing in them.
After `store verify --fix` and `run`, `store verify` finds nothing.
BENCH_HOSTILE_EXAMPLES is the number of mutated stores, each
with one to three mutations (seconds by default, thousands by hand), BENCH_HOSTILE_SEED chooses others:

    BENCH_HOSTILE_EXAMPLES=10000 BENCH_HOSTILE_SEED=1 pytest -n0 tests/hostile/test_store.py
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.cli import app
from bench.cli.guard import UNEXPECTED, explain
from bench.errors import UserError
from bench.store import Store

from .alarm import ended_within

EXAMPLES = int(os.environ.get("BENCH_HOSTILE_EXAMPLES", "6"))
SEED = int(os.environ.get("BENCH_HOSTILE_SEED", "0"))
SECONDS = 600  #: after which a verb hangs, on a busy machine too
CODES = {0, 1, 2, 75}

#: patterns below a run
OF_RUN = [
    *("status.json", "settings.json", "ledger.json", "environment.json", "diagnostics.json", "hashes.json"),
    *("metrics.jsonl", "train_seconds", "weights-*.safetensors", "checkpoint.pt", "noise.parquet"),
    *("job.json", "evaluations", "evaluations/*", "evaluations/*/records.json", "evaluations/*/outcomes.npz"),
    *("features", "."),
]
#: patterns below a store
OF_STORE = [
    *("hostile", "hostile/plan.json", "hostile/trials.json", "hostile/report.html", "hostile/tables"),
    *("hostile/figures", "hostile/records.csv", "calibrations", "calibrations/x.json", "store.json"),
    *("hostile/evaluated", "hostile/evaluated/*", "hostile/evaluated/*/*", "hostile/evaluated/*/evaluations/*/*"),
]
VALUES: list[Any] = [
    None, True, 0, -1, 1, 2**63, 2**70, 10**400, 0.5, 1e300, float("nan"), float("inf"), "", "x", "\0", "a\nb",
    "\x1b[2J", "\u202e", "\ud800", "../..", "/dev/zero", "0" * 64, "a" * 5000, [], {}, [[]], [None], [{}], {"": None},
    {"a": {"b": []}}, [0] * 1000,
]  # fmt: skip
TEXTS = [
    b"", b"\n", b"{", b"[]", b"{}", b"null", b"3", b'""', b"NaN", b"1e999", b"[" * 20_000, b"\xff\xfe", b"\0" * 999,
    b'{"a": 1, "a": 2}', b"9" * 5000, b"PK\x05\x06", b"PAR1PAR1",
]  # fmt: skip


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value below `value`."""
    items = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [one for key, inner in items for one in ((value, key), *places(inner))]


def other_value(draw: random.Random, path: Path) -> None:
    """Give one value of a JSON file, or of one line of it, another type, number or name."""
    lines = path.read_bytes().split(b"\n") if path.suffix == ".jsonl" else [path.read_bytes()]
    number = draw.randrange(len(lines))
    try:
        tree = json.loads(lines[number])
    except ValueError:
        path.write_bytes(draw.choice(TEXTS))
        return
    every = places(tree)
    if every and draw.random() < 0.9:
        target, key = draw.choice(every)
        kind = draw.random()
        if kind < 0.7:
            target[key] = draw.choice(VALUES)
        elif kind < 0.85 or isinstance(target, list):
            del target[key]
        else:
            target[draw.choice(("id", "x", "", "run", "state"))] = target.pop(key)
    else:
        tree = draw.choice(VALUES)
    lines[number] = json.dumps(tree).encode()
    path.write_bytes(b"\n".join(lines))


def flipped(draw: random.Random, path: Path) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 3, 30)) if content else 0):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def cut(draw: random.Random, path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content) + 1)])


def linked(draw: random.Random, path: Path) -> None:
    remove(path)
    path.symlink_to(draw.choice((path.name, "nowhere", "/", ".", "..", "/dev/zero", "/proc/self/mem")))


def in_its_place(make: Callable[[Path], object]) -> Callable[[random.Random, Path], object]:
    def change(_: random.Random, path: Path) -> None:
        remove(path)
        make(path)

    return change


def extra(draw: random.Random, path: Path) -> None:
    """A file that does not belong there, beside the path or in it."""
    folder = path if path.is_dir() else path.parent
    own = (f"{path.name}.bak", f"{path.name}.damaged-1", f".tmp-{path.name}-x", f"{path.name}~", "later", "again")
    name = draw.choice((*own, "claim-1.bak", ".DS_Store", "x\ny", "\u202e.json", "weights-.safetensors"))
    if os.path.lexists(folder / name):
        return
    if draw.random() < 0.7:
        (folder / name).write_bytes(draw.choice(TEXTS))
    else:
        (folder / name).mkdir()


ANY: list[tuple[str, Callable[[random.Random, Path], object]]] = [
    ("missing", lambda _, path: remove(path)),
    ("extra", extra),
    ("link", linked),
    ("no permission", lambda _, path: path.chmod(0)),
]
OF_FILE = [
    *ANY,
    ("empty", lambda _, path: path.write_bytes(b"")),
    ("cut", cut),
    ("flipped", flipped),
    ("other text", lambda draw, path: path.write_bytes(draw.choice(TEXTS))),
    *[("other value", other_value)] * 5,
    ("pipe", in_its_place(os.mkfifo)),
    ("folder", in_its_place(Path.mkdir)),
]
OF_FOLDER = [*ANY, ("file", in_its_place(Path.touch)), ("pipe", in_its_place(os.mkfifo))]


def mutate(draw: random.Random, root: Path) -> tuple[str, str, Path]:
    """Change one file or folder of the store; return what was done, its pattern, and the path."""
    first, *_ = (path for path in sorted((root / "runs").iterdir()) if len(path.name) == 64)
    below, patterns = (first, OF_RUN) if draw.random() < 0.7 else (root, OF_STORE)
    pattern = draw.choice(patterns)
    matches = [below] if pattern == "." else sorted(path for path in below.glob(pattern))
    if not matches:
        return "gone", pattern, below
    path = draw.choice(matches)
    if path.is_dir():
        name, how = draw.choice(OF_FOLDER)
    elif path.is_file():
        name, how = draw.choice(OF_FILE)
    else:
        return "mutated before", pattern, path
    how(draw, path)
    return name, pattern, path


def called(root: Path, *arguments: str) -> tuple[int, str]:
    """Exit code of a verb and what it printed, as its guard would end it."""
    where = () if arguments[:2] in (("board", "submit"), ("board", "site")) else ("--results", str(root))
    with ended_within(SECONDS):
        result = CliRunner().invoke(app, [*arguments, *where])
    output, code, error = result.output, result.exit_code, result.exception
    if error is not None and not isinstance(error, SystemExit):
        known = isinstance(error, UserError | OSError)
        code, message = explain(error) if known else (UNEXPECTED, "")
        if not known or "The traceback" in message:
            raise AssertionError(f"{arguments}: {error!r}") from error
        output += message
    assert code in CODES, f"{arguments}: exit code {code}"
    assert "Traceback" not in output, output
    return code, output


def whole(run: Path) -> dict[str, str]:
    """What nothing may change of a run that was left alone: all but claims, and what `gc --yes` frees."""
    return {
        str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(run.rglob("*"))
        if path.is_file() and not path.name.startswith(("checkpoint", "weights-0", ".tmp-"))
    }


@pytest.fixture(autouse=True)
def _no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


@pytest.fixture(scope="module")
def original(finished: Path) -> dict[str, str]:
    return whole(list(Store(finished).runs())[1].folder)


def verbs(draw: random.Random, root: Path, first: str, second: str) -> list[tuple[str, ...]]:
    """All verbs in some order; those that draw or train in a part of the examples."""
    suite = str(root.with_name("hostile.yaml"))
    light = [
        ("status", suite),
        ("compare", suite, "sogclr"),
        ("stats", "claims", suite),
        ("store", "pack", suite, "--out", str(root.with_name("packed.tar.xz"))),
        ("show", first),
        ("show", second),
        ("store", "gc"),
        ("store", "gc", "--yes"),
        ("store", "verify"),
        ("store", "verify", "--fix"),
        ("run", suite, "--dry-run"),
        ("stats", "power", suite),
        ("stats", "agreement", suite),
    ]
    if draw.random() < 0.3:
        light += [("board", "submit", str(root), suite, "--out", str(root.with_name("bundle.tar.xz")))]
        light += [("board", "site", str(root), "--out", str(root.with_name("site")))]
    if draw.random() < 0.3:
        light += [("inspect", "state", second, "log_u_image", "--count", "1")]
        light += [("noise", "audit", first), ("inspect", "embeddings", suite, "sogclr", "--count", "5")]
    if draw.random() < 0.15:
        light.append(("report", suite))
    if draw.random() < 0.3:
        light += [("export", first, str(root / "../one")), ("export", second, str(root / "../two"))]
    if draw.random() < 0.1:
        light.append(("run", suite))
    draw.shuffle(light)
    return light


def examine(draw: random.Random, root: Path, original: dict[str, str], counts: Counter[str]) -> None:
    first, second = (run.id for run in Store(root).runs())
    suite = str(root.with_name("hostile.yaml"))
    done = [mutate(draw, root) for _ in range(draw.choice((1, 1, 1, 2, 3)))]
    counts.update(f"{name} {pattern}" for name, pattern, _ in done if name not in ("gone", "mutated before"))
    print(done)
    of_run = all(path.is_relative_to(root / "runs" / first) for _, _, path in done)
    for arguments in verbs(draw, root, first, second):
        print(arguments)
        code, output = called(root, *arguments)
        assert whole(root / "runs" / second) == original, f"{arguments} changed the other run"
        if not of_run:
            continue
        if arguments[0] == "status":
            lines = [line for line in output.splitlines() if line.startswith(other_label(root, second))]
            assert any(" done " in line for line in lines), output
        elif arguments == ("show", second):
            assert code == 0
            assert "state: done" in output
        elif arguments[0] in ("compare", "report") or arguments[:2] in (("store", "gc"), ("store", "verify")):
            assert code in (0, 1), output
    for _ in range(2):  # a store.json of another format keeps all else from being looked at
        code, output = called(root, "store", "verify", "--fix")
    if of_run:
        assert code == 0, output
        code, output = called(root, "run", suite)
        assert code == 0, output
        code, output = called(root, "store", "verify")
        assert code == 0, output
        assert called(root, "status", suite)[1].count(" done ") == 2


def other_label(root: Path, identity: str) -> str:
    """The method of a run."""
    return str(json.loads((root / "runs" / identity / "settings.json").read_text())["method"])


@pytest.mark.promise("every verb survives a damaged store")
def test_every_verb_survives_a_mutated_store(finished: Path, tmp_path: Path, original: dict[str, str]) -> None:
    shutil.copy(finished.with_name("hostile.yaml"), tmp_path)
    counts: Counter[str] = Counter()
    for number in range(SEED * EXAMPLES, (SEED + 1) * EXAMPLES):
        draw = random.Random(number)
        root = Path(shutil.copytree(finished, tmp_path / "results"))
        print(f"example {number}")
        examine(draw, root, original, counts)
        for path in (root, *(tmp_path / name for name in ("one", "two", "other", "site"))):
            shutil.rmtree(path, ignore_errors=True)
    print(f"{sum(counts.values())} mutations: {dict(counts)}")
    assert counts


def test_a_mutated_store_is_imported_or_refused(finished: Path, tmp_path: Path) -> None:
    for number in range(SEED * EXAMPLES, (SEED + 1) * EXAMPLES):
        draw = random.Random(number)
        root = Path(shutil.copytree(finished, tmp_path / "results"))
        print(f"example {number}", [mutate(draw, root) for _ in range(draw.choice((1, 1, 2)))])
        called(tmp_path / "other", "store", "import", str(root))
        if (tmp_path / "other").is_dir():  # something was taken
            code, output = called(tmp_path / "other", "store", "verify")
            assert code == 0, output
        for path in (root, tmp_path / "other"):
            shutil.rmtree(path, ignore_errors=True)
