"""Noise manifests: exact, reproducible, a single cycle; resampling; import; caption draws."""

import hashlib
import io
import json
import os
import pickle
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bench.data
from bench import counter
from bench.data import MemoryPairs
from bench.data.noise.imported import import_ncr
from bench.data.noise.manifest import Noise, caption_choice, noisy_mask
from bench.data.noise.shuffled import Resampled, shuffled_captions
from bench.data.text_sets import disjoint, in_blocks, kinds_of_sets
from bench.errors import UserError

from .captions import draw_captions

WORDS = ["ant", "bee", "cat", "dog", "eel", "fox"]
caption_lists = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3), min_size=1, max_size=60)


def pairs_of(texts, keys=None) -> MemoryPairs:
    keys = [f"k{i:05d}" for i in range(len(texts))] if keys is None else keys
    return MemoryPairs.build("toy/train", "toy", keys, texts, {}, {}, np.zeros((len(texts), 2, 2, 3), np.uint8))


def made(pairs, rate, seed=0):
    """The manifest, or None where its rows cannot swap captions."""
    try:
        return shuffled_captions(pairs, rate, seed)
    except UserError:
        order = counter.hash_order(pairs.keys, str(seed).encode())[: round(rate * len(pairs))].tolist()
        most = Counter(frozenset(pairs.captions(row)) for row in order).most_common(1)[0][1]
        assert most > len(order) / 2, "refused although a cycle exists"
        return None


@settings(deadline=None, max_examples=300)
@given(texts=caption_lists, rate=st.floats(0, 1), seed=st.integers(0, 3))
def test_manifest_properties(texts, rate, seed):
    pairs = pairs_of(texts)
    manifest = made(pairs, rate, seed)
    if manifest is None:
        return
    rows, donors = manifest.rows.tolist(), manifest.donors.tolist()
    assert len(rows) == round(rate * len(pairs))
    assert rows == sorted(set(rows))
    for row, donor in zip(rows, donors, strict=True):
        assert set(pairs.captions(row)) != set(pairs.captions(donor))
    follow = dict(zip(rows, donors, strict=True))
    if rows:
        walked = [rows[0]]
        while follow[walked[-1]] != rows[0] and len(walked) <= len(rows):
            walked.append(follow[walked[-1]])
        assert sorted(walked) == rows, "one cycle through all corrupted rows"
    lost = [r for r, d in follow.items() if not set(pairs.captions(r)) & set(pairs.captions(d))]
    assert manifest.realised_rate == pytest.approx(len(lost) / len(pairs))
    assert noisy_mask(manifest, len(pairs)).nonzero()[0].tolist() == rows
    expected = [follow.get(row, row) for row in range(len(pairs))]
    assert manifest.donors_of(np.arange(len(pairs))).tolist() == expected
    manifest.check(pairs)


@settings(deadline=None, max_examples=60)
@given(n=st.integers(2, 200), rates=st.tuples(st.floats(0, 1), st.floats(0, 1)), seed=st.integers(0, 5))
def test_rates_nest(n, rates, seed):
    pairs = pairs_of([[f"text {i}"] for i in range(n)])
    low, high = (made_or_empty(pairs, rate, seed) for rate in sorted(rates))
    assert low <= high


def made_or_empty(pairs, rate, seed):
    manifest = made(pairs, rate, seed)
    return set() if manifest is None else set(manifest.rows.tolist())


@settings(deadline=None, max_examples=40)
@given(st.permutations(range(30)), st.integers(0, 3))
def test_order_of_rows_in_files_is_nothing(order, seed):
    keys, texts = [f"key-{i * 7 % 30}" for i in range(30)], [[f"text {i}", WORDS[i % 6]] for i in range(30)]
    straight = shuffled_captions(pairs_of(texts, keys), 0.5, seed)
    shuffled = shuffled_captions(pairs_of([texts[i] for i in order], [keys[i] for i in order]), 0.5, seed)
    assert straight.content_hash == shuffled.content_hash


def test_seeds_differ_and_processes_agree():
    code = "from bench.data import load_dataset;from bench.data.noise.shuffled import shuffled_captions;"
    code += "print(shuffled_captions(load_dataset('emoji/iid', 32), 0.4, 1).content_hash)"
    pairs = bench.data.load_dataset("emoji/iid", 32)
    here = [shuffled_captions(pairs, 0.4, seed).content_hash for seed in (0, 1)]
    assert here[0] != here[1]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONHASHSEED": str(i + 1)},
            cwd=Path(bench.__file__).parents[1],
        )
        for i in range(2)
    ]
    assert [process.communicate()[0].strip() for process in started] == [here[1]] * 2


def test_emoji_noise_is_real():
    pairs = bench.data.load_dataset("emoji/train", 32)
    manifest = shuffled_captions(pairs, 0.4, 0)
    assert len(manifest.rows) == round(0.4 * len(pairs))
    assert 0.38 < manifest.realised_rate <= 0.4
    concept = pairs.labels["concept"]
    assert (concept[manifest.rows] != concept[manifest.donors]).all()


#: rate and seed -> the start of the manifest's hash, and the realised rate, on all training emoji
PINNED = {
    (0.0, 0): ("e56c7c2382bc2048", 0.0),
    (0.2, 1): ("1b9082cac9cb1467", 0.19974779319041613),
    (0.4, 0): ("341616b6355616d1", 0.39949558638083227),
    (1.0, 1): ("31f8acffdefd9a4e", 0.9989911727616646),
}
#: rows, different texts, rate -> the same of rows with one to three captions each
PINNED_TOY = {
    (2000, 3, 0.9): ("4820ee261221ace0", 0.305),
    (2000, 40, 0.3): ("af75e61362b7d399", 0.269),
    (5000, 100_000, 0.9): ("0170a9716c26fa3a", 0.8998),
}


@pytest.mark.parametrize(("rate", "seed"), PINNED)
def test_manifests_are_pinned(rate, seed):
    """Another manifest gives other ids to all noisy runs."""
    manifest = shuffled_captions(bench.data.load_dataset("emoji/train", 32), rate, seed)
    assert (manifest.content_hash[:16], manifest.realised_rate) == PINNED[rate, seed]


@pytest.mark.parametrize(("n", "texts", "rate"), PINNED_TOY)
def test_manifests_of_many_equal_captions_are_pinned(n, texts, rate):
    drawn = np.random.default_rng(0)
    captions = [[f"t{drawn.integers(texts)}" for _ in range(drawn.integers(1, 4))] for _ in range(n)]
    manifest = shuffled_captions(pairs_of(captions, [f"k{i:05d}é" for i in range(n)]), rate, 5)
    assert (manifest.content_hash[:16], manifest.realised_rate) == PINNED_TOY[n, texts, rate]


def test_caption_draws_are_pinned():
    pairs = bench.data.load_dataset("emoji/train", 32)
    manifest = shuffled_captions(pairs, 0.4, 0)
    drawn = [draw_captions(pairs, manifest, np.arange(len(pairs)), epoch, 0) for epoch in (0, 3)]
    assert hashlib.sha256(repr(drawn).encode()).hexdigest()[:16] == "adf8de6917238c36"


@settings(deadline=None, max_examples=100)
@given(texts=caption_lists, order=st.randoms(use_true_random=False))
def test_sets_of_captions_compare_as_sets(texts, order):
    """Against Python's own, of any rows in any order."""
    pairs = pairs_of(texts)
    rows = np.array(order.sample(range(len(texts)), order.randint(1, len(texts))))
    others = np.array(order.sample(rows.tolist(), len(rows)))
    kinds = kinds_of_sets(in_blocks(pairs, rows))
    for i, row in enumerate(rows.tolist()):
        for j, other in enumerate(rows.tolist()):
            assert (kinds[i] == kinds[j]) == (set(texts[row]) == set(texts[other]))
    expected = sum(set(texts[a]).isdisjoint(texts[b]) for a, b in zip(rows.tolist(), others.tolist(), strict=True))
    assert disjoint(pairs, rows, others) == expected


def test_a_majority_of_equal_captions_is_refused():
    with pytest.raises(UserError, match="more than half of them have the same"):
        shuffled_captions(pairs_of([["same"]] * 3 + [["other"]]), 1.0, 0)


def test_other_programs_read_a_manifest_as_parquet(tmp_path):
    pairs = bench.data.load_dataset("emoji/iid", 32)
    manifest = shuffled_captions(pairs, 0.2, 3)
    manifest.save(tmp_path / "noise.parquet")
    table = pq.read_table(tmp_path / "noise.parquet")
    about = json.loads(table.schema.metadata[b"noise"])
    expected = {"kind": "shuffled_captions", "rate": 0.2, "seed": 3, "n": len(pairs)}
    assert about == {**expected, "realised_rate": manifest.realised_rate}
    assert table.to_pydict() == {
        "key": list(manifest.keys),
        "donor_key": list(manifest.donor_keys),
        "row": manifest.rows.tolist(),
        "donor_row": manifest.donors.tolist(),
    }


def test_foreign_pairs_are_refused():
    manifest = shuffled_captions(bench.data.load_dataset("emoji/iid", 32), 0.2, 3)
    with pytest.raises(UserError, match="was not made for emoji/validation"):
        manifest.check(bench.data.load_dataset("emoji/validation", 32))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 300), st.integers(0, 1000), st.sampled_from([0.0, 0.1, 0.29, 0.5, 1.0]))
def test_resampling_redraws_an_exact_number(batch, step, rate):
    resampled = Resampled(rate, 0)
    donors = resampled.donors_in_batch(step, batch)
    changed = (donors != np.arange(batch)).sum()
    assert changed <= round(rate * 100) * batch // 100
    assert ((donors >= 0) & (donors < batch)).all()
    np.testing.assert_array_equal(donors, Resampled(rate, 0).donors_in_batch(step, batch))


def test_resampling_is_uniform():
    donors = np.stack([Resampled(0.25, 7).donors_in_batch(step, 16) for step in range(8000)])
    changed = donors != np.arange(16)
    assert changed.sum(axis=1).max() == 4
    assert changed.mean() == pytest.approx(0.25 * 15 / 16, abs=0.004)
    share = changed.mean(axis=0)
    assert share.max() - share.min() < 0.03
    drawn = np.bincount(donors[changed], minlength=16) / changed.sum()
    assert abs(drawn - 1 / 16).max() < 0.008


def test_ncr_index_files(tmp_path):
    pairs = pairs_of([[f"caption {i}"] for i in range(20)])  # four images with five captions each
    index = np.arange(20) // 5
    rng = np.random.default_rng(0)
    moved = rng.permutation(20)[:8]
    index[moved] = rng.permutation(index[moved])
    np.save(tmp_path / "noise.npy", index)
    manifest = import_ncr(tmp_path / "noise.npy", pairs)
    caption_of_image = Counter((int(index[c]), c) for c in range(20))
    ours = Counter((row // 5, int(manifest.donors_of(np.array([row]))[0])) for row in range(20))
    assert ours == caption_of_image
    assert manifest.realised_rate == (index != np.arange(20) // 5).mean() > 0
    np.save(tmp_path / "short.npy", index[:5])
    with pytest.raises(UserError, match=r"short\.npy: shape \(5,\) with 20 pairs"):
        import_ncr(tmp_path / "short.npy", pairs)
    np.save(tmp_path / "twice.npy", np.where(np.arange(20) == 0, 3, np.arange(20) // 5))
    with pytest.raises(UserError, match="not permuted"):
        import_ncr(tmp_path / "twice.npy", pairs)
    with pytest.raises(UserError, match=r"no\.npy: not a NumPy index file"):
        import_ncr(tmp_path / "no.npy", pairs)
    np.save(tmp_path / "five.npy", np.arange(100) // 5)
    with pytest.raises(
        UserError, match=r"one image and one row per caption are needed: `bench data index --each-caption`"
    ):
        import_ncr(tmp_path / "five.npy", pairs)


def header_of(shape: str, kind: str = "'<i8'") -> bytes:
    """A .npy file that claims a shape and holds nothing."""
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def npz_of(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, array)
    return file.getvalue()


def npy_of(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is not a complete .npy file of numbers: EOF"),
        (b"0 1 2 3\n", "it is not a complete .npy file of numbers: the magic string is not correct"),
        (b"\xff\xd8\xff\xe0 bytes", "the magic string is not correct"),
        (pickle.dumps([0, 1, 2, 3]), "the magic string is not correct"),
        (npz_of(np.arange(4)), "the magic string is not correct"),
        (header_of("(1000000000000,)"), "mmap length is greater than file size"),
        (header_of("(4294967296, 4294967296)"), "it is not a complete .npy file of numbers"),
        (header_of("(-4,)"), "negative dimensions are not allowed"),
        (header_of("(4,)", "'|O'"), "Python objects in dtype"),
        (header_of("(4,)", "[('a', '<i8')]") + bytes(32), "whole numbers are needed"),
        (header_of("(" * 5000), "it is not a complete .npy file of numbers"),
        (npy_of(np.arange(4))[:-1], "mmap length is greater than file size"),
        (npy_of(np.arange(4)) + b"\0", "it says 160 bytes and has 161"),
        (npy_of(np.array([0, 1, 2.5, 3])), "number 2 is 2.5, which is not an integer"),
        (npy_of(np.array([0, 1, np.nan, 3])), "number 2 is nan, which is not an integer"),
        (npy_of(np.array([0, 1, 2, 2**63], np.uint64)), "number 3 is 9223372036854775808, which is not an integer"),
        (npy_of(np.array(["0", "1", "2", "3"])), "it holds <U1; whole numbers are needed"),
        (npy_of(np.array([0, 1, 2, 4])), "entry 3 is 4; it should be the number of an image, 0 to 3"),
        (npy_of(np.array([0, 1, 2, -1])), "entry 3 is -1; it should be the number of an image, 0 to 3"),
    ],
)
def test_a_file_that_is_no_index_is_named_with_its_fault(tmp_path, content, message):
    pairs, path = pairs_of([[f"caption {i}"] for i in range(4)]), tmp_path / "index.npy"
    path.write_bytes(content)
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        import_ncr(path, pairs)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_pipe_or_a_folder_is_no_index_file(tmp_path):
    pairs = pairs_of([["a"], ["b"]])
    os.mkfifo(tmp_path / "pipe")
    for path, message in ((tmp_path / "pipe", "it is a FIFO, not a file"), (tmp_path, "it is a folder, not a file")):
        with pytest.raises(UserError, match=message):
            import_ncr(path, pairs)


def test_whole_numbers_may_be_floats(tmp_path):
    pairs = pairs_of([[f"caption {i}"] for i in range(4)])
    np.save(tmp_path / "floats.npy", np.array([1.0, 0.0, 2.0, 3.0]))
    assert import_ncr(tmp_path / "floats.npy", pairs).donors.tolist() == [1, 0]


def test_an_index_file_has_the_rate_it_is_said_to_have(tmp_path):
    """Written as NCR's data.py does: a share of the captions is shuffled among themselves."""
    n, drawn = 1000, np.random.default_rng(0)
    index = np.arange(n) // 5
    moved = drawn.permutation(n)[: int(0.4 * n)]
    index[moved] = drawn.permutation(index[moved])
    np.save(tmp_path / "0.4.npy", index)
    pairs = pairs_of([[f"caption {i}"] for i in range(n)])
    manifest = import_ncr(tmp_path / "0.4.npy", pairs, 0.4)
    assert (manifest.rate, manifest.kind, manifest.seed) == (0.4, "imported", -1)
    assert 0.39 < manifest.realised_rate < 0.4
    with pytest.raises(
        UserError, match=r"0\.4\.npy: 39\.\d% of its captions are at another image, noise\.rates says 20\.0%"
    ):
        import_ncr(tmp_path / "0.4.npy", pairs, 0.2)
    np.save(tmp_path / "copy.npy", index)
    assert import_ncr(tmp_path / "copy.npy", pairs, 0.4).content_hash == manifest.content_hash


def test_captions_are_drawn_by_seed_row_and_epoch():
    pairs = bench.data.load_dataset("emoji/train", 32)
    manifest = shuffled_captions(pairs, 0.4, 0)
    rows = np.arange(0, len(pairs), 3)
    drawn = draw_captions(pairs, manifest, rows, 2, 0)
    assert drawn[::-1] == draw_captions(pairs, manifest, rows[::-1], 2, 0)
    assert drawn[5:6] == draw_captions(pairs, manifest, rows[5:6], 2, 0)
    assert drawn != draw_captions(pairs, manifest, rows, 3, 0)
    assert drawn != draw_captions(pairs, manifest, rows, 2, 1)
    sources = manifest.donors_of(rows)
    assert all(text in pairs.captions(int(row)) for text, row in zip(drawn, sources, strict=True))
    clean = draw_captions(pairs, Noise(), rows, 2, 0)
    untouched = ~noisy_mask(manifest, len(pairs))[rows]
    assert [t for t, u in zip(drawn, untouched, strict=True) if u] == [
        t for t, u in zip(clean, untouched, strict=True) if u
    ]


def test_caption_choice_is_uniform():
    choice = np.stack([caption_choice(np.full(50, 7), np.arange(50), epoch, 0) for epoch in range(700)])
    share = np.bincount(choice.ravel(), minlength=7) / choice.size
    assert abs(share - 1 / 7).max() < 0.01
    assert caption_choice(np.array([1, 1]), np.array([3, 9]), 0, 0).tolist() == [0, 0]
