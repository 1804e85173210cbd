"""`bench new-method`: writes a working adapter with a real loss, and its test, for the user to change."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
from pathlib import Path

from bench.adapters import registry
from bench.errors import UserError
from bench.settings_base import MAX_NAME_LETTERS

TEMPLATE = "my_loss"  #: the method in bench/adapters/templates
_FOLDER = Path(__file__).with_name("templates")


def write_new_method(name: str, folder: Path) -> list[Path]:
    """Write `name`.py and test_`name`.py below `folder`, which is created if needed; returns both paths.

    Raises UserError for a name that no method can have, and if one of the files exists: nothing is overwritten.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise UserError(f"{name!r}: a method's name is lower-case words with underscores between, as in my_loss")
    if len(name) > MAX_NAME_LETTERS:
        raise UserError(f"{name}: a method's name has at most {MAX_NAME_LETTERS} characters")
    if keyword.iskeyword(name):
        raise UserError(f"{name!r}: is a Python keyword; choose another name")
    files = {folder / f"{prefix}{name}.py": template_source(name, prefix) for prefix in ("", "test_")}
    for path in files:
        if path.exists():
            raise UserError(f"{path}: already exists; choose another name or --folder")
    if name in registry.method_names():
        raise UserError(f"{name!r}: there is a method of this name, {registry.method_source(name).path}")
    if importlib.util.find_spec(name) or importlib.util.find_spec(f"methods.{name}"):
        raise UserError(f"{name!r}: a Python module has this name, and one of the two would hide the other")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--folder {folder}: is not a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        for path in filter(os.path.isfile, files):  # none of them was there before
            path.unlink()
        raise UserError(f"{error.filename or folder}: cannot be written: {error.strerror}") from error
    return list(files)


def template_source(name: str, prefix: str = "") -> str:
    """Return the source of the template adapter under this name, or with the prefix "test_" that of its test."""
    text = (_FOLDER / f"{prefix}{TEMPLATE}.py").read_text(encoding="utf-8")
    words = name.split("_")
    named = {TEMPLATE: name, "MyLoss": "".join(map(str.capitalize, words)), "My loss": " ".join(words).capitalize()}
    for old, new in named.items():
        text = text.replace(old, new)
    return text
