"""What methods may need of towers and data beside two encoders, and whether a run can give it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from bench.catalogue.tower_families import text_towers
from bench.suite import tower_files
from bench.suite.settings import TowerSettings


@dataclass(frozen=True)
class Need:
    """One word of `Method.needs`."""

    about: str  #: a clause: "it reads ..."
    unmet: Callable[[TowerSettings], str]  #: the reason why these towers do not give it; "" if they do


def _met(_: TowerSettings) -> str:
    """Every pair of towers has it, and every training set: images and captions as they are."""
    return ""


def _no_text_transformer(towers: TowerSettings) -> str:
    other = text_towers(towers.text).other(tower_files.text_config(towers))
    return (
        f"towers.text {towers.text} is {other}; take a transformer of open_clip or ours, or bert-base-uncased"
        * bool(other)
    )


NEEDS: dict[str, Need] = {
    "pixels": Need("it cuts, masks or mixes images, or reaches into the image tower", _met),
    "tokens": Need("it changes captions or reads token ids", _met),
    "text_transformer": Need("it reaches into the text tower", _no_text_transformer),
    "second_view": Need("it reads a second augmentation of each image", _met),
}


def unmet(needs: Collection[str], towers: TowerSettings) -> Iterator[tuple[str, str]]:
    """(word, reason) for each need that these towers do not give, in the order of `NEEDS`."""
    for word, need in NEEDS.items():
        reason = need.unmet(towers) if word in needs else ""
        if reason:
            yield word, reason
