"""Reads modules of `methods/` or of a plug-in's package from their files, to see who binds which name. Imports none."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.adapters import syntax
from bench.errors import UserError


@dataclass(frozen=True)
class Alias:
    """The object that an import binds: a module (`name` is None), or a name of a module."""

    module: str
    name: str | None


Binding = Alias | ast.stmt


@dataclass(frozen=True)
class Module:
    """A module's bindings by name, its statements with side effects, and the modules that importing it imports."""

    name: str
    path: Path
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    actions: list[ast.stmt] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)

    @property
    def package(self) -> str:
        """The package that its relative imports start from."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


def read(name: str, path: Path) -> Module:
    """Read a module from its file, cached by its bytes. UserError for a file that is not Python."""
    return _read(name, path, path.read_bytes())


@functools.lru_cache(maxsize=256)
def _read(name: str, path: Path, source: bytes) -> Module:
    try:
        tree = syntax.parse(source, str(path))
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno}: SyntaxError: {error.msg}") from error
    module = Module(name, path)
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for bound, alias in aliases(module, statement):
                module.bindings.setdefault(bound, []).append(alias)
        else:
            for bound in sorted(syntax.bound_names(statement)):
                module.bindings.setdefault(bound, []).append(statement)
        if syntax.acts(statement):
            module.actions.append(statement)
        if not isinstance(statement, syntax.Definition):
            module.imports.extend(imported(module, statement))
    return module


def aliases(module: Module, statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Alias]]:
    """Yield the names that an import binds. `*` is bound as a name of its own."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            top = alias.name.partition(".")[0]
            yield (alias.asname, Alias(alias.name, None)) if alias.asname else (top, Alias(top, None))
    else:
        for alias in statement.names:
            yield alias.asname or alias.name, Alias(_base(module, statement), alias.name)


def loaded(module: Module, statement: ast.Import | ast.ImportFrom) -> list[Alias]:
    """Return the objects that an import inside a function may bind: whole modules, or names of one."""
    if isinstance(statement, ast.Import):
        return [Alias(alias.name, None) for alias in statement.names]
    return [alias for _, alias in aliases(module, statement)]


def imported(module: Module, node: ast.AST) -> list[str]:
    """Return absolute names of the modules that a statement may import: `from a import b` gives both a and a.b."""
    names: list[str] = []
    for one in ast.walk(node):
        if isinstance(one, ast.Import):
            names += [alias.name for alias in one.names]
        elif isinstance(one, ast.ImportFrom):
            base = _base(module, one)
            names += [base, *(f"{base}.{alias.name}" for alias in one.names)]
    return names


def _base(module: Module, statement: ast.ImportFrom) -> str:
    if not statement.level:
        return statement.module or ""
    parts = module.package.split(".")
    return ".".join([*parts[: len(parts) - statement.level + 1], *([statement.module] if statement.module else [])])


def file_of(module: str) -> Path | None:
    """Return the source file of a module without importing anything, or None if there is no such module."""
    top, *inner = module.split(".")
    spec = importlib.util.find_spec(top)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        place = Path(folder).joinpath(*inner)
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                return file
    return None
