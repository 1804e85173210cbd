"""Finds methods: files of `methods/`, the entry-point group `bench.methods`, and `--plugin file.py`.

Names are read from source, so listing them imports neither an adapter nor torch.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import traceback
import typing
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bench.errors import UserError, nearest, one_line
from bench.reading import TEXT_BYTES, read_file

if TYPE_CHECKING:
    from methods.protocol import Method

ENTRY_POINT_GROUP = "bench.methods"
_SIDES = ("none", "reference", "ema")


@dataclasses.dataclass(frozen=True)
class MethodSource:
    """The origin of a method."""

    module: str
    path: Path
    plugin: bool = False

    @property
    def shipped(self) -> bool:
        """Return whether it is one of `methods/`, and not a user's file or an entry point."""
        return self.module.startswith("methods.")


_plugins: dict[str, MethodSource] = {}


def add_plugin(path: str | Path) -> str:
    """Make the method of a file known to this process; returns its name. UserError if the file has none."""
    file = Path(path)
    if not os.path.isfile(path):  # False for a name that no file can have
        raise UserError(f"--plugin {path}: no such file")
    name = _declared(file)
    if name is None:
        raise UserError(f'{file}:1: defines no method: a class with a base and name = "..." (see methods/protocol.py)')
    taken = _sources().get(name)
    if taken is not None and taken.path != file.resolve():
        raise UserError(f"{file}: the method name {name!r} is taken by {taken.path}; choose another")
    if taken is not None and not taken.plugin:
        return name  # a file of `methods/` itself
    _plugins[name] = MethodSource(f"bench_plugin_{file.stem}", file.resolve(), True)
    clear_caches()
    return name


def known_plugins() -> list[str]:
    """Return the files given to `add_plugin`, so that another process can add them."""
    return [str(place.path) for place in _plugins.values()]


def clear_caches() -> None:
    """Clear the caches, because files, entry points or plugins have changed."""
    for cached in (_shipped, _sources, find_method):
        cached.cache_clear()


def method_names() -> list[str]:
    """Return all method names, sorted. Does not import adapters."""
    return sorted(_sources())


def method_source(name: str) -> MethodSource:
    """Return the origin of a method. UserError with the nearest name for an unknown one."""
    known = _sources()
    if name not in known:
        raise UserError(unknown_method(name))
    return known[name]


def unknown_method(name: str) -> str:
    """Return the message about a name that no method has."""
    return f"{name!r} is not a method{nearest(name, method_names())} (one in a file of your own: --plugin FILE)"


@functools.cache
def _sources() -> dict[str, MethodSource]:
    sources: dict[str, MethodSource] = {}
    for name, place in [*_shipped(), *_entry_points(), *_plugins.items()]:
        if name in sources:
            raise UserError(f"the method name {name!r} is taken twice: by {sources[name].path} and {place.path}")
        sources[name] = place
    return sources


@functools.cache
def _shipped() -> list[tuple[str, MethodSource]]:
    package = importlib.util.find_spec("methods")
    assert package is not None
    assert package.submodule_search_locations is not None
    methods = []
    for folder in package.submodule_search_locations:
        for path in sorted(Path(folder).glob("*.py")):
            name = _declared(path)
            if name is None:
                continue  # a helper that adapters share
            if name != path.stem:
                raise UserError(f"{path}: the method's name {name!r} should be the file's name {path.stem!r}")
            methods.append((name, MethodSource(f"methods.{path.stem}", path)))
    return methods


def _entry_points() -> list[tuple[str, MethodSource]]:
    methods = []
    for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        try:
            spec = importlib.util.find_spec(point.module)
        except ImportError:
            spec = None
        if spec is None or not spec.origin:
            raise UserError(f"entry point {point.name!r} of {ENTRY_POINT_GROUP}: there is no module {point.module!r}")
        methods.append((point.name, MethodSource(point.module, Path(spec.origin))))
    return methods


def _declared(path: Path) -> str | None:
    """Read the `name` of the one class that has one from the source; None for a file without such a class."""
    try:
        tree = ast.parse(read_file(path, TEXT_BYTES), filename=str(path))
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno or 1}: SyntaxError: {error.msg}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError, MemoryError) as error:  # no text, or expressions that are nested too deeply
        raise UserError(f"{path}: cannot be read as Python: {one_line(error) or type(error).__name__}") from error
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.bases]
    declared = [(name, node) for node in classes if (name := _name_of(node)) is not None]
    if len(declared) > 1:
        raise UserError(f"{path}:{declared[1][1].lineno}: a second method; a file defines exactly one")
    return declared[0][0] if declared else None


def _name_of(node: ast.ClassDef) -> str | None:
    """Return the text that `name = ...` or `name: T = ...` in a class assigns; None for anything else."""
    for line in node.body:
        targets = [line.target] if isinstance(line, ast.AnnAssign) else getattr(line, "targets", [])
        if any(isinstance(target, ast.Name) and target.id == "name" for target in targets):
            value = getattr(line, "value", None)
            return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
    return None


@functools.cache
def find_method(name: str) -> type[Method]:
    """Return the class of a method. UserError for an unknown name, or with file and line for a broken adapter."""
    place = method_source(name)
    module = _import(place)
    classes = [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__]
    own = [kind for kind in classes if vars(kind).get("name") == name]
    if len(own) != 1:
        raise UserError(f'{place.path}: should define exactly one class with name = "{name}", not {len(own)}')
    method: type[Method] = own[0]
    _check(method, place.path)
    return method


def starting_method(name: str, given: str | None) -> str | None:
    """Return the method whose run a method starts from; None if it starts from fresh towers or from `given` weights."""
    method = find_method(name)
    return None if given and method.side != "reference" else method.reference


def _import(place: MethodSource) -> ModuleType:
    try:
        if not place.plugin:
            return importlib.import_module(place.module)
        spec = importlib.util.spec_from_file_location(place.module, place.path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[place.module] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UserError(f"{error.filename}:{error.lineno}: SyntaxError: {error.msg}") from error
    except Exception as error:  # whatever a user's file raises is a mistake in that file
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == str(place.path)), 1)
        fault = f"cannot be imported: {type(error).__name__}: {one_line(error)}"
        raise UserError(f"{place.path}:{line}: {fault}") from error
    return module


def _check(method: type[Method], path: Path) -> None:
    """Check the parts of a method that the harness reads before it makes an instance."""
    from methods import protocol

    missing = [part for part in ("about", "Config", "presets", "phases", "loss") if not hasattr(method, part)]
    if missing:
        raise UserError(f"{path}: class {method.__name__} lacks {', '.join(missing)} (see methods/protocol.py)")
    config: Any = method.Config
    if not dataclasses.is_dataclass(config) or not getattr(config, "__dataclass_params__").frozen:  # noqa: B009
        raise UserError(f"{path}: Config of {method.__name__} should be a frozen dataclass")
    fields = [field.name for field in dataclasses.fields(config)]
    for preset, values in method.presets.items():
        for key in values:
            if key not in fields:
                raise UserError(f"{path}: preset {preset!r}: {key!r} is not a field of Config{nearest(key, fields)}")
    if method.side not in _SIDES:
        raise UserError(f"{path}: side of {method.__name__} is {method.side!r}{nearest(method.side, _SIDES)}")
    if method.side == "reference" and method.reference is None:
        raise UserError(f'{path}: side = "reference" of {method.__name__} takes a reference = "METHOD"')
    start = method.reference
    if start is not None and not method.starts_from_reference and method.side != "reference":
        raise UserError(f"{path}: reference {start!r} of {method.__name__} is neither its start nor its side")
    for word in getattr(method, "needs", ()):
        if word not in typing.get_args(protocol.Need):
            known = nearest(word, typing.get_args(protocol.Need))
            raise UserError(f"{path}: needs of {method.__name__} holds {word!r}, which is not a need{known}")
    if start is not None and start not in _sources():
        raise UserError(f"{path}: reference {start!r} is not a method{nearest(start, method_names())}")
