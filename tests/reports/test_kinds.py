"""What holds across kinds of noise: against scipy and statsmodels, and the page of a suite with two kinds."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from typer.testing import CliRunner

from bench.cli import app
from bench.errors import UserError
from bench.store import Store
from reports.reference.kinds import DEPENDS, Across, across, kinds_of, kinds_page, kinds_section, kinds_text
from reports.results import Results, load
from reports.statistics.contrasts import Contrast, headline_contrasts

SUITE = "emoji_noisy"
#: gain of each method under each of three kinds
GAINS = {"up": (5.0, 4.0, 6.0), "down": (-3.0, -3.0, -3.0), "turned": (6.0, -6.0, 0.0), "none": (0.0, 0.0, 0.0)}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, bounded: Store) -> Results:
    """Made-up runs under two rates of noise, of which one is called another kind."""
    return load(SUITE, _with_kinds(bounded, tmp_path_factory.mktemp("kinds")))


def _with_kinds(store: Store, root: Path) -> Store:
    """A copy whose clean pairs are called swapped ones."""
    shutil.copytree(store.root, root, dirs_exist_ok=True)
    copy = Store(root)
    plan = json.loads(json.dumps(copy.plan(SUITE)))
    clean = next(one for one in plan["noises"] if not one.get("kind"))
    noisy = next(one for one in plan["noises"] if one.get("kind"))
    clean |= {**noisy, "label": clean["label"], "kind": "semantic_swap"}
    copy.write_plan(SUITE, plan)
    return copy


def contrasts(results: Results, spread: float, seeds: int, key: int = 0) -> list[Contrast]:
    """Three noises whose gains are those of `GAINS`, seed by seed about a baseline that seeds move far more."""
    measure, rng = headline_contrasts(results)[0].measure, np.random.default_rng(key)
    made = []
    for kind in range(3):
        base = {seed: 30 + 20 * float(rng.normal()) for seed in range(seeds)}
        values = {"clip": base}
        for label, gains in GAINS.items():
            values[label] = {seed: base[seed] + gains[kind] + spread * float(rng.normal()) for seed in base}
        made.append(Contrast(f"noise {kind}", measure, "clip", None, tuple(values), values))
    return made


def by_label(found: list[Across]) -> Mapping[str, Across]:
    return {one.label: one for one in found}


@pytest.mark.parametrize("spread", [0.3, 4.0, 40.0])
def test_p_values_are_those_of_scipy_and_statsmodels(results: Results, spread: float) -> None:
    made = contrasts(results, spread, 6, key=int(spread))
    gains = {
        label: np.array([[one.values[label][s] - one.values["clip"][s] for s in range(6)] for one in made])
        for label in GAINS
    }
    p = [stats.ttest_1samp(table.mean(0), 0).pvalue for table in gains.values()]
    expected = dict(zip(gains, multipletests(p, method="holm")[1], strict=True))
    pairs = [(label, a, b) for label in GAINS for a, b in combinations(range(3), 2)]
    tests = [stats.ttest_rel(gains[label][a], gains[label][b]).pvalue for label, a, b in pairs]
    differ = {pair[0] for pair, shown in zip(pairs, multipletests(tests, method="holm")[0], strict=True) if shown}
    for label, one in by_label(across(made)).items():
        assert one.p == pytest.approx(expected[label], rel=1e-9)
        assert one.over is not None
        assert one.over.value == pytest.approx(gains[label].mean())
        assert one.depends == (label in differ)


def test_what_is_better_whatever_the_noise_is_told_from_what_depends_on_it(results: Results) -> None:
    found = across(contrasts(results, 0.1, 8))
    assert found[0].label == "up"
    assert {label: one.verdict for label, one in by_label(found).items()} == {
        "up": f"better, {DEPENDS}",
        "down": "worse",
        "turned": DEPENDS,
        "none": "",
    }
    assert by_label(found)["turned"].verdicts == ("better", "worse", "")


def test_a_method_that_lacks_a_kind_has_no_mean_over_the_kinds(results: Results) -> None:
    made = contrasts(results, 0.1, 4)
    values = {label: own for label, own in made[1].values.items() if label != "up"}
    made[1] = Contrast("noise 1", made[1].measure, "clip", None, tuple(GAINS), values)
    one = by_label(across(made))["up"]
    assert (one.over, one.p) == (None, 1.0)
    assert one.gains[1] is None
    assert one.depends, "two kinds are left"


def test_the_verb_prints_the_page_of_a_suite_with_two_kinds(bounded: Store, tmp_path: Path, results: Results) -> None:
    _with_kinds(bounded, tmp_path)
    result = CliRunner().invoke(app, ["kinds", SUITE, "--results", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert result.stdout == kinds_text([kinds_section(results)])
    assert "# What holds across kinds of noise" in result.stdout
    first, second = (one.noise for one in kinds_of(results))
    lines = result.stdout.splitlines()
    assert sum(line.startswith(f"| {first}; {second} | 8 | 5 and 5 |") for line in lines) == 1, lines
    row = next(line for line in lines if line.startswith("| `sogclr`"))
    assert len(re.findall(r"[+-]\d+\.\d \([+-]\d+\.\d to [+-]\d+\.\d\)", row)) == 3
    assert not any(line.startswith("| `clip`") or line.startswith("| `oracle`") for line in lines)


def test_a_damaged_run_is_named_and_a_suite_with_one_kind_is_refused(bounded: Store, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no two kinds of noise"):
        kinds_page(load(SUITE, bounded))
    assert kinds_text([kinds_section(load(SUITE, bounded))]) == ""
    copy = _with_kinds(bounded, tmp_path)
    copy.run(copy.plan(SUITE)["cells"][0]["run"]).path("status.json").write_text("{")  # type: ignore[index]
    result = CliRunner().invoke(app, ["kinds", SUITE, "--results", str(tmp_path)])
    assert result.exit_code == 1, result.output
    assert "status.json" in result.stderr
