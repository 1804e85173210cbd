"""Images that lie on the device and are augmented there: the host's draws, and pixels near the host's."""

from __future__ import annotations

import multiprocessing
import runpy
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bench import data
from bench.catalogue.augmentations import AUGMENTATIONS
from bench.catalogue.augmentations import on_device as able
from bench.data import photo, shards
from bench.data.kept import KeptPairs
from bench.data.noise import Noise
from bench.data.noise.poison import poison
from bench.data.synthetic import SyntheticPairs
from bench.data.workers import Pixels
from bench.errors import UserError
from bench.machine import capacity
from bench.store import RunStore, RunWriter, Store
from bench.suite.run import Run
from bench.suite.settings import DataSettings, TrainSettings
from bench.suite.suite import load_suite
from bench.training.checkpoint import weights_name
from bench.training.inputs import InputsReader
from bench.training.job import make_job
from bench.training.loop import Interrupted, train
from bench.training.schedule import Resolved
from bench.training.step.pixels import Photographs, on_device

_LOADING = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("test_loader.py"))))
CPU = torch.device("cpu")
DRAWN = data.load("emoji/train", 32)
Writer = Callable[[RunStore], RunWriter]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("data") / "photographs"
    _LOADING.write_shards(made)
    _LOADING.indexing.build(_LOADING.expand([str(made)]), made / "index.parquet", workers=1)
    return made


@pytest.fixture(scope="module")
def photographs(folder: Path) -> shards.pairs.ShardPairs:
    return shards.load(_LOADING.settings(folder))


def difference(one: torch.Tensor, other: Any) -> tuple[float, int]:
    """The mean and the largest difference of pixels, of 0 to 255."""
    apart = (one.int() - torch.from_numpy(np.asarray(other)).int()).abs()
    return float(apart.float().mean()), int(apart.max())


@pytest.mark.parametrize("recipe", ["openclip", "ncu", "none"])
def test_photographs_are_near_the_hosts(photographs: Any, recipe: str) -> None:
    """As far as Pillow resizes across first, as it mostly does; measured over more: docs/measurements.md."""
    rows = np.random.default_rng(0).permutation(54)
    for view in range(2):
        found = on_device(photographs, recipe, CPU, 0).sampled(rows, 4, 1, view)
        mean, most = difference(found, photographs.sampled(rows, 4, 1, view, recipe))
        assert found.dtype == torch.uint8
        assert mean < 0.001
        assert most <= (0 if recipe == "none" else 1)


def test_a_mirrored_crop_is_the_hosts(photographs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    do, rows = photo.Recipe(scale=(0.2, 1.0), flip=True), np.arange(40)
    images = [torch.from_numpy(np.asarray(image).copy()) for image in photographs.decoded(rows)]
    found = Photographs(images, np.arange(40), 32, do).sampled(rows, 0, 7, 0)
    monkeypatch.setattr("bench.catalogue.augmentations.recipe", lambda *_: do)
    mean, most = difference(found, photographs.sampled(rows, 0, 7, 0, "flipped"))
    assert mean < 0.02
    assert most <= 8
    assert difference(found.flip(2), photographs.sampled(rows, 0, 7, 0, "flipped"))[0] > 1


@given(
    st.tuples(st.integers(1, 500), st.integers(1, 500)),
    st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 10**7), st.integers(0, 100), st.integers(0, 2)),
    st.sampled_from([name for name in able("photographs") if name != "none"]),
)
def test_boxes_are_the_hosts(size: tuple[int, int], key: tuple[int, int, int, int], recipe: str) -> None:
    seed, row, epoch, view = key
    do = _recipe(recipe)
    taken = []

    class Watched:
        """An image that notes how it is cropped."""

        size: tuple[int, int]

        def crop(self, box: tuple[int, int, int, int]) -> Image.Image:
            taken.append(box)
            return Image.new("RGB", (2, 2))

    image = Watched()
    image.size = size
    photo.sampled(image, row, epoch, seed, view, recipe, 4)  # type: ignore[arg-type]
    assert [photo.cropped(size, row, epoch, seed, view, do)[0]] == taken


def _recipe(name: str) -> photo.Recipe:
    made: photo.Recipe = AUGMENTATIONS[name].build["photographs"]()
    return made


def test_the_catalogue_says_which_recipes_need_the_host() -> None:
    for entry in AUGMENTATIONS:
        if "photographs" in entry.build:
            do = _recipe(entry.name)
            assert entry.by_pillow == (do.before is not None or do.after is not None), entry.name
    assert able("drawn art") == ("none", "emoji", "digits")


@pytest.mark.parametrize("recipe", able("drawn art"))
def test_drawn_art_is_the_hosts_to_the_bit_on_a_cpu(recipe: str) -> None:
    rows = np.array([5, 900, 17, 5])
    for view in range(2):
        expected = DRAWN.sampled(rows, 3, 8, view, recipe)
        assert difference(on_device(DRAWN, recipe, CPU, 0).sampled(rows, 3, 8, view), expected) == (0, 0)


def test_kept_rows_are_augmented_as_those_of_the_whole_set(photographs: Any) -> None:
    for pairs, recipe in ((DRAWN, "emoji"), (photographs, "openclip")):
        kept = KeptPairs(KeptPairs(pairs, np.arange(1, 50, 2), Noise()), np.array([2, 3, 11]), Noise())
        whole, part = (on_device(one, recipe, CPU, 0) for one in (pairs, kept))
        assert torch.equal(part.sampled(np.array([2, 0]), 1, 1, 0), whole.sampled(np.array([23, 5]), 1, 1, 0))


@pytest.mark.parametrize("recipe", ["openclip", "none"])
def test_rows_do_not_depend_on_each_other_or_on_who_decodes(photographs: Any, recipe: str) -> None:
    rows = np.random.default_rng(0).permutation(54)
    here, there = on_device(photographs, recipe, CPU, 0), on_device(photographs, recipe, CPU, 2)
    assert not multiprocessing.active_children()
    whole = here.sampled(rows, 2, 1, 0)
    parts = [there.sampled(part, 2, 1, 0) for part in np.split(rows, [1, 20, 33])]
    assert torch.equal(torch.cat(parts), whole)


def a_run(folder: Path, place: str, **train: Any) -> Run:
    """Latent's second view with it."""
    run: Run = _LOADING.a_run(folder, 0)
    settings = {"batch": 16, "bn_group": 4, "threads": 1, "augment": "ncu", **train}
    at = run.data.model_copy(update={"augment_on": place})
    return replace(run, data=at, train=TrainSettings.model_validate(settings))


def trained(run: Run, out: RunWriter, stop: int | None = None) -> bytes:
    resolved = Resolved((("train", 5),), {"train": 0}, 16, 3)
    job = make_job(run, InputsReader().inputs(run), resolved, out, None, CPU)
    job.log_every = 1
    if stop is None:
        train(job)
        return out.path(weights_name(1.0)).read_bytes()
    job.should_stop = iter([False] * (stop - 1) + [True]).__next__
    with pytest.raises(Interrupted):
        train(job)
    return b""


def losses(out: RunWriter) -> list[float]:
    return [line["loss"] for line in out.metrics()]


def test_a_training_on_photographs_goes_on_to_the_same_bytes_with_the_hosts_losses_nearly(
    folder: Path, tmp_path: Path, writer: Writer
) -> None:
    host, whole, parts = (writer(Store(tmp_path).run(name)) for name in ("host", "whole", "parts"))
    trained(a_run(folder, "host"), host)
    expected = trained(a_run(folder, "device"), whole)
    assert losses(whole)[0] == pytest.approx(losses(host)[0], rel=1e-4)
    assert losses(whole) == pytest.approx(losses(host), rel=1e-2)
    assert losses(whole) != losses(host), "resampling rounds differently"
    trained(a_run(folder, "device"), parts, stop=2)
    assert trained(a_run(folder, "device"), parts) == expected
    assert losses(parts) == losses(whole)
    exact = [writer(Store(tmp_path).run(f"exact {size}")) for size in (16, 4)]
    for out, size in zip(exact, (None, 4), strict=True):
        trained(a_run(folder, "device", precision="fp64", micro_batch=size), out)
    assert losses(exact[1]) == pytest.approx(losses(exact[0]), rel=1e-9), "pixels of micro-batches are the same"


def test_a_training_on_drawn_art_has_the_bytes_of_the_hosts_on_a_cpu(tmp_path: Path, writer: Writer) -> None:
    made = []
    for place in ("host", "device"):
        run = replace(a_run(Path(), place, augment="emoji"), data=DataSettings(augment_on=place))
        made.append(trained(run, writer(Store(tmp_path).run(place))))
    assert made[0] == made[1]


def test_nothing_is_decoded_in_a_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(partial_loader(folder)) as loader:
        first = _LOADING.held(loader, 0)
        monkeypatch.setattr(Pixels, "of", lambda *_: pytest.fail("the host makes pixels"))
        monkeypatch.setattr(shards.pairs.ShardPairs, "encoded", lambda *_: pytest.fail("an image is read"))
        (held,) = _LOADING.held(loader, 3)
        assert [view.tolist() for view in held.pixels] == [held.ids.tolist()] * 2
        assert held.epoch == 1
        rows = loader.on_device(held)
        assert rows.images.shape == (16, 3, 32, 32)
        assert not torch.equal(rows.images, rows.views[0]), "views differ"
        assert torch.equal(loader.on_device(held).images, rows.images)
        assert not torch.equal(first[0].ids, held.ids)


def partial_loader(folder: Path) -> Any:
    loader = _LOADING.loader(folder, recipe="openclip")
    loader._pixels = partial(on_device, recipe="openclip", device=CPU, workers=0)
    return loader


def test_only_the_device_enters_the_id(folder: Path) -> None:
    assert a_run(folder, "host").key == replace(a_run(folder, "host"), data=_LOADING.settings(folder, 0)).key
    assert a_run(folder, "device").key != a_run(folder, "host").key
    assert "augment_on" not in a_run(folder, "host").content()["data"]


class Small:
    """A device with little memory."""

    total_memory = 10 * 54 * 32 * 32 * 3


def test_images_of_more_than_a_tenth_of_the_memory_are_refused(
    photographs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert capacity.memory() > 10 * DRAWN.pixels.nbytes
    monkeypatch.setattr(capacity, "memory", lambda: Small.total_memory)
    on_device(photographs, "none", CPU, 0)
    for pairs, recipe in ((photographs, "openclip"), (DRAWN, "emoji")):
        with pytest.raises(UserError) as caught:
            on_device(pairs, recipe, CPU, 2)
        assert not multiprocessing.active_children()
        (line,) = str(caught.value).splitlines()
        assert line.startswith(f"data.augment_on: device: the decoded images of {pairs.name} take more than a tenth of")
    monkeypatch.setattr(capacity, "memory", lambda: Small.total_memory - 10)
    with pytest.raises(UserError, match="more than a tenth"):
        on_device(photographs, "none", CPU, 0)


def test_what_the_host_changes_is_refused(photographs: Any) -> None:
    poisoned = poison(DRAWN, 0.1, 0, "backdoor", "dog", "checker", "random")
    with pytest.raises(UserError, match="some images of emoji/train are changed on the host; leave it out"):
        on_device(poisoned.applied(DRAWN), "emoji", CPU, 0)
    with pytest.raises(UserError, match="are changed on the host"):
        on_device(SyntheticPairs("made-up", 10, 32), "openclip", CPU, 0)
    with pytest.raises(UserError, match="'prolip' changes images on the host; leave it out, or take another"):
        on_device(photographs, "prolip", CPU, 0)


SUITE = """
name: small
data: {name: photographs, shards: here, size: 32, rows: 100, augment_on: device}
towers: {image: tiny-vit, dim: 32, vocabulary: 300}
train: {batch: 64, augment: openclip}
budget: {samples: 1024}
noise: {rates: [0.0]}
evaluate: {tasks: [zero_shot]}
methods: [clip]
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SUITE)
    return path


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("train.augment=prolip", "train.augment: 'prolip' runs on the host alone, so leave data.augment_on away; "),
        ("noise={kind: poison, rates: [0.1], options: {target: a}}", "noise.kind: poison changes images on the host "),
        ("data.shards=synthetic:100", "data.augment_on: made-up images are not augmented; leave it away"),
        ("data.augment_on=gpu", "data.augment_on: 'gpu' should be 'host' or 'device'"),
    ],
)
def test_a_suite_that_asks_for_too_much_is_one_line(suite: Path, override: str, said: str) -> None:
    load_suite(suite)
    with pytest.raises(UserError) as caught:
        load_suite(suite, [override])
    (line,) = str(caught.value).splitlines()
    assert said in line
