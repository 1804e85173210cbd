"""One entry in one place: a kind of noise, an augmentation and a training set, each from its suite to its report."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from bench import data_folder
from bench.arrays import Ints, Pixels
from bench.catalogue.augmentations import AUGMENTATIONS, Augmentation, fitting_augmentations
from bench.catalogue.noise_kinds import KINDS, NoiseKind, NoiseOptions
from bench.catalogue.training_sets import TRAINING_SETS, TrainingSet
from bench.cli import app
from bench.data import MemoryPairs, photo
from bench.data.noise.manifest import NoiseManifest
from bench.data.noise.shuffled import shuffled_captions
from bench.data.pairs import Pairs
from bench.data.shards.indexing import build_index
from bench.data.shards.sources import expand_sources
from bench.errors import UserError
from bench.loading.loader import HostRows
from bench.planning import requirements
from bench.planning.planner import plan
from bench.registry import Registry, lazy
from bench.store import Store
from bench.suite.noise_settings import NoiseSettings
from bench.suite.suite import load_suite
from bench.training.inputs import InputsReader
from bench.training.job import make_job
from methods.protocol import Clock
from tools.handbook import noise_pages, settings_page

DOCS = Path(__file__).parents[2] / "docs"
SUITE = """\
name: tiny
budget: {samples: 48}
towers: {dim: 8, vocabulary: 300}
evaluate: {tasks: [noise_detection]}
methods: [clip]
"""
EMOJI = SUITE + "train: {batch: 16, threads: 1}\n"


@contextmanager
def added(registry: Registry[Any], entry: Any) -> Iterator[None]:
    """An entry for the length of a test."""
    registry.add(entry)
    try:
        yield
    finally:
        registry.remove(entry.name)


def bench(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    if result.exception is not None:
        raise result.exception
    return result.output


def first_batch(suite: Path, store: Store) -> HostRows:
    """What training sees in step 0 of the suite's first run."""
    planned = plan(load_suite(suite).runs(), store)[0]
    job = make_job(
        planned.run,
        InputsReader().inputs(planned.run),
        planned.resolved,
        store.run("looked-at"),
        None,
        torch.device("cpu"),
    )
    (batch,) = job.loader.micro_batches(Clock(0, "train", 0.0, 0), slice(0, 16), 16, 0)
    return batch


@pytest.fixture
def ran(unreported: Callable[[Path, str], Path]) -> Callable[[Path, Path], dict[str, Any]]:
    """Make all runs of a suite, and return its plan."""

    def run(suite: Path, results: Path) -> dict[str, Any]:
        bench("run", suite, "--results", unreported(results, "tiny"))
        store = Store(results)
        made = store.plan("tiny")
        assert made is not None
        assert {store.run(cell["run"]).status()["state"] for cell in made["cells"]} == {"done"}
        return made

    return run


# A kind of noise that edits captions and paints over images, with a setting of its own.


class Mark(NoiseOptions):
    outside: ClassVar[frozenset[str]] = frozenset({"remark"})

    word: str
    shade: int = 0
    remark: str = ""


@dataclass(frozen=True, eq=False)
class Marked(NoiseManifest):
    word: str
    shade: int

    @cached_property
    def content_hash(self) -> str:
        return hashlib.sha256(f"{super().content_hash} {self.word} {self.shade}".encode()).hexdigest()

    def texts(self, pairs: Pairs, rows: Ints) -> list[tuple[str, ...]]:
        wrong = np.isin(rows, self.rows)
        return [
            tuple(f"{text} {self.word}" if bad else text for text in pairs.captions(row))
            for row, bad in zip(rows.tolist(), wrong, strict=True)
        ]

    def applied(self, pairs: Pairs) -> Pairs:
        return Painted(pairs, self.rows, self.shade)  # type: ignore[return-value]  # the rest is the pairs' own


class Painted:
    def __init__(self, pairs: Pairs, rows: Ints, shade: int) -> None:
        self.pairs, self.rows, self.shade = pairs, rows, shade

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pairs, name)

    def __len__(self) -> int:
        return len(self.pairs)

    def images(self, rows: Ints) -> Pixels:
        images = self.pairs.images(rows).copy()
        images[np.isin(rows, self.rows)] = self.shade
        return images

    def sampled(self, rows: Ints, epoch: int, seed: int, view: int, recipe: str) -> Pixels:
        images = self.pairs.sampled(rows, epoch, seed, view, recipe).copy()
        images[np.isin(rows, self.rows)] = self.shade
        return images


def make_marked(pairs: Pairs, settings: NoiseSettings, rate: float, seed: int) -> Marked:
    drawn = shuffled_captions(pairs, rate, seed)
    own = {field.name: getattr(drawn, field.name) for field in fields(NoiseManifest)}
    own |= {"kind": "marked", "donors": drawn.rows, "donor_keys": drawn.keys}
    return Marked(**own, **settings.chosen_options().content())


MARKED = NoiseKind("marked", "marked pairs", "a word is added", make_marked, effect="bear a mark", options=Mark)


#: option -> whether the ids of the clean and of the noisy run stay
OTHERS = {"noise.options.shade=9": [True, False], "noise.options.remark=x": [True, True]}


def test_a_kind_of_noise_is_one_entry(tmp_path: Path, ran: Callable[[Path, Path], dict[str, Any]]) -> None:
    file, out = tmp_path / "tiny.yaml", tmp_path / "out"
    file.write_text(EMOJI + "noise: {kind: marked, rates: [0.0, 0.5], options: {word: zebra}}\n")
    with added(KINDS, MARKED):
        made = ran(file, out)
        clean, noisy = (Store(out).run(cell["run"]) for cell in made["cells"])
        assert [one["title"] for one in made["noises"]] == ["", "marked pairs"]
        assert [cell["noise"] for cell in made["cells"]] == ["clean", "50 % marked pairs"]
        assert (noisy.path("noise.parquet").is_file(), clean.path("noise.parquet").is_file()) == (True, False)
        assert noisy.settings()["noise"]["options"] == {"word": "zebra", "shade": 0, "remark": ""}
        assert "options" not in clean.settings()["noise"]
        assert {record.metric for record in noisy.records()} == {"auroc", "average_precision"}

        (tmp_path / "noisy.yaml").write_text(file.read_text().replace("[0.0, 0.5]", "[0.5]"))
        batch = first_batch(tmp_path / "noisy.yaml", Store(tmp_path / "other"))
        marked = [text.endswith(" zebra") for text in batch.captions]
        assert (batch.pixels[0].flatten(1) == 0).all(1).tolist() == marked
        assert 0 < sum(marked) < 16
        assert "clip, 50 % marked pairs, seed 0" in bench("run", file, "--results", out, "--dry-run")
        shown = bench("noise", "show", file, "--count", "3")
        assert "pairs of emoji/train bear a mark; " in shown
        assert shown.count(" zebra'") == 3
        assert "50 % marked pairs" in bench("report", file, "--results", out) + (out / "tiny/report.html").read_text()
        other = load_suite(file, ["noise.options.shade=9"])
        assert other.hash != load_suite(file).hash
        ids = {one: [planned.id for planned in plan(load_suite(file, [one]).runs(), Store(out))] for one in OTHERS}
        assert {one: [id == run.id for id, run in zip(ids[one], (clean, noisy), strict=True)] for one in ids} == OTHERS
        with pytest.raises(UserError, match=r"noise.options.shad: unknown key; did you mean 'shade'\?"):
            load_suite(file, ["noise.options.shad=9"])
        with pytest.raises(UserError, match=r"noise.options.word: is missing"):
            load_suite(file, ["noise.options={}"])
        with pytest.raises(UserError, match=r"'marked' is already a kind of noise; choose another name"):
            KINDS.add(MARKED)
    with pytest.raises(UserError, match=r"tiny.yaml:7: noise.kind: 'marked' should be 'shuffled_captions', "):
        load_suite(file)


def darkened(image: Image.Image, _draws: Any) -> Image.Image:
    return Image.new("RGB", image.size)


DARK = Augmentation(
    "dark", "nothing but black", {"photographs": lambda: photo.PhotoRecipe(after=darkened, scale=(0.9, 1.0))}
)


@pytest.fixture
def shards_suite(tmp_path: Path, tars: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite on a small set of shards, without a recipe for images."""
    monkeypatch.setenv(data_folder.DATA_VARIABLE, str(tmp_path))
    home = tars.write_set(tmp_path / "toy", shards=2, rows=20)
    build_index(expand_sources([str(home)]), home / "index.parquet", workers=1)
    (tmp_path / "tiny.yaml").write_text(EMOJI + "data: {name: toy, size: 32, workers: 0}\nnoise: {rates: [0.5]}\n")
    return tmp_path / "tiny.yaml"


def test_an_augmentation_is_one_entry(
    shards_suite: Path, tmp_path: Path, ran: Callable[[Path, Path], dict[str, Any]]
) -> None:
    shards_suite.write_text(shards_suite.read_text().replace("threads: 1", "threads: 1, augment: dark"))
    with added(AUGMENTATIONS, DARK):
        made = ran(shards_suite, tmp_path / "out")
        assert made["settings"]["train"]["augment"] == "dark"
        assert not first_batch(shards_suite, Store(tmp_path / "other")).pixels[0].any()
        other = load_suite(shards_suite, ["train.augment=none"])
        assert plan(other.runs(), Store(tmp_path / "out"))[0].id != made["cells"][0]["run"]
        with pytest.raises(UserError, match=r"train.augment: 'drak' should be 'none', .*; did you mean 'dark'\?"):
            load_suite(shards_suite, ["train.augment=drak"])
        with pytest.raises(UserError, match=r"no augmentation 'dark' for drawn art \(emoji\); "):
            load_suite(shards_suite, ["data={name: emoji}"])


def test_without_a_word_the_augmentation_fits_the_data(shards_suite: Path, tmp_path: Path) -> None:
    suite, store = load_suite(shards_suite), Store(tmp_path / "out")
    stated = load_suite(shards_suite, ["train.augment=openclip"])
    assert suite.train.augment == "openclip"
    assert [one.id for one in plan(suite.runs(), store)] == [one.id for one in plan(stated.runs(), store)]
    drawn = load_suite(shards_suite, ["data={name: emoji}"])
    assert drawn.train.augment == "emoji"
    assert drawn.hash == load_suite(shards_suite, ["data={name: emoji}", "train.augment=emoji"]).hash
    shards_suite.write_text(shards_suite.read_text().replace("train: {batch: 16, threads: 1}\n", ""))
    assert load_suite(shards_suite).train.augment == "openclip", "also where nothing is said of training"
    with pytest.raises(UserError, match=r"no augmentation 'emoji' for photographs \(toy\); valid: cyclip, ncu"):
        load_suite(shards_suite, ["train.augment=emoji"])


def squares(size: int) -> Pairs:
    pixels = np.full((40, size, size, 3), 255, np.uint8)
    for row in range(40):
        pixels[row, : row % size + 1, :8] = 0
    texts = [(f"a square of {row}", f"number {row}") for row in range(40)]
    return MemoryPairs.build("squares/train", "Forty squares.", [f"{r:02d}" for r in range(40)], texts, {}, {}, pixels)


SQUARES = TrainingSet("squares", load=squares, sizes=(16, 32), synonyms=lambda: {"a": ("b",)})
LIST = TrainingSet("weblist", rows=100, page="https://example.org/list", gigabytes=7, how="fetch --to {folder}")


def test_a_training_set_is_one_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Callable[[Path, Path], dict[str, Any]]
) -> None:
    monkeypatch.setenv(data_folder.DATA_VARIABLE, str(tmp_path))
    file, out = tmp_path / "tiny.yaml", tmp_path / "out"
    file.write_text(EMOJI + "data: {name: squares, size: 32}\nnoise: {rates: [0.5]}\n")
    with added(TRAINING_SETS, SQUARES):
        made = ran(file, out)
        assert {key: made["data"][key] for key in ("name", "description", "rows")} == {
            "name": "squares/train",
            "description": "Forty squares.",
            "rows": 40,
        }
        assert made["settings"]["train"]["augment"] == "emoji"
        assert "Forty squares" in bench("report", file, "--results", out) + (out / "tiny/report.html").read_text()
        with pytest.raises(UserError, match=r"data.size: 64 should be 16 or 32: squares has no other sizes"):
            load_suite(file, ["data.size=64"])
        with pytest.raises(UserError, match=r"'square' resembles 'squares', which comes with the package"):
            load_suite(file, ["data.name=square"])
    with added(TRAINING_SETS, LIST):
        file.write_text(EMOJI + "data: {name: weblist-part, size: 32}\nnoise: {rates: [0.5]}\n")
        told = "\n".join(requirements.listing(requirements.missing_inputs(load_suite(file))))
        assert "missing: weblist-part, training pairs, about 7 GB" in told
        assert f"list from https://example.org/list; fetch --to {tmp_path / 'weblist-part'}; then: bench" in told


def test_the_docs_name_every_entry() -> None:
    suites, scale = settings_page().replace("\\", ""), (DOCS / "paper_scale.md").read_text()
    kinds = str(noise_pages()["noise_kinds.md"]).replace("\\", "")
    for kind in KINDS:
        assert f"| [`{kind.name}`](#{kind.name}) | {kind.title} |" in kinds
        assert f"{kind.summary[1:]}. Corrupted pairs {kind.effect}." in kinds
    for one in AUGMENTATIONS:
        assert f"| `{one.name}` | {', '.join(one.build)} | {one.summary} |" in suites
    for entry in TRAINING_SETS:
        if entry.rows:
            assert f"| `{entry.name}` | {entry.rows:,} | {entry.page} |" in scale


def test_every_entry_makes_what_it_promises() -> None:
    for images in ("drawn art", "photographs", "stored features"):
        for name in fitting_augmentations(images):
            recipe = AUGMENTATIONS[name].build[images]()
            assert type(recipe).__module__ in ("bench.data.augment", "bench.data.photo", "builtins")
    assert lazy("json:dumps")([1]) == json.dumps([1])
    with pytest.raises(UserError, match=r"'emojy' is not an augmentation; did you mean 'emoji'\?"):
        AUGMENTATIONS["emojy"]


def test_a_suite_is_read_without_torch() -> None:
    code = (
        "import sys; from bench.suite.suite import load_suite; load_suite('cc3m_noisy', check_methods=False); "
        "load_suite('quickstart', check_methods=False); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
