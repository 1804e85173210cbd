"""Stored records are found by task and protocol version, not by pixels: evaluation sets may not change under a version.

`python tests/evaluation/test_pinned.py` writes the hashes anew.
"""

from __future__ import annotations

import json
from pathlib import Path

from bench import data
from bench.evaluation.tasks import PROTOCOL

PINNED = Path(__file__).with_name("pinned.json")


def hashes() -> dict[str, str]:
    found = {
        f"{name}@{size}": data.load_dataset(name, size).content_hash
        for name in data.dataset_names()
        for size in (32, 64)
    }
    return {**found, "templates": json.dumps({name: list(prompts) for name, prompts in data.TEMPLATES.items()})}


def test_evaluation_sets_are_those_of_the_protocol_version() -> None:
    pinned = json.loads(PINNED.read_text())
    assert pinned["protocol"] == PROTOCOL, "write the hashes of this protocol version"
    assert hashes() == pinned["sets"], "evaluation sets changed: raise PROTOCOL, then write the hashes anew"


if __name__ == "__main__":
    PINNED.write_text(json.dumps({"protocol": PROTOCOL, "sets": hashes()}, indent=1) + "\n")
