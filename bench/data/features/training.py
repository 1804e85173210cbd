"""The stored features that a run trains on: loaded once a process, with dropout where a suite asks for it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from bench import counter
from bench.arrays import Ints
from bench.data import features
from bench.data.features import about as description
from bench.data.features import synthetic
from bench.data.features.lookup import TextLookup
from bench.data.features.pairs import FeaturePairs
from bench.data.features.synthetic import SyntheticFeatures, SyntheticLookup
from bench.data_folder import Missing
from bench.errors import UserError
from bench.suite.settings import SYNTHETIC, DataSettings


@runtime_checkable
class StoredFeatures(Protocol):
    """Training pairs whose images are stored features."""

    @property
    def width(self) -> int:
        """P, the numbers of an image."""

    def lookup(self) -> TextLookup | SyntheticLookup:
        """Return what finds the features of texts. Raises UserError if there are none."""


class TrainingFeatures(FeaturePairs):
    """A feature set as training sees it: numbers of an image are dropped by draws keyed by (seed, row, epoch, view)."""

    def __init__(self, folder: Path | str, share: float = 1.0, dropout: float = 0.0) -> None:
        """dropout: share of an image's numbers that is zeroed; the others are divided by 1 - dropout."""
        super().__init__(folder, share)
        self.dropout = dropout
        if self.about.image is None:
            raise UserError(f"{folder}: has no image features; extract the set again with --images MODEL")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the place alone: another process maps the same files."""
        return TrainingFeatures, (self.folder, self.share, self.dropout)

    @property
    def width(self) -> int:
        """P, the numbers of an image."""
        assert self.about.image is not None
        return self.about.image.width

    def lookup(self) -> TextLookup:
        """Return what finds the features of texts. Raises UserError if there are none."""
        return TextLookup(self)

    def sampled(self, rows: Ints, epoch: int, seed: int, view: int, recipe: str) -> npt.NDArray[Any]:
        """Map rows [b] to features [b, P]: a stored view, or float32 with numbers dropped."""
        return self.dropped(super().sampled(rows, epoch, seed, view, recipe), rows, epoch, seed, view)

    def dropped(self, stored: npt.NDArray[Any], rows: Ints, epoch: int, seed: int, view: int) -> npt.NDArray[Any]:
        """Return features [b, P] of rows [b] with the numbers dropped that `sampled` drops; as they are without."""
        if not self.dropout:
            return stored
        drawn = counter.uniforms(counter.word(seed, "feature dropout", epoch, view), rows, self.width)
        scale = np.float32(1 / (1 - self.dropout))
        dropped: npt.NDArray[Any] = stored.astype(np.float32) * np.where(drawn < self.dropout, np.float32(0), scale)
        return dropped


def load(settings: DataSettings) -> TrainingFeatures | SyntheticFeatures:
    """Open the features of `settings`, once a process. Raises UserError if they are missing or damaged."""
    if settings.synthetic:
        return synthetic.load(settings)
    for gone in missing(settings):
        raise UserError(f"{gone.what}: not there; looked for {', '.join(gone.looked)}. To get it: {gone.get}")
    folder = settings.feature_folder.absolute()
    changed = (folder / description.NAME).stat().st_mtime_ns
    return _load(folder, settings.share, settings.feature_dropout, changed)


@lru_cache(maxsize=4)
def _load(folder: Path, share: float, dropout: float, _changed: int) -> TrainingFeatures:
    return TrainingFeatures(folder, share, dropout)


def texts_beside(settings: DataSettings) -> TextLookup | SyntheticLookup:
    """Open the stored texts that are read beside pixels, once a process.

    Raises UserError if they are missing or damaged, or the settings name none.
    """
    if settings.texts is None:
        raise UserError(f"data.texts: {settings.name}: towers.text reads stored texts; name the folder that has them")
    if settings.texts.startswith(SYNTHETIC):
        return SyntheticLookup(int(settings.texts.removeprefix(SYNTHETIC)))
    for gone in missing_texts(settings):
        raise UserError(f"{gone.what}: not there; looked for {', '.join(gone.looked)}. To get it: {gone.get}")
    return TextLookup(features.load(settings.text_folder))


def missing_texts(settings: DataSettings) -> list[Missing]:
    """List what is missing of the stored texts beside pixels; [] if nothing is."""
    made_up = settings.texts is None or settings.texts.startswith(SYNTHETIC)
    if made_up or _is_there(folder := settings.text_folder):
        return []
    get = settings.how_to_get or f"bench features extract DATA {folder} --texts MODEL --for SUITE"
    return [Missing(f"{settings.name}, stored texts", (str(folder / description.NAME),), get, None)]


def evaluation_texts_hash(settings: DataSettings, name: str) -> str:
    """Hash of the stored texts of an evaluation set that lie with `data.texts`; "" if there are none.

    Raises UserError if they are damaged.
    """
    if settings.texts is None or settings.texts.startswith(SYNTHETIC):
        return ""
    folder = settings.text_folder / description.EVALUATION / name
    return description.read(folder).texts_hash if _is_there(folder) else ""


def with_made_up_texts(settings: DataSettings) -> DataSettings:
    """Put made-up texts of the same width in place of the stored ones, to count and time steps.

    Raises UserError if neither the folder nor `data.widths` says how wide they are.
    """
    if settings.texts is None or settings.texts.startswith(SYNTHETIC):
        return settings
    if not missing_texts(settings):
        width = texts_beside(settings).size
    elif settings.widths is not None:
        width = settings.widths[1]
    else:
        lacking = f"the stored texts of {settings.name} are not there and their width is not stated"
        raise UserError(f"data.widths: {lacking}; add data.widths: [null, numbers of a text]")
    return settings.model_copy(update={"texts": f"{SYNTHETIC}{width}"})


def missing(settings: DataSettings) -> list[Missing]:
    """List what is missing of the stored features of `settings`; [] if nothing is."""
    if settings.features is None or settings.synthetic or _is_there(folder := settings.feature_folder):
        return []
    what = f"{settings.name}, stored features"
    get = f"bench features extract DATA {folder} --images MODEL --texts MODEL, or bench features import"
    return [Missing(what, (str(folder / description.NAME),), settings.how_to_get or get, None)]


def evaluation_set(settings: DataSettings, name: str) -> FeaturePairs:
    """Open an evaluation set that lies with the training features. Raises UserError if it is missing or damaged."""
    gone = missing_evaluation(settings, name)
    if gone is not None:
        raise UserError(f"{gone.what}: not there; looked for {gone.looked[0]}. To get it: {gone.get}")
    pairs = features.load(_evaluation_folder(settings, name))
    if pairs.about.image is None:
        raise UserError(f"{pairs.folder}: has no image features; extract it again with --images MODEL")
    return pairs


def missing_evaluation(settings: DataSettings, name: str, purpose: str = "") -> Missing | None:
    """Describe an evaluation set that does not lie with the training features; None if it does."""
    folder = _evaluation_folder(settings, name)
    if _is_there(folder):
        return None
    what = f"{name}, stored features" + (f", {purpose}" if purpose else "")
    own = settings.feature_folder
    get = f"bench features extract DATA {own} --images MODEL --texts MODEL --evaluation {name}"
    return Missing(what, (str(folder / description.NAME),), settings.how_to_get or get, None)


def _is_there(folder: Path) -> bool:
    return (folder / description.NAME).is_file()


def _evaluation_folder(settings: DataSettings, name: str) -> Path:
    return settings.feature_folder / description.EVALUATION / name
