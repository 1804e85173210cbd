"""Needs of methods beyond two encoders, and whether a run's towers and data meet them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from bench import reading
from bench.catalogue.tower_families import text_towers
from bench.suite import tower_files
from bench.suite.settings import DataSettings, TowerSettings


@dataclass(frozen=True)
class NeedRule:
    """One word of `Method.needs`."""

    about: str  #: a clause: "it reads ..."
    #: the reason why these towers on this data do not give it; "" if they do
    unmet: Callable[[TowerSettings, DataSettings], str]


def _no_pixels(towers: TowerSettings, _: DataSettings) -> str:
    return "towers.image reads stored features" if "image" in towers.stored else ""


def _no_tokens(towers: TowerSettings, _: DataSettings) -> str:
    return "towers.text reads stored features, which other captions do not have" if "text" in towers.stored else ""


def _no_text_transformer(towers: TowerSettings, _: DataSettings) -> str:
    if "text" in towers.stored:
        return "towers.text is a head on stored features"
    other = text_towers(towers.text).other(tower_files.text_config(towers))
    fix = "take a transformer of open_clip or ours, or bert-base-uncased"
    return f"towers.text {towers.text} is {other}; {fix}" if other else ""


def _no_second_view(towers: TowerSettings, data: DataSettings) -> str:
    """Pixels are augmented; stored features have several views, or are dropped."""
    if "image" not in towers.stored or data.feature_dropout:
        return ""
    try:
        about = reading.parse_json(reading.read_file(data.feature_folder / "features.json", 1 << 26))
        single = int(about["image"]["views"]) == 1
    except (OSError, ValueError, KeyError, TypeError):  # they are not here, or cannot be read
        single = False
    return "data.features has one view of an image; store several, or set data.feature_dropout" * single


NEEDS: dict[str, NeedRule] = {
    "pixels": NeedRule("it cuts, masks or mixes images, or reaches into the image tower", _no_pixels),
    "tokens": NeedRule("it changes captions or reads token ids", _no_tokens),
    "text_transformer": NeedRule("it reaches into the text tower", _no_text_transformer),
    "second_view": NeedRule("it reads a second augmentation of each image", _no_second_view),
}


def unmet(needs: Collection[str], towers: TowerSettings, data: DataSettings) -> Iterator[tuple[str, str]]:
    """(word, reason) for each need that these towers and data do not give, in the order of `NEEDS`."""
    for word, need in NEEDS.items():
        reason = need.unmet(towers, data) if word in needs else ""
        if reason:
            yield word, reason
