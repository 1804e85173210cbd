"""Every verb ends with one line, whatever fails: a disk is full, a name too long, the output closed, the code wrong.

The verbs' errors are true ones, of the operating system. One process imports the command line and forks for each case.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer as Encoder
from tokenizers import models

import bench
from bench import reading
from bench.cli.guard import guard
from bench.errors import EXIT_UNFINISHED, UserError
from bench.machine.device_lock import InUse

ROOT = Path(bench.__file__).parents[1]
LONG = "a" * 300
#: reads cases as JSON lines, answers each with [exit code, stderr]
CHILD = """
import json, os, resource, sys
import bench.cli
import reports.build  # the heavy half of `report`, once for all cases

def stdout_of(kind):
    if kind == "pipe":  # whose reader has ended
        reader, writer = os.pipe()
        os.close(reader)
        return writer
    return os.open(kind, os.O_WRONLY | os.O_CREAT)

def case(stderr, argv, stdout, limits):
    os.dup2(stderr, 2)
    os.dup2(stdout_of(stdout), 1)
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, name), (value, value))
    sys.argv = ["bench", *argv]
    bench.cli.main()

for line in sys.stdin:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        case(writer, *json.loads(line))
    os.close(writer)
    with open(reader) as stderr:
        text = stderr.read()
    _, status = os.waitpid(child, 0)
    print(json.dumps([os.waitstatus_to_exitcode(status), text]), flush=True)
"""


class Caller:
    """`bench ...` in a fork of one process."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD], cwd=folder, env=environment, stdin=-1, stdout=-1, text=True
        )

    def __call__(self, *argv: str, stdout: str = os.devnull, **limits: int) -> tuple[int, str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([argv, stdout, limits]) + "\n")
        self.process.stdin.flush()
        code, stderr = json.loads(self.process.stdout.readline())
        return code, stderr


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("guard")
    (folder / "file").write_text("")
    caller = Caller(folder)
    yield caller
    caller.process.communicate()


@pytest.mark.promise("what a verb cannot write or find is one line")
@pytest.mark.parametrize(
    ("argv", "limits", "said"),
    [
        (["report", "ncu_cc3m", "--results", LONG], {}, f"{LONG}: the name is too long; choose one of at most 255"),
        (["report", "ncu_cc3m", "--results", "file/x"], {}, "a part of this path is a file where a folder should be"),
        (["report", "ncu_cc3m", "--results", "limit"], {"RLIMIT_FSIZE": 0}, "the file would be larger than allowed"),
        (["report", "ncu_cc3m", "--results", "open"], {"RLIMIT_NOFILE": 3}, "too many files are open; raise the limit"),
        (["status", LONG], {}, f"{LONG}: no such suite file, and no suite of that name"),
        (["status", "smoke", "--results", LONG], {}, "the name is too long"),
        (["show", "3f2a", "--results", LONG], {}, "the name is too long"),
        (["store", "gc", "--results", LONG], {}, "the name is too long"),
        (["store", "import", LONG], {}, LONG),
        (["board", "reference", LONG], {}, LONG),
        (["stats", "claims", "smoke", "--results", LONG], {}, "the name is too long"),
        (["compare", "smoke", "clip", "--results", LONG], {}, "the name is too long"),
        (["data", "index", "toy", "--out", "a\udce9.parquet"], {}, "'a\\udce9.parquet': is not UTF-8; rename the file"),
        (["methods", "--plugin", LONG], {}, f"--plugin {LONG}: no such file"),
        (["data", "index", LONG], {}, LONG),
        (["report", "ncu_cc3m", "--data", LONG], {}, "the name is too long"),
        (["new-method", "my_loss", "--folder", LONG], {}, "the name is too long"),
        (["new-method", "my_loss", "--folder", "file"], {}, "--folder file: is not a folder"),
        (["new-method", "my_loss", "--folder", "file/x"], {}, "cannot be written: Not a directory"),
        (["new-method", "a" * 101], {}, "a method's name has at most 100 characters"),
        (["new-method", "my_loss", "--folder", "small"], {"RLIMIT_FSIZE": 0}, "small: cannot be written: File too"),
        (["new-method", "my_loss", "--folder", "/sys/x"], {}, "/sys/x: cannot be written: "),
    ],
)  # fmt: skip
def test_what_a_verb_cannot_write_or_find_is_one_line(
    call: Caller, argv: list[str], limits: dict[str, int], said: str
) -> None:
    code, stderr = call(*argv, **limits)
    assert said in stderr
    assert (code, stderr.count("\n")) == (2, 1), stderr
    assert "traceback" not in stderr.lower()


def test_a_method_that_could_not_be_written_leaves_nothing(call: Caller, tmp_path: Path) -> None:
    code, _ = call("new-method", "my_loss", "--folder", str(tmp_path), RLIMIT_FSIZE=0)
    assert code == 2
    assert list(tmp_path.iterdir()) == []
    assert call("new-method", "my_loss", "--folder", str(tmp_path)) == (0, "")


@pytest.mark.parametrize("argv", [["stats", "published", "ncu/1"], ["--help"], ["run", "--help"]])
def test_output_that_nobody_reads_ends_quietly_and_a_full_one_says_so(call: Caller, argv: list[str]) -> None:
    assert call(*argv, stdout="pipe") == (141, "")
    code, stderr = call(*argv, stdout="/dev/full")
    assert code == 2
    assert (
        stderr.removeprefix("the output: ") == "the disk is full; free some space, then give the same command again\n"
    )


def test_a_closed_output_is_no_error() -> None:
    command = f"{sys.executable} -m bench stats published ncu/1 >&-"
    result = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def ended(capsys: pytest.CaptureFixture[str], error: BaseException) -> tuple[int | str | None, str]:
    """Exit code and stderr of a command that raises `error`."""
    with pytest.raises(SystemExit) as stop, guard():
        raise error
    return stop.value.code, capsys.readouterr().err


def test_expected_errors_keep_their_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(capsys, UserError("s.yaml:3: wrong", "s.yaml:4: too")) == (2, "s.yaml:3: wrong\ns.yaml:4: too\n")
    assert ended(capsys, InUse("busy")) == (EXIT_UNFINISHED, "busy\n")
    assert ended(capsys, SystemExit(7)) == (7, "")
    code, said = ended(capsys, KeyboardInterrupt())
    assert (code, said.count("\n")) == (130, 1)


def test_what_a_terminal_obeys_is_shown_as_an_escape(capsys: pytest.CaptureFixture[str]) -> None:
    _, said = ended(capsys, UserError("a\x1b[2J\x07b\u202ec\ud800", "next – ü"))
    assert said == "a\\x1b[2J\\x07b\\u202ec\\ud800\nnext – ü\n"


def test_errors_of_writing_name_the_file_that_was_open(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stop, guard():
        Path("/dev/full").write_text("x")
    assert stop.value.code == 2
    assert capsys.readouterr().err == "/dev/full: the disk is full; free some space, then give the same command again\n"
    assert ended(capsys, OSError(errno.EROFS, "x", str(tmp_path)))[1].startswith(f"{tmp_path}: is on a read-only file ")
    assert ended(capsys, OSError(errno.EACCES, "x", b"/a"))[1].startswith("/a: permission is denied; change")
    code, said = ended(capsys, UnicodeEncodeError("utf-8", "a\udce9", 1, 2, "surrogates not allowed"))
    assert (code, said) == (2, "'a\\udce9': is not UTF-8; rename the file or folder\n")
    for save in (lambda path: Encoder(models.BPE()).save(path), lambda path: save_file({"x": torch.zeros(9)}, path)):
        with pytest.raises(SystemExit) as stop, guard():
            save(str(tmp_path / "nowhere" / "x"))
        assert stop.value.code == 2
        assert capsys.readouterr().err.endswith(": there is no such file or folder; check the path\n")
    with pytest.raises(SystemExit), guard():
        reading.read_file(Path("/dev/null"), 9)
    assert capsys.readouterr().err == "/dev/null: it is a device, not a file; name another file\n"
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(SystemExit), guard():
        (loop / "x").resolve(strict=True)
    said = capsys.readouterr().err
    assert said.startswith(f"{loop}")
    assert said.endswith(": is a link that leads back to itself; remove it\n")


def test_memory_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    for allocate in (lambda: bytearray(2**62), lambda: torch.empty(2**58)):
        with pytest.raises(SystemExit) as stop, guard():
            allocate()
        assert stop.value.code == 2
        assert capsys.readouterr().err.startswith("out of memory (")


def test_the_traceback_of_the_unexpected_is_written_to_a_private_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code, said = ended(capsys, KeyError("two\nlines"))
    (file,) = tmp_path.iterdir()
    assert (code, said) == (
        1,
        f"unexpected KeyError: 'two\\nlines'. The traceback is in {file}; please report it with that file\n",
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert "Traceback (most recent call last)" in text
    assert "raise error" in text
    file.unlink()

    def deeper(depth: int) -> int:
        return 1 + deeper(depth + 1)

    with pytest.raises(SystemExit) as stop, guard():
        deeper(0)
    (file,) = tmp_path.iterdir()
    assert stop.value.code == 2
    assert str(file) in capsys.readouterr().err
    file.unlink()
    code, said = ended(capsys, ConnectionError("no route"))  # an OSError without a path
    (file,) = tmp_path.iterdir()
    assert (code, said) == (2, f"ConnectionError: no route. The traceback is in {file}\n")


def test_a_bug_beside_a_missing_file_is_no_bad_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bug = RuntimeError("a bug")
    bug.__context__ = FileNotFoundError(errno.ENOENT, "x", "gone")
    code, said = ended(capsys, bug)
    assert code == 1
    assert said.startswith("unexpected RuntimeError: a bug. The traceback is in ")


def test_a_traceback_that_cannot_be_written_is_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    code, said = ended(capsys, KeyError("x"))
    assert code == 1
    assert "Traceback (most recent call last)" in said
    assert said.splitlines()[-1].startswith("unexpected KeyError: 'x'. The traceback is above, because it could ")
