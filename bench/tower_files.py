"""Which files towers need that do not come with the package, and which of them are not there. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bench import tower_configs
from bench.data.place import Missing, root

if TYPE_CHECKING:
    from bench.settings import TowerSettings

#: files of a tokenizer; any of the first two is enough
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "tokenizer_config.json")
_OWNERS = {"bert-base-uncased": "google-bert", "distilbert-base-uncased": "distilbert"}


def hub_name(name: str) -> str:
    """ "bert-base-uncased" -> "google-bert/bert-base-uncased"; others are the same."""
    return f"{_OWNERS[name]}/{name}" if name in _OWNERS else name


def tokenizer_folder(name: str) -> Path | None:
    """Where the files of a tokenizer lie: in the folder `name`, or below `tokenizers/` in the data folder."""
    for place in (Path(name), _own_place(name)):
        if any((place / file).is_file() for file in TOKENIZER_FILES[:2]):
            return place
    return None


def missing_tokenizer(name: str) -> Missing:
    """What there is to say of a tokenizer that is not there."""
    if Path(name).is_dir():
        return Missing(f"vocabulary of {name}", (name,), f"put vocab.txt or tokenizer.json into {name}", None)
    place = _own_place(name)
    get = f"hf download {hub_name(name)} {' '.join(TOKENIZER_FILES)} --local-dir {place}"
    return Missing(f"vocabulary of {name}", (str(place), "the hub's cache"), get, 2**20)


def missing(towers: TowerSettings) -> Iterator[Missing]:
    """Vocabularies and weights of single towers that are not there. What is fetched by name is not looked for."""
    text = tower_configs.text_config(towers)
    name = towers.text if "model_type" in text else text.get("hf_tokenizer_name")
    if name and tokenizer_folder(name) is None and not _cached(hub_name(name)):
        yield missing_tokenizer(name)
    for what, start in (("image", towers.image_start), ("text", towers.text_start)):
        if start not in (None, "imagenet", "hub") and not Path(start).exists():
            yield Missing(f"weights that the {what} tower starts from", (start,), "see the suite's comments", None)


def _own_place(name: str) -> Path:
    return root() / "tokenizers" / Path(name).name


def _cached(repository: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return any(isinstance(try_to_load_from_cache(repository, file), str) for file in TOKENIZER_FILES[:2])
