"""Grouped BatchNorm: fixed groups, one move of the running statistics a step."""

from __future__ import annotations

import torch
from timm.layers import BatchNormAct2d
from torch import nn

from bench.checks import lab
from bench.distributed import Group
from bench.towers.batchnorm import GroupedBatchNorm2d, group_batchnorm, grouped_norms, record_statistics
from bench.training.optimizer import set_trainable
from methods.ncu import Ncu


def batch(rows: int = 12) -> torch.Tensor:
    return torch.randn(rows, 4, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 + 1


def test_one_group_is_batchnorm() -> None:
    plain = nn.BatchNorm2d(4).double()
    grouped = GroupedBatchNorm2d(nn.BatchNorm2d(4).double(), 12)
    x = batch()
    torch.testing.assert_close(grouped(x), plain(x))
    Group().commit_batchnorm([grouped])
    torch.testing.assert_close(grouped.running_mean, plain.running_mean)
    torch.testing.assert_close(grouped.running_var, plain.running_var)
    torch.testing.assert_close(grouped.eval()(x), plain.eval()(x))
    assert grouped.seen == [], "what is evaluated is not recorded"


def test_splitting_a_batch_changes_neither_output_nor_statistics() -> None:
    whole, split = (GroupedBatchNorm2d(nn.BatchNorm2d(4).double(), 4) for _ in range(2))
    x = batch()
    torch.testing.assert_close(torch.cat([split(x[:8]), split(x[8:])]), whole(x), rtol=0, atol=0)
    for norm in (whole, split):
        Group().commit_batchnorm([norm])
    torch.testing.assert_close(split.running_var, whole.running_var, rtol=0, atol=0)
    expected = torch.stack([part.mean((0, 2, 3)) for part in x.split(4)]).mean(0) * 0.1
    torch.testing.assert_close(whole.running_mean, expected)


def test_a_second_encoding_is_not_recorded() -> None:
    norm = GroupedBatchNorm2d(nn.BatchNorm2d(4).double(), 4)
    norm(batch())
    record_statistics([norm], False)
    norm(batch() + 5)
    record_statistics([norm], True)
    assert len(norm.seen) == 3
    Group().commit_batchnorm([norm])
    assert norm.seen == []


def test_timm_norms_keep_their_activation() -> None:
    block = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Sequential(BatchNormAct2d(4, act_layer=nn.ReLU)))
    reference = BatchNormAct2d(4, act_layer=nn.ReLU).double()
    group_batchnorm(block, 4)
    norm = block[1][0]
    assert isinstance(norm, GroupedBatchNorm2d)
    norm.double()
    torch.testing.assert_close(norm(batch(4)), reference(batch(4)))


def test_a_frozen_backbone_keeps_its_statistics_though_its_projection_trains() -> None:
    towers = lab.TinyTowers("timm")
    method = lab.build_adapter(Ncu).float()
    method.prepare(towers)
    for phase, moves in zip(method.phases(), (False, True), strict=True):
        set_trainable(method, towers, phase)
        norms = grouped_norms(towers)
        before = [norm.running_mean.clone() for norm in norms]
        towers.encode_image(lab.some_rows(towers, 16).images)
        Group().commit_batchnorm(norms)
        assert [not torch.equal(norm.running_mean, old) for norm, old in zip(norms, before, strict=True)] == [
            moves
        ] * len(norms)
        assert any(p.requires_grad for p in towers.visual.parameters()), "the projection trains in both phases"
