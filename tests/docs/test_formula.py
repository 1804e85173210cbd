"""Formulas of docstrings in LaTeX."""

from __future__ import annotations

import inspect

import pytest
from docutils.utils.math.latex2mathml import tex2mathml

from bench.adapters import registry
from tools.handbook.formula import formulas, latex


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("l_ij = e^rho <v_i, t_j>", [r"l_{ij} = e^{\rho } \langle v_{i}, t_{j}\rangle"]),
        (
            "L = 1/2 [CE(l, id)] in both directions, P_i = 2.",
            [r"L = \frac{1}{2} [\mathrm{CE}(l, \mathrm{id})] \text{ in both directions }", "P_{i} = 2"],
        ),
        ("CLIP on labels y: y permutes some rows.", []),
        ("N = sum_{j != i} [a_j]_+ / T^(1 - y)", [r"N = \sum _{j \ne  i} [a_{j}]_{+} / T^{1 - y}"]),
        ("y ~ Uniform{0..B-1}", [r"y \sim  \mathrm{Uniform}\{0\ldots B-1\}"]),
    ],
)
def test_a_formula_is_told_from_words(written: str, expected: list[str]) -> None:
    assert formulas(written) == expected


def test_a_name_that_ends_in_a_plus_is_no_sum() -> None:
    assert latex("(1 - tau+) + 1") == r"(1 - \tau ^{+}) + 1"


def test_every_formula_of_a_method_can_be_drawn() -> None:
    drawn = [one for kind in registry.all_methods().values() for one in formulas(inspect.cleandoc(kind.__doc__ or ""))]
    assert len(drawn) > 40
    for one in drawn:
        assert "<merror" not in tex2mathml(one, as_block=True)
