"""The house as docs/design.md draws it: rooms, arrows, sizes. Read from the syntax trees, nothing is imported."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median

import pytest

import bench

ROOT = Path(bench.__file__).parents[1]
SOURCE = ("bench", "methods", "reports", "tools")
FLOORS = 13
LONGEST, TYPICAL = 350, 120  #: lines of a file


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


def sources(*folders: str) -> list[Path]:
    """Files of the project's own code; what is packed for users, such as the template of a test, is left out."""
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in paths if not {"shipped", "templates"} & {*path.parts})


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room(name: str) -> str:
    """A folder or a module of bench/; methods, reports and tools are one room each."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "bench" else parts[0]


def imports(path: Path, known: set[str]) -> Iterator[str]:
    """Modules of the project that a file imports anywhere: at its top, in functions, for type checking."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def modules() -> dict[str, set[str]]:
    """Module -> modules of the project that it imports, also inside functions and for type checking."""
    files = {module(path): path for path in sources(*SOURCE)}
    return {name: {one for one in imports(path, set(files)) if one in files} for name, path in files.items()}


def arrows() -> dict[str, set[str]]:
    """Room -> rooms that it imports; the public face bench/__init__.py is a room as well."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, others in modules().items():
        found[room(name)] |= {room(one) for one in others} - {room(name)}
    return found


def floors(found: dict[str, set[str]]) -> dict[str, int]:
    """Room -> 1 + the highest floor that it imports. Fails on a circle."""
    height: dict[str, int] = {}

    def climb(one: str, above: tuple[str, ...] = ()) -> int:
        assert one not in above, f"a circle of imports: {' -> '.join((*above, one))}"
        if one not in height:
            height[one] = 1 + max((climb(other, (*above, one)) for other in found.get(one, ())), default=0)
        return height[one]

    for one in list(found):
        climb(one)
    return height


def code_lines(path: Path) -> int:
    return sum(1 for line in path.read_text().splitlines() if line.strip() and not line.strip().startswith("#"))


def test_imports_run_one_way_over_few_floors() -> None:
    height = floors(arrows())
    assert max(height.values()) <= FLOORS, sorted(height.items(), key=lambda item: -item[1])


@pytest.mark.promise("no two modules import each other")
def test_no_two_modules_import_each_other() -> None:
    floors(modules())


def test_methods_know_nothing_of_the_runner_and_reports_nothing_of_training() -> None:
    found = arrows()
    assert found.get("methods", set()) == set()
    assert found["reports"] <= {"bench.store", "bench.catalogue", "bench.errors", "bench.resources", "bench.console"}
    for path in sources("reports"):
        assert not any(one.split(".")[0] == "torch" for one in imports(path, set())), path
    assert all(
        "reports" not in rooms for one, rooms in found.items() if one not in ("bench.cli", "bench.results", "tools")
    )


def test_files_stay_small() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in sources("bench", "methods", "reports")}
    assert max(lengths.values()) <= LONGEST, max(lengths.items(), key=lambda item: item[1])
    assert median(lengths.values()) <= TYPICAL


def test_there_is_nearly_as_much_test_as_code() -> None:
    tests = sum(map(code_lines, (ROOT / "tests").rglob("*.py")))
    assert tests >= 0.8 * sum(map(code_lines, sources("bench", "methods", "reports")))
