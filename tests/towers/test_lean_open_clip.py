"""open_clip starts without transformers, and builds its text towers all the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import sys
import bench.towers.build
import open_clip.model
assert "transformers" not in sys.modules, "transformers was imported"
"""
TOWER = """
from open_clip.hf_model import HFTextEncoder
from bench.towers.build import open_clip_text
class Tokenizer: size = 32
config = {"hf_model_name": sys.argv[1], "hf_pooler_type": "cls_pooler", "hf_proj_type": "linear"}
tower = open_clip_text("own", config, 8, Tokenizer())
assert isinstance(tower, HFTextEncoder)
assert tower(__import__("torch").tensor([[1, 2, 3, 0]])).shape == (1, 8)
"""


@pytest.mark.parametrize("code", [WITHOUT, WITHOUT + TOWER])
def test_in_a_process_of_its_own(code: str, tmp_path: Path) -> None:
    from transformers import BertConfig

    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16}
    BertConfig(**sizes, num_hidden_layers=1, num_attention_heads=2).save_pretrained(tmp_path)
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(tmp_path)], check=True, timeout=1200)


def test_who_imported_transformers_keeps_it() -> None:
    code = "import transformers, bench.lean_open_clip; from open_clip import hf_model; assert hf_model.transformers"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=1200)
