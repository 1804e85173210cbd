"""tools/gpu_bench.py measures every method, all ways of stepping and open_clip's loop, on whatever device there is."""

from __future__ import annotations

import json
import math
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.adapters import registry
from bench.errors import UserError
from bench.training.job import available_device

TOOL = Path(__file__).parents[2] / "tools" / "gpu_bench.py"


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(TOOL))


@pytest.fixture(scope="module")
def scale(tool: dict[str, Any]) -> Any:
    (name, towers), *_ = tool["SMALL"].towers.items()
    sizes = {
        "batches": (16, 32),
        "micro": 8,
        "large": 48,
        "steps": 1,
        "turn": 1,
        "matmul": 64,
        "pictures": 40,
        "shards": 4,
    }
    return replace(tool["SMALL"], towers={name: towers}, **sizes)


@pytest.mark.filterwarnings("ignore")  # of open_clip_train and what it imports
def test_every_part_gives_numbers(
    tool: dict[str, Any], scale: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "found.json"
    found = tool["measured"](scale, available_device(), path=path)
    assert json.loads(path.read_text()) == json.loads(json.dumps(found))
    sizes = {
        name: [(row["batch"], row["micro-batch"]) for row in found[name]] for name in ("training", "shards", "large")
    }
    assert sizes["training"] == [(16, 16), (16, 8), (32, 32), (32, 8)]
    assert sizes["shards"] == [(16, 16), (32, 32)]
    assert sizes["large"] == [(48, 8)]
    for row in (*found["training"], *found["shards"], *found["large"]):
        assert all(row[key] > 0 for key in ("samples/s", "TFLOP/s", "share of matmul", "peak GiB"))
        assert 0 <= row["waiting for data"] < 1
    assert [row["rows"] for row in found["peer"]] == ["synthetic", "JPEG shards"]
    for row in found["peer"]:
        assert all(row[key] > 0 for key in ("samples/s", "open_clip's", "ratio"))
    (equal,) = found["equality"]
    assert max(equal[key] for key in ("loss", "gradient_norm", "weights")) < 1e-4
    assert [row["method"] for row in found["losses"]] == list(registry.names())
    assert all(math.isfinite(row["ms"]) and row["ms"] > 0 for row in found["losses"])
    assert "share of matmul" in capsys.readouterr().out
    (goal,) = found["goals"]
    assert (goal["wanted"], goal["measured"]) == (1.0, min(row["ratio"] for row in found["peer"]))


def test_a_part_is_added_to_a_file_of_the_same_measurement_alone(
    tool: dict[str, Any], scale: Any, tmp_path: Path
) -> None:
    path, device = tmp_path / "found.json", available_device()
    tool["measured"](scale, device, ("equality",), path)
    earlier = {**json.loads(path.read_text()), "training": [{"towers": "ViT-B/32", "share of matmul": 0.5}]}
    path.write_text(json.dumps(earlier))
    found = tool["measured"](scale, device, (), path)
    assert found["equality"] == earlier["equality"]
    again = tool["measured"](scale, device, ("equality",), path)
    assert again["training"] == earlier["training"]
    assert again["goals"] == [
        {"goal": "ViT-B/32, synthetic rows: share of matmul", "wanted": 0.45, "measured": 0.5, "reached": True}
    ]
    with pytest.raises(UserError, match="was measured with another scale"):
        tool["measured"](replace(scale, micro=4), device, (), path)
    path.write_text("{")
    with pytest.raises(UserError, match="is no file of gpu_bench"):
        tool["measured"](scale, device, (), path)


def test_the_peer_has_the_same_towers(tool: dict[str, Any], scale: Any) -> None:
    peer = tool["compared"].__globals__
    (towers,) = scale.towers.values()
    run, other = (tool["a_run"](scale, replaced, 1) for replaced in (towers, towers.model_copy(update={"dim": 16})))
    with tool["prepared"](run, available_device()) as job:
        model = peer["open_clip_model"](run, job.towers, available_device())
        for name in ("visual", "text"):
            own, theirs = (dict(getattr(one, name).named_parameters()) for one in (job.towers, model))
            assert {key: x.shape for key, x in own.items()} == {key: x.shape for key, x in theirs.items()}
        with pytest.raises(ValueError, match="open_clip's tower has"):
            peer["open_clip_model"](other, job.towers, available_device())


@pytest.mark.parametrize(
    ("words", "said"), [(["training"], "name FILE.json before it"), (["a.json", "all"], "no part")]
)
def test_a_wrong_word_is_one_line(
    tool: dict[str, Any], words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        tool["main"](words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
