"""What methods that change the text tower touch, on small open_clip towers of every way to read out a text."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import normalize

from bench.checks import lab
from methods import text_tower
from methods.ncu import Ncu
from methods.prolip import Prolip

START, END, PAD = 60, 63, 0
#: pool -> the text_cfg of open_clip's towers that have it. "eos" reads its own id, here one that is not the largest.
TOWERS = {
    "argmax": {"causal": True, "text": {"pool_type": "argmax"}},
    "eos": {"causal": True, "text": {"pool_type": "eos", "eos_id": 59}},
    "first": {"causal": False, "text": {"pool_type": "first"}},
    "last": {"causal": False, "text": {"pool_type": "last", "proj_bias": True}},
}
WORDS = [
    ["black", "cat"],
    ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "red", "blue", "cow", "dog"],
    [],
]


def words(captions, context, start=True, end=END):
    """As `lab.whole_words`, with another end token, or none at the start as SentencePiece has it."""
    rows = [[3 + sum(word.encode()) % 50 for word in caption.split()] for caption in captions]
    rows = [[*[*[START] * start, *row][: context - 1], end] for row in rows]
    return torch.tensor([[*row, *[PAD] * (context - len(row))] for row in rows])


def made(kind, start=True):
    towers = lab.TinyTowers(**TOWERS[kind])
    end = 59 if kind == "eos" else END
    towers.tokenizer = lambda captions: words(captions, towers.context_length, start, end)
    return towers.double()


def prepared(kind, towers):
    torch.manual_seed(0)
    method = lab.build_adapter(kind, batch=16)
    method.prepare(towers)
    return method.double()


@pytest.fixture(params=TOWERS)
def kind(request):
    return request.param


@pytest.mark.parametrize("start", [True, False], ids=["start token", "no start token"])
def test_the_read_out_place_is_where_the_tower_reads(kind, start):
    """The embedding depends on the last layer at that place alone."""
    towers = made(kind, start)
    text, tokens = text_tower.parts(towers, "test"), towers.tokenize([" ".join(row) for row in WORDS])
    x = torch.randn(*tokens.shape, 32, dtype=torch.float64, requires_grad=True)
    text_tower.read_out(text, x, tokens).sum().backward()
    reached = x.grad.abs().sum(2) > 0
    assert reached.sum(1).tolist() == [1, 1, 1]
    assert torch.equal(reached.int().argmax(1, keepdim=True), text_tower.read_out_places(text, tokens))


@pytest.mark.parametrize("start", [True, False], ids=["start token", "no start token"])
def test_reading_out_agrees_with_the_tower(kind, start):
    towers = made(kind, start)
    text, tokens = text_tower.parts(towers, "test"), towers.tokenize([" ".join(row) for row in WORDS])
    x, mask = text._embeds(tokens)
    lab.assert_close(text_tower.read_out(text, text.transformer(x, attn_mask=mask), tokens), towers.encode_text(tokens))


@pytest.mark.parametrize("start", [True, False], ids=["start token", "no start token"])
def test_a_prompted_text_is_the_tower_on_the_spelled_out_tokens(kind, start):
    """With prompts equal to a real word's embedding, the negative is that of 8 such words before the caption."""
    if kind == "first" and not start:
        pytest.skip("a tower that reads its first token has a start token")
    towers = made(kind, start)
    method = prepared(Ncu, towers)
    with torch.no_grad():
        method.prompts.copy_(towers.text.token_embedding.weight[7].expand(8, -1))
    tokens = towers.tokenize([" ".join(row) for row in WORDS])
    spelled = []
    for row in tokens.tolist():
        moved = [*row[:start], *[7] * 8, *row[start:]][:16]
        cut = 59 if kind == "eos" else END
        if kind == "last":
            moved[-1] = row[-1]
        elif kind != "first" and cut not in moved:
            moved[-1] = cut
        spelled.append(moved)
    with torch.no_grad():
        lab.assert_close(method._encode_prompted(towers, tokens), towers.encode_text(torch.tensor(spelled)))


def test_masking_spares_padding_and_the_read_out_token(kind):
    towers = made(kind)
    method = prepared(Prolip, towers)
    tokens = towers.tokenize([" ".join(row) for row in WORDS])
    embedded = []
    handle = towers.text.transformer.register_forward_pre_hook(lambda _, args: embedded.append(args[0].detach()))
    method.text_head(towers, tokens)
    method.text_head(towers, tokens, torch.ones_like(tokens, dtype=torch.bool))
    handle.remove()
    changed = (embedded[0] != embedded[1]).any(2)
    expected = tokens != PAD
    expected.scatter_(1, text_tower.read_out_places(towers.text, tokens), False)
    assert torch.equal(changed, expected)
    for row in range(len(WORDS)):  # what the tower reads, it reads unmasked
        place = int(text_tower.read_out_places(towers.text, tokens)[row])
        assert torch.equal(embedded[0][row, place], embedded[1][row, place])


@pytest.mark.parametrize("text_unc", ["official", "paper"])
def test_means_are_those_of_the_plain_tower(kind, text_unc):
    towers = made(kind)
    torch.manual_seed(0)
    method = lab.build_adapter(Prolip, batch=16, text_unc=text_unc)
    method.prepare(towers)
    method.double()
    tokens = towers.tokenize([" ".join(row) for row in WORDS])
    if text_unc == "paper" and not TOWERS[kind]["causal"]:
        pytest.skip("words of a tower without causal mask see the added token")
    with torch.no_grad():
        lab.assert_close(method.text_head(towers, tokens)[0], normalize(towers.encode_text(tokens), dim=1))


@pytest.mark.parametrize("pool", ["none", "median"])
@pytest.mark.parametrize("kind", [Ncu, Prolip])
def test_a_pool_without_one_read_out_token_is_refused(kind, pool):
    towers = lab.TinyTowers()
    towers.text.pool_type = pool
    with pytest.raises(TypeError, match=f"text_cfg.pool_type is '{pool}', but it must be one of first, last, argmax"):
        lab.build_adapter(kind, batch=16).prepare(towers)


def test_the_pool_of_every_text_transformer_that_open_clip_ships_is_known():
    import open_clip

    texts = {name: open_clip.get_model_config(name)["text_cfg"] for name in open_clip.list_models()}
    pools = {text.get("pool_type", "argmax") for text in texts.values() if "hf_model_name" not in text}
    assert pools == {"argmax", "eos", "last"}
    assert pools < set(text_tower.POOLS)
