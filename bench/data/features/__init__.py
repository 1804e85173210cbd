"""Feature sets: what frozen encoders made of images and captions, as arrays on disk."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from bench.data.features.about import NAME, About
from bench.data.features.pairs import FeaturePairs
from bench.data.features.texts import TextFeatures

__all__ = ["NAME", "About", "FeaturePairs", "TextFeatures", "load"]


def load(folder: Path | str, share: float = 1.0) -> FeaturePairs:
    """Open a feature set, once a process. Raises UserError if it is missing or damaged, or `share` leaves no row."""
    path = Path(folder).absolute()
    about = path / NAME
    return _load(path, share, about.stat().st_mtime_ns if about.is_file() else 0)


@lru_cache(maxsize=64)
def _load(folder: Path, share: float, _changed: int) -> FeaturePairs:
    return FeaturePairs(folder, share)
