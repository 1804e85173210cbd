"""A small model on the real emoji: untrained towers are enough to measure with."""

from __future__ import annotations

import pytest
import torch

from bench import data
from bench.adapters import hyperparameters
from bench.catalogue.architectures import TEXT_TOWERS
from bench.suite.settings import TowerSettings
from bench.towers.build import OpenClipTowers, build_towers
from bench.towers.tokenization import SmallVocabulary
from methods.protocol import Facts, Method


def build(method: str = "clip", seed: int = 0) -> tuple[Method, OpenClipTowers]:
    """Fresh towers and method from a seed."""
    pairs = data.load_dataset("emoji/iid", 32)
    texts = [text for row in range(len(pairs)) for text in pairs.captions(row)]
    vocabulary = SmallVocabulary(texts, 512, TEXT_TOWERS["tiny-transformer"]["context_length"])
    torch.manual_seed(seed)
    towers = build_towers(TowerSettings(dim=32), vocabulary, 32, 128)
    found = hyperparameters.make_method(method, None, {}, Facts(len(pairs), 128, 32, seed))
    found.prepare(towers)
    return found, towers


@pytest.fixture
def model() -> tuple[Method, OpenClipTowers]:
    return build()
