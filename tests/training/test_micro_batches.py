"""Micro-batches change nothing: one, two or four of them, with grouped BatchNorm and with dropout encoded twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bench.store import RunStore, RunWriter, Store
from bench.training.inputs import InputsReader
from bench.training.job import make_job
from bench.training.loop import TrainingJob, train
from bench.training.schedule import ResolvedSteps

from ..towers.small import bert_folder, run_on

BATCH = 32


Writer = Callable[[RunStore], RunWriter]


def job(folder: Path, text: Path, micro: int | None, writer: Writer, **more: Any) -> TrainingJob:
    """Two steps of CLIP in fp64 on an RN50 in small and a BERT, groups of 8 rows.

    An epsilon far above every gradient makes AdamW SGD with momentum, which does not blow up last bits.
    """
    towers = {"image": "tiny-rn50", "text": str(text)}
    recipe = {"batch": BATCH, "bn_group": 8, "precision": "fp64", "lr": 10.0, "eps": 1e3, "weight_decay": 0.0, **more}
    run = run_on(towers, **recipe, micro_batch=micro)
    resolved = ResolvedSteps((("train", 2),), {"train": 1}, BATCH, 100)
    return make_job(
        run,
        InputsReader().inputs(run),
        resolved,
        writer(Store(folder).run(f"micro-{micro}")),
        None,
        torch.device("cpu"),
    )


@pytest.mark.parametrize("micro", [16, 8])
def test_their_number_does_not_change_the_weights(tmp_path: Path, writer: Writer, micro: int) -> None:
    text = bert_folder(tmp_path / "bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    whole, cut = job(tmp_path, text, None, writer), job(tmp_path, text, micro, writer)
    before = {name: x.clone() for name, x in whole.towers.state_dict().items()}
    for one in (whole, cut):
        train(one)
    found = cut.towers.state_dict()
    for name, x in whole.towers.state_dict().items():
        torch.testing.assert_close(found[name], x, rtol=1e-9, atol=max(1e-14, 1e-9 * float(x.abs().max())), msg=name)
    statistics = [name for name in found if name.endswith("running_var")]
    assert len(statistics) == 19
    assert not any(torch.equal(before[name], found[name]) for name in statistics)


def test_dropout_is_drawn_again_as_it_was(tmp_path: Path, writer: Writer) -> None:
    """What each micro-batch's second encoding gives is, bit for bit, what the first gave; steps and places differ."""
    made = job(tmp_path, bert_folder(tmp_path / "bert"), 8, writer)
    assert any(isinstance(part, nn.Dropout) and part.p for part in made.towers.text.modules())
    seen: list[torch.Tensor] = []
    made.towers.text.register_forward_hook(lambda *call: seen.append(call[-1].detach().clone()))
    train(made)
    steps = [seen[:8], seen[8:]]
    assert len(seen) == 16
    for step in steps:
        for first, second in zip(step[:4], step[4:], strict=True):
            assert torch.equal(first, second)
    assert not torch.equal(steps[0][0], steps[1][0])
