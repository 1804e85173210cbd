"""Links from a page to files of the checkout that are no pages: source files, licences, committed comparisons.

They are written `checkout:PATH`, or as a relative path that leaves the folder of sources. Nothing is copied: a page
links to the file in the checkout, or below `checkout_url` where a site is built to be published.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform

import bench

ROOT = Path(bench.__file__).resolve().parents[1]
SCHEME = "checkout:"
_SHOWN = {"docs/tour.ipynb": "generated/tour.md"}  #: files of the checkout that have a page of their own
_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s]+)")


def readme() -> str:
    """Return README.md with its links as a page in `docs/` has them."""

    def link(match: re.Match[str]) -> str:
        path = match.group()
        if path in _SHOWN:
            return _SHOWN[path]
        return path.removeprefix("docs/") if path.startswith("docs/") else f"{SCHEME}{path}"

    return _LINK.sub(link, (ROOT / "README.md").read_text(encoding="utf-8"))


class LeaveTheSources(SphinxTransform):  # type: ignore[misc]  # mypy does not follow Sphinx
    """Turn what MyST takes for a download of a file beyond the sources into a link to that file."""

    default_priority = 500

    def apply(self, **_: object) -> None:
        """Change the page's tree in place."""
        for node in list(self.document.findall(addnodes.download_reference)):
            path = (Path(self.env.doc2path(self.env.docname)).parent / node["reftarget"]).resolve()
            if path.is_relative_to(ROOT):
                link = nodes.reference("", "", refuri=f"{SCHEME}{path.relative_to(ROOT).as_posix()}")
                link += node.children
                node.replace_self(link)


def resolve(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Write the addresses of a page's links into the checkout. ExtensionError for a file that is not there."""
    for node in doctree.findall(nodes.reference):
        uri = node.get("refuri", "")
        if not uri.startswith(SCHEME):
            continue
        path, mark, anchor = uri.removeprefix(SCHEME).partition("#")
        if not (ROOT / path).exists():
            raise ExtensionError(f"{page}: links to {path}, which is not in the checkout")
        node["refuri"] = _address(app, page, path) + mark + anchor


def _address(app: Sphinx, page: str, path: str) -> str:
    if app.config.checkout_url:
        return posixpath.join(app.config.checkout_url, path)
    here = Path(app.outdir) / app.builder.get_target_uri(page)
    return Path(os.path.relpath(ROOT / path, here.parent)).as_posix()


def setup(app: Sphinx) -> None:
    """Connect; `checkout_url` is the address of the checkout's files on the web, "" = where they are here."""
    app.add_config_value("checkout_url", "", "html", (str,))
    app.add_transform(LeaveTheSources)
    app.connect("doctree-resolved", resolve)
