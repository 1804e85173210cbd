"""Several kinds of noise in one suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.catalogue.noise_kinds import noise_label
from bench.data.noise.shown import noise_manifest
from bench.errors import UserError
from bench.planning import plan_file
from bench.planning.plan_file import plan_outline
from bench.suite.suite import Suite, load_suite

TEXT = """\
name: kinds
budget: {samples: 48}
seeds: [0, 1, 2]
towers: {dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot, noise_detection]}
methods: [clip, sogclr]
noise:
- {kind: shuffled_captions, rates: [0.0, 0.4]}
- {kind: edited_captions, rates: [0.0, 0.2, 0.4], seeds: [1, 1, 2], options: {op: swap, strength: 3}}
"""


def suite_of(folder: Path, text: str = TEXT, *changes: tuple[str, str]) -> Suite:
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    (folder / "kinds.yaml").write_text(text)
    return load_suite(folder / "kinds.yaml")


def test_every_kind_has_its_rates_and_clean_pairs_come_once(tmp_path: Path) -> None:
    suite = suite_of(tmp_path)
    runs = [(run.noise, run.rate, run.seed) for run in suite.cells() if run.label == "clip"]
    expected = [(None, 0.0), ("shuffled_captions", 0.4), ("edited_captions", 0.2), ("edited_captions", 0.4)]
    assert runs == [(*level, seed) for seed in range(3) for level in expected if seed < _seeds(level)]
    assert suite.seeds_of(0.4) == (0, 1, 2)
    assert suite.seeds_of(0.4, "edited_captions") == (0, 1)
    blocks = plan_outline(suite)["noises"]
    assert [(one["label"], one["kind"], one["rate"], one["seeds"]) for one in blocks] == [
        (noise_label(kind or "shuffled_captions", rate), kind, rate, [*range(_seeds((kind, rate)))])
        for kind, rate in expected
    ]


def _seeds(level: tuple[str | None, float]) -> int:
    return 1 if level == ("edited_captions", 0.2) else 2 if level == ("edited_captions", 0.4) else 3


def test_runs_are_those_of_suites_of_one_kind(tmp_path: Path) -> None:
    lines = TEXT.splitlines(keepends=True)
    both = {run.key for run in suite_of(tmp_path).cells()}
    alone = [suite_of(tmp_path, "".join([*lines[:8], line])) for line in lines[8:]]
    assert both == {run.key for suite in alone for run in suite.cells()}
    plain = "".join([*lines[:7], "noise: ", lines[8].removeprefix("- ")])
    assert suite_of(tmp_path, plain).hash == alone[0].hash, "a list of one is that one"
    assert suite_of(tmp_path).hash != alone[0].hash


def test_natural_noise_is_not_called_clean_and_nothing_else_changes(tmp_path: Path) -> None:
    plain = "".join([*TEXT.splitlines(keepends=True)[:7], "noise: {rates: [0.0, 0.4]}\n"])
    natural = plain.replace("{rates", "{natural: true, rates")
    suites = suite_of(tmp_path, plain), suite_of(tmp_path, natural)
    labels = [[one["label"] for one in plan_outline(suite)["noises"]] for suite in suites]
    assert labels == [["clean", "40 % shuffled captions"], ["natural noise", "40 % shuffled captions"]]
    clean, found = ([run.key for run in suite.cells()] for suite in suites)
    assert found == clean, "the same runs"
    assert suites[0].hash != suites[1].hash
    assert "natural" not in suites[0].noise[0].model_dump(), "hashes of older suites stay"
    several = suite_of(tmp_path, TEXT, ("rates: [0.0, 0.2", "natural: true, rates: [0.0, 0.2"))
    assert plan_outline(several)["noises"][0]["label"] == "natural noise"


@pytest.mark.parametrize("keep", ["oracle", "{kind: trusted, rows: 9}"])
def test_no_row_uses_a_truth_that_nobody_knows(tmp_path: Path, keep: str) -> None:
    text = "".join([*TEXT.splitlines(keepends=True)[:7], "noise: {natural: true}\n"])
    rows = f"methods: [clip, {{method: clip, label: bound, keep: {keep}}}]"
    message = r"kinds\.yaml:7: methods\.1\.keep: uses .*, which is unknown for natural noise"
    with pytest.raises(UserError, match=message):
        suite_of(tmp_path, text, ("methods: [clip, sogclr]", rows))
    with pytest.raises(UserError, match=r"data\.keep: uses "):
        suite_of(tmp_path, text, ("budget", f"data: {{keep: {keep}}}\nbudget"))
    assert suite_of(tmp_path, text, ("sogclr]", "{method: clip, label: r, keep: {kind: random, share: 0.5}}]")).methods


def test_which_pairs_injected_noise_left_alone_is_known_of_natural_pairs_too(tmp_path: Path) -> None:
    text = TEXT.replace("{kind: shuf", "{natural: true, kind: shuf")
    rows = "methods: [clip, {method: clip, label: bound, keep: oracle}]"
    suite = suite_of(tmp_path, text, ("methods: [clip, sogclr]", rows))
    keys = {rate: {run.key for run in suite.cells() if run.rate == rate} for rate in (0.0, 0.4)}
    assert len(keys[0.0]) == 3, "where nothing is injected, the bound is the baseline's run"
    assert len(keys[0.4]) == 10
    plain = suite_of(tmp_path, TEXT, ("methods: [clip, sogclr]", rows))
    said = [plan_file._keep(one, one.methods[1]) or {} for one in (suite, plain)]
    assert [one["about"] for one in said] == [
        "the pairs that the injected noise leaves alone", "the pairs that are known to be clean",
    ]  # fmt: skip
    with pytest.raises(UserError, match=r"methods\.1\.keep: uses trusted pairs, which is unknown for natural noise"):
        suite_of(tmp_path, text, ("methods: [clip, sogclr]", rows.replace("oracle", "{kind: trusted, rows: 9}")))


def test_the_manifest_of_each_kind_can_be_looked_at(tmp_path: Path) -> None:
    suite = suite_of(tmp_path)
    first, edits = (noise_manifest(suite, kind=kind)[1] for kind in (None, "edited_captions"))
    assert (first.kind, edits.kind) == ("shuffled_captions", "edited_captions")
    assert first.rows.tolist() == edits.rows.tolist(), "kinds corrupt the same rows"
    with pytest.raises(UserError, match=r"--kind edited: suite kinds has shuffled_captions, edited_captions; did you"):
        noise_manifest(suite, kind="edited")
    with pytest.raises(UserError, match=r"--rate 0\.2: suite kinds has 0\.0, 0\.4"):
        noise_manifest(suite, 0.2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[0.0, 0.2, 0.4]", "[0.0, 0.2, 1.4]"), r"kinds\.yaml:10: noise\.1\.rates\.2: 1\.4 should be less than 1"),
        (("edited_captions", "shuffled_captions"), r"kinds\.yaml:10: noise\.1"),
        (("seeds: [1, 1, 2]", "seeds: [1, 1, 4]"), r"kinds\.yaml:10: noise\.1\.seeds\.2: 4 should be at most 3"),
        (("op: swap", "op: spaw"), r"kinds\.yaml:10: noise\.1\.options\.op: 'spaw' should be .* did you mean 'swap'"),
        (("[zero_shot,", "[attack_success, zero_shot,"), "'attack_success' needs noise of kind poison, this is shuff"),
    ],
)
def test_a_mistake_in_a_kind_is_named_with_its_place(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        suite_of(tmp_path, TEXT, change)


def test_a_kind_comes_once_and_there_is_one(tmp_path: Path) -> None:
    again = "- {kind: shuffled_captions, rates: [0.2]}\n"
    with pytest.raises(UserError, match=r"noise\.2\.kind: 'shuffled_captions' is a duplicate; make a suite of each"):
        suite_of(tmp_path, TEXT + again)
    with pytest.raises(UserError, match="noise: is empty; name a kind of noise, or omit it"):
        suite_of(tmp_path, TEXT[: TEXT.index("noise:\n")] + "noise: []\n")
