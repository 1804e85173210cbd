"""Feature sets: what frozen encoders made of images and captions, as arrays on disk."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from bench.data.features.about import NAME, About, evaluation_folders, refuse_changed
from bench.data.features.pairs import FeaturePairs
from bench.data.features.texts import TextFeatures

__all__ = ["NAME", "About", "FeaturePairs", "TextFeatures", "load", "verify"]


def load(folder: Path | str, share: float = 1.0, dropout: float = 0.0) -> FeaturePairs:
    """Open a feature set as `FeaturePairs` does, once a process for each time of change; errors as there."""
    path = Path(folder).absolute()
    about = path / NAME
    return _load(path, share, dropout, about.stat().st_mtime_ns if about.is_file() else 0)


@lru_cache(maxsize=64)
def _load(folder: Path, share: float, dropout: float, _changed: int) -> FeaturePairs:
    return FeaturePairs(folder, share, dropout)


def verify(folder: Path) -> list[str]:
    """Read every byte of a feature set and of the evaluation sets in it; return a line for each.

    Raises UserError with the first file whose sha256 is not that of its description, or as `FeaturePairs` does.
    """
    lines = []
    for one in (folder, *evaluation_folders(folder)):
        about = FeaturePairs(one).about
        for name in about.expected():
            refuse_changed(one / name, about.files[name])
        lines.append(f"{one}: {about.rows:,} rows, {about.texts:,} texts, content {about.content_hash[:16]}: whole")
    return lines
