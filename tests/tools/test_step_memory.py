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


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--ranks", "0"], "--ranks 0: should be 1 or more"),
        (["--ranks", "3"], "batch 512 is not a multiple of the number of ranks 3"),
        (["--gpu", "h10"], "--gpu h10: no known GPU; did you mean 'H100'?"),
        (["--only", "clipp"], "did you mean 'clip'?"),
    ],
)
def test_what_cannot_be_counted_is_one_line(given: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tools/vit_l14.yaml", *given, "--set", *SMALL])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err.splitlines()[-1]
