"""A method says `official-checked` or `formula-checked` only with the values it rests on, in a file beside its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from bench.adapters import describe, oracle_file, registry
from bench.checks import lab, oracles
from bench.checks.pool import RankPool
from bench.checks.subject import Subject, loss_and_gradients
from bench.checks.suite import CHECKS, Result, run_checks, subject_of
from bench.cli import app
from bench.errors import UserError
from methods.clip import Clip
from methods.protocol import Batch
from methods.sogclr import Sogclr

pytestmark = pytest.mark.usefixtures("own_plugins")
CODE = """\
import dataclasses

from methods.{module} import {base}


class Mine({base}):
    name = "{name}"
    about = dataclasses.replace({base}.about, fidelity="{claim}")
"""
SOURCE = {"repository": "github.com/mlfoundations/open_clip", "commit": "89fb801", "where": "src/open_clip/loss.py"}
TEMPERATURE = 0.07


def plugin(folder: Path, claim: str = "official-checked", base: type = Clip) -> Path:
    path = folder / "mine.py"
    path.write_text(CODE.format(module=base.__module__.split(".")[1], base=base.__name__, name="mine", claim=claim))
    return path


def bring(folder: Path, cases: list[dict[str, Any]], source: dict[str, str] = SOURCE) -> Path:
    path = folder / "mine.oracles.json"
    path.write_text(json.dumps({"source": source, "cases": cases}))
    return path


def clip_case() -> dict[str, Any]:
    """One of open_clip's values, which stand in values.json."""
    entry = next(case for case in oracles.values()["clip"]["cases"] if abs(1 / case["logit_scale"] - 0.07) < 1e-12)
    given, expected = oracles.values()["inputs"]["A"], entry["out"]["A"]
    gradient = {key: expected[f"grad_{key}"] for key in ("image", "text") if f"grad_{key}" in expected}
    step = {
        "inputs": {key: given[key] for key in ("image", "text")},
        "loss": expected["loss"],
        "gradient": {**gradient, "scale.rho": oracles.values()["clip"]["grad_log_scale_A_at_0.07"]},
    }
    return {"name": "A at 0.07", "config": {"temperature": TEMPERATURE}, "steps": [step]}


def traced(kind: type[Sogclr], config: dict[str, Any]) -> dict[str, Any]:
    """Three steps over two epochs of a method that keeps state, with ids."""
    method, steps = lab.build_adapter(kind, rows=12, batch=4, dim=5, **config), []
    for number, (ids, epoch) in enumerate((([0, 3, 5, 7], 0), ([3, 4, 5, 11], 0), ([0, 3, 5, 7], 1))):
        if number and epoch > steps[-1]["epoch"]:
            method.end_epoch(steps[-1]["epoch"])
        draws = torch.Generator().manual_seed(number)
        z = {
            key: torch.nn.functional.normalize(torch.randn(4, 5, generator=draws, dtype=torch.float64), dim=1)
            for key in ("image", "text")
        }
        leaves = {key: x.requires_grad_() for key, x in z.items()}
        with torch.no_grad():
            observed = method.observe(leaves, Batch(torch.tensor(ids), lab.a_clock(number, epoch=epoch)))
        values = loss_and_gradients(method, lab.sum_of_tiles(method, leaves, observed), leaves)
        method.after_step(lab.a_clock(number, epoch=epoch))
        step = {
            "inputs": {key: x.tolist() for key, x in z.items()},
            "ids": ids,
            "epoch": epoch,
            "loss": float(values["loss"]),
            "gradient": {"image": values["gradient of image"].tolist()},
            "state": {"log_u_image": method.state_dict()["log_u_image"].tolist()},
        }
        steps.append(step)
    return {"name": "trace", "config": config, "rows": 12, "steps": steps}


def oracle_check(target: str | Path) -> Result:
    chosen = tuple(check for check in CHECKS if check.name == "oracles")
    (result,) = run_checks(subject_of(str(target)), RankPool(), chosen)
    return result


@pytest.mark.parametrize("claim", ["official-checked", "formula-checked"])
def test_a_claim_without_values_is_refused_and_not_printed(tmp_path: Path, claim: str) -> None:
    file = plugin(tmp_path, claim)
    result = oracle_check(file)
    assert result.outcome == "failed"
    assert f"about.fidelity is '{claim}', which needs values of other code in mine.oracles.json" in result.reason
    assert oracle_file.printed_fidelity("mine", registry.find_method("mine").about) == "unchecked"
    assert "fidelity unchecked (" in " ".join(describe.describe_method("mine").split())


@pytest.mark.parametrize("claim", ["derived", "reconstructed"])
def test_a_method_that_claims_less_needs_none(tmp_path: Path, claim: str) -> None:
    file = plugin(tmp_path, claim)
    assert oracle_check(file).outcome == "skipped"
    assert oracle_file.printed_fidelity("mine", registry.find_method("mine").about) == claim


@pytest.mark.parametrize("claim", ["official-checked", "formula-checked"])
def test_right_values_pass_and_are_printed(tmp_path: Path, claim: str) -> None:
    file = plugin(tmp_path, claim)
    bring(tmp_path, [clip_case()])
    assert oracle_check(file).outcome == "passed"
    assert oracle_file.printed_fidelity("mine", registry.find_method("mine").about) == claim


@pytest.mark.parametrize(
    ("key", "message"),
    [("loss", "loss of step 0"), ("image", "gradient of image of step 0"), ("scale.rho", "gradient of scale.rho")],
)
def test_a_wrong_value_names_file_and_case(tmp_path: Path, key: str, message: str) -> None:
    case, file = clip_case(), plugin(tmp_path)
    step = case["steps"][0]
    if key == "loss":
        step["loss"] *= 1 + 1e-8
    elif key == "image":
        step["gradient"]["image"] = (torch.tensor(step["gradient"]["image"]).double() * (1 + 1e-8)).tolist()
    else:
        step["gradient"][key] *= 1 + 1e-8
    bring(tmp_path, [case])
    result = oracle_check(file)
    assert result.outcome == "failed"
    assert f"mine.oracles.json, case 'A at 0.07': {message}" in result.reason


@pytest.mark.parametrize("start", ["batch", "epoch"])
def test_a_trace_with_state_over_epochs(tmp_path: Path, start: str) -> None:
    file, case = plugin(tmp_path, base=Sogclr), traced(Sogclr, {"start": start} if start == "epoch" else {})
    bring(tmp_path, [case])
    assert oracle_check(file).outcome == "passed"
    case["steps"][2]["state"]["log_u_image"][3] += 1e-6
    bring(tmp_path, [case])
    assert "case 'trace': log_u_image after step 2" in oracle_check(file).reason


def test_a_name_that_is_no_gradient_or_state_is_said(tmp_path: Path) -> None:
    case, file = clip_case(), plugin(tmp_path)
    case["steps"][0]["gradient"]["scale.roh"] = 1.0
    bring(tmp_path, [case])
    assert "case 'A at 0.07': there is no gradient of scale.roh; did you mean 'gradient of scale.rho'?" in (
        oracle_check(file).reason
    )


def test_official_needs_a_repository_and_a_commit(tmp_path: Path) -> None:
    bring(tmp_path, [clip_case()], {"where": "mpmath, 50 digits"})
    assert "needs source.repository and source.commit" in oracle_check(plugin(tmp_path)).reason
    assert oracle_file.printed_fidelity("mine", registry.find_method("mine").about) == "unchecked"
    registry.clear_caches()
    assert oracle_check(plugin(tmp_path, "formula-checked")).outcome == "passed"


def changed(**of_step: Any) -> str:
    case = clip_case()
    case["steps"][0].update(of_step)
    return json.dumps({"source": SOURCE, "cases": [case]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"source": {},\n "cases": [}', r"mine\.oracles\.json:2: not valid JSON: "),
        ("[]", r"mine\.oracles\.json: the file: \[\] should be "),
        (json.dumps({"source": SOURCE}), r"mine\.oracles\.json: cases: is missing"),
        (json.dumps({"source": SOURCE, "cases": []}), r"mine\.oracles\.json: cases: \[\] is too short"),
        (json.dumps({"source": {**SOURCE, "comit": "1"}, "cases": [{}]}), r"source.comit: .* did you mean 'commit'\?"),
        (changed(los=1.0), r"cases\.0\.steps\.0\.los: unknown key; did you mean 'loss'\?"),
        (changed(loss="high"), r"cases\.0\.steps\.0\.loss: 'high' should be a valid number"),
        (changed(gradient={"image": [[1.0], [1.0, 2.0]]}), r"steps\.0\.gradient\.image: should be a finite number, or"),
        (changed(inputs={"image": [[1.0]]}), r"steps\.0\.inputs\.text: should be a list of B lists of D numbers"),
        (changed(inputs={"image": [[1.0]], "text": [[1.0], [0.0]]}), r"inputs\.text: should have 1 rows, as image"),
        (changed(ids=[0, 0]), r"steps\.0\.ids: should be \d+ different rows"),
        (changed(ids=[*range(60, 200)]), r"steps\.0\.ids: should be \d+ different rows"),
        (changed(loss=None, gradient={}), r"cases: no step has a loss or a gradient"),
    ],
)
def test_a_malformed_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = plugin(tmp_path)
    (tmp_path / "mine.oracles.json").write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        oracle_check(file)
    assert "\n" not in str(caught.value)
    result = CliRunner().invoke(app, ["methods", "--plugin", str(file)])
    assert (type(result.exception), str(result.exception)) == (UserError, str(caught.value))


def test_an_unknown_hyper_parameter_names_file_and_case(tmp_path: Path) -> None:
    file = plugin(tmp_path)
    bring(tmp_path, [{**clip_case(), "config": {"temprature": 0.07}}])
    message = r"mine\.oracles\.json: case 'A at 0.07': .*unknown hyper-parameter of mine; did you mean 'temperature'\?"
    with pytest.raises(UserError, match=message):
        oracle_check(file)


def test_every_shipped_claim_rests_on_values(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = [
        name
        for name in registry.method_names()
        if registry.find_method(name).about.fidelity in oracle_file.CHECKED_FIDELITIES
    ]
    assert len(claims) >= 11
    for name in claims:
        assert oracles.of_other_code(name), name
    monkeypatch.setattr(oracles, "of_other_code", lambda _: [])
    assert oracle_check("clip").outcome == "failed", "a shipped method is not trusted either"


def test_an_entry_point_gets_no_values_of_a_shipped_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of `gaussian` belong to the evaluation; a package's method of that name brings its own."""
    folder = tmp_path / "site"
    info = folder / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bench.methods]\ngaussian = my_gaussian\n")
    text = CODE.format(module="clip", base="Clip", name="gaussian", claim="official-checked")
    (folder / "my_gaussian.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    registry.clear_caches()
    try:
        assert subject_of("gaussian") == Subject("gaussian")
        assert "my_gaussian.oracles.json" in oracle_check("gaussian").reason
        assert oracle_file.printed_fidelity("gaussian", registry.find_method("gaussian").about) == "unchecked"
    finally:
        sys.modules.pop("my_gaussian", None)
