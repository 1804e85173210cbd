"""The documentation site's own part of Sphinx: pages made from the code, formulas as MathML, links into the checkout.

`docs/conf.py` loads it. Every build writes the pages to `docs/generated/`, which git ignores, and deletes those of
what is no longer there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from tools.handbook import commands, links, maths, methods, noise, rooms, tour

GENERATED = "generated"  #: below the folder of sources
_LINK = re.compile(r"(?<=\w)_(?![\w`])")  #: what reStructuredText takes for a link


def write_pages(app: Sphinx) -> None:
    """Write the generated pages and pictures. One that stays as it was keeps its time, and Sphinx does not read it."""
    pages: dict[str, str | bytes] = {**methods.pages(), **noise.pages(), **tour.pages()}
    pages |= {"commands.md": commands.page(), "rooms.md": rooms.page(), "readme.md": links.readme()}
    folder = Path(app.srcdir) / GENERATED
    for old in folder.rglob("*.*"):
        if old.relative_to(folder).as_posix() not in pages:
            old.unlink()
    for name, text in pages.items():
        path, content = folder / name, text.encode() if isinstance(text, str) else text
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_bytes() != content:
            path.write_bytes(content)


def show_as_written(_: Sphinx, kind: str, *rest: Any) -> None:
    """Show docstrings as they stand in the source: those of modules have drawings, and `side_` is no link."""
    lines: list[str] = rest[-1]
    if kind == "module":
        lines[:] = ["::", "", *(f"    {line}" for line in lines), ""]
    else:
        lines[:] = [_LINK.sub(r"\_", line) for line in lines]


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the parts; Sphinx calls it."""
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", show_as_written)
    maths.setup(app)
    links.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
