"""A method's hash follows the meaning of what its class reaches: no less, no more, and alike on every Python.

`python tests/adapters/test_source_hash.py` writes the golden hashes anew: for a change that shall change results.
"""

from __future__ import annotations

import ast
import functools
import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch

from bench.adapters import modules, reach, registry, syntax
from bench.adapters.reach import Reach, source_hash
from bench.checks.subject import Subject, all_moments, constants
from bench.checks.trainings import Training, train_alone
from bench.errors import UserError
from bench.store import RunStore
from methods.protocol import Cost, Phase

ROOT = Path(__file__).parents[2]
METHODS = ROOT / "methods"
GOLDEN = Path(__file__).with_name("source_hashes.json")
NAMES = [name for name in registry.method_names() if registry.method_source(name).module.startswith("methods.")]
SCRIPT = """
import json, sys
from pathlib import Path
from bench.adapters.reach import source_hash
names = json.loads(sys.argv[1])
print(json.dumps({name: source_hash(f"methods.{name}", Path(f"methods/{name}.py")) for name in names}))
"""


def hashes(folder: Path = METHODS) -> dict[str, str]:
    return {name: source_hash(f"methods.{name}", folder / f"{name}.py") for name in NAMES}


def interpreters() -> Iterator[str]:
    for minor in (11, 12, 13, 14):
        installed = shutil.which(f"python3.{minor}")
        own = sorted((Path.home() / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/python"))
        yield from [str(own[-1])] if own else [installed] if installed else []


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`methods/` in another place, where the hash looks for it: as Python writes the trees, without any words."""
    folder = tmp_path / "methods"
    folder.mkdir()
    for path in METHODS.glob("*.py"):
        (folder / path.name).write_text(ast.unparse(syntax.parse_meaning(path.read_bytes(), str(path))))

    places = {f"methods.{path.stem}".removesuffix(".__init__"): path for path in folder.glob("*.py")}
    monkeypatch.setattr(modules, "source_file", places.get)
    return folder


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Summaries of definitions by their trees: in a changed file all but one definition are as they were."""
    made: dict[str, syntax.DefinitionSummary] = {}
    summarise = syntax.summarise.__wrapped__

    @functools.lru_cache(maxsize=8192)
    def summary(node: ast.AST) -> syntax.DefinitionSummary:
        tree = ast.dump(node)
        if tree not in made:
            made[tree] = summarise(node)
        return made[tree]

    monkeypatch.setattr(syntax, "summarise", summary)


def test_the_shipped_adapters_have_the_stored_hashes() -> None:
    assert hashes() == json.loads(GOLDEN.read_text()), "a run's id changes: is that meant? then write the hashes anew"


@pytest.mark.parametrize("python", list(interpreters()))
def test_every_python_gives_the_same_hashes(python: str) -> None:
    command = [python, "-c", SCRIPT, json.dumps(NAMES)]
    process = subprocess.run(
        command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert json.loads(process.stdout) == json.loads(GOLDEN.read_text())


class _Reworded(ast.NodeTransformer):
    """Other docstrings, other annotations of functions, other words of errors."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        node.body.insert(0, ast.Expr(ast.Constant("Another docstring.")))
        node.returns = ast.parse("dict[str, Unknown]", mode="eval").body
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = ast.Constant("Any")
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        for call in [node.exc] if isinstance(node.exc, ast.Call) else []:
            call.args = [ast.Constant("other words") if isinstance(x, ast.JoinedStr) else x for x in call.args]
        return node


@pytest.mark.promise("words, comments, layout and annotations change no id")
def test_words_comments_layout_and_annotations_change_no_hash(copied: Path) -> None:
    assert hashes(copied) == hashes()  # the copy has no docstrings, no comments and another layout
    for path in METHODS.glob("*.py"):
        tree = ast.fix_missing_locations(_Reworded().visit(ast.parse(path.read_bytes())))
        (copied / path.name).write_text(f'"""Another file."""\n# a comment\n{ast.unparse(tree)}\n')
    assert "Another docstring." in (copied / "clip.py").read_text()
    assert hashes(copied) == hashes()


class _Changed(ast.NodeTransformer):
    """Changes the first constant, operator or attribute of a definition."""

    done = False

    def visit(self, node: ast.AST) -> Any:
        return node if self.done else super().visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value = node.value
        other = not value if isinstance(value, bool) else value + 1 if isinstance(value, int | float) else f"{value}!"
        return self._instead(ast.Constant(other))

    def visit_Add(self, _: ast.Add) -> ast.AST:
        return self._instead(ast.Sub())

    visit_Sub = visit_Mult = visit_Div = visit_Add

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self._instead(ast.Attribute(node.value, f"{node.attr}x", node.ctx))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._instead(ast.Name(f"{node.id}x", node.ctx)) if isinstance(node.ctx, ast.Load) else node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        return node if self.done else self._instead(ast.Return(ast.Constant(1)))

    def visit_Pass(self, node: ast.Pass) -> ast.AST:
        return self._instead(ast.Return(ast.Constant(1)))

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = [self.visit(line) for line in node.body]  # not its bases: then it would be another class
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [self.visit(line) for line in node.body]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.value = self.visit(node.value) if node.value else None
        return node

    def _instead(self, node: ast.AST) -> ast.AST:
        self.done = True
        return node


def lines_of(tree: ast.Module, words: list[str]) -> list[tuple[Any, int]]:
    """Where the statements stand that bind a name, or a name in a class: (body, position)."""
    body = tree.body
    for word in words[:-1]:
        body = next(one for one in body if isinstance(one, ast.ClassDef) and one.name == word).body
    return [(body, place) for place, line in enumerate(body) if words[-1] in syntax.bound_names(line)]


@pytest.mark.promise("a changed constant on the way of an adapter changes its ids")
@pytest.mark.usefixtures("remembered")
def test_a_change_of_any_reached_definition_changes_the_hash(copied: Path) -> None:
    """Of everything that a method reaches one constant, operator or attribute is changed in turn."""
    before = hashes(copied)
    reached: dict[str, set[str]] = {}
    for name in NAMES:
        items = Reach(f"methods.{name}", copied / f"{name}.py").items
        for key in items:
            if items[key][0] != "import" and not key.endswith("()"):
                reached.setdefault(key, set()).add(name)
    empty = []
    for key, names in sorted(reached.items()):
        module, _, definition = key.partition(":")
        path = copied / f"{module.removeprefix('methods.')}.py"
        text = path.read_text()
        tree = ast.parse(text)
        change = _Changed()
        for body, place in lines_of(tree, definition.split(".")):
            body[place] = change.visit(body[place])
        if not change.done:
            empty.append(key)
            continue
        path.write_text(ast.unparse(ast.fix_missing_locations(tree)))
        for name in names:
            assert source_hash(f"methods.{name}", copied / f"{name}.py") != before[name], f"{name} does not see {key}"
        path.write_text(text)
    assert len(reached) > 200
    assert not empty
    assert hashes(copied) == before


def executed(name: str, folder: Path) -> set[CodeType]:
    """Code of `methods/` that runs as a method of every variant trains, and is evaluated."""
    codes: set[CodeType] = set()
    ours = str(METHODS)

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ours) and code.co_flags & CO_OPTIMIZED and code not in codes:
            above: FrameType | None = frame
            outermost = frame
            while above is not None:
                outermost = above if above.f_code.co_filename.startswith(ours) else outermost
                above = above.f_back
            if "." in outermost.f_code.co_qualname:  # else the runner itself calls a function of methods/base.py
                codes.add(code)

    subject = Subject(name)
    sys.setprofile(note)
    try:
        settings: dict[str, Any] = {"towers": "vit", "precision": "fp32", "batch": 16}
        train_alone(Training(name, steps=4, rows=32, **settings), RunStore(folder / name))
        for number, (_, variant, method, z, when) in enumerate(itertools.islice(all_moments(subject), 40)):
            observed, drawn = constants(method, z, when)
            method.loss(z, drawn, slice(0, len(z["image"])))
            if number % 5 == 0:
                one = subject.instance(variant.config)
                method.diagnostics(z, observed)
                with torch.no_grad():
                    images = one.method.image_features(one.towers, one.rows().images)
                    one.method.confidence(images, one.method.text_features(one.towers, one.rows().tokens))
    finally:
        sys.setprofile(None)
    return codes


@pytest.mark.parametrize("name", NAMES)
def test_whatever_runs_is_reached(name: str, tmp_path: Path) -> None:
    items = Reach(f"methods.{name}", METHODS / f"{name}.py").items
    for code in executed(name, tmp_path):
        module = f"methods.{Path(code.co_filename).stem}"
        first, *rest = code.co_qualname.split(".")
        if module == reach.PROTOCOL:
            continue
        known = f"{module}:{first}" in items or (bool(rest) and f"{module}:{first}.{rest[0]}" in items)
        assert known, f"{module}:{code.co_qualname}"
        tree = modules.read_module(module, Path(code.co_filename))
        for word in code.co_names:
            if any(isinstance(one, ast.Assign) for one in tree.bindings.get(word, ())):
                assert f"{module}:{word}" in items, f"{code.co_qualname} of {module} reads {word}"


HOOK = "\n\nUNUSED = 3\n\n\ndef unused_function(x):\n    return x * UNUSED\n"


def with_default(path: Path, line: str, cls: str = "class Adapter(nn.Module):") -> None:
    text = path.read_text()
    assert cls in text
    path.write_text(text.replace(cls, f"{cls}\n    {line}", 1))


def test_what_an_adapter_does_not_use_changes_nothing(copied: Path) -> None:
    before = hashes(copied)
    for file in ("base.py", "protocol.py"):
        (copied / file).write_text((copied / file).read_text() + HOOK)
    with_default(copied / "base.py", "def later_hook(self, x):\n        return x * 2\n")
    with_default(copied / "base.py", "later_flag = ('pixels',)\n")
    with_default(copied / "base.py", "def another_view(self):\n        return 7\n", "class Contrastive(RowWise):")
    with_default(copied / "protocol.py", "side: int = 3", "class Cost:")
    (copied / "unrelated.py").write_text("X = 1\n")
    assert hashes(copied) == before


@pytest.mark.parametrize("line", ["later_flag = ('tokens',)", "def later_hook(self):\n        return 2", "SIZE = 4"])
def test_what_an_adapter_sets_itself_changes_it_alone(copied: Path, line: str) -> None:
    before = hashes(copied)
    with_default(copied / "siglip.py", line, "class Siglip(RowWise):")
    after = hashes(copied)
    assert {name for name in NAMES if after[name] != before[name]} == {"siglip"}


def test_a_class_of_base_that_sets_a_default_anew_changes_those_that_inherit_it(copied: Path) -> None:
    with_default(copied / "base.py", "later_flag = ()\n")
    before = hashes(copied)
    with_default(copied / "base.py", "later_flag = ('tokens',)\n", "class WholeBatch(Adapter):")
    after = hashes(copied)
    assert {name for name in NAMES if after[name] != before[name]} == {"gsc", "l2rm", "ncu", "ncu_ablation", "otter"}


@pytest.mark.parametrize("name", sorted(reach.METADATA))
def test_words_about_a_method_change_nothing(copied: Path, name: str) -> None:
    before = source_hash("methods.clip", copied / "clip.py")
    with_default(copied / "clip.py", f"{name} = 'other'", "class Clip(Contrastive):")
    assert source_hash("methods.clip", copied / "clip.py") == before


def test_the_values_of_the_protocol_are_those_of_this_training_version() -> None:
    """They are outside the hash: whoever changes one raises TRAINING_VERSION, and writes the new value here."""
    phase = Phase()
    assert (Cost().image, Cost().text) == (1.0, 1.0)
    assert (phase.name, phase.share, phase.lr_scale, phase.trainable("towers.visual.x")) == ("train", 1.0, 1.0, True)


PLUGIN = """
from __future__ import annotations
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
import ownpkg.deep as deep
from .parts import helper
from . import tables
if TYPE_CHECKING:
    from ownpkg import types_only

@dataclass(frozen=True)
class Config:
    size: int = 1

class Mine(helper.Base):
    name = "mine"
    Config = Config

    def loss(self, z, observed, anchors) -> types_only.X:
        from ownpkg import late
        text = f"{math.pi:.3f} {self.size!r}"
        return deep.f(z) + tables.TABLE["a"] + late.g() + sum(unused for unused in [])
"""
FILES = {
    "__init__.py": "",
    "adapter.py": PLUGIN,
    "deep.py": "X = 1\ndef f(z):\n    return z + X + same(z)\nfrom .deeper import same\ndef unused():\n    return 1\n",
    "deeper.py": "def same(z):\n    return z * 2\n",
    "late.py": "def g():\n    return 5\n",
    "tables.py": "TABLE = {}\nTABLE['a'] = 1\nOTHER = 2\n",
    "types_only.py": "X = 1\n",
    "parts/__init__.py": "",
    "parts/helper.py": "from methods.base import RowWise\nclass Base(RowWise):\n    def more(_):\n        return 1\n",
    "unused.py": "X = 1\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], bool]:
    """Write an adapter's own package; the function says whether a replacement in one of its files changes the hash."""
    folder = tmp_path / "ownpkg"
    (folder / "parts").mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    def changes(file: str, old: str, new: str) -> bool:
        path = folder / "adapter.py"
        before = source_hash("ownpkg.adapter", path)
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new, 1))
        return source_hash("ownpkg.adapter", path) != before

    return changes


@pytest.mark.parametrize(
    ("file", "old", "new", "matters"),
    [
        ("adapter.py", "size: int = 1", "size: float = 1", True),  # the type of a field of Config
        ("adapter.py", "size: int = 1", "size: int = 2", True),
        ("adapter.py", "types_only.X", "types_only.Y", False),
        ("adapter.py", ".3f", ".4f", True),
        ("adapter.py", "!r", "!s", True),
        ("adapter.py", "deep.f", "deep.unused", True),
        ("deep.py", "X = 1", "X = 2", True),
        ("deep.py", "X = 1", "X = 1  # one", False),
        ("deep.py", "X = 1", "X = 1.0", True),
        ("deep.py", "    return 1", "    return 2", False),
        ("deep.py", "def unused", "@register\ndef unused", False),
        ("deep.py", "X = 1\n", "X = 1\nif __name__ == '__main__':\n    print(X)\n", False),
        ("deeper.py", "* 2", "* 3", True),
        ("late.py", "5", "6", True),
        ("tables.py", "= 1", "= 2", True),
        ("tables.py", "OTHER = 2", "OTHER = 3", False),
        ("parts/helper.py", "return 1", "return 2", True),
        ("parts/__init__.py", "", "X = 1", False),
        ("types_only.py", "1", "2", False),
        ("unused.py", "1", "2", False),
    ],
)
def test_a_change_in_a_package_counts_if_the_class_reaches_it(
    package: Callable[[str, str, str], bool], file: str, old: str, new: str, matters: bool
) -> None:
    assert package(file, old, new) == matters


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "adapter.py",
            "from . import tables",
            "from ownpkg.deep import *",
            r"adapter\.py:8: imports \*; import its names",
        ),
        ("deep.py", "X = 1\n", "X = 1\nprint(X)\n", r"deep\.py:2: runs code on import"),
        ("deep.py", "X = 1\n", "if True:\n    print(1)\n", r"deep\.py:1: runs code on import"),
        ("parts/__init__.py", "", "import sys\nsys.path.append('x')", r"__init__\.py:2: runs code on import"),
    ],
)
def test_what_an_id_cannot_follow_is_refused(
    package: Callable[[str, str, str], bool], file: str, old: str, new: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        package(file, old, new)


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(hashes(), indent=1) + "\n")
