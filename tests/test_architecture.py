"""Nothing outside an adapter names a method: syntax trees of `bench/` and `reports/`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.adapters import registry

ROOT = Path(__file__).parents[1]
#: beside each adapter: values of its official code, and the file that `bench new-method` starts an adapter from
PARTS_OF_ADAPTERS = ("bench/checks/oracles/", "bench/adapters/templates/")
#: words that name a paper as well as a method, and the files where they name what the paper states
PAPERS = {"bayes", "cyclip", "ncu", "nuclr", "prolip"}
OF_PAPERS = {
    "bench/suite/settings.py": "evaluation protocols of papers",
    "bench/catalogue/augmentations.py": "augmentations of papers",
    "bench/catalogue/protocols.py": "evaluation protocols of papers",
}
ALLOWED = ("methods.protocol", "methods.base")


def files() -> list[Path]:
    found = [path for room in ("bench", "reports") for path in sorted((ROOT / room).rglob("*.py"))]
    return [path for path in found if not str(path.relative_to(ROOT)).startswith(PARTS_OF_ADAPTERS)]


def named(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Names of methods among the string constants; the default of a field `baseline` is a setting."""
    defaults = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "baseline"
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in registry.method_names() and id(node) not in defaults:
            yield node.lineno, str(node.value)


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Modules of `methods` that are imported, wherever the statement stands, but for those that anyone may."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            whole = node.module == "methods"  # then the names are modules
            modules = [f"methods.{alias.name}" for alias in node.names] if whole else [str(node.module)]
        else:
            continue
        for module in modules:
            if module.split(".")[0] == "methods" and module not in ALLOWED:
                yield node.lineno, module


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in files():
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


@pytest.mark.promise("nothing outside an adapter names or imports a method")
def test_no_code_outside_an_adapter_names_a_method() -> None:
    found = [
        f"{file}:{line}: {name!r}"
        for file, tree in trees()
        for line, name in named(tree)
        if not (file in OF_PAPERS and name in PAPERS)
    ]
    assert found == []


def test_no_code_outside_an_adapter_imports_one() -> None:
    assert [f"{file}:{line}: {module}" for file, tree in trees() for line, module in imported(tree)] == []


@pytest.mark.parametrize(
    ("source", "names", "modules"),
    [
        ('x = "clip"', ["clip"], []),
        ('"""clip"""', ["clip"], []),
        ('baseline: str = "clip"', [], []),
        ('other: str = "clip"', ["clip"], []),
        ("from methods.prolip import inclusion", [], ["methods.prolip"]),
        ("from methods import clip, base", [], ["methods.clip"]),
        ("def f():\n    import methods.ncu", [], ["methods.ncu"]),
        ("from methods.protocol import Method\nfrom methods.base import stream", [], []),
    ],
)
def test_the_scan_sees_names_and_imports(source: str, names: list[str], modules: list[str]) -> None:
    tree = ast.parse(source)
    assert [name for _, name in named(tree)] == names
    assert [module for _, module in imported(tree)] == modules
