"""A suite's selection of training data: which rows a run may see, what its id holds, and what stays the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.catalogue.keep import KEEPS, DataSelection
from bench.errors import UserError
from bench.planning import tune
from bench.planning.planner import Planner, plan
from bench.store import Store, writing
from bench.suite.run import Run
from bench.suite.settings import DataSettings
from bench.suite.suite import load_suite
from bench.training.inputs import InputsReader
from bench.training.job import make_job
from bench.training.loop import train
from reports.results import load
from reports.tables.footnotes import notes_for
from reports.tables.suite_tables import tables

from ..command import call_bench

SUITE = """\
name: kept
noise: {rates: [0.4]}
budget: {samples: 96}
towers: {dim: 8, vocabulary: 300, context: 12}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot, noise_detection]}
methods: [sogclr]
"""
CPU = torch.device("cpu")


def run_with(folder: Path, *overrides: str) -> Run:
    file = folder / "kept.yaml"
    file.write_text(SUITE)
    return load_suite(file, overrides).runs()[-1]


def kept_keys(run: Run) -> list[str]:
    kept = InputsReader().inputs(run).kept
    assert kept is not None
    return list(kept.keys)


def identity(run: Run, store: Store) -> str:
    return plan([run], store)[0].id


def test_the_default_is_no_part_of_an_id(tmp_path: Path) -> None:
    store = Store(tmp_path / "out")
    plain = run_with(tmp_path)
    said = run_with(tmp_path, "data.keep=all", "data.keep_rule=passes")
    assert "keep" not in plain.content()
    assert "keep" not in str(plain.content()["data"])
    assert identity(plain, store) == identity(said, store) == identity(replace(plain, keep_rule="passes"), store)


@pytest.mark.parametrize(
    ("rate", "keep"),
    [("0.0", "oracle"), ("0.0", "{kind: random, share: 1.0}"), ("0.4", "{kind: random, share: 1.0}")],
)
def test_what_leaves_nothing_out_is_the_untreated_run(tmp_path: Path, rate: str, keep: str) -> None:
    store, noise = Store(tmp_path / "out"), f"noise.rates=[{rate}]"
    treated = run_with(tmp_path, noise, f"data.keep={keep}")
    assert not treated.selects_data
    assert identity(treated, store) == identity(run_with(tmp_path, noise), store)


@pytest.mark.promise("a data selection that keeps everything gives the bytes of a run without one")
def test_all_rows_as_a_choice_give_the_bytes_of_the_untreated_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are chosen and renumbered as for any share, and it is the identity."""
    monkeypatch.setattr("bench.suite.keep_settings.KeepSettings.under", lambda self, _: self)
    whole = run_with(tmp_path, "data.keep={kind: random, share: 1.0}")
    assert whole.selects_data
    kept = InputsReader().inputs(whole).kept
    assert kept is not None
    changed = [row for row in range(len(kept)) if kept.captions(row) != kept.whole.captions(row)]
    assert changed, "corrupted rows keep their donors' captions"
    bytes_of = []
    for run in (whole, run_with(tmp_path)):
        store = Store(tmp_path / ("treated" if run.selects_data else "plain"))
        (planned,) = plan([run], store)
        with writing(store.run(planned.id)) as out:
            train(make_job(run, InputsReader().inputs(run), planned.resolved, out, None, CPU))
        bytes_of.append([out.path(name).read_bytes() for name in ("metrics.jsonl", "weights-100.safetensors")])
    assert bytes_of[0] == bytes_of[1]


def test_kept_rows_are_clean_and_nest_and_do_not_follow_the_noise(tmp_path: Path) -> None:
    plain = InputsReader().inputs(run_with(tmp_path))
    assert plain.manifest is not None
    corrupted = {plain.pairs.keys[row] for row in plain.manifest.rows}
    oracle = kept_keys(run_with(tmp_path, "data.keep=oracle"))
    assert corrupted.isdisjoint(oracle)
    assert len(oracle) + len(corrupted) == len(plain.pairs)
    trusted = [kept_keys(run_with(tmp_path, f"data.keep={{kind: trusted, rows: {n}}}")) for n in (20, 200)]
    assert [len(keys) for keys in trusted] == [20, 200]
    assert set(trusted[0]) < set(trusted[1]) < set(oracle)
    shares = [kept_keys(run_with(tmp_path, f"data.keep={{kind: random, share: {k}}}")) for k in (0.1, 0.5)]
    assert set(shares[0]) < set(shares[1])
    noisy = len(corrupted & set(shares[1])) / len(shares[1])
    assert 0.35 < noisy < 0.45, "a random share has the noise of the whole"
    for keys in (oracle, *trusted, *shares):
        assert keys == sorted(keys, key=str.encode)
    other = kept_keys(run_with(tmp_path, "data.keep={kind: random, share: 0.5}", "seeds=[1]"))
    assert other != shares[1]


def test_an_oracle_does_not_depend_on_whose_captions_the_others_have(tmp_path: Path) -> None:
    """The same rows corrupted, by drawing and by a file with other donors: one run."""
    store, oracle = Store(tmp_path / "out"), run_with(tmp_path, "data.keep=oracle")
    inputs = InputsReader().inputs(oracle)
    pairs, manifest = inputs.pairs, inputs.manifest
    assert manifest is not None
    index = np.arange(len(pairs))
    index[manifest.rows] = np.roll(manifest.rows, 7)
    np.save(tmp_path / "index.npy", index)
    imported = ("noise.kind=imported", f"noise.files=[{tmp_path / 'index.npy'}]")
    other = run_with(tmp_path, "data.keep=oracle", *imported)
    (one,), (same,) = plan([oracle], store), plan([other], store)
    assert same.inputs.manifest_hash != one.inputs.manifest_hash == manifest.content_hash
    assert one.id == same.id
    assert one.manifest is None, "whose captions there are is not in its id, so nothing of them is measured"
    share = "data.keep={kind: random, share: 0.5}"
    assert identity(run_with(tmp_path, share), store) != identity(run_with(tmp_path, share, *imported), store)


def test_ids_differ_by_kind_parameter_rule_and_kept_rows(tmp_path: Path) -> None:
    store = Store(tmp_path / "out")
    asked = [
        (),
        ("data.keep=oracle",),
        ("data.keep=oracle", "data.keep_rule=passes"),
        ("data.keep={kind: trusted, rows: 32}",),
        ("data.keep={kind: random, share: 0.5}",),
        ("data.keep={kind: random, share: 0.6}",),
        ("data.keep=oracle", "noise.rates=[0.2]"),
        ("data.keep=oracle", "seeds=[1]"),
    ]
    assert len({identity(run_with(tmp_path, *overrides), store) for overrides in asked}) == len(asked)


@pytest.mark.parametrize("budget", ["{samples: 96000}", "{epochs: 20}", "{flops: 1.0e+12}"])
def test_the_rule_says_samples_or_passes(tmp_path: Path, budget: str) -> None:
    store, asked = Store(tmp_path / "out"), (f"budget={budget}",)
    share = "data.keep={kind: random, share: 0.25}"
    plain, samples, passes = (
        plan([run_with(tmp_path, *asked, *more)], store)[0].resolved
        for more in ((), (share,), (share, "data.keep_rule=passes"))
    )
    assert samples.steps == plain.steps
    assert samples.epoch_steps == pytest.approx(plain.epoch_steps / 4, abs=1)
    assert passes.epoch_steps == samples.epoch_steps
    assert passes.steps / plain.steps == pytest.approx(0.25, abs=0.01)
    inputs = InputsReader().inputs(run_with(tmp_path, share))
    assert len(inputs.seen) == inputs.facts.rows


def test_as_many_samples_are_no_more_than_the_budget(tmp_path: Path) -> None:
    """One epoch of all rows is two of half of them; the ledger counts it as one."""
    from bench.training.ledger import Ledger

    run = run_with(tmp_path, "budget={epochs: 1}", "data.keep={kind: random, share: 0.5}")
    (planned,) = plan([run], Store(tmp_path / "out"))
    spent = Ledger(samples=planned.resolved.steps * 16)
    assert spent.statement("epochs", 1.0, planned.resolved, None)["over_budget"] is False
    assert spent.spent("epochs", planned.resolved) == pytest.approx(1.0)


def test_a_reference_run_is_treated_alike_but_for_trusted_pairs(tmp_path: Path) -> None:
    for keep, alike in (("oracle", True), ("{kind: trusted, rows: 64}", False)):
        run = run_with(tmp_path, f"data.keep={keep}", "methods=[ncu]")
        assert run.reference is not None
        assert (run.reference.keep == run.keep) == alike
        assert run.reference.selects_data == alike


def test_a_row_may_have_a_treatment_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "kept.yaml"
    file.write_text(SUITE.replace("[sogclr]", "[clip, {method: clip, label: bound, keep: oracle}]"))
    suite = load_suite(file)
    assert [run.keep.label for run in suite.runs()] == ["all", "oracle"]
    assert suite.baseline_row == "clip"


def rows_of(folder: Path, *rows: str, rule: str = "total") -> dict[str, Run]:
    """The runs of a suite with these rows, by label; those that only score pairs have labels of their own."""
    file = folder / "rows.yaml"
    file.write_text(f"{SUITE}budget_rule: {rule}\n".replace("[sogclr]", "\n- " + "\n- ".join(rows)))
    return {run.label: run for run in load_suite(file).runs()}


def test_a_list_of_shares_is_a_row_for_each(tmp_path: Path) -> None:
    store = Store(tmp_path / "out")
    listed = rows_of(tmp_path, "clip", "{method: rcl, keep: {kind: random, share: [0.4, 1]}}", "siglip")
    assert list(listed) == ["clip", "rcl, 40 % kept", "rcl, 100 % kept", "siglip"]
    alone = rows_of(tmp_path, "clip", "{method: rcl, keep: {kind: random, share: 0.4}}", "{method: rcl, label: whole}")
    assert identity(listed["rcl, 40 % kept"], store) == identity(alone["rcl"], store)
    assert identity(listed["rcl, 100 % kept"], store) == identity(alone["whole"], store)
    with pytest.raises(UserError, match=r"rows.yaml:\d+: methods.2.keep.share: 2 should be less than or equal to 1"):
        rows_of(tmp_path, "clip", "{method: rcl, keep: {kind: random, share: [0.4, 2]}}")
    with pytest.raises(UserError) as caught:
        rows_of(tmp_path, "clip", "{method: rcl, keep: {kind: random, share: [0.4, 1]}}", "{method: siglip, lrr: 1}")
    line = next(n for n, text in enumerate((tmp_path / "rows.yaml").read_text().splitlines(), 1) if "lrr" in text)
    assert str(caught.value).startswith(f"{tmp_path / 'rows.yaml'}:{line}: ")


def test_any_row_may_score_the_pairs(tmp_path: Path) -> None:
    row = "{{method: siglip, keep: {{kind: score, share: 0.5{}}}}}"
    own, other, same = (rows_of(tmp_path, "clip", "rcl", row.format(by)) for by in ("", ", by: rcl", ", by: clip"))
    assert [runs["siglip"].reference.method for runs in (own, other, same)] == ["clip", "rcl", "clip"]  # type: ignore[union-attr]
    assert len({runs["siglip"].key for runs in (own, other, same)}) == 3, "cosine and confidence are two scores"
    assert other["siglip"].reference.budget.value == other["rcl"].budget.value / 2  # type: ignore[union-attr]
    free = rows_of(tmp_path, "clip", "rcl", row.format(", by: rcl"), rule="additional")
    assert free["siglip"].reference.key == free["rcl"].key, "the trained run of that row"  # type: ignore[union-attr]


def test_who_pays_the_teacher_and_what_it_saw(tmp_path: Path) -> None:
    row = "{{method: clip, label: filtered, keep: {{kind: score, share: 0.5{}}}}}"
    rules = {rule: rows_of(tmp_path, "clip", row.format(""), rule=rule) for rule in ("total", "additional")}
    for rule in rules:
        asked = {
            teacher: rows_of(tmp_path, "clip", row.format(f", teacher: {teacher}"), rule=rule)
            for teacher in ("paid", "given", "given_clean")
        }
        assert asked["paid"]["filtered"].key == rules["total"]["filtered"].key
        assert asked["given"]["filtered"].key == rules["additional"]["filtered"].key
        clean = asked["given_clean"]["filtered"]
        assert clean.reference is not None
        assert (clean.reference.rate, clean.reference.noise, clean.rate) == (0.0, None, 0.4)
        assert clean.keep.uses == "a scorer trained on clean pairs"
        assert clean.reference.budget == clean.budget == asked["given_clean"]["clip"].budget


@pytest.mark.promise("at rate 0 the oracle is the baseline's run, whatever trials chose for each")
def test_an_oracle_without_noise_is_the_run_of_the_baseline(tmp_path: Path) -> None:
    file = tmp_path / "kept.yaml"
    rows = "[{method: sogclr, keep: oracle}, clip, {method: clip, label: bound, keep: oracle}]"
    file.write_text(SUITE.replace("rates: [0.4]", "rates: [0.0, 0.4]").replace("[sogclr]", rows))
    suite = load_suite(file, ["tune={trials: 2, rate: 0, lr: [1.0e-3, 9.0e-3]}"])
    trials = [tune.Trial({"lr": lr}, 0, 1000, "", None, lr) for lr in (1e-3, 2e-3, 3e-3)]
    chosen = {
        row.label: tune.Choice((trial,), ((trial.changes, trial.score),), {})
        for row, trial in zip(suite.methods, trials, strict=True)
    }
    runs = {(run.label, run.rate): run for run in tune.tuned_suite(suite, chosen).cells()}
    assert runs["bound", 0.0].key == runs["clip", 0.0].key
    assert [runs[label, 0.0].train.lr for label in ("bound", "sogclr")] == [2e-3, 1e-3]
    assert runs["bound", 0.4].train.lr == 3e-3
    tried = tune.trial_suite(suite, {"bound": {0: {}, 1: {"lr": 0.003}}}, {}).cells()
    assert {run.train.lr for run in tried} == {suite.train.lr, 0.003}


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["data.keep=oracel"], "data.keep.kind: 'oracel' is not offered; did you mean 'oracle'?"),
        (["data.keep=random"], "data.keep.share: random needs it"),
        (["data.keep={kind: oracle, share: 0.5}"], "data.keep.share: oracle has none; omit it"),
        (["data.keep_rule=pases"], "data.keep_rule: 'pases' should be 'samples' or 'passes'; did you mean 'passes'?"),
        (["data.keep={kind: random, share: 0.5, by: clip}"], "no run of this suite scores the pairs; omit it"),
        (["data.keep={kind: score, share: 0.5, teacher: free}"], "valid: given, given_clean, paid"),
        (
            ["data.keep={kind: score, share: 0.5, by: sogclrr}"],
            "data.keep.by: 'sogclrr' is not an entry without keep; did you mean 'sogclr'?",
        ),
        (
            ["data.keep={kind: score, share: 0.5, teacher: given_clean}", "noise.natural=true"],
            "data.keep: uses a scorer trained on clean pairs, which is unknown for natural noise",
        ),
        (
            ["methods=[clip, {method: ncu, keep: {kind: score, share: 0.5, by: clip}}]"],
            "ncu starts from a run of clip, which scores its pairs: omit keep.by and keep.teacher",
        ),
        (
            ["data.keep=oracle", "noise.kind=resampled_positives"],
            "data.keep: oracle needs a fixed set of clean pairs, which resampled_positives leaves none",
        ),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, overrides: list[str], said: str) -> None:
    with pytest.raises(UserError) as caught:
        run_with(tmp_path, *overrides)
    assert str(caught.value).endswith(said)


def test_a_treatment_is_one_entry(tmp_path: Path) -> None:
    keep = DataSelection("second", "every second pair", lambda asked: np.arange(0, len(asked.keys), 2))
    KEEPS.add(keep)
    try:
        run, untreated = run_with(tmp_path, "data.keep=second"), run_with(tmp_path)
        assert kept_keys(run) == list(InputsReader().inputs(untreated).pairs.keys[::2])
        assert run.key != untreated.key
        assert run.keep.label == "second"
        with pytest.raises(UserError, match=r"data.keep.kind: 'secnd' is not offered; did you mean 'second'\?"):
            run_with(tmp_path, "data.keep=secnd")
        with pytest.raises(UserError, match="'second' is already a data selection"):
            KEEPS.add(keep)
    finally:
        KEEPS.remove("second")
    with pytest.raises(UserError, match="'second' is not offered"):
        run_with(tmp_path, "data.keep=second")


def test_more_trusted_pairs_than_there_are_clean_ones(tmp_path: Path) -> None:
    run = run_with(tmp_path, "data.keep={kind: trusted, rows: 100000}")
    with pytest.raises(UserError, match=r"keep: trusted 100000: 100000 trusted pairs were asked for, but only \d+ are"):
        InputsReader().inputs(run)


def test_costs_are_forecast_without_the_data(tmp_path: Path) -> None:
    away = ("data.name=far", "data.rows=1000", "train.augment=none", "data.keep=oracle", "budget={epochs: 4}")
    (planned,) = Planner(Store(tmp_path / "out"), here=False).plan([run_with(tmp_path, *away)])
    assert planned.resolved.steps == 4 * (1000 // 16)
    assert planned.resolved.epoch_steps == 600 // 16


@pytest.mark.parametrize("keep", ["oracle", "{kind: random, share: 0.6}", "{kind: score, share: 0.6}"])
def test_a_forecast_draws_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str) -> None:
    """Among the millions of rows of cc3m_features it took minutes; costs follow from the number of rows."""
    monkeypatch.setattr("bench.counter.hash_order", lambda *_: pytest.fail("rows were drawn"))
    away = ("data.name=far", "data.rows=1000", "train.augment=none", f"data.keep={keep}", "budget={epochs: 4}")
    run = run_with(tmp_path, *away, "budget_rule=additional")
    planned = Planner(Store(tmp_path / "out"), here=False).plan([run.reference, run] if run.reference else [run])[-1]
    assert planned.resolved.epoch_steps == 600 // 16
    assert planned.resolved.steps == 4 * (1000 // 16)


def test_treated_rows_run_and_their_marks_reach_the_report(
    tmp_path: Path, unreported: Callable[[Path, str], Path]
) -> None:
    rows = (
        "[clip, {method: clip, label: bound, keep: oracle}, "
        "{method: clip, label: control, keep: {kind: random, share: 0.6}}]"
    )
    file, out = tmp_path / "kept.yaml", unreported(tmp_path / "out", "kept")
    file.write_text(
        SUITE.replace("[sogclr]", rows).replace("budget:", "seeds: [0, 1, 2]\nbudget:").replace(", noise_detection", "")
    )
    call_bench("run", file, "--results", out)
    store = Store(out)
    results = load("kept", store)
    assert results.states()["done"] == 9
    assert list(results.ranked) == ["clip", "control"]
    found = {table.name: table for table in tables(results)}
    by_label = {row.label: row for row in found["zero_shot"].rows if row.method}
    assert [by_label[label].mark.replace("¶", "") for label in ("clip", "bound", "control")] == ["", "§", ""]
    assert not any(cell.bold for table in found.values() for row in table.rows if row.uses for cell in row.cells)
    assert notes_for(found["zero_shot"].rows)["§"] == "uses the truth, which no method has: never bold, never ranked"
    said = [note for note in found["zero_shot"].footnotes if note.startswith(("bound: ", "control: "))]
    assert said[0].startswith("bound: trained on the pairs that are known to be clean (")
    assert said[1].endswith("; as many samples as without selection, so kept pairs are repeated.")
    assert "pairs" not in found, "two steps teach nothing, and rows that have not learned are not paired"
    assert {run.manifest is None for run in results.runs if run.method == "bound"} == {True}
    compared = call_bench("compare", "kept", "bound", "--results", out)
    assert "note: bound uses the truth, which no method has" in compared


def test_untreated_settings_are_the_defaults() -> None:
    treated = DataSettings.model_validate({"keep": {"kind": "random", "share": 0.5}, "keep_rule": "passes"})
    assert treated.with_all_pairs == DataSettings()
    assert treated.content() == DataSettings().content(), "a run's own content has it"
