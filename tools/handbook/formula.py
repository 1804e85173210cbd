r"""Formulas as docstrings write them, `L = 1/2 sum_j e^{s_ij/tau}`, in LaTeX.

Docstrings mix formulas and words, so a docstring is cut at the commas, semicolons and ends of sentences that stand
outside of brackets. A part is a formula if a short left side without words stands before "=", "~" or "<-".
"""

from __future__ import annotations

import re

GREEK = re.findall(
    r"\w+",
    """
    alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi pi rho sigma tau phi chi psi omega
""",
)
FUNCTIONS = ("ln", "exp", "tan", "cos", "sin", "max", "min", "sum")
_ROMAN = ("mean", "softmax", "floor", "dir", "id", "neg", "inc")  #: of two letters and more, and no words of a sentence
_INDEX = re.compile("[ijk]{1,2}|n")
_RELATION = re.compile(r" (?:=|~|<-) ")
_ANGLE = re.compile(r"<([^<>=]*?,[^<>=]*?)>")
_TOKEN = re.compile(
    r"(?P<half>(?<![\w.])1/(?P<below>\d+)(?![\w.]))|(?P<number>\d+(?:\.\d+)?)|(?P<word>[A-Za-z][A-Za-z0-9]*(?:'s\b)?)"
    r"|(?P<script>[_^])|(?P<symbol>->|<-|!=|>=|<=|\.\.|\|\||.)|(?P<rest>\s)",
    re.S,
)
_SYMBOLS = {
    "->": r"\to ",
    "<-": r"\leftarrow ",
    "!=": r"\ne ",
    ">=": r"\ge ",
    "<=": r"\le ",
    "<": "<",
    "~": r"\sim ",
    "*": r"\cdot ",
    "||": r"\| ",
    "..": r"\ldots ",
    "\N{LEFT ANGLE BRACKET}": r"\langle ",
    "\N{RIGHT ANGLE BRACKET}": r"\rangle ",
    "%": r"\%",
    " ": " ",
}


def formulas(docstring: str) -> list[str]:
    """Return the formulas of a docstring as LaTeX, in their order; words between them are left out."""
    text = _ANGLE.sub("\N{LEFT ANGLE BRACKET}\\1\N{RIGHT ANGLE BRACKET}", " ".join(docstring.split()))
    return [latex(part) for part in _parts(text) if _is_formula(part)]


def _parts(text: str) -> list[str]:
    depth, begin, parts = 0, 0, []
    for place, letter in enumerate(text):
        depth += (letter in "([{\N{LEFT ANGLE BRACKET}") - (letter in ")]}\N{RIGHT ANGLE BRACKET}")
        following = text[place + 1 : place + 2]
        if depth == 0 and letter in ",;:." and following in ("", " "):
            parts.append(text[begin:place])
            begin = place + 1
    return [re.sub(r"^(?:and|with|where|for) ", "", part.strip(), flags=re.I) for part in (*parts, text[begin:])]


def _is_formula(part: str) -> bool:
    relation = _RELATION.search(part)
    if relation is None:
        return False
    left = part[: relation.start()]
    return not any(_is_text(word) for word in re.findall(r"(?<![_^A-Za-z0-9])[A-Za-z][A-Za-z0-9]*", left))


def _is_text(word: str) -> bool:
    """Whether it is a word of a sentence rather than a variable, a function or an abbreviation such as LSE."""
    known = (*GREEK, *FUNCTIONS, *_ROMAN, "eps")
    name = len(word) == 1 or not word.islower() or word in known or _INDEX.fullmatch(word)
    return word.endswith("'s") or not name


def latex(formula: str) -> str:
    r"""Return one formula in LaTeX.

    >>> latex("l_ij = e^rho (1/2)")
    'l_{ij} = e^{\\rho } (\\frac{1}{2})'
    """
    formula = re.sub(r"\]_\+", "]_{+}", re.sub(r"\^\(([^()]*)\)", r"^{\1}", formula))
    formula = re.sub(r"(\w)\+(?=[ )]|$)", r"\1^{+}", formula)  # tau+ is a name, tau + 1 a sum
    tokens = list(_TOKEN.finditer(formula))
    written: list[str] = []
    closing: list[str] = []
    for before, token in zip([None, *tokens], tokens, strict=False):
        script = before is not None and before["script"]
        if token.group() == "{":
            written.append("{" if script else r"\{")
            closing.append("}" if script else r"\}")
        elif token.group() == "}":
            written.append(closing.pop())
        else:
            written.append(f"{{{_one(token)}}}" if script else _one(token))
    spaced = re.sub(r"\\(ln|exp|tan|cos|sin) +(?=[\w\\])", r"\\\1\\, ", "".join(written))
    return _sentences(spaced).strip()


def _sentences(written: str) -> str:
    """Join neighbouring words into one text, an article between two of them included."""
    written = re.sub(r"(?<=\}) a (?=\\text\{)", r"\\text{ a }", written)
    return re.sub(r"\\text\{[^}]*\}(?:\s*\\text\{[^}]*\})+", _one_text, written)


def _one(token: re.Match[str]) -> str:
    if token["half"]:
        return rf"\frac{{1}}{{{token['below']}}}"
    if token["word"]:
        return _word(token["word"])
    return _SYMBOLS.get(token.group(), token.group())


def _word(word: str) -> str:
    if word in GREEK:
        return rf"\{word} "
    if word == "eps":
        return r"\varepsilon "
    if word in FUNCTIONS:
        return rf"\{word} "
    if word == "mean":
        return r"\,\mathrm{mean}"
    if len(word) == 1 or _INDEX.fullmatch(word):
        return word
    return rf"\text{{ {word} }}" if _is_text(word) else rf"\mathrm{{{word}}}"


def _one_text(match: re.Match[str]) -> str:
    words = re.findall(r"\\text\{ ?([^}]*?) ?\}", match.group())
    return rf"\text{{ {' '.join(words)} }}"
