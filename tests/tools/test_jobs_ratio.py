"""tools/jobs_ratio.py measures both commands and compares what they stored."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).parents[2] / "tools" / "jobs_ratio.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("jobs_ratio", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["jobs_ratio"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_both_are_measured_in_turn_and_the_ratio_is_that_of_the_fastest(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    walls, suites = iter((8.0, 7.0, 10.0, 4.0)), []

    def run(suite: Path, jobs: str) -> object:
        suites.append((jobs, suite.read_text()))
        return tool.Taken(next(walls), 9.0, 0.25, {"records": b"[]"})

    monkeypatch.setattr(tool, "run", run)
    assert tool.main(["--runs", "3"]) == 0.5
    assert [jobs for jobs, _ in suites] == ["1", "auto", "1", "auto"]
    assert all("seeds: [0, 1, 2]" in text for _, text in suites)
    assert re.search(r"--jobs auto\s+4.0 s,\s+9.0 CPU s, others kept 0.2 cores busy", capsys.readouterr().out)


@pytest.mark.parametrize("others", [{"records": b"[1]"}, {}], ids=["other numbers", "nothing"])
def test_records_that_differ_are_no_measurement(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, others: dict[str, bytes]
) -> None:
    found = iter(({} if not others else {"records": b"[]"}, others))
    monkeypatch.setattr(tool, "run", lambda *_: tool.Taken(1.0, 1.0, None, next(found)))
    with pytest.raises(SystemExit, match="the records differ"):
        tool.main(["--rounds", "1"])


def test_a_command_is_measured_with_all_its_processes(tool: ModuleType, tmp_path: Path) -> None:
    suite = tmp_path / "tiny.yaml"
    suite.write_text(tool.SUITE.format(seeds="0", epochs=1).replace("{epochs: 1}", "{samples: 256}"))
    taken = tool.run(suite, "1")
    assert any(b"top1" in content for content in taken.records.values())
    assert taken.wall > 0
    assert taken.cpu > 1, "it imports torch"
    suite.write_text("name: tiny\n")
    with pytest.raises(subprocess.CalledProcessError):
        tool.run(suite, "1")
