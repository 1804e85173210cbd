"""Folders of suites and published numbers: in the checkout, or inside the installed package."""

from __future__ import annotations

import os
from pathlib import Path

from bench.errors import UserError, nearest

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent


def suites_folder() -> Path:
    """The folder of the suites that come with the harness."""
    return _folder(_CHECKOUT / "suites", _PACKAGE / "shipped" / "suites")


def published_folder() -> Path:
    """The folder of the papers' numbers."""
    return _folder(_CHECKOUT / "results" / "published", _PACKAGE / "shipped" / "published")


def _folder(checkout: Path, shipped: Path) -> Path:
    """The checkout's own folder where there is a checkout (its pyproject says so), else the one in the wheel."""
    return checkout if (_CHECKOUT / "pyproject.toml").is_file() else shipped


def suite_names() -> list[str]:
    """Names that can be given instead of a path."""
    return sorted(path.stem for path in suites_folder().glob("*.yaml"))


def is_suite(suite: str) -> bool:
    """Return whether this is the path or the name of a suite."""
    return os.path.isfile(suite) or suite in suite_names()


def suite_path(suite: str) -> Path:
    """The file of a suite given by path or by name; UserError where there is neither."""
    path = Path(suite)
    if os.path.isfile(path):  # False, as `Path.is_file` is not, for a name that no file can have
        return path
    if os.path.isdir(path):
        raise UserError(f"{suite}: is a folder; name the YAML file of a suite")
    if suite in suite_names():
        return suites_folder() / f"{suite}.yaml"
    raise UserError(f"{suite}: no such suite file, and no suite of that name{nearest(path.stem, suite_names())}")
