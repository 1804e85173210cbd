"""Python source as meaning: syntax trees without docstrings, annotations and layout, written alike by every Python.

`ast.dump` prints a tree differently on 3.11, 3.12 and 3.13; `plain` does not. Imports the standard library alone.
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
_TYPED = frozenset({"NamedTuple", "TypedDict"})  #: bases that read the annotations of a class
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def parse(source: bytes, file: str) -> ast.Module:
    """Parse a file, leaving out docstrings, annotations other than those of dataclass fields, and type checking.

    Annotations stay in the body of a class that is decorated (a dataclass), a NamedTuple or a TypedDict.
    """
    return cast("ast.Module", _Strip().visit(ast.parse(source, filename=file)))


class _Strip(ast.NodeTransformer):
    """Removes what cannot change a result. `self._fields` says whether the annotations of the current body count."""

    _fields = False

    def _body(self, node: Any, fields: bool) -> Any:
        outer, self._fields = self._fields, fields
        self.generic_visit(node)
        self._fields = outer
        if not node.body:
            node.body = [ast.Pass()]
        return node

    def visit_FunctionDef(self, node: Any) -> Any:
        node.returns, node.type_params = None, []
        return self._body(node, fields=False)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        return self._body(node, fields=bool(node.decorator_list) or any(last_name(x) in _TYPED for x in node.bases))

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

    def visit_Raise(self, node: ast.Raise) -> Any:
        """Drop the words of an error: they are for people and change no result."""
        if isinstance(node.exc, ast.Call):
            node.exc.args = [x for x in node.exc.args if not isinstance(x, ast.JoinedStr) and not _is_text(x)]
        return self.generic_visit(node)

    def visit_Pass(self, node: ast.Pass) -> None:
        return None

    def visit_If(self, node: ast.If) -> Any:
        if last_name(node.test) == "TYPE_CHECKING":
            return [statement for line in node.orelse for statement in _as_list(self.visit(line))]
        return self._compound(node)

    def _compound(self, node: Any) -> Any:
        self.generic_visit(node)
        if not node.body:
            node.body = [ast.Pass()]
        return node

    visit_For = visit_AsyncFor = visit_While = visit_With = visit_AsyncWith = _compound
    visit_Try = visit_TryStar = visit_ExceptHandler = visit_match_case = _compound


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _as_list(visited: Any) -> list[Any]:
    return [] if visited is None else visited if isinstance(visited, list) else [visited]


def last_name(node: ast.expr) -> str:
    """Return the last word of `a.b.c`, `a.b.c(...)` or `a.b.c[...]`; "" for any other expression."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def plain(node: Any) -> Any:
    """Return a tree as lists, strings and null, for JSON: [type, [field, value], ...], without empty fields."""
    if isinstance(node, list):
        return [plain(one) for one in node]
    if isinstance(node, ast.Constant):
        return ["Constant", type(node.value).__name__, ascii(node.value)]
    if isinstance(node, ast.JoinedStr):
        return ["JoinedStr", _pieces(node)]
    if isinstance(node, ast.FormattedValue):
        spec = _pieces(node.format_spec) if isinstance(node.format_spec, ast.JoinedStr) else []
        return ["FormattedValue", plain(node.value), node.conversion, spec]
    if isinstance(node, ast.AST):
        fields = ((name, getattr(node, name, None)) for name in sorted(node._fields) if name not in _SILENT)
        return [type(node).__name__, *([name, plain(value)] for name, value in fields if value not in (None, []))]
    return node if node is None or isinstance(node, str) else ascii(node)


def _pieces(node: ast.JoinedStr) -> list[Any]:
    """Return the pieces of an f-string with adjacent texts joined, empty ones dropped: Python versions cut unalike."""
    pieces: list[Any] = []
    for piece in node.values:
        if not isinstance(piece, ast.Constant):
            pieces.append(plain(piece))
        elif pieces and isinstance(pieces[-1], str):
            pieces[-1] += str(piece.value)
        elif piece.value:
            pieces.append(str(piece.value))
    return pieces


@dataclass(frozen=True)
class Summary:
    """A definition, and the names that it uses."""

    text: Any  #: for JSON
    names: frozenset[str]  #: free in it
    words: frozenset[str]  #: free names and attributes
    chains: tuple[tuple[str, tuple[str, ...]], ...]  #: its names with the attributes that follow them
    imports: tuple[ast.Import | ast.ImportFrom, ...]  #: inside it


@functools.lru_cache(maxsize=8192)
def summary(node: ast.AST) -> Summary:
    """Summarise a definition; results are cached."""
    names = frozenset(free_names(node))
    inner = tuple(one for one in ast.walk(node) if isinstance(one, ast.Import | ast.ImportFrom))
    return Summary(plain(node), names, names | attributes(node), tuple(sorted(set(chains(node)))), inner)


@functools.lru_cache(maxsize=2048)
def members(node: ast.ClassDef) -> dict[str, list[ast.stmt]]:
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


def chains(node: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
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
            yield from chains(child)


def attributes(node: ast.AST) -> set[str]:
    """Return every word that follows a dot, or is a string in `getattr(x, "word")`."""
    words = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and last_name(call.func) in ("getattr", "hasattr", "setattr", "delattr"):
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


#: Decorators that change nothing but what they decorate.
_PURE = frozenset(
    {
        "abstractmethod",
        "cache",
        "cached_property",
        "classmethod",
        "contextmanager",
        "dataclass",
        "final",
        "inference_mode",
        "lru_cache",
        "no_grad",
        "overload",
        "override",
        "property",
        "runtime_checkable",
        "staticmethod",
        "total_ordering",
        "wraps",
    }
)


def acts(statement: ast.stmt) -> bool:
    """Return whether a statement does more than bind names: a call, an assertion, an unknown decorator."""
    if isinstance(statement, Definition):
        return any(last_name(decorator) not in _PURE for decorator in statement.decorator_list)
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Import | ast.ImportFrom | ast.Pass):
        return False
    parts = [one for name in ("body", "orelse", "finalbody") for one in getattr(statement, name, ())]
    parts += [one for name in ("handlers", "cases") for part in getattr(statement, name, ()) for one in part.body]
    return any(map(acts, parts)) if parts else type(statement).__name__ != "TypeAlias"
