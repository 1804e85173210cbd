"""Which files towers need that do not come with the package, and which of them are not there. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bench.data.place import Missing, root
from bench.errors import UserError
from bench.identity import Absent, digest
from bench.tower_configs import is_folder, is_place, start_files, tokenizer_name

if TYPE_CHECKING:
    from bench.settings import TowerSettings

#: files of a tokenizer: one of the first two holds the vocabulary, the last says which tokens are special
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "tokenizer_config.json", "config.json")
_OWNERS = {"bert-base-uncased": "google-bert", "distilbert-base-uncased": "distilbert"}


def hub_name(name: str) -> str:
    """ "bert-base-uncased" -> "google-bert/bert-base-uncased"; others are the same."""
    return f"{_OWNERS[name]}/{name}" if name in _OWNERS else name


def tokenizer_folder(towers: TowerSettings) -> Path | None:
    """Where the files of the towers' tokenizer lie: in their folder, or of a name, below the data folder."""
    place = _own_place(towers)
    return place if any((place / file).is_file() for file in TOKENIZER_FILES[:2]) else None


def missing_tokenizer(towers: TowerSettings) -> Missing:
    """What there is to say of a tokenizer that is not there."""
    name, place = tokenizer_name(towers) or "", _own_place(towers)
    if is_folder(towers.text):
        return Missing(f"vocabulary of {name}", (name,), f"put vocab.txt or tokenizer.json into {name}", None)
    get = f"hf download {hub_name(name)} {' '.join(TOKENIZER_FILES)} --local-dir {place}"
    return Missing(f"vocabulary of {name}", (str(place), "the hub's cache"), get, 2**20)


def vocabulary(towers: TowerSettings) -> str | Absent:
    """sha256 of the tokenizer's tokens and their ids, the same wherever its files lie and whichever they are.

    `Absent` where it is not there. UserError for files that hold none.
    """
    place = _tokenizer(towers)
    if place is None:
        return Absent(f"no vocabulary of {tokenizer_name(towers)}; `bench run --dry-run` says how to get it")
    file = next(place / file for file in TOKENIZER_FILES[:2] if (place / file).is_file())
    return _ids_in(file)


@cache
def _ids_in(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".txt":
            return digest({token: position for position, token in enumerate(text.removesuffix("\n").split("\n"))})
        described = json.loads(text)
        ids = described["model"]["vocab"]
        if isinstance(ids, list):  # a Unigram model: tokens with their scores, in order
            ids = {token: position for position, (token, _) in enumerate(ids)}
        added = {token["content"]: token["id"] for token in described.get("added_tokens") or ()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"towers.text: {file}: cannot be read as a vocabulary: {error!r}") from error
    return digest({**ids, **added})


def missing(towers: TowerSettings) -> Iterator[Missing]:
    """Vocabularies and weights of single towers that are not there. What is fetched by name is not looked for."""
    if tokenizer_name(towers) and _tokenizer(towers) is None:
        yield missing_tokenizer(towers)
    for what, start in (("image", towers.image_start), ("text", towers.text_start)):
        if start is not None and is_place(start) and not start_files(start):
            yield Missing(f"weights that the {what} tower starts from", (start,), "see the suite's comments", None)


def _own_place(towers: TowerSettings) -> Path:
    name = tokenizer_name(towers) or ""
    return Path(name) if is_folder(towers.text) else root() / "tokenizers" / Path(name).name


def _tokenizer(towers: TowerSettings) -> Path | None:
    """As `tokenizer_folder`, the hub's cache included."""
    own, name = tokenizer_folder(towers), tokenizer_name(towers)
    if own or name is None or is_folder(towers.text):
        return own
    from huggingface_hub import try_to_load_from_cache

    found = (try_to_load_from_cache(hub_name(name), file) for file in TOKENIZER_FILES[:2])
    return next((Path(file).parent for file in found if isinstance(file, str)), None)
