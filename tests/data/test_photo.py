"""Photographs: decoded and cropped as open_clip does, and drawn by (seed, row, epoch, view) alone."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import sklearn.datasets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from torchvision.transforms import AutoAugment, RandomResizedCrop

from bench.catalogue.augmentations import AUGMENTATIONS, Augmentation, fitting_augmentations
from bench.data import photo, recolour
from bench.errors import UserError

PHOTOGRAPHS = sorted((Path(sklearn.datasets.__file__).parent / "images").glob("*.jpg"))
SHAPES = [(640, 427), (400, 300), (300, 400), (97, 211), (31, 40), (224, 224), (1200, 90)]
keys = st.tuples(*[st.integers(0, 2**31 - 1), st.integers(0, 10**7), st.integers(0, 100), st.integers(0, 2)])


def picture(shape: tuple[int, int] = (160, 120), which: int = 0) -> Image.Image:
    return photo.decode_image(PHOTOGRAPHS[which].read_bytes()).resize(shape, Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def drawn(seed: int, row: int, epoch: int, view: int, recipe: str, size: int = 32) -> photo.Pixels:
    return photo.training_pixels(picture(), row, epoch, seed, view, recipe, size)


@pytest.mark.parametrize("interpolation", get_args(photo.Interpolation))
@pytest.mark.parametrize("mode", get_args(photo.Mode))
@pytest.mark.parametrize("size", [32, 224])
def test_evaluation_is_open_clips_to_the_last_bit(
    mode: photo.Mode, interpolation: photo.Interpolation, size: int
) -> None:
    theirs = image_transform_v2(
        PreprocessCfg(size, "RGB", (0, 0, 0), (1, 1, 1), interpolation, mode, fill_color=93), is_train=False
    )
    for which, shape in enumerate(SHAPES):
        image = picture(shape, which % 2)
        expected = (theirs(image) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
        found = photo.evaluation_pixels(image, size, photo.Resize(mode, interpolation, 93))
        np.testing.assert_array_equal(found, expected)


def test_a_thread_is_padded_where_open_clip_gives_up() -> None:
    found = photo.evaluation_pixels(picture((6_000, 1)), 64, photo.Resize("longest", fill=7))
    assert (found[:31] == 7).all()
    assert (found[32:] == 7).all()
    assert (found[31] != 7).any()


def test_a_thread_of_pixels_needs_no_gigabytes() -> None:
    strip = picture((60_000, 1))
    middle = strip.crop((30_000 - 32, 0, 30_000 + 32, 1))
    np.testing.assert_array_equal(photo.evaluation_pixels(strip, 64), photo.evaluation_pixels(middle, 64))


KINDS = "JPEG/L JPEG/CMYK PNG/L PNG/P PNG/RGBA PNG/LA PNG/1 PNG/I;16 WEBP/RGB WEBP/RGBA"


@pytest.mark.parametrize(("kind", "mode"), [kind.split("/") for kind in KINDS.split()])
def test_every_kind_becomes_rgb(kind: str, mode: str) -> None:
    plain = picture()
    grey = mode in ("L", "LA", "1", "I;16")
    if mode == "I;16":
        image = Image.fromarray(np.asarray(plain.convert("L")).astype(np.uint16) * 257)
    else:
        image = plain.convert(mode)
    data = encoded(image, kind, lossless=True) if kind == "WEBP" else encoded(image, kind, quality=95)
    found = photo.decode_image(data)
    assert (found.mode, found.size) == ("RGB", plain.size)
    off = np.abs(np.asarray(found).astype(int) - np.asarray(plain.convert("L" if grey else "RGB").convert("RGB")))
    assert off.mean() < {"P": 25, "1": 130}.get(mode, 3)


def test_alpha_is_dropped_and_not_blended() -> None:
    image = picture()
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    np.testing.assert_array_equal(np.asarray(photo.decode_image(encoded(image, "PNG"))), np.asarray(image)[..., :3])
    palette = Image.new("P", (2, 1))
    palette.putpalette([200, 10, 10, 10, 200, 10])
    palette.putdata([0, 1])
    data = encoded(palette, "PNG", transparency=bytes([0, 128]))
    assert np.asarray(photo.decode_image(data)).tolist() == [[[200, 10, 10], [10, 200, 10]]]


def test_orientation_is_ignored_as_by_webdataset() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert photo.decode_image(encoded(picture(), "JPEG", exif=exif)).size == picture().size


def test_what_is_no_whole_image_is_named() -> None:
    whole = encoded(picture(), "JPEG")
    bitmap, broken = encoded(picture(), "BMP"), bytearray(encoded(picture(), "PNG"))
    broken[60:400] = bytes(340)
    for data in (b"", b"<html>not found</html>", whole[: len(whole) // 2], bitmap, bytes(broken)):
        with pytest.raises(photo.Undecodable, match=r"^\w+: \w+"):
            photo.decode_image(data)
    with pytest.raises(photo.Undecodable, match="DecompressionBomb"):
        photo.decode_image(encoded(Image.new("1", (10_000, 9_000)), "PNG"))


def many_scans(side: int, scans: int) -> bytes:
    """A small progressive JPEG whose last scan is repeated; each repeat visits all pixels."""
    return scanned(encoded(Image.new("RGB", (side, side), (128, 90, 7)), "JPEG", progressive=True), scans)


def scanned(whole: bytes, scans: int) -> bytes:
    """A JPEG with its last scan repeated."""
    last = whole[whole.rindex(b"\xff\xda") : -2]
    return whole[:-2] + last * (scans - whole.count(b"\xff\xda")) + whole[-2:]


def test_a_jpeg_of_many_scans_is_refused_before_it_is_decoded() -> None:
    """Everywhere: a decoder, and the index of shards. Usual progressive files are read."""
    from bench.data.shards.scan import Unusable, refuse_undecodable_image

    small, large = many_scans(64, 12), many_scans(4000, 4000)
    assert len(large) < 300_000
    assert photo.decode_image(small).size == (64, 64)
    refuse_undecodable_image(small)
    began = time.process_time()
    said = "4,000 scans of 4000 x 4000 pixels take too long; save it with fewer"
    with pytest.raises(photo.Undecodable, match=f"^{said}$"):
        photo.decode_image(large)
    with pytest.raises(Unusable) as found:
        refuse_undecodable_image(large)
    assert time.process_time() - began < 2
    assert found.value.args == ("too many scans", said)
    usual = encoded(Image.new("RGB", (9400, 9400)), "JPEG", progressive=True)  # 88 megapixels
    assert photo.too_many_scans(usual, Image.open(io.BytesIO(usual))) == ""


def test_a_jpeg_that_says_that_images_follow_is_refused_alike() -> None:
    """Pillow calls it MPO: two photographs of one moment, as some cameras write them."""
    one = Image.new("RGB", (2000, 2000), (128, 90, 7))
    both = encoded(one, "MPO", save_all=True, append_images=[one.resize((8, 8))], progressive=True)
    assert photo.decode_image(both).size == one.size
    second = both.rindex(b"\xff\xd8\xff")
    with pytest.raises(photo.Undecodable, match=r"^\d+ scans of 2000 x 2000 pixels take too long"):
        photo.decode_image(scanned(both[:second], 300) + both[second:])


@settings(max_examples=20, deadline=None)
@given(keys, keys, st.sampled_from(sorted(fitting_augmentations("photographs"))))
def test_pixels_follow_from_the_key_alone(key: tuple[int, ...], other: tuple[int, ...], recipe: str) -> None:
    before = torch.random.get_rng_state()
    first = drawn(*key, recipe)
    drawn(*other, recipe)
    torch.rand(3)
    np.testing.assert_array_equal(drawn(*key, recipe), first)
    torch.random.set_rng_state(before)
    drawn(*other, recipe)
    assert torch.equal(torch.random.get_rng_state(), before), "torch's own generator was drawn from"


@pytest.mark.parametrize("recipe", sorted({*fitting_augmentations("photographs")} - {"none"}))
@pytest.mark.parametrize("part", range(4))
def test_every_part_of_the_key_counts(recipe: str, part: int) -> None:
    """On most rows; AutoAugment leaves some pictures as they are."""
    different = 0
    for row in range(20):
        key = [7, row, 3, 1]
        one = drawn(*key, recipe)
        key[part] += 100
        different += not np.array_equal(drawn(*key, recipe), one)
    assert different > 12


def test_the_crop_is_torchvisions_in_law() -> None:
    """Area, ratio and place of 3,000 boxes of either kind have the same quartiles; no box fits a strip of 60 to 1."""
    crop = RandomResizedCrop(224, scale=(0.5, 1.0))
    image = Image.new("RGB", (400, 300))
    tops_lefts_sizes = [crop.get_params(image, crop.scale, crop.ratio) for _ in range(3000)]
    theirs = np.array([(left, top, left + w, top + h) for top, left, h, w in tops_lefts_sizes])
    draws = np.random.default_rng(0).random((3000, 22)).tolist()
    ours = np.array([photo._crop_box(image.size, (0.5, 1.0), one) for one in draws])
    for of in (
        lambda b: (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]) / 120_000,
        lambda b: b[:, 0] / 400,
        lambda b: b[:, 3] / 300,
    ):
        np.testing.assert_allclose(
            np.quantile(of(ours), [0.25, 0.5, 0.75]), np.quantile(of(theirs), [0.25, 0.5, 0.75]), atol=0.03
        )
    strip = Image.new("RGB", (6000, 100))
    top, left, h, w = crop.get_params(strip, crop.scale, crop.ratio)
    assert photo._crop_box(strip.size, (0.5, 1.0), draws[0]) == (left, top, left + w, top + h)


def test_recipes_are_what_their_papers_say() -> None:
    image = picture((300, 200))
    plain = photo.evaluation_pixels(image, 64)
    np.testing.assert_array_equal(photo.training_pixels(image, 5, 0, 0, 0, "none", 64), plain)
    np.testing.assert_array_equal(photo.training_pixels(image, 5, 0, 0, 1, "none", 64), plain)
    np.testing.assert_array_equal(photo.training_pixels(image, 5, 0, 0, 0, "cyclip", 64), plain)
    grey = [(np.ptp(photo.training_pixels(image, row, 0, 0, 0, "prolip", 16), axis=2) == 0).all() for row in range(200)]
    assert 20 <= sum(grey) <= 60
    left = Image.fromarray(np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, 2).repeat(256, 0))
    rising = [
        np.diff(photo.training_pixels(left, row, 0, 0, 0, "ncu", 16)[8, :, 0].astype(int)).mean() > 0
        for row in range(40)
    ]
    assert all(rising), "NCU's recipe has no flip"
    rising = [
        np.diff(photo.training_pixels(left, row, 0, 0, 0, "nuclr", 16)[8, :, 0].astype(int)).mean() > 0
        for row in range(200)
    ]
    assert 60 <= sum(rising) <= 140


def test_a_recipe_without_a_crop_may_flip() -> None:
    image = picture((300, 200))
    plain = photo.evaluation_pixels(image, 64)
    AUGMENTATIONS.add(Augmentation("flip", "", {"photographs": lambda: photo.PhotoRecipe(flip=True)}))
    try:
        flipped = [photo.training_pixels(image, row, 0, 0, 0, "flip", 64) for row in range(40)]
    finally:
        AUGMENTATIONS.remove("flip")
    same, mirrored = ([np.array_equal(one, other) for one in flipped] for other in (plain, plain[:, ::-1]))
    assert 0 < sum(same) < 40
    assert sum(same) + sum(mirrored) == 40


def test_auto_augment_is_torchvisions() -> None:
    draws = [0.25, 0.75]
    changed = recolour.auto_augment(picture(), draws)
    torch.manual_seed((2**22 << 24) | 3 * 2**22)
    np.testing.assert_array_equal(np.asarray(changed), np.asarray(AutoAugment()(picture())))


def test_rand_augment_does_each_operation_at_its_level() -> None:
    image = picture()
    count = len(recolour._OPERATIONS)
    results = []
    for which in range(count):
        draws = [(which + 0.5) / count, 0.0, 0.9, 0.0, 0.9, 0.0]  # the second one is not done
        results.append(np.asarray(recolour.rand_augment(image, draws)))
    np.testing.assert_array_equal(results[0], np.asarray(image))
    assert len({one.tobytes() for one in results}) == count
    np.testing.assert_array_equal(results[7][:, :-7], np.asarray(image)[:, 7:])
    assert (results[7][:, -7:] == 128).all()
    np.testing.assert_array_equal(results[8][:-7], np.asarray(image)[7:])
    assert np.asarray(recolour.rand_augment(image, [0.75, 0.9] * 3)).tobytes() == image.tobytes()


def test_the_jitter_is_torchvisions() -> None:
    from torchvision.transforms import functional

    image, draws = picture(), [0.5, 0.9, 0.2, 0.7, 0.95, 0.4, 0.3, 0.2, 0.1, 0.5]
    found = recolour.jitter_or_grey(image, draws)
    expected = functional.adjust_hue(image, 0.08 * 0.9)
    expected = functional.adjust_saturation(expected, 1 + 0.32 * 0.4)
    expected = functional.adjust_contrast(expected, 1 - 0.32 * 0.6)
    expected = functional.adjust_brightness(expected, 1 + 0.32 * 0.8)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_another_kinds_recipe_is_named() -> None:
    with pytest.raises(UserError, match=r"'emoji', which is not a recipe for photographs.*cyclip, ncu, none"):
        drawn(0, 0, 0, 0, "emoji")
