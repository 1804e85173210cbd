"""Counted FLOPs follow the batch, the phase and the size of images as the arithmetic says."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bench.adapters import hyperparameters, registry
from bench.planning import flops, priced_towers
from bench.planning.flops import TOWER_ROWS, count_forward_flops, count_step_flops
from bench.planning.planner import plan
from bench.planning.priced_towers import Passes
from bench.store import Store
from bench.suite.settings import TowerSettings
from bench.suite.suite import load_suite
from bench.towers.build import OpenClipTowers, build_towers
from bench.towers.tokenization import SmallVocabulary
from bench.training.inputs import InputsReader
from bench.training.optimizer import set_trainable
from bench.training.side_towers import hold_reference
from methods.base import Adapter
from methods.clip import Clip
from methods.protocol import Clock, Facts, Method, Phase, Rows, Tensors

FACTS = Facts(rows=64, batch=8, dim=16, seed=0)
DIM = 16
PRODUCT = 2 * DIM  #: FLOPs a pair of rows takes in a product of similarities


class Frozen(Clip):
    """CLIP whose second phase trains no image tower."""

    def phases(self) -> tuple[Phase, ...]:
        late = Phase("late", 0.5, trainable=lambda name: not name.startswith("towers.visual."))
        return (Phase("early", 0.5), late)


class Twice(Clip):
    """CLIP that encodes its images twice."""

    def encode(self, towers: OpenClipTowers, rows: Rows) -> Tensors:
        z = super().encode(towers, rows)
        return {**z, "image": z["image"] + super().encode(towers, rows)["image"]}


class Shaped(Clip):
    """CLIP whose loss is one number a pair."""

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        return {"wide": z["image"].sum(1)}


class Listed(Clip):
    """CLIP whose loss is no mapping, as a type checker would say."""

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Any:
        return [torch.zeros(())]


def built(image: str) -> OpenClipTowers:
    vocabulary = SmallVocabulary(["a red apple"], 64, 16)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build_towers(TowerSettings(image=image, dim=DIM), vocabulary, 32, 512)


@pytest.fixture(scope="module")
def towers() -> OpenClipTowers:
    return built("tiny-resnet")


def step(towers: OpenClipTowers, batch: int, kind: type[Clip] = Clip) -> dict[str, int]:
    return count_step_flops(kind(Clip.Config(), FACTS), towers.copied().to("meta"), batch, 32, {})


@pytest.mark.parametrize(("kind", "said"), [
    (Shaped, r"term 'wide' of the loss is of shape \[8\]; it should be one number, a tensor of shape \[\]"),
    (Listed, "loss returned list, not its terms by name: a dict of scalar tensors"),
])  # fmt: skip
def test_a_loss_of_another_form_is_said(towers: OpenClipTowers, kind: type[Clip], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        step(towers, 8, kind)


def test_towers_cost_a_row_alike_and_pairs_cost_their_square(towers: OpenClipTowers) -> None:
    counted = {batch: step(towers, batch)["train"] for batch in (8, 16, 2 * TOWER_ROWS)}
    square = (counted[16] - 2 * counted[8]) / (2 * 8 * 8)  # from c 16^2 - 2 c 8^2 = 2 c 8^2
    assert square > 0
    assert square % PRODUCT == 0, "whole products of similarities"
    row = (counted[8] - square * 64) / 8
    for batch, total in counted.items():
        assert total == row * batch + square * batch * batch, batch


def test_a_step_is_a_forward_and_at_most_two_more(towers: OpenClipTowers) -> None:
    image, text = count_forward_flops(towers, 32)
    forward = 8 * (image + text)
    towers_alone = (4 * step(towers, 8)["train"] - step(towers, 16)["train"]) / 2
    assert 2 * forward < towers_alone <= 3 * forward


def test_a_frozen_tower_saves_its_backward(towers: OpenClipTowers) -> None:
    flops = step(towers, 8, Frozen)
    image, _ = count_forward_flops(towers, 32)
    saved = flops["early"] - flops["late"]
    assert 8 * image < saved <= 2 * 8 * image
    assert list(flops) == ["early", "late"]


def test_what_a_method_encodes_twice_costs_twice(towers: OpenClipTowers) -> None:
    image, text = count_forward_flops(towers, 32)
    more = step(towers, 8, Twice)["train"] - step(towers, 8)["train"]
    assert 8 * (2 * image + text) < more <= 8 * (3 * image + text), "texts of the second time are thrown away"


def test_a_forward_is_the_sum_of_its_layers(towers: OpenClipTowers) -> None:
    """A convolution takes 2 k^2 c_in c_out FLOPs a pixel, a linear layer 2 c_in c_out."""
    total = 0

    def count(layer: nn.Module, _: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        nonlocal total
        if isinstance(layer, nn.Conv2d):
            total += 2 * out.numel() * layer.weight[0].numel()
        elif isinstance(layer, nn.Linear):
            total += 2 * out.numel() * layer.in_features

    watched = copy.deepcopy(towers).eval()
    for layer in watched.visual.modules():
        layer.register_forward_hook(count)
    with torch.no_grad():
        watched.encode_image(torch.zeros(1, 3, 32, 32))
    assert count_forward_flops(towers, 32)[0] == total > 0


def test_larger_images_cost_in_proportion_to_their_pixels(towers: OpenClipTowers) -> None:
    (small, text), (large, same) = (count_forward_flops(towers, size) for size in (32, 64))
    assert 3.9 < large / small <= 4.0
    assert text == same
    assert all(parameter.device.type == "cpu" for parameter in towers.parameters())
    assert all(parameter.requires_grad for parameter in towers.parameters())


def by_hand(method: Method, towers: OpenClipTowers, rows: int, phase: Phase) -> int:
    """Count the towers' part of a step as it is, on meta."""
    meta, own = copy.deepcopy(towers).to("meta"), copy.deepcopy(method)
    own.to("meta")  # type: ignore[attr-defined]
    set_trainable(own, meta, phase)
    images, tokens = meta.blank_images(rows, 32, "meta"), meta.blank_texts(rows, "meta")
    clock = Clock(step=0, phase=phase.name, progress=0.0, epoch=0)
    ids, views = torch.arange(rows, device="meta"), (images,) * own.extra_views
    with FlopCounterMode(display=False) as counter:
        z = own.encode(meta, Rows(images, tokens, ["a"] * rows, ids, range(rows), clock, views))
        outputs = [x for x in z.values() if x.requires_grad]
        torch.autograd.backward(outputs, [torch.empty_like(x) for x in outputs])
    return int(counter.get_total_flops())


def test_passes_that_were_counted_before_cost_every_method_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The towers of all methods share one table of passes; each is compared with a count of its own.

    NCU, PCME++ and ProLIP run parts of the towers, and blocks of their own.
    """
    passes: Passes = {}
    whole = []
    measure = priced_towers._PricedForward._measured

    def measured(part: Any, *given: Any) -> Any:
        whole.extend([part._name] if part._name in ("visual", "text") else [])
        return measure(part, *given)

    monkeypatch.setattr(priced_towers._PricedForward, "_measured", measured)
    facts = Facts(rows=64, batch=8, dim=DIM, seed=0)
    compared = 0
    names = ("clip", "siglip", "dcl", "cyclip", "label_permutation", "cleanclip", "drrho")
    methods = [hyperparameters.make_method(name, None, {}, facts) for name in names]
    inside = [hyperparameters.make_method(name, None, {}, facts) for name in ("ncu", "pcmepp", "prolip")]
    methods += [Frozen(Clip.Config(), facts), Twice(Clip.Config(), facts), inside[-1]]
    for image, chosen in (("tiny-resnet", methods), ("tiny-vit", inside)):
        passes.clear()
        fresh = built(image)
        for method in chosen:
            own = fresh.copied()
            hold_reference(method, own, None)
            method.prepare(own)
            for phase in method.phases():
                priced = flops.tower_flops(method, own.copied().to("meta"), 8, 32, phase, passes)[0]
                assert priced == by_hand(method, own, 8, phase), (image, method, phase.name)
                compared += 1
    assert compared >= 16
    assert len(whole) < compared, "passes of one method are those of another"


def test_a_part_with_a_hook_or_a_forward_of_a_methods_own_always_runs(towers: OpenClipTowers) -> None:
    passes: Passes = {}
    rows = towers.blank_images(2, 32, "meta")
    meta = towers.copied().to("meta")

    block: Any = meta.visual.trunk.layer2[0]  # type: ignore[union-attr, index]

    def cost() -> int:
        with priced_towers.count_flops(meta, passes) as count:
            meta.encode_image(rows)
        return count.total

    def work(*_: Any) -> None:
        torch.mm(torch.empty(3, 4), torch.empty(4, 5))

    plain = cost()
    hook = block.register_forward_pre_hook(work)
    assert cost() == plain + 2 * 3 * 4 * 5
    hook.remove()
    assert cost() == plain
    forward = block.forward
    block.forward = lambda x: work() or forward(x)
    assert cost() == plain + 2 * 3 * 4 * 5
    assert "forward" not in vars(meta.visual), "as it was before"


SUITE = """\
name: priced
noise: {rates: [0.0, 0.4]}
seeds: [0, 1]
budget: {samples: 160}
towers: {image: tiny-vit, dim: 8, vocabulary: 300, context: 8}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot]}
methods: [clip]
"""


def test_a_process_counts_a_step_once_for_runs_that_differ_in_noise_and_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[Any] = []
    count = flops.count_step_flops
    monkeypatch.setattr(flops, "_steps", {})
    monkeypatch.setattr(flops, "count_step_flops", lambda *given: counted.append(given) or count(*given))
    file = tmp_path / "priced.yaml"
    file.write_text(SUITE)

    def price(*changes: str) -> int:
        (flops_of_a_step,) = {
            one.resolved.step_flops["train"] for one in plan(load_suite(file, changes).runs(), Store(tmp_path))
        }
        return flops_of_a_step

    first = price()
    assert len(counted) == 1
    assert price("train.lr=1.0e-2", "seeds=[5]") == first, "another call in the same process"
    assert len(counted) == 1
    for number, change in enumerate(("train.batch=32", "towers.dim=9", "methods=[sogclr]"), start=2):
        assert price(change) != first, change
        assert len(counted) == number, change


LOOKING = """\
from methods.base import Adapter
from methods.clip import Clip


class Looking(Clip):
    name = "looking"

    def prepare(self, towers):
        super().prepare(towers)
        self.largest = float(next(towers.text.parameters()).detach().max())
"""


def test_only_a_method_that_looks_at_weights_before_it_begins_is_counted_on_real_towers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_plugins: Callable[[Path], str]
) -> None:
    real: list[str] = []
    build = flops.build_model
    monkeypatch.setattr(flops, "_steps", {})
    monkeypatch.setattr(flops, "build_model", lambda run, inputs: real.append(run.method) or build(run, inputs))
    file, plugin = tmp_path / "priced.yaml", tmp_path / "looking.py"
    file.write_text(SUITE)
    plugin.write_text(LOOKING)
    own_plugins(plugin)
    own = [name for name in registry.method_names() if registry.find_method(name).prepare is not Adapter.prepare]
    changes = [f"methods=[clip, {', '.join(own)}]", "noise.rates=[0]", "seeds=[0]", "towers.context=16"]
    planned = plan(load_suite(file, [*changes, "budget.samples=1600"]).runs(), Store(tmp_path))
    steps = {one.run.method: one.resolved.step_flops for one in planned}
    assert steps["looking"] == steps["clip"]
    assert {*steps} == {"clip", *own}
    assert {"latent", "ncu", "pcmepp", "prolip"} < {*own}
    assert real == ["looking"]
    assert "osa" in own, "its default shift is measured on the towers, and changes no cost"
    monkeypatch.setattr(flops, "_steps", {})
    monkeypatch.setattr(flops, "meta_towers", None)  # whatever fails there is counted on real towers
    (osa,) = [one for one in planned if one.run.method == "osa"]
    assert flops.step_prices(osa.run, InputsReader().for_model(osa.run)).flops == steps["osa"]
    assert real == ["looking", "osa"]
