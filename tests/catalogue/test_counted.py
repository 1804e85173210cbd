"""What the catalogue's functions say, counted again: guesses by enumeration, kept rows as sets, names both ways."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.catalogue import architectures, augmentations, evaluation_sets, families, tower_families
from bench.catalogue.architectures import CIFAR_CHANNELS, CLIP_CHANNELS, IMAGENET_CHANNELS
from bench.catalogue.budget_kinds import BUDGET_KINDS, Spent
from bench.catalogue.families import DatasetFacts, random_guess
from bench.catalogue.gpus import find_gpu, gpu_hours
from bench.catalogue.keep import KEEPS, SelectionInputs
from bench.catalogue.noise_kinds import KINDS, noise_label
from bench.catalogue.protocols import PROTOCOLS
from bench.catalogue.training_sets import TRAINING_SETS, download_commands, embedded, published_list
from bench.errors import UserError
from bench.planning.planner import resolve_budget
from methods.protocol import Phase

# --- random guesses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("images", [1, 2, 3, 7])
def test_a_random_order_hits_as_often_as_is_said(images: int) -> None:
    """The share of orders in which one of five right texts, or the one right image, is among the first k."""
    found = random_guess.of_captions("", DatasetFacts("", images))
    texts = 5 * images
    for k in (1, 5, 10):
        missed = Fraction(1)
        for place in range(min(k, texts)):
            missed *= Fraction(max(0, texts - 5 - place), texts - place)
        assert found[f"i2t_r{k}"] == pytest.approx(float(1 - missed))
        assert found[f"t2i_r{k}"] == pytest.approx(min(k, images) / images)
    six = [found[f"{way}_r{k}"] for way in ("i2t", "t2i") for k in (1, 5, 10)]
    assert found["mean_recall"] == pytest.approx(sum(six) / 6)
    assert found["mean_r1"] == pytest.approx((six[0] + six[3]) / 2)
    assert found["rsum"] == pytest.approx(sum(six))


@settings(deadline=None)
@given(st.integers(1, 40))
def test_a_guess_among_classes(classes: int) -> None:
    found = random_guess.of_ranked_classes("x", DatasetFacts("", 10, {"x": classes}))
    assert found["top1"] == pytest.approx(1 / classes)
    assert ("top5" in found) == (classes > 5)
    assert found.get("top5", 5 / classes) == pytest.approx(5 / classes)
    assert random_guess.of_classes("accuracy")("x", DatasetFacts("", 10, {"x": classes})) == {"accuracy": 1 / classes}
    assert random_guess.top_ks(classes) == ((1, 5) if classes > 5 else (1,))


def test_no_guess_where_nothing_is_known() -> None:
    assert random_guess.of_captions("", DatasetFacts("", 0)) == {}
    assert random_guess.of_captions("", DatasetFacts("", 9, metric="jaccard_10_12")) == {}
    assert families.chance("zero_shot", "class", DatasetFacts("", 9)) == {}
    with pytest.raises(UserError, match="did you mean 'zero_shot'"):
        families.chance("zeroshot", "class", DatasetFacts("", 9))


def test_the_main_metrics_guess_is_that_of_what_it_averages() -> None:
    facts = DatasetFacts("", 100, {"class": 20}, "mean_per_class_recall")
    found = families.chance("zero_shot", "class", facts, main=True)
    assert found["mean_per_class_recall"] == found["main"] == found["top1"] == 1 / 20
    assert "main" not in families.chance("zero_shot", "class", facts)
    worst = families.chance("zero_shot", "class", DatasetFacts("", 100, {"class": 20}, "worst_region"), main=True)
    assert "main" not in worst  # of the worst of several groups nothing simple is known


# --- kept rows ------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 60), st.data())
def test_kept_rows_are_those_of_their_kind(n: int, given_: st.DataObject) -> None:
    noisy = given_.draw(st.lists(st.integers(0, n - 1), unique=True).map(sorted))
    seed = given_.draw(st.integers(0, 9))
    keys = [f"key{row}" for row in range(n)]

    def kept(kind: str, share: float | None = None, rows: int | None = None) -> list[int]:
        found = KEEPS[kind].choose(SelectionInputs(keys, np.array(noisy, dtype=np.int64), seed, share, rows))
        assert found.dtype == np.int64
        assert found.tolist() == sorted(set(found.tolist()))
        return found.tolist()

    clean = sorted(set(range(n)) - set(noisy))
    assert kept("all") == list(range(n))
    assert kept("oracle") == clean
    percent = given_.draw(st.integers(0, 100))
    some = kept("random", share=percent / 100)
    assert len(some) == math.ceil(Fraction(percent, 100) * n)
    assert set(kept("random", share=percent / 200)) <= set(some)
    rows = given_.draw(st.integers(0, len(clean)))
    trusted = kept("trusted", rows=rows)
    assert len(trusted) == rows
    assert set(kept("trusted", rows=rows // 2)) <= set(trusted) <= set(clean)
    with pytest.raises(ValueError, match=f"only {len(clean)} are clean"):
        kept("trusted", rows=len(clean) + 1)


def test_without_fixed_noise_no_row_is_known_to_be_clean() -> None:
    for kind, rows in (("oracle", None), ("trusted", 1)):
        with pytest.raises(ValueError, match="no fixed set of clean pairs"):
            KEEPS[kind].choose(SelectionInputs(["a", "b"], None, 0, None, rows))


def test_other_seeds_keep_other_rows_and_only_the_truth_is_marked() -> None:
    keys = [f"key{row}" for row in range(200)]
    drawn = [KEEPS["random"].choose(SelectionInputs(keys, None, seed, 0.5, None)).tolist() for seed in (0, 1)]
    assert drawn[0] != drawn[1]
    assert {keep.name for keep in KEEPS if keep.uses} == {"oracle", "trusted"}
    assert {keep.name: keep.takes for keep in KEEPS if keep.takes} == {
        "trusted": ("rows",),
        "score": ("share",),
        "distance": ("share",),
        "s_clip_loss": ("share",),
        "norm_sim": ("share",),
        "random": ("share",),
    }


# --- budgets, cards, noise ------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(1, 2000), st.integers(1, 500), st.integers(0, 300))
def test_whole_epochs_and_samples_buy_whole_steps(batch: int, epoch_steps: int, value: int) -> None:
    epochs, samples = BUDGET_KINDS["epochs"], BUDGET_KINDS["samples"]
    assert epochs.steps is not None
    assert samples.steps is not None
    assert epochs.steps(value / 100, batch, epoch_steps) == math.floor(Fraction(value, 100) * epoch_steps)
    steps = samples.steps(float(value * batch), batch, epoch_steps)
    assert steps == value
    spent = Spent(steps * batch, steps * 7, 2.5, epoch_steps * batch)
    assert samples.spent(spent) == value * batch
    assert epochs.spent(spent) == pytest.approx(value / epoch_steps)
    assert BUDGET_KINDS["flops"].spent(spent) == 7 * steps
    assert BUDGET_KINDS["device_seconds"].spent(spent) == 2.5


def test_a_price_is_that_of_each_phase() -> None:
    phases, flops, seconds = (
        (Phase("warm", 0.5), Phase("train", 0.5)),
        {"warm": 3, "train": 9},
        {"warm": 1.0, "train": 0.5},
    )
    sizes = {"rows": 80, "batch": 8, "phases": phases, "step_flops": flops, "step_seconds": seconds}
    for kind, steps in (("flops", (("warm", 15), ("train", 5))), ("device_seconds", (("warm", 45), ("train", 90)))):
        assert resolve_budget(kind, 90, **sizes).phases == steps
    assert [kind.tolerance for kind in BUDGET_KINDS] == [0.01, 0.01, 0.01, 0.05]


@settings(deadline=None)
@given(st.floats(1e12, 1e22), st.floats(0.01, 1))
def test_hours_times_rate_are_the_flops(flops: float, share: float) -> None:
    card = find_gpu("nvidia h100")
    assert gpu_hours(flops, card, share) * 3600 * 989e12 * share == pytest.approx(flops)
    assert gpu_hours(flops, find_gpu("H100 PCIe"), share) > gpu_hours(flops, card, share)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.01, math.nan])
def test_a_share_of_the_peak_is_a_share(share: float) -> None:
    with pytest.raises(UserError, match="--utilisation"):
        gpu_hours(1e18, find_gpu("a100"), share)


def test_noise_is_printed_with_its_rate() -> None:
    assert noise_label("shuffled_captions", 0.0) == "clean"
    assert {kind.name: noise_label(kind.name, 0.125) for kind in KINDS} == {
        kind.name: f"12.5 % {kind.title}" for kind in KINDS
    }


# --- data sets ------------------------------------------------------------------------------------------------------


def test_every_evaluation_set_is_found_by_each_of_its_names(evaluation_folder: Path) -> None:
    for name, entry in evaluation_sets.evaluation_sets().items():
        assert entry.name == name
        for split in evaluation_sets.SPLITS:
            assert evaluation_sets.parse_dataset(entry.written(split)) == (entry, split)
            assert entry.count(split) == getattr(entry, split)
        assert evaluation_sets.unknown_set(name) == ""
        assert evaluation_sets.OWN_SET_NAME.fullmatch(name)
        assert (entry.kind == "classification") == (entry.classes > 0)
        if entry.metric in ("top1", "top5", "mean_per_class_recall", "f1_macro"):
            assert entry.classes > 1
        folder = f"wds_{entry.webdataset or name}"
        if entry.folds == 1:  # else the folder is that of another set as well
            assert repr(name) in evaluation_sets.unknown_set(folder) or evaluation_sets.known(folder)
    assert not evaluation_folder.exists()


def test_the_datacomp_suite_has_its_38_tasks_in_four_groups() -> None:
    chosen = [entry for entry in evaluation_sets.evaluation_sets().values() if entry.datacomp]
    groups = Counter(entry.group for entry in chosen if entry.group)
    named = PROTOCOLS["prolip"].datasets
    assert len(chosen) == 38
    assert {name for family in ("zero_shot", "shift", "retrieval") for name in named[family]} == {
        entry.name for entry in chosen
    }
    assert (groups["imagenet"], groups["shift"], groups["vtab"], groups["retrieval"]) == (1, 6, groups["vtab"], 3)
    assert groups["vtab"] in (11, 12, 13)


def test_a_mistaken_data_set_is_answered(evaluation_folder: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'cifar100'"):
        evaluation_sets.parse_dataset("cifar_100")
    with pytest.raises(UserError, match="'val' should be one of test, train, validation"):
        evaluation_sets.parse_dataset("pets/val")
    assert evaluation_sets.expected("my_private_drawings") is not None  # may be a folder elsewhere
    (evaluation_folder / "wds_mine" / "test").mkdir(parents=True)
    (evaluation_folder / "wds_mine" / "classnames.txt").write_text("cat\ndog\n")
    (evaluation_folder / "wds_talk" / "val").mkdir(parents=True)
    own, talk = evaluation_sets.known("mine"), evaluation_sets.known("talk")
    assert own is not None
    assert talk is not None
    assert (own.kind, own.classes, own.test, own.train, own.metric) == ("classification", 2, 1, 0, "top1")
    assert (talk.kind, talk.classes, talk.test, talk.validation, talk.metric) == ("retrieval", 0, 0, 1, "mean_r1")


def test_protocols_name_known_sets_and_their_own_pixels() -> None:
    for protocol in PROTOCOLS.values():
        for family, names in protocol.datasets.items():
            assert len(set(names)) == len(names)
            assert [families.why_unmeasurable(family, name) for name in names] == [""] * len(names)
    labels = [protocol.label for protocol in PROTOCOLS.values()]
    assert labels == ["1", "bayes-1", "nuclr-1", "ncu-1", "prolip-1"]
    nuclr, ncu, common = PROTOCOLS["nuclr"], PROTOCOLS["ncu"], PROTOCOLS["common"]
    assert [nuclr.channels(name, True) for name in ("cifar100", "imagenet1k")] == [CIFAR_CHANNELS, IMAGENET_CHANNELS]
    assert nuclr.channels("flickr30k", False) is None
    assert ncu.channels("flickr30k", False) == ncu.channels("pets", True) == IMAGENET_CHANNELS
    assert common.channels("pets", True) is None
    assert all(0 < x < 1 for part in (CLIP_CHANNELS, IMAGENET_CHANNELS, CIFAR_CHANNELS) for x in (*part[0], *part[1]))


@pytest.mark.parametrize(
    ("name", "entry"),
    [("CC3M", "cc3m"), ("cc12m-part", "cc12m"), ("datacomp-1b", "datacomp-1b"), ("emoji", None), ("mine", None)],
)
def test_published_lists_are_known_by_how_a_name_begins(name: str, entry: str | None) -> None:
    found = published_list(name)
    assert (found.name if found else None) == entry


def test_a_way_to_the_data_names_its_folder_and_page() -> None:
    folder = Path("/data/my sets/x")
    for one in TRAINING_SETS:
        text = download_commands(one.name, folder)
        assert "{folder}" not in text
        assert "'/data/my sets/x'" in text
        assert one.page in text
        assert ("list from" in text) == (one.name not in embedded())
    assert list(embedded()) == ["emoji", "emoji-a", "emoji-b"]


def test_towers_of_open_clip_are_told_apart_by_what_they_can_do() -> None:
    assert tower_families.unknown_tower("image", "ViT-B-32") == tower_families.unknown_tower("text", "ViT-B-32") == ""
    assert "CoCa" in tower_families.unknown_tower("image", "coca_ViT-B-32")
    assert "did you mean 'ViT-B-32'" in tower_families.unknown_tower("image", "ViT-B32")
    assert "no image tower named" in tower_families.unknown_tower("image", "bert-base-uncased")
    assert tower_families.unknown_tower("text", "bert-base-uncased") == ""
    assert "no text tower named" in tower_families.unknown_tower("text", "resnet50")
    quick = {name for name in ("ViT-B-32", "ViT-B-32-quickgelu", "RN50", "tiny-vit") if architectures.quick_gelu(name)}
    assert quick == {"ViT-B-32-quickgelu"}
    chooses = [
        ("image", "ViT-B-32"),
        ("image", "RN50"),
        ("image", "tiny-vit"),
        ("text", "RN50"),
        ("text", "roberta-ViT-B-32"),
    ]
    assert [architectures.chooses_activation(*one) for one in chooses] == [True, False, False, True, False]


def test_augmentations_fit_their_images_and_say_so() -> None:
    kinds = ("drawn art", "photographs", "stored features")
    for kind, entry in itertools.product(kinds, augmentations.AUGMENTATIONS):
        if entry.name in augmentations.fitting_augmentations(kind):  # type: ignore[arg-type]
            first = augmentations.augmentation_recipe(entry.name, kind)  # type: ignore[arg-type]
            assert first is augmentations.augmentation_recipe(entry.name, kind)  # type: ignore[arg-type]
        else:
            with pytest.raises(UserError, match=re.escape(f"which is not a recipe for {kind}")):
                augmentations.augmentation_recipe(entry.name, kind)  # type: ignore[arg-type]
    assert {
        kind: default in augmentations.fitting_augmentations(kind) for kind, default in augmentations.DEFAULTS.items()
    } == dict.fromkeys(kinds, True)
    with pytest.raises(UserError, match="did you mean 'openclip'"):
        augmentations.augmentation_recipe("open_clip", "photographs")
