"""tools/small_papers.py: every paper's suite in small, and what docs/papers.md lists is looked for in its report."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from bench.suite.suite import load_suite

ROOT = Path(__file__).parents[2]
SUITES = sorted({*re.findall(r"`suites/(\w+)\.yaml`", (ROOT / "docs" / "papers.md").read_text())})


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "tools")
        spec = importlib.util.spec_from_file_location("small_papers", ROOT / "tools" / "small_papers.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, "small_papers", module)  # dataclasses look their module up
        spec.loader.exec_module(module)
    return module


def raw(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "suites" / f"{name}.yaml").read_text()))


@pytest.mark.parametrize("name", SUITES)
def test_a_small_suite_keeps_rows_tasks_and_tables(tool: ModuleType, tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text(yaml.safe_dump(tool.small(raw(name))))
    small, whole = (load_suite(one, check_methods=False) for one in (path, ROOT / "suites" / f"{name}.yaml"))
    assert [row.label for row in small.methods] == [row.label for row in whole.methods]
    assert (small.tables, small.evaluate, small.noise) == (whole.tables, whole.evaluate, whole.noise)
    assert small.data.name == "emoji"
    assert small.description == f"{tool.SMALL_NOTE}: {whole.description}"
    assert {(one.image, one.text) for one in small.towers} == {("tiny-resnet", "tiny-transformer")}


@pytest.mark.parametrize(
    ("cells", "found"),
    [("17.7,12.5\n17.6,–", (1, 1)), ("17.7,missing\n17.6,3.0", (2, 1)), ("17.7,–", (0, 0)), ("17.7,8e-05", (1, 1))],
)
def test_places_of_ours_are_counted(tool: ModuleType, tmp_path: Path, cells: str, found: tuple[int, int]) -> None:
    table = tmp_path / "table.csv"
    table.write_text(f"Top1 paper,Top1 ours\n{cells}\n")
    assert tool.own_places(table) == found


def test_a_paper_in_small_has_its_table_and_figure(
    tool: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    start_bench: Callable[..., Any],
) -> None:
    def forked(place: Any, *words: object) -> str:
        code, output = start_bench(*words, env={"BENCH_DATA": str(place.data)}).finish()
        assert code == 0, output
        return str(output)

    monkeypatch.setattr(tool, "BUDGET", {"samples": 64})
    monkeypatch.setattr(tool.Folders, "bench", forked)
    assert tool.main([str(tmp_path), "bayes_priors_cc3m", "--jobs", "1"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"bayes_weighted_cl, Table 4 +bayes_priors_cc3m +filled +8 of 8 places filled", told)
    assert re.search(r"bayes_weighted_cl, Figure 3 +bayes_priors_cc3m +filled +diagnostics-01", told)
    (tmp_path / "results" / "bayes_priors_cc3m" / "tables" / "paper_bayes_weighted_cl_4.csv").unlink()
    (line,) = [one for one in tool.printed_items() if one.printed == "bayes_weighted_cl, Table 4"]
    assert tool.find_printed(tool.Folders(tmp_path, "1"), line, "bayes_priors_cc3m") == (False, "0 of 0 places filled")
