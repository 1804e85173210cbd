"""The table of a step's memory."""

from __future__ import annotations

import pytest

from tools.step_memory import main

SMALL = (
    "towers={image: tiny-vit, dim: 32, vocabulary: 300, context: 12}",
    "train.batch=512",
    'data={name: synthetic, shards: "synthetic:600", size: 32}',
)


def test_it_prints_a_line_for_each_row_and_phase_and_whether_a_card_holds_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["tools/vit_l14.yaml", "--ranks", "2", "--only", "clip", "--gpu", "t4", "--set", *SMALL])
    head, row, fits = capsys.readouterr().out.splitlines()
    assert head.split() == [
        *("row", "phase", "weights", "gradients", "moments", "message", "sent"),
        *("activations", "features", "loss", "peak"),
    ]
    assert row.split()[:2] == ["clip", "train"]
    parts = [float(word) for word in row.split()[2:]]
    assert max(parts) == parts[-1] > 0
    assert fits.startswith("the largest peak is ")
    assert fits.endswith("% of the 16 GiB of one T4")
