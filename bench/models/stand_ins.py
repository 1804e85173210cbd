"""`bench data stand-in`: emoji under the names of other data sets, in the formats that those are read from.

A suite whose data cannot be had then runs on a laptop, with every one of its tables and figures. Numbers on such sets
say nothing about the sets whose names they have, so they lie in a data folder of their own.
"""

from __future__ import annotations

import io
import json
import string
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from PIL import Image
from torch import Tensor, nn

from bench import data, data_folder
from bench.catalogue import training_sets
from bench.catalogue.evaluation_sets import FOLDERS, EvaluationSet, parse_dataset
from bench.catalogue.families import FAMILIES
from bench.data import shards
from bench.data.pairs import Pairs
from bench.data.shards import indexing, sources
from bench.errors import UserError
from bench.evaluation.probabilistic.hierarchy import levels
from bench.evaluation.tasks import EvaluationPlan
from bench.models.encoders import ImageEncoder, ImagePreparation, TextEncoder
from bench.models.extract_features import ExtractionRequest, Models, extract_sets, sets_of_suite
from bench.suite import tower_files
from bench.suite.settings import TowerSettings
from bench.suite.suite import Suite, load_suite

LABEL = "group"  #: of the emoji, whose six classes stand in for any
TEMPLATES = ("a drawing of {c}.", "{c}")
CANDIDATES = 10  #: images of a puzzle
PUZZLES = 4
IMAGES_PER_CLASS = 6  #: images of a class
MAX_CAPTIONS = 5  #: of an image, at most, where each is a pair of its own
SIZE = 64  #: pixels a side
PAIRS_PER_SHARD = 1_000  #: training pairs
#: of the encoder that stands in for those of features
PREPARATION = ImagePreparation(SIZE, SIZE, ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)))
WIDTH, VIEWS = 128, 4  #: numbers of stored features where a suite does not say, and their views of an image
COARSE, WORDS = 8, 4096  #: pixels a side, and different words, that such an encoder tells apart
Members = list[tuple[str, bytes]]


def write_stand_in(suite: str, folder: Path, pairs: int) -> tuple[list[str], Suite]:
    """Write a data folder with all that a suite trains on and is scored on; return a line for each part, and the suite.

    Where the suite names shards, those of `folder` take their place. pairs: training pairs, at most. Raises UserError
    for a folder that holds something, and for an unknown suite.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: is not empty; real data and its stand-ins must not mix, so give a new folder")
    data_folder.use_data_folder(folder)
    loaded = load_suite(suite)
    if loaded.data.shards:
        loaded = load_suite(suite, [f"data.shards={folder / loaded.data.name}"])
    wanted = _wanted(loaded)
    write_evaluation_sets(data_folder.evaluation_folder(), SIZE, IMAGES_PER_CLASS, wanted)
    lines = [f"{data_folder.evaluation_folder()}: {len(wanted)} evaluation sets"]
    if loaded.data.name not in training_sets.embedded():
        lines.append(_training(folder / loaded.data.name, pairs, shards.wants_each_caption(loaded.data)))
    if loaded.data.on_features:
        lines += _features(loaded)
    lines += [line for towers in loaded.towers for line in _vocabulary(towers)]
    return lines, loaded


def _wanted(suite: Suite) -> list[EvaluationSet]:
    """Return the evaluation sets of a suite and of its trials, without those of the package."""
    found: dict[str, EvaluationSet] = {}
    for asked in suite.evaluates:
        for name, families in EvaluationPlan(suite.data, asked).wanted().items():
            if name not in data.dataset_names():
                entry, _ = parse_dataset(name)
                # a set of the user's own has no known kind
                captions = not entry.publisher and FAMILIES[families[0]].kinds[0] == "retrieval"
                found[entry.name] = replace(entry, kind="retrieval") if captions else entry
    return list(found.values())


def _vocabulary(towers: TowerSettings) -> Iterator[str]:
    """Write the vocabulary of a text tower whose own is not there: characters. Yield a line if it was written."""
    for gone in tower_files.missing_tower_files(towers):
        folder = Path(gone.looked[0])
        if gone == tower_files.missing_tokenizer(towers) and folder.is_relative_to(data_folder.data_root()):
            folder.mkdir(parents=True)
            letters = string.ascii_lowercase + string.digits + string.punctuation
            words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{one}" for one in letters)]
            (folder / "vocab.txt").write_text("\n".join(words) + "\n")
            (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
            yield f"{folder}: a vocabulary of {len(words)} tokens"


def _training(folder: Path, most: int, each_caption: bool) -> str:
    """Write indexed shards of training pairs as img2dataset does, or (`each_caption`) with all captions of an image."""
    emoji = data.load_dataset("emoji/train", SIZE)
    rows = range(min(most, len(emoji)))
    folder.mkdir(parents=True)
    for start in rows[::PAIRS_PER_SHARD]:
        samples = (
            [("jpg", _image(emoji, row, "JPEG")), *_texts(emoji.captions(row)[: MAX_CAPTIONS if each_caption else 1])]
            for row in rows[start : start + PAIRS_PER_SHARD]
        )
        _tar(folder / f"{start // PAIRS_PER_SHARD:05d}.tar", samples)
    report = indexing.build_index(sources.expand_sources([str(folder)]), workers=1, each_caption=each_caption)
    return f"{folder}: {report.about.rows:,} training pairs"


def _texts(captions: Sequence[str]) -> list[tuple[str, bytes]]:
    """Return the members of a sample that hold its captions: of one caption those of img2dataset."""
    if len(captions) > 1:
        return [("json", json.dumps({"captions": captions}).encode())]
    return [("txt", captions[0].encode()), ("json", json.dumps({"caption": captions[0]}).encode())]


def _features(suite: Suite) -> list[str]:
    """Extract stored features of the pairs and evaluation sets by random projections, of the suite's widths."""
    name = suite.data.name
    own = name if name in training_sets.embedded() else str(data_folder.data_root() / name)
    stored = {side for towers in suite.towers for side in towers.stored}
    image, text = suite.data.widths or (WIDTH, WIDTH)
    torch.manual_seed(0)
    pixels, words = nn.Linear(3 * COARSE**2, image), nn.EmbeddingBag(WORDS, text)

    def seen(images: Tensor) -> Tensor:
        projected: Tensor = pixels(nn.functional.adaptive_avg_pool2d(images, COARSE).flatten(1))
        return projected

    def read(texts: list[str]) -> Tensor:
        places = [[zlib.crc32(word.encode()) % WORDS for word in one.split() or [""]] for one in texts]
        starts = np.cumsum([0, *map(len, places[:-1])])
        mean: Tensor = words(torch.tensor([place for one in places for place in one]), torch.from_numpy(starts))
        return mean

    images = ImageEncoder("stand-in", pixels, seen, PREPARATION)
    texts = TextEncoder("stand-in", words, read, "a random vector for each word") if "text" in stored else None
    sets = tuple(sets_of_suite(suite))
    request = ExtractionRequest(own, suite.data.feature_folder, images.name, evaluation=sets, views=VIEWS)
    return extract_sets(request, Models(images, texts))


@dataclass(frozen=True)
class Emoji:
    """Some emoji of the evaluation set, the same number of each class."""

    size: int  #: pixels a side
    each: int  #: images per class
    turn: int  #: another value selects other emoji, as long as there are more

    @cached_property
    def pairs(self) -> Pairs:
        return data.load_dataset("emoji/iid", self.size)

    @cached_property
    def rows(self) -> list[int]:
        labels = self.pairs.labels[LABEL]
        of_class = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        return [row for rows in of_class for row in np.roll(rows, -self.turn * self.each)[: self.each].tolist()]

    @property
    def classes(self) -> Sequence[str]:
        return self.pairs.classes[LABEL]

    def label(self, row: int) -> int:
        return int(self.pairs.labels[LABEL][row])

    def png(self, row: int) -> bytes:
        return _image(self.pairs, row, "PNG")


def _image(pairs: Pairs, row: int, form: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pairs.images(np.array([row]))[0]).save(buffer, form)
    return buffer.getvalue()


def write_evaluation_sets(home: Path, size: int, each: int, sets: Iterable[EvaluationSet]) -> None:
    """Write these sets below `home`, the `evaluation` of a data folder.

    size: pixels a side; each: images of a class, at least two. All splits show the same images, in different files.
    """
    for turn, entry in enumerate(sets):
        _WRITERS[entry.kind](home, entry, Emoji(size, each, turn))


def _classes(home: Path, entry: EvaluationSet, emoji: Emoji) -> None:
    folder = home / f"wds_{entry.webdataset or entry.name}"
    samples: list[Members] = []
    for place, row in enumerate(emoji.rows):
        members = [("png", emoji.png(row)), ("cls", str(emoji.label(row)).encode())]
        if entry.fields:
            buffer = io.BytesIO()
            np.save(buffer, np.full(len(entry.fields), place % 2, np.int64))
            members.append(("npy", buffer.getvalue()))
        samples.append(members)
    _shards(folder, samples)
    (folder / "classnames.txt").write_text("".join(f"{name}\n" for name in emoji.classes))
    (folder / "zeroshot_classification_templates.txt").write_text("".join(f"{text}\n" for text in TEMPLATES))


def _captions(home: Path, entry: EvaluationSet, emoji: Emoji) -> None:
    folder = home / f"wds_{entry.webdataset or entry.name}"
    if folder.is_dir():  # another set with the same files
        return
    texts = {row: "\n".join(emoji.pairs.captions(row)[:5]).encode() for row in emoji.rows}
    _shards(folder, [[("png", emoji.png(row)), ("txt", texts[row])] for row in emoji.rows])
    (folder / "dataset_type.txt").write_text("retrieval\n")


def _hierarchy(home: Path, entry: EvaluationSet, emoji: Emoji) -> None:
    own = levels(emoji.pairs)
    texts = {row: "\n".join(own[row]).encode() for row in emoji.rows}
    _shards(home / f"wds_{entry.name}", [[("png", emoji.png(row)), ("txt", texts[row])] for row in emoji.rows])


def _puzzles(home: Path, entry: EvaluationSet, emoji: Emoji) -> None:
    rows = emoji.rows
    puzzles = []
    for place in range(PUZZLES):
        among = [rows[(place + step * len(rows) // CANDIDATES) % len(rows)] for step in range(CANDIDATES)]
        label = emoji.label(among[0])
        names = {row: emoji.pairs.keys[row] for row in among}
        images = [{"bytes": emoji.png(row), "path": None} for row in names]
        right = [name for row, name in names.items() if emoji.label(row) == label]
        puzzles.append((list(names.values()), images, emoji.classes[label], right))
    columns = ("candidates", "candidate_images", "cue", "associations")
    table = pa.table(dict(zip(columns, map(list, zip(*puzzles, strict=True)), strict=True)))
    folder = home / "hf_cache" / f"nlphuji___{entry.hub}" / "TEST"
    folder.mkdir(parents=True)
    with pa.ipc.new_stream(str(folder / f"{entry.hub}-test.arrow"), table.schema) as out:
        out.write_table(table)


_WRITERS = {"classification": _classes, "retrieval": _captions, "hierarchy": _hierarchy, "association": _puzzles}


def _shards(folder: Path, samples: Sequence[Members]) -> None:
    """Write the samples as one tar into every split of a set."""
    for names in FOLDERS.values():
        split = folder / names[0]
        split.mkdir(parents=True)
        mark = names[0].encode()  # after the end of a PNG, where no reader looks
        _tar(split / "0.tar", [[(kind, x + mark if kind == "png" else x) for kind, x in one] for one in samples])


def _tar(path: Path, samples: Iterable[Members]) -> None:
    with tarfile.open(path, "w") as tar:
        for number, members in enumerate(samples):
            for extension, content in members:
                member = tarfile.TarInfo(f"{path.stem}{number:05d}.{extension}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
