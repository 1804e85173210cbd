"""Text as LaTeX prints it."""

from __future__ import annotations

import unicodedata
from functools import cache

from bench.console.text import visible

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "_": r"\_",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "[": "{[}",  # at the start of a row it would be read as a length
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "→": r"$\rightarrow$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "§": r"$^\S$",
    "¶": r"$^\P$",
    "–": "--",
    "τ": r"$\tau$",
    "γ": r"$\gamma$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "λ": r"$\lambda$",
    "σ": r"$\sigma$",
    "ε": r"$\varepsilon$",
    "ζ": r"$\zeta$",
    "μ": r"$\mu$",
    "π": r"$\pi$",
    "\u2212": "$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≠": r"$\neq$",
    "≈": r"$\approx$",
    "∞": r"$\infty$",
    "·": r"$\cdot$",
    "÷": r"$\div$",
    "°": r"$^\circ$",
    "←": r"$\leftarrow$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "\u00a0": "~",
}
_PRINTED = "“”‘’—…ßæÆœŒøØłŁı"  #: that pdflatex prints as they are
_ACCENTS = dict(zip("\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030b\u030c\u0327", "`'^~=u.\"Hvc", strict=True))


def escape(text: str) -> str:
    """Text as LaTeX prints it: no character of it is a command, ends a paragraph or stops pdflatex.

    Special characters are escaped, and symbols and letters with accents become commands. Ends of lines become spaces.
    What pdflatex has no character for is written as its number: `{[}U+4E2D]`.
    """
    return "".join(map(_escaped, text))


@cache
def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character in _PRINTED or (character.isascii() and character.isprintable()):
        return character
    if character.isspace():
        return " "
    letter, mark = (parts := unicodedata.normalize("NFD", character))[:1], parts[1:]
    if mark in _ACCENTS and letter.isascii() and letter.isalpha():
        return rf"\{_ACCENTS[mark]}{{{letter}}}"
    return escape(visible(character)) if ord(character) < 32 else f"{{[}}U+{ord(character):04X}]"
