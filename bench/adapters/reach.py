"""Definitions that a method's results depend on: those that its class reaches within `methods/` or its own package.

From the adapter's class on, every name is followed to the module-level function, class or constant that it means, also
through imports. What is reached counts as a whole, with three exceptions:

- Of the classes of `methods/base.py` that an adapter inherits from, a member counts if the runner calls it
  (`INHERITED`), if reached code uses its name, or if it overrides a default of `Adapter`, and no class before it in
  the order of inheritance replaces it. So additions to that file which an adapter does not use leave its hash alone,
  the default of a later hook included; an adapter that sets such a hook itself is changed by that.
- `METADATA` of an adapter's class does not count: words about the method, and what a run's id holds already.
- `methods/protocol.py` does not count: it holds types and their defaults, which `TRAINING_VERSION` covers, as it does
  what the runner itself takes from `methods/base.py`. Nor do the words of an error that is raised.

Python can hide a use: names made from strings, `globals()`, `eval`, classes and decorators that register themselves.
A module that is passed on as a value counts whole. What a module does on import, beyond binding names, is refused.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.adapters import modules, registry, syntax
from bench.adapters.modules import Alias, Module
from bench.errors import UserError

PROTOCOL, BASE, ROOT = "methods.protocol", "methods.base", "Adapter"
#: Class attributes that cannot change a result, or that a run's id holds by another way (name, presets, reference).
METADATA = frozenset(
    {
        "name",
        "about",
        "presets",
        "space",
        "reference",
        "identities",
        "known_failures",
        "monitored",
        "needs",
        "needs_under",
    }
)
#: Hooks and attributes whose default in `Adapter` counts. Closed: the defaults of later ones must change no result.
INHERITED = frozenset(
    {
        "prepare",
        "phases",
        "cost",
        "options",
        "encode",
        "observe",
        "draw",
        "loss",
        "monitor",
        "diagnostics",
        "after_step",
        "end_epoch",
        "image_features",
        "text_features",
        "confidence",
        "whole_batch",
        "score",
    }
)
Class = tuple[Module, ast.ClassDef]


def source_hash(module: str, path: Path) -> str:
    """Return the sha256, 64 hex digits, of the definitions that a method's class reaches, alike on every Python.

    `module`: its name, `path`: its file. Nothing is imported. UserError for a file that is not Python, defines no
    method, imports `*` or runs code on import.
    """
    text = json.dumps(Reach(module, path).items, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def adapter_source_hash(method: str) -> str:
    """Return the `source_hash` of a method, kept as long as the adapter's own file has the same bytes."""
    location = registry.method_source(method)
    return _kept(location.module, location.path, location.path.read_bytes())


@functools.lru_cache(maxsize=256)
def _kept(module: str, path: Path, _source: bytes) -> str:
    return source_hash(module, path)


class Reach:
    """The definitions that a class reaches. `items`: name -> its syntax, for JSON."""

    def __init__(self, module: str, path: Path) -> None:
        self.items: dict[str, Any] = {}
        self._packages = {"methods", module.partition(".")[0]}
        self._words: set[str] = set()  #: attributes and names that reached code uses
        self._families: list[list[Class]] = []  #: adapters' classes in order of inheritance
        self._modules: dict[str, Module | None] = {}  #: those asked for, as they were at the first time
        top = self._module(module, path)
        self._family(self._inheritance(top, _adapter(top)))
        size = -1
        while size != len(self.items):
            size = len(self.items)
            for family in list(self._families):
                self._members(family)

    def _module(self, name: str, path: Path | None = None) -> Module | None:
        """Return a module whose source counts; None for other modules, and for a name that is not a module."""
        if name not in self._modules:
            above = self._modules.get(name.rpartition(".")[0])
            # `from a import b` asks for a.b as well, which is not a module if a is a file
            in_file = above is not None and above.path.name != "__init__.py"
            counts = name != PROTOCOL and name.partition(".")[0] in self._packages and not in_file
            place = path or (modules.source_file(name) if counts else None)
            self._modules[name] = None if place is None else modules.read_module(name, place)
        return self._modules[name]

    def _add(self, key: str, module: Module, nodes: Sequence[ast.AST]) -> None:
        """Note a definition and follow what it uses."""
        if key not in self.items:
            self.items[key] = [syntax.summarise(node).text for node in nodes]
            for node in nodes:
                self._uses(module, syntax.summarise(node))

    def _uses(self, module: Module, used: syntax.DefinitionSummary) -> None:
        self._words |= used.words
        for root, attributes in used.chains:
            if root in used.names:
                self._follow(module, root, attributes)
        for statement in used.imports:
            for _, alias in modules.import_aliases(module, statement):
                self._alias(alias, ())

    def _follow(self, module: Module, name: str, attributes: tuple[str, ...]) -> None:
        """Reach what a name with attributes means in a module; a built-in is not a binding."""
        for binding in module.bindings.get(name, ()):
            if isinstance(binding, Alias):
                self.items[f"{module.name}:{name}"] = ["import", binding.module, binding.name]
                self._alias(binding, attributes)
            elif isinstance(binding, ast.ClassDef):
                self._class((module, binding))
            else:
                statements = [one for one in module.bindings[name] if isinstance(one, ast.stmt)]
                self._add(f"{module.name}:{name}", module, statements)

    def _alias(self, alias: Alias, attributes: tuple[str, ...]) -> None:
        target = self._module(alias.module)
        if target is None:
            return
        words = attributes if alias.name is None else (alias.name, *attributes)
        if not words:
            self._whole(target)
        elif words[0] in target.bindings:
            self._follow(target, words[0], words[1:])
        elif self._module(f"{target.name}.{words[0]}") is not None or f"{target.name}.{words[0]}" == PROTOCOL:
            self._alias(Alias(f"{target.name}.{words[0]}", None), words[1:])
        else:
            self._whole(target)

    def _whole(self, module: Module) -> None:
        """Reach everything that a module binds."""
        for name in module.bindings:
            definitions = [one for one in module.bindings[name] if not isinstance(one, Alias)]
            if definitions and f"{module.name}:{name}" not in self.items:
                self._follow(module, name, ())

    def _class(self, cls: Class) -> None:
        """Reach a class: an adapter's member by member, any other as a whole."""
        if any(_key(cls) == _key(one) for family in self._families for one in family):
            return
        order = self._inheritance(*cls)
        if any(_key(one) == f"{BASE}:{ROOT}" for one in order):
            self._family(order)
        else:
            self._add(_key(cls), cls[0], [cls[1]])

    def _family(self, order: list[Class]) -> None:
        """Count an adapter's classes: bases, decorators and what their bodies do; members are counted later."""
        self._families.append(order)
        for place, (module, node) in enumerate(order):
            header = [*node.bases, *node.decorator_list, *(one.value for one in node.keywords)]
            self._add(f"{_key(order[place])}()", module, [*header, *filter(syntax.has_effect, node.body)])

    def _members(self, order: list[Class]) -> None:
        for place, (module, node) in enumerate(order):
            for name, lines in syntax.class_members(node).items():
                if name not in METADATA and self._counts(order, place, name):
                    self._add(f"{_key(order[place])}.{name}", module, lines)

    def _counts(self, order: list[Class], place: int, name: str) -> bool:
        """Return whether the runner or reached code can use this member of one of an adapter's classes."""
        module, node = order[place]
        if module.name != BASE:
            return True
        used = name in INHERITED or name in self._words or (name.startswith("__") and name.endswith("__"))
        if not used and node.name != ROOT:
            used = any(name in syntax.class_members(one[1]) for one in order if _key(one) == f"{BASE}:{ROOT}")
        above = frozenset({"super", node.name, *(one.name for _, one in order[:place])})
        for _, earlier in order[:place]:
            lines = syntax.class_members(earlier).get(name)
            if lines and not any(_passes_on(line, above) for line in lines):
                return False
        return used

    def _inheritance(self, module: Module | None, node: ast.ClassDef) -> list[Class]:
        """Return the class and its bases whose source counts, in the order of inheritance (a repeated one last)."""
        assert module is not None
        parents = [parent for base in node.bases if (parent := self._base(module, base)) is not None]
        above = {_key(one): one for parent in reversed(parents) for one in reversed(self._inheritance(*parent))}
        return [(module, node), *reversed(above.values())]

    def _base(self, module: Module, base: ast.expr) -> Class | None:
        """Return the class that a base means, or None if it comes from another package."""
        chain = next(syntax.attribute_chains(base.value if isinstance(base, ast.Subscript) else base), ("", ()))
        return self._meant(module, (chain[0], *chain[1]))

    def _meant(self, module: Module | None, words: tuple[str, ...]) -> Class | None:
        if module is None or not words:
            return None
        binding = next(iter(module.bindings.get(words[0], ())), None)
        if isinstance(binding, ast.ClassDef):
            return module, binding
        if isinstance(binding, Alias):
            rest = words[1:] if binding.name is None else (binding.name, *words[1:])
            return self._meant(self._module(binding.module), rest)
        return self._meant(self._module(f"{module.name}.{words[0]}"), words[1:]) if binding is None else None


def _adapter(module: Module | None) -> ast.ClassDef:
    """Return the class of a method: the one that has a `name = "..."`."""
    assert module is not None
    for bound in module.bindings.values():
        for node in bound:
            if isinstance(node, ast.ClassDef) and node.bases and "name" in syntax.class_members(node):
                return node
    raise UserError(f'{module.path}:1: defines no method: a class with a base and name = "..." (see {PROTOCOL})')


@functools.lru_cache(maxsize=8192)
def _passes_on(line: ast.stmt, words: frozenset[str]) -> bool:
    """Return whether a member may call the one that it replaces: by `super`, or by the name of a class."""
    return any(isinstance(node, ast.Name) and node.id in words for node in ast.walk(line))


def _key(cls: Class) -> str:
    return f"{cls[0].name}:{cls[1].name}"
