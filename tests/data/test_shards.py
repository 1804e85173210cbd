"""Pairs read from shards: pixels and captions of the right rows, orders, shares, content, changed and missing files."""

import os
import pickle
import shutil
import tarfile
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from bench import data_folder as folders_of_data
from bench.data import Pairs
from bench.data import photo as photographs
from bench.data.shards import load_shard_pairs as training
from bench.data.shards import missing_shard_data
from bench.data.shards import pairs as shard_pairs
from bench.data.shards.indexing import build_index
from bench.data.shards.sources import expand_sources
from bench.data.source import data_source
from bench.errors import UserError
from bench.suite.settings import DataSettings

from .captions import draw_captions


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(folders_of_data.DATA_VARIABLE, str(tmp_path))
    return tmp_path


def indexed(folder: Path, **settings):
    """The pairs of a folder below the data folder, indexed now."""
    build_index(expand_sources([str(folder)]), folder / "index.parquet", workers=1)
    return training(DataSettings(name=folder.name, size=16, **settings))


@pytest.fixture
def toy(data_folder, tars) -> Path:
    return tars.write_set(data_folder / "toy", shards=6, rows=10)


def test_rows_captions_and_images_belong_together(toy, tars):
    pairs = indexed(toy)
    assert isinstance(pairs, Pairs)
    assert (pairs.name, len(pairs), pairs.labels) == ("toy/pairs", 60, {})
    rows = np.array([59, 0, 13, 27, 13])
    assert [pairs.keys[row] for row in rows] == ["000050009", "000000000", "000010003", "000020007", "000010003"]
    assert [pairs.captions(int(row)) for row in rows] == [(f"caption of {pairs.keys[row]}",) for row in rows]
    assert pairs.encoded(rows) == [tars.encoded(int(row)) for row in rows]
    images = pairs.images(rows)
    assert (images.shape, images.dtype) == ((5, 16, 16, 3), np.uint8)
    expected = [photographs.evaluation_pixels(photographs.decode_image(tars.encoded(int(row))), 16) for row in rows]
    np.testing.assert_array_equal(images, np.stack(expected))
    with pytest.raises(IndexError):
        pairs.captions(60)


def test_training_pixels_are_keyed_by_row_epoch_seed_and_view(toy, tars):
    pairs = indexed(toy)
    rows = np.array([5, 17, 44])
    drawn = pairs.sampled(rows, 2, 1, 0, "nuclr")
    image = photographs.decode_image(tars.encoded(17))
    np.testing.assert_array_equal(drawn[1], photographs.training_pixels(image, 17, 2, 1, 0, "nuclr", 16))
    np.testing.assert_array_equal(drawn[::-1], pairs.sampled(rows[::-1], 2, 1, 0, "nuclr"))
    for other in ((3, 1, 0), (2, 0, 0), (2, 1, 1)):
        assert (pairs.sampled(rows, *other, "nuclr") != drawn).any()
    np.testing.assert_array_equal(pairs.sampled(rows, 2, 1, 0, "nuclr"), drawn)


def test_an_epoch_takes_blocks_of_shards(toy):
    pairs = indexed(toy, block=2)
    order = pairs.order(0, 0)
    assert sorted(order.tolist()) == list(range(60))
    for start in range(0, 60, 20):
        assert len(set((order[start : start + 20] // 10).tolist())) == 2
    assert (order != pairs.order(1, 0)).any()
    assert (order != indexed(toy, block=3).order(0, 0)).any()


def test_other_processes_and_threads_read_the_same(toy):
    pairs, rows = indexed(toy), np.arange(60)
    expected = pairs.encoded(rows)
    assert pickle.loads(pickle.dumps(pairs)) is pairs, "one index a process"
    with get_context("fork").Pool(2) as pool:
        assert [data for [data] in pool.map(pairs.encoded, rows.reshape(-1, 1))] == expected
    with get_context("spawn").Pool(1) as pool:
        assert pool.apply(pairs.encoded, (rows,)) == expected
    with ThreadPoolExecutor(8) as threads:
        assert all(one == expected for one in threads.map(lambda _: pairs.encoded(rows), range(20)))


def test_few_files_are_open_at_a_time(toy, monkeypatch):
    monkeypatch.setattr(shard_pairs, "MAX_OPEN_SHARDS", 2)
    before = len(os.listdir("/proc/self/fd"))
    pairs = indexed(toy)
    for row in (0, 15, 25, 35, 0, 55):
        pairs.encoded(np.array([row]))
        assert len(os.listdir("/proc/self/fd")) <= before + 2


def repacked(source: Path, target: Path, split: bool = False) -> Path:
    """The same samples in tars of another format, members in another order, under other names."""
    target.mkdir()
    for number, path in enumerate(sorted(source.glob("*.tar"), reverse=True)):
        with tarfile.open(path) as tar:
            members = sorted(tar, key=lambda member: member.name.rpartition(".")[::-1])
            with tarfile.open(target / f"part-{number}.tar", "w", format=tarfile.PAX_FORMAT) as out:
                for member in members[3:] if split and number == 0 else members:
                    out.addfile(member, tar.extractfile(member))
    return target


def test_content_is_samples_and_their_order_of_training_not_files(toy, data_folder, tars):
    first = indexed(toy)
    packed = indexed(repacked(toy, data_folder / "packed"))
    assert packed.content_hash == first.content_hash
    np.testing.assert_array_equal(packed.order(3, 1), first.order(3, 1))
    merged = data_folder / "merged"
    tars.write(merged / "all.tar", [m for i in range(60) for m in tars.sample(f"{i // 10:05d}{i % 10:04d}", i)])
    other = indexed(merged)
    assert other.keys == first.keys
    assert other.content_hash != first.content_hash, "trained in another order"


@pytest.mark.parametrize("change", ["caption", "image", "key", "row"])
def test_any_change_of_content_shows(data_folder, tars, change):
    def members(changed: str) -> list[tuple[str, bytes]]:
        samples = [tars.sample("a", 1), tars.sample("b", 2), tars.sample("c", 3)]
        if changed == "caption":
            samples[1] = tars.sample("b", 2, "caption of  b")
        if changed == "image":
            samples[1] = tars.sample("b", 9)
        if changed == "key":
            samples[1] = tars.sample("bb", 2, "caption of b")
        return [member for one in samples[: 2 if changed == "row" else 3] for member in one]

    tars.write(data_folder / "one" / "0.tar", members(""))
    tars.write(data_folder / "two" / "0.tar", members(change))
    assert indexed(data_folder / "one").content_hash != indexed(data_folder / "two").content_hash


def test_shares_nest_and_are_renumbered(toy, data_folder):
    whole = indexed(toy)
    parts = [training(DataSettings(name="toy", size=16, share=share)) for share in (0.25, 0.5)]
    assert [len(part) for part in parts] == [15, 30]
    assert set(parts[0].keys) < set(parts[1].keys) < set(whole.keys)
    assert list(parts[0].keys) == sorted(parts[0].keys)
    row = 7
    there = list(whole.keys).index(parts[0].keys[row])
    assert parts[0].encoded(np.array([row])) == whole.encoded(np.array([there]))
    assert parts[0].captions(row) == whole.captions(there)
    assert len({whole.content_hash, *(part.content_hash for part in parts)}) == 3
    assert sorted(parts[0].order(0, 0).tolist()) == list(range(15))
    again = indexed(repacked(toy, data_folder / "again"), share=0.25)
    assert again.content_hash == parts[0].content_hash
    with pytest.raises(UserError, match=r"data\.share=0\.001 selects 0 of 60 pairs"):
        training(DataSettings(name="toy", share=0.001))


def test_changed_shards_are_never_read_silently(toy):
    pairs = indexed(toy)
    shard = toy / "00001.tar"
    data = bytearray(shard.read_bytes())
    offset, size = int(pairs._offsets[13]), int(pairs._sizes[13])
    data[offset + size // 2] ^= 1
    shard.write_bytes(data)
    assert len(pairs.encoded(np.array([12]))) == 1
    with pytest.raises(UserError, match=r"00001\.tar: the image of '000010003' is not the one .* `bench data index`"):
        pairs.encoded(np.array([12, 13]))
    shard.write_bytes(data[:-512])
    fresh = indexed_again(pairs)
    with pytest.raises(UserError, match=r"00001\.tar: has \d+ bytes, \d+ when it was indexed"):
        fresh.encoded(np.array([12]))
    shutil.move(shard, toy / "gone")
    with pytest.raises(UserError, match=r"shards: .*00001\.tar: cannot be read: No such file"):
        indexed_again(pairs).encoded(np.array([12]))


def indexed_again(pairs):
    """As another process would open it."""
    from bench.data.shards.index import Index

    return shard_pairs.ShardPairs(pairs.settings, Index.read(pairs.index_path), pairs._paths)


def test_what_is_missing_is_said(data_folder, tars):
    [gone] = missing_shard_data(DataSettings(name="cc3m"))
    assert gone.what == "cc3m, training pairs"
    assert gone.looked == (str(data_folder / "cc3m"), str(data_folder / "cc3m" / "index.parquet"))
    assert "img2dataset --url_list cc3m.tsv" in gone.get
    assert f"--output_folder {data_folder / 'cc3m'} " in gone.get
    assert gone.bytes is not None
    assert gone.bytes > 10**10
    with pytest.raises(UserError, match=r"cc3m, training pairs: not found; looked in .*img2dataset"):
        training(DataSettings(name="cc3m"))
    [unknown] = missing_shard_data(DataSettings(name="mine"))
    assert unknown.bytes is None
    assert f"bench data index {data_folder / 'mine'}" in unknown.get
    folder = tars.write_set(data_folder / "mine", 3)
    [no_index] = missing_shard_data(DataSettings(name="mine"))
    assert no_index.get == f"bench data index {folder} --out {folder / 'index.parquet'}"
    by_caption = DataSettings(name="mine", get="bench data index DIR --each-caption")
    [no_index] = missing_shard_data(by_caption)
    assert no_index.get == f"bench data index {folder} --out {folder / 'index.parquet'} --each-caption"
    indexed(folder)
    [by_image] = missing_shard_data(by_caption)
    assert by_image.what == "mine, index with a row for each caption; this one has a row for each image"
    assert by_image.get == no_index.get
    assert missing_shard_data(DataSettings(name="mine")) == []
    bytes = (folder / "00001.tar").stat().st_size
    (folder / "00001.tar").unlink()
    [shard] = missing_shard_data(DataSettings(name="mine"))
    assert (shard.looked, shard.bytes) == ((str(folder / "00001.tar"),), bytes)
    [named] = missing_shard_data(DataSettings(name="mine", shards=str(folder)))
    assert "1 of 3 shards" in named.what
    assert data_source(DataSettings()).missing() == []
    (folder / "index.parquet").write_text("nothing")
    with pytest.raises(UserError, match=r"index\.parquet: not an index of shards"):
        missing_shard_data(DataSettings(name="mine"))


@pytest.mark.parametrize("named", [False, True])
def test_shards_that_came_after_the_index_are_not_passed_over(toy, tars, named):
    shards = {"shards": str(toy)} if named else {}
    indexed(toy, **shards)
    settings = DataSettings(name="toy", size=16, **shards)
    assert missing_shard_data(settings) == []
    for name in ("late", "later"):
        tars.write(toy / f"{name}.tar", tars.sample(name, 70))
    [gone] = missing_shard_data(settings)
    assert gone.what == "toy, index of 2 more shards than it has (late.tar, later.tar)"
    assert gone.get.startswith(f"bench data index {toy} --out {toy / 'index.parquet'}; or name in data.shards")
    some = str(toy / "{00000..00005}.tar")
    assert len(training(DataSettings(name="toy", size=16, shards=some))) == 60
    build_index(expand_sources([str(toy)]), toy / "index.parquet", workers=1, each_caption=True)
    assert len(training(settings)) == 62
    tars.write(toy / "latest.tar", tars.sample("latest", 71))
    other = settings.model_copy(update={"block": 3})  # as another process, which has not read the index before
    with pytest.raises(UserError, match=r"1 more shards .*latest\.tar.*: bench data index .* --each-caption; or"):
        training(other)


@pytest.mark.parametrize("column", ["captions", "key"])
def test_an_index_whose_texts_are_not_those_of_its_hashes_is_refused(toy, column):
    """Well-formed, with the content hash that runs have; found when it is loaded, or when the row is read."""
    honest, path = indexed(toy), toy / "index.parquet"
    table, row = pq.read_table(path), 17
    values = table[column].to_pylist()
    values[row] = ["another caption"] if column == "captions" else f"{values[row]}-"
    place = table.schema.get_field_index(column)
    pq.write_table(
        table.set_column(place, table.schema.field(column), pa.array(values, table.schema.types[place])), path
    )
    os.utime(path, ns=(1, 1))
    said = (
        r"index\.parquet: key or captions of row 17 \('000010007-?'\) are not those that were indexed; run `bench data"
    )
    with pytest.raises(UserError, match=said):
        training(DataSettings(name="toy", size=16))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_pairs, "SAMPLED_ROWS", 1)
        forged = training(DataSettings(name="toy", size=16))
    assert forged.content_hash == honest.content_hash
    assert len(forged.images(np.arange(17))) == 17
    with pytest.raises(UserError, match=said):
        forged.images(np.array([17]))


def test_shards_may_move(toy, data_folder):
    first = indexed(toy)
    moved = shutil.copytree(toy, data_folder / "elsewhere" / "toy")
    shutil.rmtree(toy)
    settings = {"name": "toy", "size": 16, "shards": str(moved)}
    again = training(DataSettings(**settings))
    rows = np.arange(60)
    assert len(again.encoded(rows)) == 60
    shutil.move(moved / "index.parquet", data_folder / "other.parquet")
    apart = training(DataSettings(**settings, index=str(data_folder / "other.parquet")))
    assert apart.encoded(rows) == again.encoded(rows)
    assert apart.content_hash == first.content_hash


def test_noise_and_its_captions(toy):
    from bench.data.noise.shuffled import shuffled_captions

    pairs = indexed(toy)
    manifest = shuffled_captions(pairs, 0.4, 1)
    texts = draw_captions(pairs, manifest, np.arange(60), 0, 0)
    wrong = [row for row, text in enumerate(texts) if text != f"caption of {pairs.keys[row]}"]
    assert wrong == manifest.rows.tolist()
    assert manifest.realised_rate == 0.4
    manifest.check(pairs)
    with pytest.raises(UserError, match="was not made for"):
        manifest.check(training(DataSettings(name="toy", share=0.5)))


def test_images_of_other_modes(data_folder, tars):
    """CMYK, palettes, 16-bit grey and transparency all become RGB."""
    import io

    members = []
    for mode, form in (("CMYK", "JPEG"), ("P", "PNG"), ("I;16", "PNG"), ("LA", "PNG"), ("1", "PNG"), ("RGBA", "WEBP")):
        buffer = io.BytesIO()
        Image.new(mode, (20, 30)).save(buffer, form)
        members += [(f"{mode.replace(';', '')}.jpg", buffer.getvalue()), (f"{mode.replace(';', '')}.txt", b"a")]
    tars.write(data_folder / "modes" / "0.tar", members)
    assert indexed(data_folder / "modes").images(np.arange(6)).shape == (6, 16, 16, 3)
