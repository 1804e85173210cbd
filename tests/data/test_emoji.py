"""The committed emoji pack: what the shards hold and what `bench.data` makes of them."""

import hashlib
import json
import shutil
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from webdataset import tariterators

import bench.data
from bench.data import emoji
from bench.errors import UserError

SHIFTS = ("openmoji", "openmoji-black", "fluent-high-contrast", "emojione-monotone", "near")


def all_samples() -> list[emoji.EmojiSample]:
    return [sample for style in emoji.STYLES for sample in emoji.read_style(style)]


def test_pack_is_complete_small_and_licensed():
    assert sum(path.stat().st_size for path in emoji.FOLDER.iterdir()) < 20e6
    licences = (emoji.FOLDER / "LICENSES.md").read_text()
    attribution = (emoji.FOLDER / "ATTRIBUTION.md").read_text()
    for style in emoji.STYLES:
        assert f"`{style}.tar.gz`" in licences
        assert style in attribution
        assert {sample.fields["style"] for sample in emoji.read_style(style)} == {style}
        shared_alike = {sample.fields["licence"] for sample in emoji.read_style(style)} == {"CC-BY-SA-4.0"}
        assert shared_alike == style.startswith("openmoji")


def test_shards_are_plain_webdataset():
    with tarfile.open(emoji.FOLDER / "streamline.tar.gz") as archive:
        names = archive.getnames()
    stems = [name.rsplit(".", 1) for name in names]
    assert stems[0][0] == stems[1][0]
    assert [stem for stem, _ in stems[::2]] == [stem for stem, _ in stems[1::2]]
    assert {extension for _, extension in stems} == {"webp", "json"}
    assert [stem for stem, _ in stems[::2]] == sorted(stem for stem, _ in stems[::2])


def test_splits_are_disjoint_and_have_their_shares():
    count = Counter(sample.fields["split"] for sample in all_samples())
    keys = [sample.fields["key"] for sample in all_samples()]
    assert len(set(keys)) == len(keys)
    known = count["train"] + count["validation"] + count["iid"]
    assert count["iid"] == round(0.10 * known)
    assert count["validation"] == round(0.05 * known)
    novel = bench.data.load_dataset("emoji/novel", 32).classes["concept"]
    train = bench.data.load_dataset("emoji/train", 32)
    assert len(novel) == round(0.15 * (len(novel) + len(train.classes["concept"])))
    assert not set(novel) & set(train.classes["concept"])
    assert set(train.labels["concept"].tolist()) == set(range(len(train.classes["concept"]))), (
        "each has a training pair"
    )


def test_no_style_draws_two_concepts_alike():
    seen: dict[tuple[str, bytes], str] = {}
    for sample in all_samples():
        drawn = (sample.fields["style"], hashlib.sha256(sample.webp).digest())
        assert seen.setdefault(drawn, sample.fields["concept"]) == sample.fields["concept"]


def test_only_one_fluent_style_trains():
    styles = {s.fields["style"] for s in all_samples() if s.fields["split"] == "train"}
    assert styles == set(emoji.TRAINING_STYLES)
    assert sum(style.startswith("fluent") for style in styles) == 1
    assert "ear-duplicate" in bench.data.load_dataset("emoji/near", 32).description


@pytest.mark.parametrize("split", ["validation", "iid", *SHIFTS])
def test_sets_of_training_concepts_share_classes(split):
    pairs, train = bench.data.load_dataset(f"emoji/{split}", 32), bench.data.load_dataset("emoji/train", 32)
    assert pairs.classes == train.classes
    assert not set(pairs.keys) & set(train.keys)
    assert pairs.images(np.arange(2)).shape == (2, 32, 32, 3)
    assert list(pairs.keys) == sorted(pairs.keys, key=str.encode)


def test_labels_texts_and_pictures_belong_together():
    fields = {sample.fields["key"]: sample.fields for sample in all_samples()}
    pairs = bench.data.load_dataset("emoji/openmoji", 64)
    for row in range(0, len(pairs), 50):
        sample = fields[pairs.keys[row]]
        assert pairs.captions(row) == tuple(sample["captions"])
        assert pairs.captions(row)[0] == sample["concept"]
        for label in ("concept", "subgroup", "group", "style"):
            assert pairs.classes[label][pairs.labels[label][row]] == sample[label]
    octopus = pairs.images(np.array([pairs.keys.index("1f419-openmoji")]))[0].astype(int)
    assert octopus[0, 0].tolist() == [255, 255, 255]
    assert (octopus.min(axis=2) < 128).mean() > 0.1
    assert fields["1f419-openmoji"]["subgroup"] == "marine life"


def test_half_size_is_the_mean_of_four():
    large, small = (bench.data.load_dataset("emoji/iid", size).images(np.arange(20)).astype(float) for size in (64, 32))
    mean = large.reshape(20, 32, 2, 32, 2, 3).mean(axis=(2, 4))
    np.testing.assert_array_equal(small, np.floor(mean + 0.5))


def test_evaluation_captions_are_five_and_mostly_distinct():
    for name in ("emoji/openmoji", "digits/test"):
        captions = bench.data.evaluation_captions(bench.data.load_dataset(name, 32))
        assert {len(texts) for texts in captions} == {5}
    distinct = [
        len(set(texts)) for texts in bench.data.evaluation_captions(bench.data.load_dataset("emoji/openmoji", 32))
    ]
    assert min(distinct) >= 4
    assert np.mean(distinct) > 4.9


def test_synonyms_are_symmetric_and_of_training_concepts():
    synonyms = bench.data.dataset_synonyms("emoji/train")
    assert len(synonyms) > 500
    for name, others in synonyms.items():
        assert name not in others
        assert all(name in synonyms[other] for other in others)
    assert not set(synonyms) & set(bench.data.load_dataset("emoji/novel", 32).classes["concept"])
    assert bench.data.dataset_synonyms("digits/train") == {}
    assert synonyms is bench.data.dataset_synonyms("emoji/train"), (
        "runs of a process share them: 1,500 are planned at once"
    )


def test_unknown_names_and_sizes_are_answered():
    with pytest.raises(UserError, match=r"'emoji/openmojy' is unknown; did you mean 'emoji/openmoji'"):
        bench.data.load_dataset("emoji/openmojy", 32)
    with pytest.raises(UserError, match="48 px: sizes are 64 and 32"):
        bench.data.load_dataset("emoji/iid", 48)


def test_a_damaged_shard_is_named(tmp_path: Path):
    for name in ("sha256s", "streamline.tar.gz"):
        shutil.copy(emoji.FOLDER / name, tmp_path)
    path = tmp_path / "streamline.tar.gz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"streamline\.tar\.gz: sha256 is"):
        emoji.read_style("streamline", tmp_path)
    path.unlink()
    with pytest.raises(UserError, match=r"streamline\.tar\.gz: cannot be read"):
        emoji.read_style("streamline", tmp_path)


def test_webdataset_reads_the_shards():
    with (emoji.FOLDER / "fxemoji.tar.gz").open("rb") as file:
        source = [{"url": "fxemoji", "stream": file}]
        samples = list(tariterators.group_by_keys(tariterators.tar_file_expander(source)))
    ours = emoji.read_style("fxemoji")
    assert [json.loads(sample["json"]) for sample in samples] == [sample.fields for sample in ours]
    assert samples[0]["webp"] == ours[0].webp


def test_halves_share_no_concept_and_make_up_every_set():
    for split in emoji.SETS:
        whole = bench.data.load_dataset(f"emoji/{split}", 32)
        halves = [bench.data.load_dataset(f"{name}/{split}", 32) for name in emoji.HALVES]
        assert sorted(key for one in halves for key in one.keys) == list(whole.keys)
        first, second = (one.classes["concept"] for one in halves)
        assert sorted((*first, *second)) == sorted(whole.classes["concept"])
        assert abs(len(first) - len(second)) <= 1
        for one in halves:
            rows = [whole.keys.index(key) for key in one.keys]
            assert [one.captions(row) for row in range(len(one))] == [whole.captions(row) for row in rows]
            named = [one.classes["concept"][at] for at in one.labels["concept"].tolist()]
            assert named == [whole.classes["concept"][at] for at in whole.labels["concept"][rows].tolist()]
            assert one.name == f"{one.name.split('/')[0]}/{split}"


@pytest.mark.parametrize("family", ["emoji", *emoji.HALVES])
def test_a_checkpoint_is_chosen_by_no_image_pair_or_concept_that_the_test_set_holds(family):
    chosen, validation = (bench.data.load_dataset(f"{family}/{split}", 32) for split in ("selection", "validation"))
    assert set(chosen.keys) < set(validation.keys)
    tested = {
        split: bench.data.load_dataset(f"{family}/{split}", 32)
        for split in emoji.SETS
        if split not in ("validation", "selection")
    }
    for split, pairs in tested.items():
        assert not {*validation.keys} & {*pairs.keys}, split
        assert not drawn(validation) & drawn(pairs), split
    for split in ("iid", "novel"):
        assert not named(chosen) & named(tested[split]), split
    assert {key for key, own in concepts(validation) if own not in named(tested["iid"])} == set(chosen.keys)


def drawn(pairs):
    return {image.tobytes() for image in pairs.images(np.arange(len(pairs)))}


def concepts(pairs):
    return [
        (key, pairs.classes["concept"][at])
        for key, at in zip(pairs.keys, pairs.labels["concept"].tolist(), strict=True)
    ]


def named(pairs):
    return {name for _, name in concepts(pairs)}
