"""What run ids hold of towers, and the files that towers need beyond the package. Needs no torch."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from bench import reading
from bench.catalogue.architectures import TowerConfig
from bench.catalogue.tower_families import image_towers, text_towers
from bench.data_folder import Missing, data_root
from bench.errors import UserError
from bench.hashing import Absent, digest
from bench.suite.settings import TowerSettings

#: files of a tokenizer: one of the first two holds the vocabulary, the last says which tokens are special
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "tokenizer_config.json", "config.json")
MAX_VOCABULARY_BYTES = 1 << 26  #: of a vocabulary; those of a quarter of a million tokens have 20 MB
_OWNERS = {"bert-base-uncased": "google-bert", "distilbert-base-uncased": "distilbert"}


def hub_name(name: str) -> str:
    """ "bert-base-uncased" -> "google-bert/bert-base-uncased"; others are the same."""
    return f"{_OWNERS[name]}/{name}" if name in _OWNERS else name


def tokenizer_folder(towers: TowerSettings) -> Path | None:
    """The folder of the towers' tokenizer: that of the tower, or for a name on the hub one below the data folder.

    None if it holds no vocabulary.
    """
    place = _own_place(towers)
    return place if any((place / file).is_file() for file in TOKENIZER_FILES[:2]) else None


def missing_tokenizer(towers: TowerSettings) -> Missing:
    """Return where a missing tokenizer was looked for, and how to get it."""
    name, place = tokenizer_name(towers) or "", _own_place(towers)
    if is_folder(towers.text):
        return Missing(f"vocabulary of {name}", (name,), f"put vocab.txt or tokenizer.json into {name}", None)
    get = f"hf download {hub_name(name)} {' '.join(TOKENIZER_FILES)} --local-dir {place}"
    return Missing(f"vocabulary of {name}", (str(place), "the hub's cache"), get, 2**20)


def vocabulary_hash(towers: TowerSettings) -> str | Absent:
    """sha256 of the tokenizer's tokens and their ids, the same wherever its files lie and whichever they are.

    `Absent` if it is not there. UserError for files that hold none.
    """
    place = _tokenizer(towers)
    if place is None:
        return Absent(f"no vocabulary of {tokenizer_name(towers)}; `bench run --dry-run` says how to get it")
    file = next(place / file for file in TOKENIZER_FILES[:2] if (place / file).is_file())
    return _ids_in(file)


@cache
def _ids_in(file: Path) -> str:
    try:
        text = io.StringIO(reading.read_file(file, MAX_VOCABULARY_BYTES).decode(), newline=None).read()
        if file.suffix == ".txt":
            return digest({token: position for position, token in enumerate(text.removesuffix("\n").split("\n"))})
        described = json.loads(text)
        ids = described["model"]["vocab"]
        if isinstance(ids, list):  # a Unigram model: tokens with their scores, in order
            ids = {token: position for position, (token, _) in enumerate(ids)}
        added = {token["content"]: token["id"] for token in described.get("added_tokens") or ()}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"towers.text: {file}: cannot be read as a vocabulary: {error!r}") from error
    return digest({**ids, **added})


def missing_tower_files(towers: TowerSettings) -> Iterator[Missing]:
    """Vocabularies and weights of single towers that are not there. Weights that are fetched by name are not listed."""
    if tokenizer_name(towers) and _tokenizer(towers) is None:
        yield missing_tokenizer(towers)
    for what, start in (("image", towers.image_start), ("text", towers.text_start)):
        if start is not None and is_place(start) and not start_files(start):
            yield Missing(f"weights that the {what} tower starts from", (start,), "see the suite's comments", None)


def _own_place(towers: TowerSettings) -> Path:
    name = tokenizer_name(towers) or ""
    return Path(name) if is_folder(towers.text) else data_root() / "tokenizers" / Path(name).name


def _tokenizer(towers: TowerSettings) -> Path | None:
    """As `tokenizer_folder`; for a name on the hub the hub's cache is searched as well."""
    own, name = tokenizer_folder(towers), tokenizer_name(towers)
    if own or name is None or is_folder(towers.text):
        return own
    from huggingface_hub import try_to_load_from_cache

    cached = (try_to_load_from_cache(hub_name(name), file) for file in TOKENIZER_FILES[:2])
    return next((Path(file).parent for file in cached if isinstance(file, str)), None)


#: files of a transformers folder that say how a tower is built and how it reads texts
_DESCRIPTION_FILES = ("config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json")
_WEIGHTS_FILES = ("model.safetensors", "pytorch_model.bin")


def towers_content(towers: TowerSettings) -> dict[str, Any]:
    """Towers as identities see them: as their families describe them, vocabularies and given weights by their bytes."""
    described = towers.content()
    described["image"] = image_towers(towers.image).content(towers.image)
    described["text"] = text_towers(towers.text).content(towers.text)
    if tokenizer_name(towers) and not is_folder(towers.text):
        described["tokenizer"] = vocabulary_hash(towers)
    for field in ("image_start", "text_start"):
        start = getattr(towers, field)
        if is_place(start):
            described[field] = files_hash(start, _WEIGHTS_FILES)
    return described


def folder_content(folder: str) -> dict[str, str | Absent]:
    """A folder of a transformers model as identities see it: how the tower is built and how it reads texts."""
    return {"folder": files_hash(folder, _DESCRIPTION_FILES)}


def tokenizer_name(towers: TowerSettings) -> str | None:
    """The tokenizer of transformers that the text tower reads by: a name on the hub, or the tower's folder.

    None if it reads by another tokenizer.
    """
    return text_towers(towers.text).vocabulary(towers.text, text_config(towers))


def is_place(start: str | None) -> bool:
    """Return whether the weights that a tower starts from are a file or folder, not only a name."""
    return start not in (None, "imagenet", "hub")


def start_files(start: str) -> list[Path]:
    """The files of weights at a place that a tower starts from; none where it is not there."""
    return [file for file in _files(start, _WEIGHTS_FILES) if file.is_file()]


def is_folder(text: str) -> bool:
    """Return whether the name of a text tower is that of a folder of a transformers model."""
    return text_towers(text).folders


def text_config(towers: TowerSettings) -> TowerConfig:
    """The text tower's configuration, with the tokens a caption; UserError for a folder that describes none."""
    config = text_towers(towers.text).config(towers.text)
    return {**config, **_head(towers, "text"), "context_length": towers.context or config["context_length"]}


def image_config(towers: TowerSettings, size: int) -> TowerConfig:
    """The image tower's configuration at `size` px, or for stored features of `size` numbers."""
    return {**image_towers(towers.image).config(towers.image, size, towers.dim), **_head(towers, "image")}


def _head(towers: TowerSettings, kind: str) -> TowerConfig:
    """The settings of the head on stored features; nothing for another tower."""
    return {"head": towers.head.model_dump()} if towers.head is not None and kind in towers.stored else {}


@cache
def files_hash(place: str, names: tuple[str, ...]) -> str | Absent:
    """sha256 of a file, or of those of `names` that lie in a folder; `Absent` if one cannot be read."""
    path, files = Path(place), _files(place, names)
    if not files:
        return Absent(f"{place}: holds none of {', '.join(names)}")
    total = hashlib.sha256()
    for file in files:
        try:
            with reading.open_file(file) as opened:
                digest = hashlib.file_digest(opened, "sha256").digest()  # type: ignore[arg-type]  # it has readinto
        except OSError as error:
            return Absent(f"{file}: cannot be read: {error.strerror}")
        total.update(digest if len(files) == 1 and file == path else file.name.encode() + digest)
    return total.hexdigest()


def _files(place: str, names: tuple[str, ...]) -> list[Path]:
    path = Path(place)
    return [path / name for name in names if (path / name).is_file()] if path.is_dir() else [path]
