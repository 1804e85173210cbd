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
from bench.training.job import available_device

TOOL = Path(__file__).parents[2] / "tools" / "gpu_bench.py"


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(TOOL))


@pytest.fixture(scope="module")
def scale(tool: dict[str, Any]) -> Any:
    (name, towers), *_ = tool["SMALL"].towers.items()
    sizes = {"batches": (16, 32), "micro": 8, "steps": 1, "matmul": 64, "pictures": 40}
    return replace(tool["SMALL"], towers={name: towers}, **sizes)


@pytest.mark.filterwarnings("ignore")  # of open_clip_train and what it imports
def test_every_part_gives_numbers(
    tool: dict[str, Any], scale: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "found.json"
    found = tool["measured"](scale, available_device(), tuple(tool["PARTS"]), path)
    assert json.loads(path.read_text()) == json.loads(json.dumps(found))
    sizes = {name: [(row["batch"], row["micro-batch"]) for row in found[name]] for name in ("training", "shards")}
    assert sizes == {
        "training": [(16, 16), (16, 8), (32, 32), (32, 8)],
        "shards": [(16, 16), (16, 8), (32, 32), (32, 8)],
    }
    for row in (*found["training"], *found["shards"]):
        assert all(row[key] > 0 for key in ("samples/s", "TFLOP/s", "share of matmul", "peak GiB"))
        assert 0 <= row["waiting for data"] < 1
    assert [row["rows"] for row in found["peer"]] == ["synthetic", "JPEG shards"]
    for row in found["peer"]:
        assert all(row[key] > 0 for key in ("samples/s", "open_clip's", "ratio"))
    assert [row["method"] for row in found["losses"]] == list(registry.method_names())
    assert all(math.isfinite(row["ms"]) and row["ms"] > 0 for row in found["losses"])
    assert "share of matmul" in capsys.readouterr().out


def test_the_peer_has_the_same_towers(tool: dict[str, Any], scale: Any) -> None:
    ((name, towers),) = scale.towers.items()
    other = replace(scale, towers={name: {**towers, "dim": 16}})
    run, smaller = (tool["a_run"](one, name, 16, 1, None) for one in (scale, other))
    with tool["prepared"](run, available_device()) as job:
        model = tool["peer_model"](run, job.towers, available_device())
        for part in ("visual", "text"):
            own, theirs = (dict(getattr(one, part).named_parameters()) for one in (job.towers, model))
            assert {key: x.shape for key, x in own.items()} == {key: x.shape for key, x in theirs.items()}
        with pytest.raises(ValueError, match="open_clip's tower has"):
            tool["peer_model"](smaller, job.towers, available_device())


@pytest.mark.parametrize("words", [["training"], ["a.json", "all"]])
def test_a_wrong_word_is_one_line(tool: dict[str, Any], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        tool["main"](words)
    assert ended.value.code == 2
    assert "no part" in capsys.readouterr().err
