"""Text becomes HTML or Markdown at one place, which escapes it."""

from __future__ import annotations

import ast
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bench
from bench.console.markup import Html, html, markdown, together

ROOT = Path(bench.__file__).parents[1]
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("<>&\"'/=`{}"), max_size=30)
#: (file, what is taken as markup): files of the package and JSON without "<"
TRUSTED = {
    ("reports/pages/html.py", "(_ASSETS / name).read_text(encoding='utf-8')"),
}


class Seen(HTMLParser):
    """Elements, values of attributes, and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.values: list[str | None] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.values += [value for _, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


@settings(deadline=None)
@given(TEXT, TEXT)
def test_no_text_becomes_an_element_or_an_attribute(title: str, text: str) -> None:
    seen = Seen(html('<p><b title="{}">{}</b></p>', title, html("<i>{}</i>", text)))
    assert seen.tags == [("p", ()), ("b", ("title",)), ("i", ())]
    if all(one.isprintable() for one in title + text):
        assert (seen.values, seen.text) == ([title], text)


def test_markup_is_not_escaped_twice_and_a_string_always_is() -> None:
    inner = html("<i>{}</i>", "a & b")
    assert together(["<b>", inner], "<br>") == "&lt;b&gt;<br><i>a &amp; b</i>"
    assert html("{}", f"{inner}") == "&lt;i&gt;a &amp;amp; b&lt;/i&gt;", "an f-string is text again"
    assert html("{}{}", 3, "\x1b\ud800") == r"3\x1b\ud800"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain_words, 5 %: 1e-3 (A. Author & B.)", "plain_words, 5 %: 1e-3 (A. Author & B.)"),
        ("[x](javascript:alert(1))", r"\[x\](javascript:alert(1))"),
        ("<img src=x onerror=y>", r"\<img src=x onerror=y\>"),
        ("a | b\n| c | d", r"a \| b \| c \| d"),
        ("`code` *bold* _soft_ &lt; $x$ ~~y~~", r"\`code\` \*bold\* \_soft\_ \&lt; \$x\$ \~\~y\~\~"),
        ("# head", r"\# head"),
        ("- item", r"\- item"),
        ("1. item", r"1\. item"),
        ("---", r"\---"),
        ("2.5 times -1", "2.5 times -1"),
        ("a\x1b\u202e", r"a\\x1b\\u202e"),
    ],
)
def test_markdown_shows_text_as_it_is(text: str, shown: str) -> None:
    assert markdown(text) == shown


def calls(name: str) -> list[tuple[str, ast.Call]]:
    """Calls of this function in all files but the one that makes markup."""
    files = {path: path.read_text() for room in ("bench", "reports") for path in (ROOT / room).rglob("*.py")}
    return [
        (str(path.relative_to(ROOT)), node)
        for path, text in files.items()
        if f"{name}(" in text and path.name != "markup.py"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == name
    ]


def test_templates_are_constants_and_little_is_taken_as_markup() -> None:
    templates = [(file, node.lineno) for file, node in calls("html") if not isinstance(node.args[0], ast.Constant)]
    assert templates == []
    assert len(calls("html")) > 20
    taken = {(file, ast.unparse(node.args[0])) for file, node in calls("Html")}
    assert {one for one in taken if not one[1].startswith("'<dialog>")} == TRUSTED


def test_nothing_else_escapes_or_writes_elements() -> None:
    assert calls("html.escape") == []
    for file in (
        "reports/pages/html.py",
        "reports/pages/sections.py",
        "reports/pages/pictures.py",
    ):
        formatted = [node for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.JoinedStr)]
        words = [part.value for node in formatted for part in node.values if isinstance(part, ast.Constant)]
        assert [word for word in words if re.search("<[a-z/!]", word)] == [], file


def test_a_template_is_markup() -> None:
    assert isinstance(html("<b>"), Html)
    assert isinstance(together([]), Html)
