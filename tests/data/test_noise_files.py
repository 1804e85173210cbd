"""Published index files: recognised, made from their seeds, and compared."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from bench.catalogue.index_files import published
from bench.cli import app
from bench.data import MemoryPairs, load
from bench.data.noise import NoiseManifest, edited_captions, import_ncr, shuffled_captions, shuffled_images
from bench.data.noise.exported import Unit, exported
from bench.data.noise.index_files import NoiseFile, compared, drawn
from bench.data.strings import Strings
from bench.errors import UserError

MEASURED = json.loads((Path(__file__).parent / "noise_oracles.json").read_text())["published"]["rows"]
UNITS: tuple[Unit, Unit] = ("image", "caption")
MADE = [entry for entry in published() if entry.seed is not None]


@dataclass(frozen=True, eq=False)
class RowsByCaption(MemoryPairs):
    """Pairs of which several rows show one image, as an index with a row for each caption has them."""

    image_of: tuple[str, ...] = ()  #: [n] in the order of the rows

    @property
    def image_keys(self) -> Strings:
        return Strings.of(self.image_of)


def called(*arguments: str | Path) -> list[str]:
    done = CliRunner().invoke(app, ["noise", *map(str, arguments)])
    if done.exception is not None:
        raise done.exception
    return done.output.splitlines()


def test_the_catalogue_is_whole() -> None:
    entries = list(published())
    assert len(entries) == len({entry.sha256 for entry in entries}) == 27
    assert len(MADE) == 9
    for entry in entries:
        assert entry.entries == entry.images * (5 if entry.unit == "caption" else 1)
        assert entry.moved / entry.entries == pytest.approx(entry.rate, abs=1e-4)
        assert entry.source.startswith("github.com/")


@pytest.mark.promise("published index files of noise are made to the byte")
@pytest.mark.parametrize("entry", [one for one in MADE if one.data == "Flickr30K"], ids=lambda one: one.name)
def test_files_that_follow_from_a_seed_have_the_published_bytes(entry: object) -> None:
    content = drawn(entry.entries, entry.rate, entry.seed)  # type: ignore[attr-defined]
    assert hashlib.sha256(content).hexdigest() == entry.sha256  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both files of PC2 for 20 % on Flickr30K, and that for 40 %."""
    home = tmp_path_factory.mktemp("files")
    for name in ("pc2-f30k-0.2", "pc2-f30k-0.2-np", "pc2-f30k-0.4"):
        assert called("published", name, "--out", home / f"{name}.npy") == [str(home / f"{name}.npy")]
    return home


@pytest.mark.parametrize("rate", ["0.2", "0.4"])
def test_what_a_file_does_to_images_is_as_was_measured(folder: Path, rate: str) -> None:
    (row,) = [row for row in MEASURED if row["file"] == f"pc2_f30k_{rate}.npy"]
    first, second, third = called("compare", folder / f"pc2-f30k-{rate}.npy")
    assert f": 145,000 entries, one a caption; {row['wrong_entries']:.2%} are wrong" in first
    some, every = row["images_with_a_wrong_caption"], row["images_all_wrong"]
    assert second == f"  images with a wrong caption: {some:.2%}, with wrong captions only: {every:.2%}"
    assert third.startswith(f"  published as pc2-f30k-{rate}: Yang et al. (BiCro), CVPR 2023; Duan et al. (PC2)")


def test_two_files_of_one_rate_overlap_by_chance_and_one_seed_nests(folder: Path) -> None:
    lines = called("compare", folder / "pc2-f30k-0.2.npy", folder / "pc2-f30k-0.2-np.npy")[6:]
    assert lines[0].startswith("wrong in both: 5,")
    assert lines[0].endswith("chance 5,800 ± 61")
    assert lines[1].endswith("chance 0.1111")
    assert lines[-1] == "They overlap as files that know nothing of each other do."
    lines = called("compare", folder / "pc2-f30k-0.2.npy", folder / "pc2-f30k-0.4.npy")
    assert lines[-1].startswith("Every wrong entry of "), "both follow from seed 96"
    assert lines[-1].endswith("pc2-f30k-0.4.npy.")
    assert called("compare", *[folder / "pc2-f30k-0.2.npy"] * 2)[-1] == "They are the same noise."


def saved(path: Path, entries: np.ndarray) -> NoiseFile:
    np.save(path, entries)
    return NoiseFile.read(path)


def test_a_file_by_image_is_compared_with_one_by_caption(tmp_path: Path) -> None:
    """L2RM's files are RCL's, each entry five times."""
    draw = np.random.default_rng(0)
    images = np.arange(400)
    moved = draw.permutation(400)[:80]
    images[moved] = np.roll(images[moved], 1)
    by_image, repeated = saved(tmp_path / "rcl.npy", images), saved(tmp_path / "l2rm.npy", np.repeat(images, 5))
    for pair in ((by_image, repeated), (repeated, by_image)):
        lines = list(compared(*pair))
        assert lines[0].startswith("wrong in both: 400 of 400 and 400; chance 80")
        assert lines[-1] == "They are the same noise."
    assert list(repeated.text())[1].endswith("wrong caption: 20.00%, with wrong captions only: 20.00%")
    assert list(by_image.text())[1] == "  not a published file that is known"
    half = images.copy()
    half[moved[40:]] = moved[40:]
    half[moved[:40]] = np.roll(moved[:40], 2)
    inside = saved(tmp_path / "half.npy", half)
    assert list(compared(inside, by_image))[-1] == f"Every wrong entry of {inside.path} is wrong in {by_image.path}."
    other = np.arange(400)
    clean = np.setdiff1d(np.arange(400), moved)[:80]
    other[clean] = np.roll(clean, 1)
    assert list(compared(saved(tmp_path / "other.npy", other), by_image))[-1] == "They overlap less than by chance."


def test_manifests_of_runs_are_compared(tmp_path: Path) -> None:
    texts = [[f"text {i} of many"] for i in range(300)]
    pairs = MemoryPairs.build(
        "toy", "", [f"{i:03}" for i in range(300)], texts, {}, {}, np.zeros((300, 2, 2, 3), np.uint8)
    )
    made: dict[str, NoiseManifest] = {
        "few": shuffled_captions(pairs, 0.2, 0),
        "many": shuffled_captions(pairs, 0.4, 0),
        "edits": edited_captions(pairs, 0.4, 0, "truncate", 0.5),
        "other": shuffled_captions(pairs, 0.4, 1),
    }
    for name, manifest in made.items():
        manifest.save(tmp_path / f"{name}.parquet")
    few, many, edits, other = (tmp_path / f"{name}.parquet" for name in made)
    assert called("compare", few, many)[-1] == f"Every wrong entry of {few} is wrong in {many}."
    assert called("compare", many, edits)[-3].startswith("  Jaccard index 1.0000")
    donors = np.arange(300)
    donors[made["few"].donors] = made["few"].rows  # entry k of an index file: the image that has captions k
    same = saved(tmp_path / "few.npy", donors).path
    assert called("compare", few, same)[-2:] == called("compare", same, few)[-2:]
    assert called("compare", few, same)[-1] == "They are the same noise."
    by_caption = saved(tmp_path / "captions.npy", np.roll(np.arange(300) // 5, 5)).path
    lines = called("compare", few, by_caption)
    assert not any("same way" in line for line in lines), "rows are no numbers of images"
    assert called("compare", many, other)[-1] == "They overlap as files that know nothing of each other do."


def test_what_cannot_be_compared_or_made_is_refused_in_a_line(tmp_path: Path) -> None:
    for name, entries in (("a", np.arange(6)), ("b", np.arange(5)), ("c", np.array([0, 1, 9])), ("d", np.eye(2))):
        np.save(tmp_path / f"{name}.npy", entries)
    with pytest.raises(UserError, match="6 and 5 entries; files of noise on the same data can be compared"):
        called("compare", tmp_path / "a.npy", tmp_path / "b.npy")
    with pytest.raises(UserError, match=r"c\.npy: entry 2 is 9; it should be the number of an image, 0 to 2"):
        called("compare", tmp_path / "c.npy")
    with pytest.raises(UserError, match=r"d\.npy: shape \(2, 2\); an index file has one entry a caption or an image"):
        called("compare", tmp_path / "d.npy")
    with pytest.raises(UserError, match=r"gone\.npy: not a NumPy index file"):
        called("compare", tmp_path / "gone.npy")
    with pytest.raises(UserError, match=r"rcl-f30k-0\.2: follows from no known seed; it is github\.com/penghu-cs/RCL"):
        called("published", "rcl-f30k-0.2")
    with pytest.raises(UserError, match=r"'pc2-f30k-0\.3' is not a published index file; did you mean 'pc2-f30k"):
        called("published", "pc2-f30k-0.3")
    with pytest.raises(UserError, match=r"--out /nowhere/x\.npy: cannot be written: there is no folder /nowhere"):
        called("published", "pc2-f30k-0.2", "--out", "/nowhere/x.npy")
    assert len(called("published")) == 27


# --- import and export ------------------------------------------------------------------------------------------------


def by_caption(images: int, each: int) -> RowsByCaption:
    n = images * each
    keys, texts = [f"{row:05d}" for row in range(n)], [[f"text {row}"] for row in range(n)]
    plain = MemoryPairs.build("toy/train", "toy", keys, texts, {}, {}, np.zeros((n, 2, 2, 3), np.uint8))
    owner = tuple(f"i{row // each:04d}" for row in range(n))
    return RowsByCaption("toy/train", "toy", plain.keys, plain.texts, {}, {}, plain.pixels, image_of=owner)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 12), st.integers(1, 6), st.randoms(use_true_random=False), st.sampled_from(["image", "caption"]))
def test_an_index_file_is_exported_to_the_bytes_it_was_imported_from(
    images: int, each: int, draw: Random, unit: Literal["image", "caption"]
) -> None:
    pairs = by_caption(images, each)
    index = np.arange(images if unit == "image" else images * each) // (1 if unit == "image" else each)
    moved = draw.sample(range(len(index)), draw.randrange(len(index) + 1))
    index[moved] = index[draw.sample(moved, len(moved))]
    with TemporaryDirectory() as folder:
        np.save(file := Path(folder) / "index.npy", index)
        manifest = import_ncr(file, pairs)
        assert exported(pairs, manifest, unit) == file.read_bytes()
        file.write_bytes(exported(pairs, manifest, "caption"))
        again = import_ncr(file, pairs)
    taken = [
        sorted((row // each, int(donor)) for row, donor in zip(one.rows.tolist(), one.donors.tolist(), strict=True))
        for one in (manifest, again)
    ]
    assert taken[0] == taken[1], "each image trains with the same captions"


@settings(deadline=None, max_examples=25)
@given(st.integers(3, 30), st.sampled_from([0.3, 0.6, 1.0]), st.integers(0, 9), st.booleans())
def test_noise_that_is_drawn_here_is_the_same_after_export_and_import(n: int, rate: float, seed: int, whole: bool):
    """By image: whether a row is an image, or five rows are one."""
    texts = [[f"{row}.{k}" for k in range(5)] for row in range(n)]
    keys = [f"{row:05d}" for row in range(n)]
    of_images = MemoryPairs.build("toy/train", "toy", keys, texts, {}, {}, np.zeros((n, 2, 2, 3), np.uint8))
    pairs = of_images if whole else by_caption(n, 5)
    manifest = shuffled_images(pairs, rate, seed) if round(rate * n) != 1 else None
    if manifest is None:
        return
    with TemporaryDirectory() as folder:
        (Path(folder) / "a.npy").write_bytes(exported(pairs, manifest, "image"))
        again = import_ncr(Path(folder) / "a.npy", pairs)
    assert (again.content_hash, again.realised_rate) == (manifest.content_hash, manifest.realised_rate)
    by_image, repeated = (exported(of_images, shuffled_images(of_images, rate, seed), unit) for unit in UNITS)
    numbers = [np.frombuffer(content[128:], "<i8") for content in (by_image, repeated)]
    np.testing.assert_array_equal(np.repeat(numbers[0], 5), numbers[1])


def test_noise_that_an_index_file_cannot_say_is_refused() -> None:
    pairs = by_caption(20, 5)
    whole = MemoryPairs.build("uneven", "", ["a", "b"], [["x"], ["y", "z"]], {}, {}, np.zeros((2, 2, 2, 3), np.uint8))
    for call, message in (
        (lambda: exported(pairs, edited_captions(pairs, 0.5, 0, "truncate", 0.5)), "edited_captions: changes texts"),
        (lambda: exported(pairs, shuffled_captions(pairs, 0.5, 0), "image"), "export it with --unit caption"),
        (lambda: exported(whole, shuffled_images(whole, 1.0, 0), "caption"), "have 1 to 2 captions; export it with"),
        (lambda: exported(whole, shuffled_images(whole, 1.0, 0), captions=3), "--captions 3: uneven has 2 images"),
    ):
        with pytest.raises(UserError, match=message):
            call()


SUITE = """\
name: tiny
budget: {samples: 48}
methods: [clip]
noise: {kind: shuffled_captions, rates: [0.4]}
"""


def test_a_suite_s_noise_goes_out_and_comes_back(tmp_path: Path) -> None:
    (suite := tmp_path / "tiny.yaml").write_text(SUITE)
    npy, parquet, again = tmp_path / "a.npy", tmp_path / "a.parquet", tmp_path / "b.npy"
    lines = called("export", suite, npy)
    assert lines[0] == str(npy)
    assert lines[1].endswith("entries, one an image; 40.00% are wrong")
    lines = called("import", npy, suite, "--out", parquet, "--count", "2")
    assert lines[1] == "  not a published file that is known"
    assert lines[2].startswith("imported, rate 0.4")
    assert f"unit image, sha256 {hashlib.sha256(npy.read_bytes()).hexdigest()}" in lines[2]
    assert (len(lines), lines[-1]) == (6, str(parquet))
    called("export", suite, again, "--manifest", parquet)
    assert again.read_bytes() == npy.read_bytes()
    assert NoiseManifest.load(parquet).notes["unit"] == "image"
    with pytest.raises(UserError, match=r"FILE /nowhere/a\.npy: cannot be written: there is no folder /nowhere"):
        called("export", suite, "/nowhere/a.npy")
    os.mkfifo(pipe := tmp_path / "pipe")
    for out, said in ((tmp_path / "no" / "a", "there is no folder"), (pipe, "a pipe or a device")):
        with pytest.raises(UserError, match=rf"--out {out}: cannot be written: .*{said}"):
            called("import", npy, suite, "--out", out)


def test_a_published_file_is_named_in_output_manifest_and_refusal(folder: Path) -> None:
    pairs = by_caption(29_000, 5)
    manifest = import_ncr(folder / "pc2-f30k-0.2.npy", pairs, 0.2)
    assert manifest.notes["published"] == "pc2-f30k-0.2"
    assert manifest.notes["unit"] == "caption"
    assert f"{manifest.realised_rate:.3%}" == "19.999%"
    assert exported(pairs, manifest) == (folder / "pc2-f30k-0.2.npy").read_bytes()
    message = (
        "shape (145000,) with 15 captions of 3 images in toy/train; it is pc2-f30k-0.2, published for 29,000 images"
    )
    with pytest.raises(UserError, match=re.escape(message)):
        import_ncr(folder / "pc2-f30k-0.2.npy", by_caption(3, 5))


def test_the_recommended_noise_of_the_docs_is_what_seeds_give() -> None:
    text = (Path(__file__).parents[2] / "docs" / "noise.md").read_text()
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    files = {row[2]: row for row in rows if len(row) == 5 and row[2].startswith("pc2-")}
    assert len(files) == 6
    for name, row in files.items():
        entry = published()[name]
        assert row == [entry.data, str(entry.rate), name, str(entry.seed), entry.sha256]
    drawn_here = [row for row in rows if row[0] == "emoji"]
    assert len(drawn_here) == 3
    for _, rate, count, content in drawn_here:
        manifest = shuffled_captions(load("emoji/train", 32), float(rate), 0)
        assert (len(manifest.rows), manifest.content_hash) == (int(count), content)
