"""One entry in one place: a family of towers, from its suite over training to its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from bench import run_suite
from bench.catalogue import tower_families
from bench.catalogue.tower_families import TOWER_FAMILIES, ImageTowers, TextTowers, TowerFamily, unknown_tower
from bench.errors import UserError
from bench.planning.planner import plan
from bench.store import Store
from bench.suite.settings import TowerSettings
from bench.suite.suite import load_suite
from tools.handbook import settings_page

SUITE = """\
name: own
budget: {samples: 32}
towers: {image: pixel-means, text: word-means, dim: 8, vocabulary: 300}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot, linear_probe]}
methods: [clip]
"""


class PixelMeans(nn.Module):
    """Means over a grid of cells, and one layer."""

    def __init__(self, cells: int, dim: int) -> None:
        super().__init__()
        self.pool, self.project = nn.AdaptiveAvgPool2d(cells), nn.Linear(3 * cells * cells, dim)

    def pooled(self, images: Tensor) -> Tensor:
        pooled: Tensor = self.pool(images).flatten(1)
        return pooled

    def forward(self, images: Tensor) -> Tensor:
        projected: Tensor = self.project(self.pooled(images))
        return projected


class WordMeans(nn.Module):
    """The mean of a text's token embeddings."""

    def __init__(self, tokens: int, dim: int, context_length: int) -> None:
        super().__init__()
        self.words, self.context_length = nn.Embedding(tokens, dim), context_length

    def forward(self, tokens: Tensor) -> Tensor:
        means: Tensor = self.words(tokens).mean(1)
        return means


def learned(spec: TowerSettings, config: dict[str, Any], learn: Any) -> Any:
    return learn(spec.vocabulary, config["context_length"])


IMAGE = ImageTowers(
    names=lambda: ("pixel-means",),
    config=lambda _name, size, _dim: {"cells": 4, "image_size": size},
    content=lambda name: {"name": name, "version": 1},
    build=lambda _name, config, dim: PixelMeans(config["cells"], dim),
)
TEXT = TextTowers(
    names=lambda: ("word-means",),
    config=lambda _name: {"context_length": 12},
    content=lambda name: {"name": name, "version": 1},
    build=lambda _name, config, dim, tokenizer: WordMeans(tokenizer.size, dim, config["context_length"]),
    tokenizer=learned,
)
MEANS = TowerFamily(name="means", summary="means of pixels and of words", image=IMAGE, text=TEXT)


@pytest.fixture
def suite(tmp_path: Path) -> Iterator[Path]:
    """A suite with the towers of a family that is known for the length of a test."""
    (tmp_path / "own.yaml").write_text(SUITE)
    TOWER_FAMILIES.add(MEANS)
    yield tmp_path / "own.yaml"
    TOWER_FAMILIES.remove("means")


def test_a_family_of_towers_is_one_entry(tmp_path: Path, suite: Path) -> None:
    (planned,) = plan(load_suite(suite).runs(), Store(tmp_path / "out"))
    assert planned.resolved.steps == 2
    assert planned.id is not None
    summary = run_suite(suite, tmp_path / "out")
    assert (summary.done, summary.failed) == ([planned.id], [])
    run = Store(tmp_path / "out").run(planned.id)
    weights = load_file(run.path("weights-100.safetensors"))
    shapes = {name: tuple(x.shape) for name, x in weights.items() if "project.weight" in name or "words" in name}
    assert sorted(shapes.values()) == [(8, 3 * 4 * 4), (300, 8)]
    assert {record.task.split("/")[0] for record in run.records()} == {"zero_shot", "linear_probe"}
    assert run.settings()["towers"]["image"] == "pixel-means"


def test_the_content_of_a_family_and_nothing_else_of_it_enters_ids(
    suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load_suite(suite).runs()[0].key
    monkeypatch.setitem(TOWER_FAMILIES._entries, "means", replace(MEANS, summary="means"))
    assert load_suite(suite).runs()[0].key == before
    second = replace(IMAGE, content=lambda name: {"name": name, "version": 2})
    monkeypatch.setitem(TOWER_FAMILIES._entries, "means", replace(MEANS, image=second))
    assert load_suite(suite).runs()[0].key != before


def test_messages_follow_from_the_entry(suite: Path) -> None:
    said = r"towers.image: no image tower named 'pixel-mean'; did you mean 'pixel-means'\?"
    with pytest.raises(UserError, match=said):
        load_suite(suite, ["towers.image=pixel-mean"])
    with pytest.raises(UserError, match=r"towers.text: no text tower named 'pixel-means'"):
        load_suite(suite, ["towers.text=pixel-means"])
    with pytest.raises(UserError, match=r"prolip needs text_transformer .* word-means is a tower of its own"):
        load_suite(suite, ["methods=[prolip]"])
    with pytest.raises(UserError, match="'means' is already a family of towers"):
        TOWER_FAMILIES.add(MEANS)
    TOWER_FAMILIES.add(replace(MEANS, name="others"))
    try:
        with pytest.raises(UserError, match="'pixel-means' is a tower of two families, means and others; rename it"):
            load_suite(suite)
    finally:
        TOWER_FAMILIES.remove("others")


def test_a_name_of_no_family_is_refused(tmp_path: Path, suite: Path) -> None:
    TOWER_FAMILIES.remove("means")
    try:
        with pytest.raises(UserError, match="no image tower named 'pixel-means'"):
            load_suite(suite)
        assert unknown_tower("text", str(tmp_path)) == "", "a folder may be a model of transformers"
        assert unknown_tower("image", str(tmp_path)) != ""
    finally:
        TOWER_FAMILIES.add(MEANS)


def test_a_tower_says_itself_what_probes_read() -> None:
    from bench.towers.build import OpenClipTowers

    towers = OpenClipTowers(PixelMeans(4, 8), WordMeans(300, 8, 12), lambda _: torch.zeros(0), 8)
    images = torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(towers.pooled(images), nn.functional.avg_pool2d(images, 2).flatten(1))


def names_of(half: ImageTowers | TextTowers | None) -> str:
    if half is None or not half.names():
        return "a path" if half else ""
    return ", ".join(f"`{name}`" for name in half.names()) if len(half.names()) < 8 else "any"


def test_docs_list_every_family_and_every_name_is_valid() -> None:
    lines = ["| family | what it is | `towers.image` | `towers.text` |", "| --- | --- | --- | --- |"]
    for one in TOWER_FAMILIES:
        lines.append(f"| {one.name} | {one.summary} | {names_of(one.image)} | {names_of(one.text)} |")
    assert "\n".join(lines) + "\n" in settings_page().replace("\\", "")
    for family in TOWER_FAMILIES:
        for half in (family.image, family.text):
            kind: tower_families.TowerKind = "image" if isinstance(half, ImageTowers) else "text"
            wrong = [unknown_tower(kind, name) for name in half.names()] if half else []
            assert all(not one or "CoCa" in one for one in wrong)
