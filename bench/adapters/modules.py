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
    """A module's bindings by name."""

    name: str
    path: Path
    bindings: dict[str, list[Binding]] = field(default_factory=dict)

    @property
    def package(self) -> str:
        """The package that its relative imports start from."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


def read_module(name: str, path: Path) -> Module:
    """Read a module from its file, cached by its bytes.

    UserError for a file that is not Python, imports `*`, or does more than bind names as it is imported: an id could
    not follow that.
    """
    return _read(name, path, path.read_bytes())


@functools.lru_cache(maxsize=256)
def _read(name: str, path: Path, source: bytes) -> Module:
    try:
        tree = syntax.parse_meaning(source, str(path))
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno}: SyntaxError: {error.msg}") from error
    module = Module(name, path)
    for statement in tree.body:
        if syntax.has_effect(statement):
            raise UserError(f"{path}:{statement.lineno}: runs code on import, which no run's id could follow")
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for bound, alias in import_aliases(module, statement):
                if bound == "*":
                    raise UserError(f"{path}:{statement.lineno}: imports *; import its names, so that ids can follow")
                module.bindings.setdefault(bound, []).append(alias)
        else:
            for bound in sorted(syntax.bound_names(statement)):
                module.bindings.setdefault(bound, []).append(statement)
    return module


def import_aliases(module: Module, statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Alias]]:
    """Yield the names that an import binds, with what they mean."""
    for alias in statement.names:
        if isinstance(statement, ast.ImportFrom):
            yield alias.asname or alias.name, Alias(_base(module, statement), alias.name)
        elif alias.asname:
            yield alias.asname, Alias(alias.name, None)
        else:
            top = alias.name.partition(".")[0]
            yield top, Alias(top, None)


def _base(module: Module, statement: ast.ImportFrom) -> str:
    if not statement.level:
        return statement.module or ""
    parts = module.package.split(".")
    return ".".join([*parts[: len(parts) - statement.level + 1], *([statement.module] if statement.module else [])])


def source_file(module: str) -> Path | None:
    """Return the source file of a module without importing anything, or None if there is no such module."""
    top, *inner = module.split(".")
    spec = importlib.util.find_spec(top)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        place = Path(folder).joinpath(*inner)
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                return file
    return None
