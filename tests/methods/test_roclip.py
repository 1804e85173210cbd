"""RoCLIP: its pool of captions, and what matching with it does to a step."""

from __future__ import annotations

import math

import pytest
import torch

from methods.clip import Clip
from methods.embedding_queue import EmbeddingQueue
from methods.protocol import Clock, Facts
from methods.roclip import Roclip

ALWAYS = {"every": 1}


def rows(count, dim=3, start=0):
    return torch.arange(start, start + count, dtype=torch.float32)[:, None].expand(-1, dim) + 1


def matching(method, steps, per_pass):
    return [step for step in range(steps) if method.matches(Clock(step, "train", step / steps, step // per_pass))]


# --- the queue ------------------------------------------------------------------------------------------------------


def test_a_batch_that_reaches_the_end_is_cut_there():
    queue, ids = EmbeddingQueue(5, 3), torch.arange(3)
    queue.push(rows(3), ids)
    assert (int(queue.filled), int(queue.pointer)) == (3, 3)
    queue.push(rows(3, start=10), ids)  # the third one is dropped
    assert queue.entries[:, 0].tolist() == [1, 2, 3, 11, 12]
    assert (int(queue.filled), int(queue.pointer)) == (5, 0)
    queue.push(rows(2, start=20), ids[:2])
    assert queue.entries[:, 0].tolist() == [21, 22, 3, 11, 12]
    assert (int(queue.filled), int(queue.pointer)) == (5, 2)


def test_a_batch_that_fits_exactly_or_is_too_large_starts_over():
    for count in (4, 9):
        queue = EmbeddingQueue(4, 3)
        queue.push(rows(count), torch.arange(count))
        assert queue.entries[:, 0].tolist() == [1, 2, 3, 4]
        assert (int(queue.filled), int(queue.pointer)) == (4, 0)


def test_rows_enter_by_their_ids_wherever_they_stand_in_the_batch():
    one, other, order = EmbeddingQueue(4, 3), EmbeddingQueue(4, 3), torch.tensor([2, 0, 1])
    one.push(rows(3), torch.tensor([5, 7, 30]))
    other.push(rows(3)[order], torch.tensor([5, 7, 30])[order])
    assert torch.equal(one.entries, other.entries)


def test_the_nearest_entry_is_that_of_the_largest_cosine_among_those_written():
    queue = EmbeddingQueue(3, 2)
    assert queue.nearest(torch.ones(1, 2)) is None
    queue.push(torch.tensor([[10.0, 0.0], [0.0, 0.1]]), torch.arange(2))
    x = torch.tensor([[0.4, 0.6], [0.6, 0.4], [-1.0, -2.0]])  # zeros that were never written are nearest to the last
    assert queue.places(x).tolist() == [1, 0, 0]
    assert torch.equal(queue.nearest(x), queue.entries[[1, 0, 0]])


def test_a_queue_that_starts_as_noise_is_full_of_long_rows():
    queue = EmbeddingQueue(50, 64, torch.Generator().manual_seed(0))
    assert int(queue.filled) == 50
    assert 7 < float(queue.entries.norm(dim=1).mean()) < 9


# --- the method -----------------------------------------------------------------------------------------------------


def test_the_second_half_of_every_twelfth_of_a_run_matches(lab):
    method = lab.build_adapter(Roclip)
    assert matching(method, 24, 5) == list(range(1, 24, 2))
    assert matching(method, 48, 5) == [step for step in range(48) if step % 4 > 1]
    assert matching(lab.build_adapter(Roclip, every=4), 48, 5) == list(range(3, 48, 4))
    assert matching(lab.build_adapter(Roclip, every=1), 5, 5) == [0, 1, 2, 3, 4]
    assert matching(lab.build_adapter(Roclip, every=None), 48, 5) == []
    assert matching(lab.build_adapter(Roclip, cycle="pass"), 16, 4) == [4, 5, 6, 7, 12, 13, 14, 15]


def test_the_pool_is_written_in_matching_steps_alone(lab, case):
    method, z = lab.build_adapter(Roclip), case("C")
    lab.step_loss(method, z, when=Clock(0, "train", 0.0, 0))
    assert int(method.pool.filled) == 0
    lab.step_loss(method, z, when=Clock(1, "train", 1 / 24, 0))
    assert torch.equal(method.pool.entries[:8], z["text"].detach())


def test_an_empty_pool_gives_clip(lab, case):
    z = case("C")
    lab.assert_close(lab.step_loss(lab.build_adapter(Roclip, **ALWAYS), z), lab.step_loss(lab.build_adapter(Clip), z))


def test_a_pool_of_the_own_captions_gives_the_value_of_clip_and_the_text_no_gradient(lab, case):
    z = case("C")  # every image is nearest to its own caption there
    method = lab.build_adapter(Roclip, **ALWAYS)
    lab.step_loss(method, z)
    assert method.pool.places(z["image"]).tolist() == list(range(8))
    loss = lab.step_loss(method, z)
    lab.assert_close(loss, lab.step_loss(lab.build_adapter(Clip), z))
    image, text = torch.autograd.grad(loss, [z["image"], z["text"]], materialize_grads=True)
    assert float(image.norm()) > 0
    assert torch.equal(text, torch.zeros_like(text))


def test_equal_neighbours_leave_a_floor(lab, case):
    z, method = case("C"), lab.build_adapter(Roclip, pool=1, temperature=0.01, **ALWAYS)
    lab.step_loss(method, z)
    assert float(lab.step_loss(method, z).detach()) > math.log(8)  # one entry is the neighbour of all eight
    images = {**z, "image": z["image"][:1].expand(8, -1)}
    lab.assert_close(lab.step_loss(method, images), math.log(8))


def test_the_neighbours_are_those_of_the_pool_before_the_batch(lab, case):
    z, method = case("C"), lab.build_adapter(Roclip, **ALWAYS)
    later = {name: x.detach().roll(1, 1) for name, x in z.items()}
    lab.step_loss(method, z)
    observed = lab.observe(method, later)
    assert all(any(torch.equal(x, y) for y in z["text"]) for x in observed["neighbour"])


@pytest.mark.parametrize(("settings", "size"), [({}, 22), ({"pool": 7}, 7), ({"pool_share": 0.001}, 16)])
def test_the_size_of_the_pool_follows_the_rows_and_is_at_least_a_batch(settings, size):
    method = Roclip(Roclip.Config(**settings), Facts(rows=1000, batch=16, dim=4, seed=0))
    assert method.pool.entries.shape == (size, 4)


def test_a_pool_of_noise_is_that_of_the_seed():
    pools = [
        Roclip(Roclip.Config(pool_start="noise"), Facts(rows=64, batch=8, dim=4, seed=seed)).pool.entries
        for seed in (0, 0, 1)
    ]
    assert torch.equal(pools[0], pools[1])
    assert not torch.equal(pools[0], pools[2])


@pytest.mark.parametrize("bad", [{"every": 0}, {"pool": 0}, {"pool_share": 0.0}, {"cycle": "epoch"}])
def test_what_is_refused_is_named(bad):
    with pytest.raises(ValueError, match=rf"RoclipConfig\.{next(iter(bad))} = .*, but it must be "):
        Roclip.Config(**bad)
