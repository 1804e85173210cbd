"""Files of weights, pixels, tokens and batch norms of towers, against torchvision, torch and plain dictionaries."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from bench.catalogue.architectures import CIFAR_CHANNELS, CLIP_CHANNELS, IMAGENET_CHANNELS
from bench.checks import lab
from bench.errors import UserError
from bench.hashing import Absent
from bench.suite.settings import TowerSettings
from bench.suite.tower_files import files_hash
from bench.towers.batchnorm import GroupedBatchNorm2d, group_batchnorm, grouped_norms
from bench.towers.blocks import blocks
from bench.towers.build import build_towers, normalise
from bench.towers.pretrained import start_pretrained
from bench.towers.state_dicts import load_tensors, locate_weights, read_state_dict, start_from, tensors_of
from bench.towers.tokenization import SmallVocabulary
from methods.clip import Clip
from methods.protocol import Facts
from methods.siglip import Siglip

TEXTS = ["a photo of a red apple", "the black cat", "blue car, side view", "ice cream", "grinning face with big eyes"]


def state_of(towers: Any) -> dict[str, torch.Tensor]:
    return {name: x.clone() for name, x in towers.state_dict().items()}


def changed(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: x + 1 if x.is_floating_point() else x for name, x in state.items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# --- pixels and tokens ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [CLIP_CHANNELS, IMAGENET_CHANNELS, CIFAR_CHANNELS])
def test_pixels_are_torchvisions(channels: Any) -> None:
    from torchvision.transforms.functional import normalize, to_tensor

    pixels = np.random.default_rng(0).integers(0, 256, (3, 5, 7, 3)).astype(np.uint8)
    normalised = normalise(pixels, channels=channels)
    expected = torch.stack([normalize(to_tensor(image), *map(list, channels)) for image in pixels])
    assert normalised.shape == (3, 3, 5, 7)
    assert torch.allclose(normalised, expected, atol=1e-5)
    assert torch.equal(normalised, normalise(torch.from_numpy(pixels), channels=channels))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.text("abc xyz,.!é", max_size=40), min_size=1, max_size=5), st.integers(4, 30))
def test_a_row_of_tokens_begins_ends_and_is_padded(texts: list[str], length: int) -> None:
    vocabulary = SmallVocabulary(TEXTS, 120, length)
    rows = vocabulary(texts)
    assert rows.shape == (len(texts), length)
    assert rows.dtype == torch.int64
    for text, row in zip(texts, rows.tolist(), strict=True):
        end = row.index(vocabulary.end)
        assert row[0] == vocabulary.start
        assert set(row[end + 1 :]) <= {0}
        assert max(row) == vocabulary.end == vocabulary.size - 1  # open_clip reads out at the largest id
        whole = SmallVocabulary(TEXTS, 120, 200)([text])[0].tolist()
        assert row[1:end] == whole[1 : whole.index(vocabulary.end)][: length - 2]


def test_a_vocabulary_depends_on_the_set_of_texts_alone() -> None:
    one, other = SmallVocabulary(TEXTS, 90, 16), SmallVocabulary([*TEXTS[::-1], *TEXTS], 90, 16)
    assert one.size == other.size <= 90
    assert torch.equal(one(TEXTS), other(TEXTS))
    assert torch.equal(one(["A Photo", "a photo"])[0], one(["A Photo", "a photo"])[1])
    assert torch.equal(one(TEXTS)[1], one([TEXTS[1]])[0])


# --- batch norms ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [2, 4, 8, 100])
def test_each_group_is_normalised_by_itself(group: int) -> None:
    norm = nn.BatchNorm2d(3, momentum=0.3)
    nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    grouped = GroupedBatchNorm2d(norm, group)
    x = torch.randn(8, 3, 4, 4) * 2 + 1
    out, expected = grouped(x), []
    for part in x.split(group):
        mean, var = part.mean((0, 2, 3), keepdim=True), part.var((0, 2, 3), unbiased=False, keepdim=True)
        unit = (part - mean) / (var + norm.eps).sqrt()
        expected.append(unit * norm.weight[:, None, None] + norm.bias[:, None, None])
    assert torch.allclose(out, torch.cat(expected), atol=1e-5)
    assert len(grouped.seen) == -(-8 // group)
    for (mean, var), part in zip(grouped.seen, x.split(group), strict=True):
        assert torch.allclose(mean, part.mean((0, 2, 3)), atol=1e-5)
        assert torch.allclose(var, part.var((0, 2, 3), unbiased=True), atol=1e-4)


def test_norms_are_replaced_at_any_depth_and_others_are_refused() -> None:
    tower = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(nn.BatchNorm2d(4), nn.ReLU()), nn.BatchNorm2d(4))
    weights = [norm.weight for norm in tower.modules() if isinstance(norm, nn.BatchNorm2d)]
    group_batchnorm(tower, 2)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in tower.modules())
    assert all(norm.weight is weight for norm, weight in zip(grouped_norms(tower), weights, strict=True))
    with pytest.raises(ValueError, match="1 is a BatchNorm1d"):
        group_batchnorm(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), 2)
    with pytest.raises(ValueError, match="running statistics"):
        GroupedBatchNorm2d(nn.BatchNorm2d(2, track_running_stats=False), 2)


def test_blocks_are_the_innermost_repeated_parts() -> None:
    towers = lab.TinyTowers()
    assert [len(blocks(tower)) for tower in (towers.visual, towers.text)] == [2, 3]
    assert {type(block).__name__ for block in blocks(towers.visual)} == {"ResidualAttentionBlock"}
    assert len(blocks(lab.TinyTowers("resnet").visual)) == 4
    with pytest.raises(UserError, match="Linear has no blocks"):
        blocks(nn.Linear(2, 2))


# --- files of weights -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["safetensors", "plain", "wrapped", "module", "top level"])
def test_weights_come_back_from_every_form_of_file(tmp_path: Path, form: str) -> None:
    towers = lab.TinyTowers()
    wanted = changed(state_of(towers))
    top = {name.removeprefix("text.") if form == "top level" else name: x for name, x in wanted.items()}
    path = tmp_path / f"weights.{'safetensors' if form == 'safetensors' else 'pt'}"
    given_ = {**top, "logit_scale": torch.ones(()), "visual.attn_mask": torch.ones(2)}
    if form == "safetensors":
        save_file({name: x.contiguous() for name, x in given_.items()}, path)
    else:
        given_ = {f"module.{name}": x for name, x in given_.items()} if form in ("module", "wrapped") else given_
        torch.save({"state_dict": given_, "epoch": 3} if form == "wrapped" else given_, path)
    load_tensors(path, {"towers": towers})
    assert equal(state_of(towers), wanted)
    names = tensors_of(path)
    assert all(name.startswith("towers.") for name in names)
    assert not any(re.search("logit_scale|attn_mask", name) for name in names)


class WithUsualNames(Siglip):
    """A method whose tensors are named as those that files of other trainers have and nobody uses."""

    def __init__(self) -> None:
        super().__init__(Siglip.Config(), Facts(8, 4, 16, 0))
        self.logit_scale, self.norm = torch.nn.Parameter(torch.ones(())), torch.nn.BatchNorm1d(2)


def test_a_methods_own_tensors_are_not_taken_for_unused_ones(tmp_path: Path) -> None:
    towers, method = lab.TinyTowers(), WithUsualNames()
    state = changed(method.state_dict())
    torch.save({"towers": state_of(towers), "method": state, "step": 5}, tmp_path / "c.pt")
    load_tensors(tmp_path / "c.pt", {"towers": towers, "method": method})
    assert equal(method.state_dict(), state)


def test_our_checkpoint_has_towers_and_method(tmp_path: Path) -> None:
    towers, method = lab.TinyTowers(), Siglip(Siglip.Config(), Facts(8, 4, 16, 0))
    state = {"towers": changed(state_of(towers)), "method": changed(method.state_dict())}
    torch.save({**state, "step": 5}, tmp_path / "c.pt")
    load_tensors(tmp_path / "c.pt", {"towers": towers, "method": method})
    assert equal(state_of(towers), state["towers"])
    assert equal(method.state_dict(), state["method"])


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    towers = lab.TinyTowers()
    state = state_of(towers)
    dropped, bent = sorted(state)[0], sorted(state)[3]
    wrong = {name: x for name, x in state.items() if name != dropped}
    wrong[bent] = torch.zeros(2, 9)
    wrong["visual.extra"] = torch.zeros(4)
    torch.save(wrong, tmp_path / "w.pt")
    before = state_of(towers)
    with pytest.raises(UserError) as raised:
        load_tensors(tmp_path / "w.pt", {"towers": towers})
    message = str(raised.value)
    assert f"lacks towers.{dropped} {list(state[dropped].shape)}" in message
    assert f"{bent} is [2, 9] in the file, but {list(state[bent].shape)} in the model" in message
    assert "has visual.extra [4], which the model does not" in message
    assert equal(state_of(towers), before)
    torch.save({"visual.a": torch.zeros(1)}, tmp_path / "few.pt")
    with pytest.raises(UserError, match=r"; and \d+ more$"):
        load_tensors(tmp_path / "few.pt", {"towers": towers})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hi", "neither safetensors nor a state dict"),
        (
            b"\x80\x02cos\nsystem\n",
            "a state dict of tensors: it holds something else than tensors, which is never executed$",
        ),
        ([1, 2], "holds a list"),
        ({"a": "text"}, "'a' is of type str"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "odd.pt"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(UserError, match=message):
        tensors_of(path)
    os.mkfifo(tmp_path / "pipe.pt")
    with pytest.raises(UserError, match="it is a FIFO, not a file"):
        tensors_of(tmp_path / "pipe.pt")
    assert files_hash(str(tmp_path / "pipe.pt"), ()) == Absent(
        f"{tmp_path / 'pipe.pt'}: cannot be read: it is a FIFO, not a file"
    )
    with pytest.raises(UserError, match="no such file"):
        locate_weights(str(tmp_path / "none.pt"))
    assert locate_weights(str(path)) == path


def test_a_start_gives_the_towers_and_what_the_method_shares(tmp_path: Path) -> None:
    towers = lab.TinyTowers()
    wanted = changed(state_of(towers))
    torch.save({**wanted, "logit_scale": torch.tensor(2.5)}, tmp_path / "clip.pt")
    learned = Clip(Clip.Config(), Facts(8, 4, 16, 0))
    start_from(tmp_path / "clip.pt", learned, towers)
    assert equal(state_of(towers), wanted)
    assert float(learned.scale.rho.detach()) == 2.5
    fixed = Clip(Clip.Config(learnable_scale=False), Facts(8, 4, 16, 0))
    before = fixed.scale.rho.clone()
    start_from(tmp_path / "clip.pt", fixed, towers)
    assert torch.equal(fixed.scale.rho, before)  # what it keeps fixed stays as configured


def rn50(start: Path | None) -> tuple[Any, TowerSettings]:
    spec = TowerSettings.model_validate({"image": "tiny-rn50", "dim": 16, "image_start": start and str(start)})
    torch.manual_seed(1)
    return build_towers(spec, SmallVocabulary(TEXTS, 90, 24), 32, 8), spec


@pytest.mark.parametrize("form", ["tower", "whole clip", "wrapped", "model", "module"])
def test_an_image_tower_begins_at_weights_in_any_wrapper(tmp_path: Path, form: str) -> None:
    fresh, _ = rn50(None)
    wanted = changed(state_of(fresh.visual))
    given_: dict[str, Any] = dict(wanted)
    if form == "whole clip":
        given_ = {**{f"visual.{name}": x for name, x in wanted.items()}, "text.positional_embedding": torch.ones(2)}
    given_ = {f"module.{name}": x for name, x in given_.items()} if form == "module" else given_
    path = tmp_path / "w.pt"
    torch.save({"wrapped": {"state_dict": given_}, "model": {"model": given_, "epoch": 1}}.get(form, given_), path)
    towers, spec = rn50(path)
    text = state_of(towers.text)
    start_pretrained(towers, spec, fetch=True)
    assert equal(state_of(towers.visual), wanted)
    assert equal(state_of(towers.text), text)
    assert {name for name, x in read_state_dict(path).items() if isinstance(x, torch.Tensor)} <= set(given_)


def test_a_projection_that_is_not_there_stays_fresh_and_other_parts_must_be(tmp_path: Path) -> None:
    fresh, _ = rn50(None)
    whole = changed(state_of(fresh.visual))
    backbone = {name: x for name, x in whole.items() if not name.startswith("attnpool.c_proj")}
    torch.save(backbone, tmp_path / "w.pt")
    towers, spec = rn50(tmp_path / "w.pt")
    before = state_of(towers.visual)
    start_pretrained(towers, spec, fetch=True)
    for name, x in state_of(towers.visual).items():
        assert torch.equal(x, backbone.get(name, before[name]))
    backbone.pop("conv1.weight")
    torch.save({**backbone, "bn1.bias": torch.zeros(99), "odd": torch.zeros(1)}, tmp_path / "w.pt")
    with pytest.raises(UserError) as raised:
        start_pretrained(*rn50(tmp_path / "w.pt"), fetch=True)
    message = str(raised.value)
    assert message.startswith(f"towers.image_start: {tmp_path / 'w.pt'}: does not fit: ")
    assert all(
        part in message for part in ("lacks conv1.weight", "has odd [1], which", "bn1.bias is [99] in the file, but")
    )


def test_weights_that_are_not_there_are_left_out_of_a_forecast(tmp_path: Path) -> None:
    towers, spec = rn50(tmp_path / "none.pt")
    before = state_of(towers.visual)
    start_pretrained(towers, spec, fetch=False)
    assert equal(state_of(towers.visual), before)
    with pytest.raises(UserError, match=r"image_start: .*none\.pt: no such file"):
        start_pretrained(towers, spec, fetch=True)
