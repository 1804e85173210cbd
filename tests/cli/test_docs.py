"""The page on new methods works as printed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "new_method.md"


def test_the_example_method_runs_beside_clip(tmp_path: Path) -> None:
    python, yaml = (re.search(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.S) for kind in ("python", "yaml"))
    assert python is not None
    assert yaml is not None
    (tmp_path / "smoothed_clip.py").write_text(python[1])
    (tmp_path / "mine.yaml").write_text(yaml[1])
    shorter = ["budget={samples: 128}", "train.batch=64", "seeds=[0]", "noise.rates=[0.4]"]
    shorter.append("evaluate.tasks=[retrieval]")
    command = [sys.executable, "-m", "bench", "run", "mine.yaml", "--plugin", "smoothed_clip.py", "--results", "out"]
    done = subprocess.run(
        [*command, *(part for one in shorter for part in ("--set", one))], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    plan = json.loads((tmp_path / "out" / "mine" / "plan.json").read_text())
    assert [entry["label"] for entry in plan["methods"]] == ["clip", "smoothed_clip", "smoothed_clip 0.3"]
    assert "CLIP, label smoothing" in (tmp_path / "out" / "mine" / "report.html").read_text()
