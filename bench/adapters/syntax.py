"""Python source as meaning: syntax trees without docstrings, annotations and layout, written alike by every Python.

`ast.dump` prints a tree differently on 3.11, 3.12 and 3.13; `plain_tree` does not. Imports the standard library alone.
"""

from __future__ import annotations

import ast
import functools
import symtable
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

#: Fields that do not affect what the code does: context of names, type comments, PEP 695 parameters, u"" prefixes.
_SILENT = frozenset({"ctx", "type_comment", "type_ignores", "type_params", "kind"})
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def parse_meaning(source: bytes, file: str) -> ast.Module:
    """Parse a file without docstrings, type checking, and annotations outside of decorated classes (dataclasses)."""
    return cast("ast.Module", _Strip().visit(ast.parse(source, filename=file)))


class _Strip(ast.NodeTransformer):
    """Removes what cannot change a result. `self._fields` says whether the annotations of the current body count."""

    _fields = False

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if getattr(node, "body", None) == [] and not isinstance(node, ast.Module):
            node.body = [ast.Pass()]  # type: ignore[attr-defined]
        return node

    def _body(self, node: Any, fields: bool) -> Any:
        outer, self._fields = self._fields, fields
        self.generic_visit(node)
        self._fields = outer
        return node

    def visit_FunctionDef(self, node: Any) -> Any:
        node.returns, node.type_params = None, []
        return self._body(node, fields=False)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        return self._body(node, fields=bool(node.decorator_list))

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if self._fields:
            if _is_text(node.annotation):
                node.annotation = ast.parse(ast.literal_eval(node.annotation), mode="eval").body
            return node
        if node.value is None:
            return None
        return self.generic_visit(ast.Assign(targets=[node.target], value=node.value, lineno=node.lineno))

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """Drop the words of an error: they are for people and change no result."""
        if isinstance(node.exc, ast.Call):
            node.exc.args = [x for x in node.exc.args if not isinstance(x, ast.JoinedStr) and not _is_text(x)]
        return self.generic_visit(node)

    def visit_Pass(self, node: ast.Pass) -> None:
        return None

    def visit_If(self, node: ast.If) -> Any:
        """Drop type checking, and what a file does as a script."""
        if last_name(node.test) == "TYPE_CHECKING" or ast.unparse(node.test) == "__name__ == '__main__'":
            kept = (self.visit(line) for line in node.orelse)
            return [one for visited in kept for one in (visited if isinstance(visited, list) else [visited]) if one]
        return self.generic_visit(node)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def last_name(node: ast.expr) -> str:
    """Return the last word of `a.b.c`, `a.b.c(...)` or `a.b.c[...]`; "" for any other expression."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def plain_tree(node: Any) -> Any:
    """Return a tree as lists, strings and null, for JSON: [type, [field, value], ...], without empty fields."""
    if isinstance(node, list):
        return [plain_tree(one) for one in node]
    if isinstance(node, ast.Constant):
        return ["Constant", type(node.value).__name__, ascii(node.value)]
    if isinstance(node, ast.JoinedStr):
        return ["JoinedStr", _pieces(node)]
    if isinstance(node, ast.FormattedValue):
        spec = _pieces(node.format_spec) if isinstance(node.format_spec, ast.JoinedStr) else []
        return ["FormattedValue", plain_tree(node.value), node.conversion, spec]
    if isinstance(node, ast.AST):
        fields = ((name, getattr(node, name, None)) for name in sorted(node._fields) if name not in _SILENT)
        return [type(node).__name__, *([name, plain_tree(value)] for name, value in fields if value not in (None, []))]
    return node if node is None or isinstance(node, str) else ascii(node)


def _pieces(node: ast.JoinedStr) -> list[Any]:
    """Return the pieces of an f-string with adjacent texts joined, empty ones dropped: Python versions cut unalike."""
    pieces: list[Any] = []
    for piece in node.values:
        if not isinstance(piece, ast.Constant):
            pieces.append(plain_tree(piece))
        elif pieces and isinstance(pieces[-1], str):
            pieces[-1] += str(piece.value)
        elif piece.value:
            pieces.append(str(piece.value))
    return pieces


@dataclass(frozen=True)
class DefinitionSummary:
    """A definition, and the names that it uses."""

    text: Any  #: syntax tree, for JSON
    names: frozenset[str]  #: free in it
    words: frozenset[str]  #: free names and attributes
    chains: tuple[tuple[str, tuple[str, ...]], ...]  #: its names with the attributes that follow them
    imports: tuple[ast.Import | ast.ImportFrom, ...]  #: inside it


@functools.lru_cache(maxsize=8192)
def summarise(node: ast.AST) -> DefinitionSummary:
    """Summarise a definition; results are cached."""
    names = frozenset(free_names(node))
    chains = tuple(sorted(set(attribute_chains(node))))
    imports = tuple(one for one in ast.walk(node) if isinstance(one, ast.Import | ast.ImportFrom))
    return DefinitionSummary(plain_tree(node), names, names | attribute_words(node), chains, imports)


@functools.lru_cache(maxsize=2048)
def class_members(node: ast.ClassDef) -> dict[str, list[ast.stmt]]:
    """Return the statements of a class's body by the names that they bind."""
    statements: dict[str, list[ast.stmt]] = {}
    for line in node.body:
        for name in sorted(bound_names(line)):
            statements.setdefault(name, []).append(line)
    return statements


def free_names(node: ast.AST) -> set[str]:
    """Return names that a statement reads from its module or the built-ins: those that no scope inside it binds."""
    names: set[str] = set()
    waiting = [symtable.symtable(ast.unparse(node), "<definition>", "exec")]
    while waiting:
        table = waiting.pop()
        outermost = table.get_type() == "module"
        used = (one for one in table.get_symbols() if (one.is_referenced() if outermost else one.is_global()))
        names |= {one.get_name() for one in used}
        waiting += table.get_children()
    return names


def attribute_chains(node: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every name with the attributes that follow it: `a.b.c` gives ("a", ("b", "c")), `a` gives ("a", ())."""
    attributes: list[str] = []
    inner: ast.AST = node
    while isinstance(inner, ast.Attribute):
        attributes.insert(0, inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name):
        yield inner.id, tuple(attributes)
    else:
        for child in ast.iter_child_nodes(inner):
            yield from attribute_chains(child)


def attribute_words(node: ast.AST) -> set[str]:
    """Return every word that follows a dot, or is a string in `getattr(x, "word")`."""
    words = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and last_name(call.func) in ("getattr", "hasattr"):
            words |= {str(one.value) for one in call.args[1:2] if isinstance(one, ast.Constant)}
    return words


def bound_names(statement: ast.stmt) -> set[str]:
    """Return names that a statement binds or changes in place (`X = ...`, `X[...] = ...`, `X.y = ...`, def, import)."""
    if isinstance(statement, Definition):
        return {statement.name}
    names: set[str] = set()
    for node in _walk(statement):
        if isinstance(node, Definition):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            inner: ast.expr = node
            while isinstance(inner, ast.Attribute | ast.Subscript):
                inner = inner.value
            names |= {inner.id} if isinstance(inner, ast.Name) else set()
    return names


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Walk as `ast.walk` does, but not into functions and classes."""
    yield node
    if not isinstance(node, Definition | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _walk(child)


def has_effect(statement: ast.stmt) -> bool:
    """Return whether a statement of a module calls something for its effect alone."""
    return any(isinstance(node, ast.Expr) for node in _walk(statement))
