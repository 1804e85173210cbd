"""Python source as meaning: what a definition uses, binds and does, and what of it says nothing."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from bench.adapters import modules, syntax
from bench.errors import UserError


def meaning(source: str) -> str:
    """The statements of a file as they enter hashes."""
    return json.dumps(
        [syntax.plain_tree(one) for one in syntax.parse_meaning(source.encode(), "x.py").body], sort_keys=True
    )


def statement(source: str) -> ast.stmt:
    return ast.parse(source).body[0]


SAME = [
    ("def f(x, y=1): return x", 'def f(x: int, y: "str" = 1) -> int:\n    """Doc."""\n    return x'),
    ("x = 1", "x: int = 1  # a comment"),
    ("x = 'a'", 'x = u"a"'),
    ("x = (1 + 2)", "x = 1+2"),
    ("class A:\n    pass", 'class A:\n    """Doc."""\n    x: int'),
    ("def f():\n    raise E('one')", "def f():\n    raise E(f'two {1}')"),
    ("def f():\n    return 1", "def f():\n    if TYPE_CHECKING:\n        import torch\n    return 1"),
    ("if a:\n    x()", "if a:\n    'words'\n    x()\n    pass"),
    ("x = f'{a}b' f'c'", "x = f'{a}bc'"),
    ("async def f(): pass", "async def f() -> None:\n    'Doc.'"),
    ("x = 1", "x = 1\nif __name__ == '__main__':\n    f(x)"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_words_types_and_layout_say_nothing(one: str, other: str) -> None:
    assert meaning(one) == meaning(other)


OTHER = [
    ("x = 1", "x = 1.0"),
    ("x = 1", "x = True"),
    ("x = 'a'", "x = b'a'"),
    ("def f(a, b): pass", "def f(b, a): pass"),
    ("def f(a): pass", "def f(a=1): pass"),
    ("def f(): return 1", "def f(): yield 1"),
    ("def f(): pass", "async def f(): pass"),
    ("raise E('one')", "raise D('one')"),
    ("raise E(1)", "raise E(2)"),
    ("raise E('a', x)", "raise E('a', y)"),
    ("@dataclass\nclass A:\n    x: int", "@dataclass\nclass A:\n    x: float"),
    ("x = f'{a}'", "x = f'{a!r}'"),
    ("x = f'{a:2}'", "x = f'{a:3}'"),
    ("x = f'{a} b'", "x = f'{a}b'"),
    ("if TYPE_CHECKING:\n    pass\nelse:\n    x = 1", "if TYPE_CHECKING:\n    pass\nelse:\n    x = 2"),
    ("x = a if b else c", "x = c if b else a"),
    ("for i in x:\n    f()", "for i in x:\n    f()\nelse:\n    g()"),
    ("a < b", "a <= b"),
    ("del x", "del y"),
    ("x = lambda: 1", "x = lambda: 2"),
]


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_whatever_can_change_a_result_is_seen(one: str, other: str) -> None:
    assert meaning(one) != meaning(other)


def test_a_quoted_type_of_a_field_is_the_type() -> None:
    assert meaning("@dataclass\nclass A:\n    x: int") == meaning('@dataclass\nclass A:\n    x: "int"')


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f(x):\n    y = x + a\n    return y", {"a"}),
        ("def f():\n    def g():\n        return b\n    return g", {"b"}),
        ("x = [i for i in c if i]", {"c"}),
        ("class A(B):\n    y = d\n    def m(self):\n        return e(self)", {"B", "d", "e"}),
        ("def f(x=g): return x", {"g"}),
        ("@h\ndef f(): pass", {"h"}),
        ("x = lambda i: i + j", {"j"}),
        ("def f():\n    global k\n    k = 1\n    return k", {"k"}),
    ],
)
def test_free_names_are_those_that_no_scope_inside_binds(source: str, names: set[str]) -> None:
    assert syntax.free_names(statement(source)) - {"x", "f", "A", "super"} == names


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("x = y = 1", {"x", "y"}),
        ("(a, [b, *c]) = z", {"a", "b", "c"}),
        ("a.b.c = 1", {"a"}),
        ("a[0].b = 1", {"a"}),
        ("a += 1", {"a"}),
        ("import p.q, r as s", {"p", "s"}),
        ("from p import q as t, u", {"t", "u"}),
        ("def f():\n    inner = 1", {"f"}),
        ("class C:\n    inner = 1", {"C"}),
        ("for i in x:\n    j = i", {"i", "j"}),
        ("with a() as b:\n    c = b", {"b", "c"}),
        ("if a:\n    def g(): pass\nelse:\n    h = 1", {"g", "h"}),
        ("f(x)", set()),
    ],
)
def test_a_statement_binds_these_names(source: str, names: set[str]) -> None:
    assert syntax.bound_names(statement(source)) == names


@pytest.mark.parametrize(
    ("source", "does"),
    [
        ("x = f()", False),
        ("import a", False),
        ("f()", True),
        ("def f(): g()", False),
        ("@register\ndef f(): pass", False),
        ("if a:\n    x = 1\nelse:\n    f()", True),
        ("if a:\n    x = 1", False),
        ("try:\n    x = 1\nexcept E:\n    f()", True),
        ("try:\n    import x\nexcept ImportError:\n    x = None", False),
        ("for i in x:\n    y = i", False),
    ],
)
def test_a_statement_acts_if_it_calls_something_for_its_effect(source: str, does: bool) -> None:
    assert syntax.has_effect(statement(source)) is does


def test_chains_are_names_with_the_attributes_behind_them() -> None:
    chains = set(syntax.attribute_chains(statement("x = a.b.c(d.e) + f[g.h].i + k")))
    assert {("a", ("b", "c")), ("d", ("e",)), ("g", ("h",)), ("k", ())} <= chains
    assert ("f", ()) in chains, "an attribute of what is no name belongs to nobody"


def test_words_behind_dots_and_in_getattr_are_attributes() -> None:
    node = statement("x = a.b(getattr(c, 'd'), hasattr(e, 'f'), g('h'), getattr(c, i))")
    assert syntax.attribute_words(node) == {"b", "d", "f"}


def test_members_of_a_class_are_the_statements_that_bind_them() -> None:
    node = statement("class A:\n    x = 1\n    def f(self): pass\n    x = 2")
    assert isinstance(node, ast.ClassDef)
    members = syntax.class_members(node)
    assert {name: len(lines) for name, lines in members.items()} == {"x": 2, "f": 1}


def test_a_module_says_who_binds_what(tmp_path: Path) -> None:
    package = tmp_path / "pack"
    package.mkdir()
    file = package / "inner.py"
    file.write_text("import os.path\nfrom . import near\nfrom .near import thing as other\nA = 1\nA += 1\n")
    module = modules.read_module("pack.inner", file)
    assert module.package == "pack"
    assert module.bindings["os"] == [modules.Alias("os", None)]
    assert module.bindings["near"] == [modules.Alias("pack", "near")]
    assert module.bindings["other"] == [modules.Alias("pack.near", "thing")]
    assert len(module.bindings["A"]) == 2
    assert modules.read_module("pack", package / "inner.py").package == ""


def test_relative_imports_climb_from_the_package(tmp_path: Path) -> None:
    file = tmp_path / "__init__.py"
    file.write_text("from .. import up\nfrom ..up.more import x\nfrom . import own\n")
    module = modules.read_module("a.b.c", file)
    assert module.package == "a.b.c"
    places = {name: one for name, (one,) in module.bindings.items()}
    assert places == {
        "up": modules.Alias("a.b", "up"),
        "x": modules.Alias("a.b.up.more", "x"),
        "own": modules.Alias("a.b.c", "own"),
    }


def test_a_changed_file_is_read_again_and_a_broken_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("a = 1\n")
    assert set(modules.read_module("m", file).bindings) == {"a"}
    file.write_text("b = 1\n")
    assert set(modules.read_module("m", file).bindings) == {"b"}
    file.write_text("ok = 1\nb = = 1\n")
    with pytest.raises(UserError, match=r"m\.py:2: SyntaxError"):
        modules.read_module("m", file)


def test_files_of_modules_are_found_without_importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / "lonely_package" / "deep"
    deep.mkdir(parents=True)
    for file in (deep.parent / "__init__.py", deep / "__init__.py", deep / "leaf.py"):
        file.write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert modules.source_file("lonely_package.deep") == deep / "__init__.py"
    assert modules.source_file("lonely_package.deep.leaf") == deep / "leaf.py"
    assert modules.source_file("lonely_package.deep.none") is None
    assert modules.source_file("no_such_package_at_all") is None
