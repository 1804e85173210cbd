"""What checks compare and print with: tolerances, extremes, variants, tables of results. Each both ways."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bench.checks import lab, suite
from bench.checks.subject import (
    BATCH,
    ROWS,
    Failed,
    Subject,
    constants,
    largest_gap,
    loss_and_gradients,
    moments,
    same,
    total_of,
)
from bench.checks.suite import CHECKS, Check, Result, run_checks, subject_of
from bench.errors import UserError
from methods.clip import Clip
from methods.protocol import Phase

NUMBERS = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8)


@settings(deadline=None)
@given(NUMBERS, st.sampled_from([1e-9, 1e-4, 0.05]), st.sampled_from([0.0, 1e-3, 1.0]))
def test_a_gap_within_the_tolerance_is_none_and_one_beyond_is_said(
    values: list[float], rtol: float, floor: float
) -> None:
    expected = torch.tensor(values, dtype=torch.float64)
    size = float(expected.abs().max())
    allowed = rtol * (abs(values[0]) + size + floor)
    for share, close in ((0.9, True), (1.1, False)):
        moved = expected.clone()
        moved[0] += share * allowed
        gap = abs(float(moved[0] - expected[0]))
        if close or gap > allowed * 1.05:
            assert (largest_gap(moved, expected, rtol, floor) is None) is close


def test_shapes_infinities_and_nan_are_compared_as_well() -> None:
    one, inf = torch.ones(2), torch.tensor([1.0, math.inf])
    assert "shape [2] instead of [1, 2]" in str(largest_gap(one, one[None], 1.0))
    assert largest_gap(inf, inf.clone(), 0.1) is None
    assert largest_gap(inf, -inf, 0.1) == "another infinity"
    assert largest_gap(one, inf, 0.1) == largest_gap(inf, one, 0.1) == "finite in one and not in the other"
    assert largest_gap(torch.zeros(0), torch.zeros(0), 0.1) is None
    assert "off by 0.5" in str(largest_gap(torch.tensor([1.5]), torch.tensor([1.0]), 0.1))


def test_the_same_bits_are_asked_for_at_tolerance_0() -> None:
    x = torch.tensor([1.0, math.nan])
    same("x", x, x.clone(), 0)
    for other in (torch.tensor([math.nextafter(1.0, 2.0), math.nan], dtype=torch.float64), torch.ones(3)):
        with pytest.raises(Failed, match="x: "):
            same("x", other, torch.tensor([1.0, math.nan], dtype=torch.float64), 0)
    same("x", torch.tensor([1.001]), torch.tensor([1.0]), 1e-3)
    with pytest.raises(Failed, match="y: off by"):
        same("y", torch.tensor([1.01]), torch.tensor([1.0]), 1e-3)


def test_moments_are_the_first_step_of_each_phase_and_a_late_one() -> None:
    class Two:
        def phases(self) -> tuple[Phase, ...]:
            return Phase("warm", 0.5), Phase("main", 0.5)

    assert [(when.phase, when.step) for when in moments(Two())] == [("warm", 0), ("main", 0), ("main", 90)]
    assert [when.step for when in moments(Two(), (0, 1))] == [0, 1, 0, 1, 90]
    assert (moments(Two())[-1].epoch, moments(Two())[-1].progress) == (9, 0.9)


def test_gradients_are_of_leaves_and_parameters_and_zero_where_nothing_depends() -> None:
    method = lab.build_adapter(Clip)
    z = lab.oracle_inputs("A")
    z["unused"] = torch.ones(3, dtype=torch.float64, requires_grad=True)
    z["constant"] = torch.ones(3)
    total = len(z["image"])
    loss = lab.step_loss(method, z)
    values = loss_and_gradients(method, loss, z)
    assert set(values) == {"loss", *(f"gradient of {name}" for name in ("image", "text", "unused", "scale.rho"))}
    assert torch.equal(values["gradient of unused"], torch.zeros(3, dtype=torch.float64))
    (expected,) = torch.autograd.grad(lab.step_loss(method, z), z["image"])
    assert torch.equal(values["gradient of image"], expected)
    observed, drawn = constants(method, z, lab.a_clock())
    assert observed == drawn == {}
    assert total_of({"a": torch.tensor(2.0), "b": torch.tensor(0.5)}) == 2.5
    assert len(lab.tiles_of(total, (1,))) == 2


@settings(deadline=None)
@given(st.lists(st.integers(1, 39), unique=True, max_size=5).map(sorted))
def test_tiles_of_a_batch_follow_each_other(cuts: list[int]) -> None:
    tiles = lab.tiles_of(40, tuple(cuts))
    assert [row for tile in tiles for row in range(40)[tile]] == list(range(40))
    assert len(tiles) == len(cuts) + 1


def test_tiny_towers_are_equal_each_time_and_their_words_come_back() -> None:
    one, other = lab.TinyTowers(), lab.TinyTowers()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    tokens = lab.whole_words(["grinning face", "face", "a b c d e f g"], 6)
    assert tokens.shape == (3, 6)
    assert tokens[0, 2] == tokens[1, 1]  # the same word, the same id
    assert tokens[:, 0].unique().tolist() == [60]
    assert [int((row == 63).sum()) for row in tokens] == [1, 1, 1]
    assert tokens.argmax(1).tolist() == [3, 2, 5]
    rows, part = lab.some_rows(one, 8, views=1), lab.some_rows(one, 8, slice(3, 6), views=1)
    assert torch.equal(rows.images[3:6], part.images)
    assert torch.equal(rows.views[0][3:6], part.views[0])
    assert part.positions == range(3, 6)
    assert (part.ids.tolist(), part.captions) == ([3, 4, 5], rows.captions[3:6])


def test_a_subject_has_its_defaults_presets_and_choices_once() -> None:
    subject = Subject("label_permutation")
    labels = [variant.label for variant in subject.variants]
    assert labels[0] == "default"
    assert {"text_labels=inverse", "learnable_scale=False"} <= set(labels)
    assert "preset paper" not in labels  # its values are the defaults
    configs = [repr(subject.kind.Config(**variant.config)) for variant in subject.variants]
    assert len(set(configs)) == len(configs)


def test_a_subjects_leaves_are_unit_rows_and_the_callers_own() -> None:
    subject = Subject("clip")
    (method, z), (again, rows) = (subject.embedded(subject.variants[0]) for _ in range(2))
    assert {name: (x.shape[0], x.dtype, x.requires_grad) for name, x in z.items()} == dict.fromkeys(
        ("image", "text"), (BATCH, torch.float64, True)
    )
    assert torch.allclose(z["image"].norm(dim=1), torch.ones(BATCH, dtype=torch.float64))
    method.scale.rho.data.fill_(9.0)
    z["image"].data.zero_()
    assert float(again.scale.rho.detach()) != 9.0
    assert bool((subject.embedded(subject.variants[0])[1]["image"] == rows["image"]).all())
    assert BATCH < ROWS


def results() -> list[Result]:
    return [
        Result("one", "card", "passed", 0.25),
        Result("one", "tiles", "failed", 1.5, 'a <b> & "c"'),
        Result("other", "card", "skipped", 0.125, "does not apply"),
        Result("other", "tiles", "expected", 0.125, "known"),
    ]


def test_a_line_and_a_verdict_have_outcome_time_and_reason() -> None:
    assert str(results()[0]).split() == ["card", "passed", "0.25", "s"]
    assert str(results()[1]).endswith('1.50 s  a <b> & "c"')
    assert suite.checks_verdict(results()) == "1 passed, 1 failed, 1 skipped, 1 expected in 2 s"
    assert suite.checks_verdict(results()[:1] * 3) == "3 passed in 1 s"


def test_a_matrix_has_a_sign_for_every_outcome() -> None:
    lines = suite.checks_matrix(results()).splitlines()
    assert [line.split() for line in lines[:2]] == [["1", "card"], ["2", "tiles"]]
    signs = {line.split()[0]: line.split()[1:] for line in lines if line.startswith(("one", "other"))}
    assert signs == {"one": ["+", "FAIL", "1.8", "s"], "other": ["-", "x", "0.2", "s"]}
    assert lines[-1] == suite.LEGEND


def test_json_holds_all_of_the_results() -> None:
    assert [Result(**row) for row in json.loads(suite.results_json(results()))] == results()


def raising(error: Exception | None) -> Check:
    def run(_: Subject) -> None:
        if error:
            raise error

    return Check("card", run)


@dataclass(frozen=True)
class Declared:
    """A subject whose method declares failures."""

    known_failures: dict[str, str]

    name = "clip"

    @property
    def kind(self) -> Any:
        return self


@pytest.mark.parametrize(
    ("error", "known", "outcome", "reason"),
    [
        (None, {}, "passed", ""),
        (Failed("by  two\nlines"), {}, "failed", "by two lines"),
        (KeyError("x"), {}, "failed", "KeyError: 'x'"),
        (Failed("off"), {"card": "rounding"}, "expected", "rounding (off)"),
        (None, {"card": "rounding"}, "failed", "passes, but is declared to fail: rounding"),
        (Failed("off"), {"tiles": "rounding"}, "failed", "off"),
    ],
)
def test_what_a_check_raises_is_its_outcome(
    error: Exception | None, known: dict[str, str], outcome: str, reason: str
) -> None:
    (result,) = run_checks(Declared(known), None, (raising(error),))  # type: ignore[arg-type]
    assert (result.outcome, result.reason, result.method, result.check) == (outcome, reason, "clip", "card")
    assert result.seconds >= 0


def test_a_users_mistake_is_no_outcome(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="mistake"):
        list(run_checks(Declared({}), None, (raising(UserError("mistake")),)))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no such file"):
        subject_of(str(tmp_path / "none.py"))
    assert subject_of("clip").plugin is None
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def leaf(*shape: int) -> Tensor:
    return torch.ones(*shape, dtype=torch.float64, requires_grad=True)


@settings(deadline=None, max_examples=10)
@given(st.floats(-3, 3), st.floats(-3, 3))
def test_gradients_and_their_norms_are_compared_where_values_are_given(a: float, b: float) -> None:
    z = {"image": leaf(2, 3), "text": leaf(2)}
    loss = a * z["image"].sum() + b * z["text"].square().sum()
    (one,) = lab.gradients(loss, z, {"grad_image": [[a] * 3] * 2})
    lab.assert_close(one.actual, one.expected)
    norms = {one.what: float(one.actual) for one in lab.gradient_norms(loss, z, {"image": 0.0, "text": 0.0})}
    assert norms["norm of the gradient of image"] == pytest.approx(abs(a) * math.sqrt(6), abs=1e-12)
    assert norms["norm of the gradient of text"] == pytest.approx(2 * abs(b) * math.sqrt(2), abs=1e-12)
    assert list(lab.gradients(loss, z, {})) == []
