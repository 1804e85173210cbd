"""Features: extracted once, kept through a kill, never mixed up."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from bench import data
from bench.evaluation.features import Features, evaluation_mode, extract_images, extract_texts
from bench.towers.build import OpenClipTowers, normalise
from methods.protocol import Method, Tensors

Model = tuple[Method, OpenClipTowers]


def forwards(module: nn.Module) -> list[int]:
    """A list that grows by the batch size at every forward."""
    seen: list[int] = []
    module.register_forward_hook(lambda _module, inputs, _output: seen.append(len(inputs[0])))
    return seen


def same(a: Tensors, b: Tensors) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_image_features_are_the_methods_in_evaluation_mode(model: Model) -> None:
    method, towers = model
    pairs = data.load_dataset("emoji/validation", 32)
    towers.train()
    found = extract_images(method, towers, pairs)["embedding"]
    assert towers.training
    assert found.shape == (len(pairs), 32)
    towers.eval()
    with torch.no_grad():
        images = normalise(pairs.images(torch.arange(5, 9).numpy()))
        torch.testing.assert_close(found[5:9], method.image_features(towers, images)["embedding"])
        torch.testing.assert_close(
            extract_images(method, towers, pairs, "pooled")["pooled"][5:9], towers.pooled(images)
        )
        projected = extract_images(method, towers, pairs, "projected")["projected"]
    torch.testing.assert_close(torch.nn.functional.normalize(projected, dim=-1), found)
    assert projected.norm(dim=-1).std() > 1e-4  # not made unit


def test_equal_texts_are_encoded_once_and_get_equal_features(model: Model) -> None:
    method, towers = model
    seen = forwards(towers.text)
    texts = ["cat", "dog", "cat", "a drawing of cat"] * 400
    found = extract_texts(method, towers, texts)["embedding"]
    assert seen == [3]
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[:4], found[-4:])
    assert not torch.equal(found[0], found[1])
    torch.testing.assert_close(found[1:2], extract_texts(method, towers, ["dog"])["embedding"])


def test_every_module_gets_its_own_mode_back(model: Model) -> None:
    _, towers = model
    towers.train()
    towers.text.eval()

    def broken() -> None:
        with evaluation_mode(towers):
            assert not any(module.training for module in towers.modules())
            assert not torch.is_grad_enabled()
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    assert towers.visual.training
    assert not towers.text.training
    assert torch.is_grad_enabled()


def test_features_outlive_the_process_until_discarded(model: Model, tmp_path: Path) -> None:
    method, towers = model
    pairs = data.load_dataset("emoji/validation", 32)
    images, texts = forwards(towers.visual), forwards(towers.text)
    first = Features(method, towers, "weights", "1", tmp_path)
    a, t = first.images(pairs), first.texts(["cat", "dog"])
    done = len(images), len(texts)
    assert same(first.images(pairs), a)
    second = Features(method, towers, "weights", "1", tmp_path)  # as after a kill
    assert same(second.images(pairs), a)
    assert same(second.texts(["cat", "dog"]), t)
    assert (len(images), len(texts)) == done
    for damage in (b"", lambda content: content[:-9], lambda content: content[:-1] + bytes([content[-1] ^ 1])):
        for path in tmp_path.rglob("*.safetensors"):
            content = damage if isinstance(damage, bytes) else damage(path.read_bytes())
            path.unlink()  # those that were loaded are mapped into memory
            path.write_bytes(content)
        third = Features(method, towers, "weights", "1", tmp_path)
        assert same(third.texts(["cat", "dog"]), t)
        assert same(third.images(pairs), a), "what is damaged is extracted again"
    assert (len(images), len(texts)) > done
    second.discard()
    assert list(tmp_path.iterdir()) == []


def test_features_of_another_checkpoint_data_set_kind_or_protocol_are_others(model: Model, tmp_path: Path) -> None:
    method, towers = model
    pairs, others = data.load_dataset("emoji/validation", 32), data.load_dataset("emoji/iid", 32)
    images, texts = forwards(towers.visual), forwards(towers.text)
    held = Features(method, towers, "weights", "1", tmp_path)
    held.images(pairs)
    held.texts(["cat"])
    for ask in (
        lambda: held.images(others),
        lambda: held.images(pairs, "projected"),
        lambda: Features(method, towers, "other weights", "1", tmp_path).images(pairs),
        lambda: Features(method, towers, "weights", "2", tmp_path).images(pairs),
        lambda: held.texts(["cat", "dog"]),
    ):
        before = len(images) + len(texts)
        ask()
        assert len(images) + len(texts) > before


def test_without_a_folder_nothing_is_written(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    held = Features(*model, "weights", "1", None)
    assert held.texts(["cat"])["embedding"].shape == (1, 32)
    held.discard()
    assert list(tmp_path.iterdir()) == []
