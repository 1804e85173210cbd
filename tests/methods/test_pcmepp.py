"""PCME++: identities, mixed images, pseudo-positives, real towers. Its values: bench/checks/oracles/pcmepp.py."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from bench.training.optimizer import named_parameters, set_trainable
from methods.pcmepp import Pcmepp, pseudo_labels
from methods.prolip import Prolip

PLAIN = {"mixed_share": 0.0, "smoothing": 0.0}


def some_gaussians(total, dim=8, seed=0):
    draws = torch.Generator().manual_seed(seed)
    z = {}
    for name in ("image", "text"):
        z[name] = F.normalize(torch.randn(total, dim, generator=draws, dtype=torch.float64), dim=1)
        z[f"{name}_logvar"] = torch.randn(total, dim, generator=draws, dtype=torch.float64) - 4
    return z


def distances(z):
    """[B, B] closed-form sampled distances, written out."""
    variance = z["image_logvar"].exp().sum(1)[:, None] + z["text_logvar"].exp().sum(1)
    return (z["image"][:, None] - z["text"]).square().sum(2) + variance


def written_out(method, z, targets):
    """The loss from B x B matrices: SPEC 18, item 3."""
    config = method.config
    logits = -method.negative_scale * distances(z) + method.shift
    loss = 2 * F.binary_cross_entropy_with_logits(logits, targets)
    for side, y in ((logits, targets), (logits.T, targets.T)):
        taken = y.clone()
        for row in range(len(y)):
            match = int(y[row].argmax())
            taken[row, side[row] >= side[row, match]] = y[row, match]
        loss = loss + config.alpha * F.binary_cross_entropy_with_logits(side, taken)
    for name in ("image", "text"):
        logvar = z[f"{name}_logvar"]
        loss = loss + config.beta * (-0.5 * (1 + logvar - z[name] ** 2 - logvar.exp())).mean()
    return loss


# --- the loss -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mixed_share", [0.0, 0.25, 1.0])
def test_tiles_sum_to_the_formula_with_mixed_labels(lab, mixed_share):
    method = lab.build_adapter(Pcmepp, batch=10, mixed_share=mixed_share, smoothing=0.01, beta=0.1, alpha=0.3)
    z = some_gaussians(10)
    found = lab.observe(method, z)
    kept = found["kept"][:, None]
    one = torch.eye(10, dtype=torch.float64)
    other = one[torch.arange(10) ^ 1]
    smooth = [0.99 * y + 0.01 * (1 - y) for y in (one, other)]
    targets = kept * smooth[0] + (1 - kept) * smooth[1]
    assert bool((kept < 1).any()) == (mixed_share > 0)
    for cuts in ((), (3, 7)):
        lab.assert_close(lab.sum_of_tiles(method, z, found, cuts), written_out(method, z, targets))


def test_the_distance_is_the_mean_of_sampled_distances(lab):
    z = some_gaussians(2)
    draws = torch.Generator().manual_seed(3)
    shape = (2, 200_000, 8)
    noise = torch.randn(2, *shape, generator=draws, dtype=torch.float64)
    samples = [
        z[name][:, None] + (z[f"{name}_logvar"] / 2).exp()[:, None] * noise[at]
        for at, name in enumerate(("image", "text"))
    ]
    sampled = (samples[0] - samples[1]).square().sum(2).mean(1)
    method = lab.build_adapter(Pcmepp, negative_scale=1.0, shift=0.0)
    logits = method._logits(z, "image", "text", slice(0, 2))
    lab.assert_close(-logits.diagonal(), sampled, rtol=2e-3)


def test_without_variance_the_distance_is_that_of_cosines(lab):
    z = some_gaussians(5)
    z["image_logvar"], z["text_logvar"] = (torch.full((5, 8), -80.0, dtype=torch.float64) for _ in range(2))
    logits = lab.build_adapter(Pcmepp, negative_scale=1.0, shift=0.0)._logits(z, "image", "text", slice(0, 5))
    lab.assert_close(-logits, 2 - 2 * z["image"] @ z["text"].T)


def test_swapping_modalities_changes_nothing(lab):
    z = some_gaussians(8)
    swapped = {name: z[name.replace("image", "x").replace("text", "image").replace("x", "text")] for name in z}
    method = lab.build_adapter(Pcmepp, **{**PLAIN, "smoothing": 0.01})
    lab.assert_close(lab.step_loss(method, swapped), lab.step_loss(method, z))


def test_without_closer_candidates_pseudo_positives_are_the_matches(lab):
    z = some_gaussians(8)
    z["text"] = z["image"]
    method = lab.build_adapter(Pcmepp, alpha=0.3, beta=0.0, **PLAIN)
    terms = method.loss(z, lab.observe(method, z), slice(0, 8))
    lab.assert_close(terms["pseudo_match"], 0.3 * terms["match"])  # L = (2 + 2 alpha) match
    assert method.monitor(z, lab.observe(method, z))["pseudo_positives"] == 0


def test_gradient_in_the_shift_is_the_mean_error(lab):
    z = some_gaussians(8)
    method = lab.build_adapter(Pcmepp, alpha=0.0, beta=0.0, **PLAIN)
    lab.step_loss(method, z).backward()
    errors = torch.sigmoid(5 - 5 * distances(z)) - torch.eye(8)
    lab.assert_close(method.shift.grad, 2 * errors.mean())


def test_plain_matching_is_prolips_pairwise_loss_divided_by_the_batch(lab):
    """CSD of unit means is 2 - 2 (closeness of ProLIP): 2 BCE / B^2 with a_0, b_0 is 2/B times PPCL."""
    z = some_gaussians(8)
    method = lab.build_adapter(Pcmepp, alpha=0.0, beta=0.0, negative_scale=4.0, shift=3.0, **PLAIN)
    prolip = lab.build_adapter(
        Prolip, scale=8.0, bias=-5.0, vib=0.0, inclusion=0.0, masked_inclusion=0.0, masked_share=0.0
    )
    masked = {f"masked_{name}": torch.zeros_like(x) for name, x in z.items()}
    lab.assert_close(lab.step_loss(method, z), 2 / 8 * lab.step_loss(prolip, z | masked))


def test_pseudo_positives_take_the_label_of_the_match():
    logits = torch.tensor([[1.0, 2.0, 0.5], [3.0, 0.0, -1.0]])
    labels = torch.tensor([[0.7, 0.1, 0.3], [0.0, 0.0, 1.0]])
    expected = torch.tensor([[0.7, 0.7, 0.3], [1.0, 1.0, 1.0]])
    assert torch.equal(pseudo_labels(logits, labels), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_captions_count_as_matches_whatever_the_rounding(lab, dtype):
    draws = torch.Generator().manual_seed(0)
    z = {name: x.to(dtype) for name, x in some_gaussians(40, dim=64).items()}
    z["text"][20:], z["text_logvar"][20:] = z["text"][:20], z["text_logvar"][:20]
    # Some rounding errors apart, as equal captions come out of a tower in different micro-batches.
    z["text"][20:] *= 1 + torch.finfo(dtype).eps * torch.randint(-16, 17, (20, 64), generator=draws)
    method = lab.build_adapter(Pcmepp, **PLAIN).to(dtype)
    labels = torch.eye(40, dtype=dtype)
    found = pseudo_labels(method._logits(z, "image", "text", slice(0, 40)).detach(), labels)
    twins = (torch.arange(40) + 20) % 40
    assert bool((found[torch.arange(40), twins] == 1).all())


def test_an_exploding_bottleneck_is_left_out_of_its_modality_only(lab):
    z = some_gaussians(8)
    z["image_logvar"][0, 0] = 20.0  # e^20 / 2 / 64 > 1e4
    method = lab.build_adapter(Pcmepp, beta=1.0, **PLAIN)
    constants = lab.observe(method, z)
    assert bool(constants["no_vib_image"])
    assert not bool(constants["no_vib_text"])
    expected = -0.5 * (1 + z["text_logvar"] - z["text"].square() - z["text_logvar"].exp()).mean()
    lab.assert_close(method.loss(z, constants, slice(0, 8))["vib"], expected)


@pytest.mark.parametrize(("value", "left_out"), [(9.9e3, False), (1.01e4, True)])
def test_a_bottleneck_explodes_above_ten_thousand(lab, value, left_out):
    method = lab.build_adapter(Pcmepp, beta=1.0, **PLAIN)
    method._vib = lambda _z, name, _anchors: torch.tensor(value if name == "text" else 0.0)
    constants = lab.observe(method, some_gaussians(8))
    assert (bool(constants["no_vib_image"]), bool(constants["no_vib_text"])) == (False, left_out)


class _Largest(TorchDispatchMode):
    """The largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, torch.Tensor):
                self.numel = max(self.numel, x.numel())
        return out


def test_memory_is_linear_in_the_batch(lab):
    total = 4096
    method, z = lab.build_adapter(Pcmepp, batch=total), some_gaussians(total, dim=4)
    leaves = {name: x.requires_grad_() for name, x in z.items()}
    with _Largest() as largest:
        constants = lab.observe(method, leaves)
        torch.stack(list(method.loss(leaves, constants, slice(64, 96)).values())).sum().backward()
        method.monitor({name: x.detach() for name, x in leaves.items()}, constants)
    assert largest.numel <= 1024 * total  # a quarter of B x B, in the monitor's spans


# --- mixed images ---------------------------------------------------------------------------------------------------


def rows_of(lab, images, start=0, step=0):
    towers = lab.TinyTowers()
    rows = lab.some_rows(towers, len(images), when=lab.a_clock(step))
    return dataclasses.replace(rows, images=images, positions=range(start, start + len(images)))


@pytest.mark.parametrize("cutmix_share", [0.0, 1.0])
@pytest.mark.parametrize("size", [7, 32])
def test_an_image_keeps_the_share_that_its_label_says(lab, cutmix_share, size):
    method = lab.build_adapter(Pcmepp, batch=16, mixed_share=0.5, cutmix_share=cutmix_share)
    values = torch.arange(16.0, dtype=torch.float64)[:, None, None, None]
    mixed = method._mixed(rows_of(lab, values.expand(-1, 3, size, size + 3)))
    kept = lab.observe(method, some_gaussians(16))["kept"]
    partner = torch.arange(16) ^ 1
    lab.assert_close(mixed.mean((1, 2, 3)), kept * torch.arange(16) + (1 - kept) * partner)
    inside = [(image != image.flatten()[0]).any() for image in mixed]
    assert any(inside) == (cutmix_share == 1)  # a box, or the same blend everywhere
    untouched = kept == 1
    assert 0 < int(untouched.sum()) < 16
    assert torch.equal(mixed[untouched], values.expand_as(mixed)[untouched])


def test_boxes_are_pasted_where_the_partner_has_them(lab):
    method = lab.build_adapter(Pcmepp, batch=2, mixed_share=1.0, cutmix_share=1.0)
    draws = torch.Generator().manual_seed(0)
    images = torch.randn(2, 3, 32, 32, generator=draws, dtype=torch.float64)
    mixed = method._mixed(rows_of(lab, images))
    own, pasted = ((mixed[0] - image).abs().amax(0) < 1e-9 for image in images)
    rows, columns = (~own).any(1).nonzero().flatten(), (~own).any(0).nonzero().flatten()
    assert 2 < len(rows) < 32
    assert int((~own).sum()) == len(rows) * len(columns)  # one rectangle,
    assert bool(pasted[rows[1:-1, None], columns[1:-1]].all())  # the partner within its border


def test_the_law_of_the_draws(lab):
    method = lab.build_adapter(Pcmepp, batch=40_000)
    kept, boxes, is_box = method._mixture(lab.a_clock(), 40_000)
    mixed = kept < 1
    assert float(mixed.double().mean()) == pytest.approx(0.25, abs=0.01)
    assert float(is_box[mixed].double().mean()) == pytest.approx(0.5, abs=0.02)
    blends = kept[mixed & ~is_box]
    assert float(blends.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(blends.var()) == pytest.approx(1 / 20, abs=0.003)  # Beta(2, 2)
    assert float(kept[is_box].mean()) > 0.5  # boxes are cut off at the border
    assert bool(((boxes >= 0) & (boxes <= 1)).all())


def test_draws_are_keyed_by_seed_and_step(lab):
    def kept(seed, step):
        return lab.build_adapter(Pcmepp, batch=64, seed=seed)._mixture(lab.a_clock(step), 64)[0]

    assert torch.equal(kept(0, 1), kept(0, 1))
    assert not torch.equal(kept(0, 1), kept(0, 2))
    assert not torch.equal(kept(0, 1), kept(1, 1))


@pytest.mark.parametrize(("start", "count"), [(1, 4), (0, 3)])
def test_a_micro_batch_that_cuts_neighbours_is_refused(lab, start, count):
    rows = rows_of(lab, torch.randn(count, 3, 8, 8), start)
    with pytest.raises(ValueError, match=r"even batches and micro-batches, or mixed_share = 0"):
        lab.build_adapter(Pcmepp, batch=8)._mixed(rows)
    assert lab.build_adapter(Pcmepp, batch=8, mixed_share=0.0)._mixed(rows) is rows.images


# --- on real towers -------------------------------------------------------------------------------------------------


def prepared(lab, towers, **config):
    torch.manual_seed(0)
    method = lab.build_adapter(Pcmepp, batch=16, **config).float()
    method.prepare(towers)
    return method


def test_means_are_the_plain_towers_and_variances_start_small(lab, towers):
    method = prepared(lab, towers, mixed_share=0.0)
    rows = lab.some_rows(towers, 16)
    z = method.encode(towers, rows)
    assert {name: x.shape for name, x in z.items()} == dict.fromkeys(z, (16, 16))
    assert set(z) == {"image", "image_logvar", "text", "text_logvar"}
    lab.assert_close(z["image"], F.normalize(towers.encode_image(rows.images), dim=1), rtol=1e-4, atol=1e-5)
    lab.assert_close(z["text"], F.normalize(towers.encode_text(rows.tokens), dim=1), rtol=1e-4, atol=1e-5)
    for side in ("image", "text"):
        assert -12 < float(z[f"{side}_logvar"].detach().mean()) < -8


def test_mixed_images_reach_the_tower(lab, towers):
    method, plain = (prepared(lab, towers, mixed_share=share).double() for share in (0.5, 0.0))
    rows = lab.some_rows(towers.eval().double(), 16)
    rows = dataclasses.replace(rows, images=rows.images.double())
    there, here = method.encode(towers, rows), plain.encode(towers, rows)
    mixed = lab.observe(method, there)["kept"] < 1
    assert 0 < int(mixed.sum()) < 16
    for name in ("image", "image_logvar"):
        changed = (there[name] - here[name]).abs().amax(1) > 1e-9
        assert torch.equal(changed, mixed)
    lab.assert_close(there["text"], here["text"])
    features = method.image_features(towers, rows.images)  # at evaluation nothing is mixed
    lab.assert_close(features["embedding"], here["image"], rtol=1e-5, atol=1e-6)
    lab.assert_close(features["logvar"], here["image_logvar"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layers", [1, 2])
def test_copied_blocks_start_as_the_towers_last_ones_and_go_their_own_way(lab, layers):
    towers = lab.TinyTowers()
    method = prepared(lab, towers, n_unc_layers=layers, mixed_share=0.0)
    for head, tower in ((method.image_head, towers.visual), (method.text_head, towers.text)):
        last = tower.transformer.resblocks[-layers:].state_dict()
        assert len(head.blocks) == layers
        assert all(torch.equal(x, last[name]) for name, x in head.blocks.state_dict().items())
        assert not {id(p) for p in head.blocks.parameters()} & {id(p) for p in tower.parameters()}
    rows = lab.some_rows(towers, 4)
    before = method.encode(towers, rows)
    with torch.no_grad():
        for head in (method.image_head, method.text_head):
            head.blocks[0].mlp.c_fc.weight.mul_(2)
    after = method.encode(towers, rows)
    for side in ("image", "text"):
        assert torch.equal(before[side], after[side])
        assert not torch.allclose(before[f"{side}_logvar"], after[f"{side}_logvar"], atol=1e-4)


def test_every_added_parameter_learns(lab, towers):
    method = prepared(lab, towers, logvar_norm=0.01)
    lab.step_loss(method, method.encode(towers, lab.some_rows(towers, 16))).backward()
    assert [name for name, p in method.named_parameters() if p.grad is None or not float(p.grad.abs().sum())] == []


def test_a_norm_behind_the_heads_starts_as_said(lab, towers):
    method = prepared(lab, towers, logvar_norm=0.01, logvar=-4.0)
    z = method.encode(towers, lab.some_rows(towers, 16))
    for side in ("image", "text"):
        lab.assert_close(z[f"{side}_logvar"].mean(1), torch.full((16,), -4.0), rtol=1e-4)
        lab.assert_close(z[f"{side}_logvar"].std(1, correction=0), torch.full((16,), 0.01), rtol=1e-2)


def test_the_image_backbone_is_frozen_first(lab, towers):
    method = prepared(lab, towers)
    first, second = method.phases()
    assert (first.share, second.share, first.lr_scale, second.lr_scale) == (0.08, 0.92, 0.1, 0.1)
    assert lab.build_adapter(Pcmepp, frozen_share=0.0).phases() == (dataclasses.replace(second, share=1.0),)
    set_trainable(method, towers, first)
    frozen = {name for name, p in named_parameters(method, towers) if not p.requires_grad}
    head = ("towers.visual.proj", "towers.visual.head.", "towers.visual.attnpool.")
    assert frozen
    assert all(name.startswith("towers.visual.") and not name.startswith(head) for name in frozen)
    assert any(n.startswith(head) and p.requires_grad for n, p in named_parameters(method, towers))
    lab.step_loss(method, method.encode(towers, lab.some_rows(towers, 16))).backward()
    for name, p in named_parameters(method, towers):
        assert (p.grad is None) == (name in frozen)
    set_trainable(method, towers, second)
    assert all(p.requires_grad for _, p in named_parameters(method, towers))


def test_own_learning_rates(lab):
    method = prepared(lab, lab.TinyTowers())
    names = {f"method.{name}" for name, _ in method.named_parameters()}
    for scalar in ("method.negative_scale", "method.shift"):
        assert method.options(scalar) == {"lr": 5e-4, "weight_decay": 0.0}
    heads = {name for name in names if ".head." in name}
    assert len(heads) == 4
    assert all(method.options(name) == {"lr": 5e-4} for name in heads)
    # Copied blocks are trained like the tower they come from.
    assert all(method.options(name) == {} for name in names if ".blocks." in name)


def test_towers_it_cannot_read_are_refused(lab):
    with pytest.raises(ValueError, match=r"n_unc_layers = 3, but the image tower has 2 blocks"):
        prepared(lab, lab.TinyTowers(), n_unc_layers=3)
    towers = lab.TinyTowers()
    towers.visual = torch.nn.Linear(3, 3)
    with pytest.raises(TypeError, match="pcmepp cannot read a variance out of the image tower Linear"):
        prepared(lab, towers)


def test_what_it_reports(lab):
    z = some_gaussians(16)
    method = lab.build_adapter(Pcmepp, batch=16, mixed_share=0.5)
    constants = lab.observe(method, z)
    (shown,) = method.diagnostics(z, constants)
    mixed = constants["kept"] < 1
    lab.assert_close(shown.series["mixed images"], z["image_logvar"].exp().sum(1)[mixed])
    lab.assert_close(shown.series["images"], z["image_logvar"].exp().sum(1)[~mixed])
    lab.assert_close(shown.series["texts"], z["text_logvar"].exp().sum(1))
    plain = lab.build_adapter(Pcmepp, **PLAIN)
    found = distances(z)
    nearer = int((found <= found.diagonal()[:, None]).sum()) + int((found <= found.diagonal()).sum()) - 32
    assert plain.monitor(z, lab.observe(plain, z))["pseudo_positives"] == nearer / 32
    assert nearer > 32
    assert set(plain.diagnostics(z, lab.observe(plain, z))[0].series) == {"images", "texts"}
