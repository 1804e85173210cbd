"""Feature sets: outputs of frozen encoders for images and captions, as arrays on disk."""

from __future__ import annotations

from pathlib import Path

from bench.data.features.about import HASHED_FILES, NAME, SetDescription, evaluation_folders, refuse_changed_file
from bench.data.features.pairs import FeaturePairs, open_feature_set
from bench.data.features.texts import TextFeatures

__all__ = ["NAME", "FeaturePairs", "SetDescription", "TextFeatures", "open_feature_set", "verify_feature_set"]


def verify_feature_set(folder: Path) -> list[str]:
    """Read every byte of a feature set and of the evaluation sets in it; return a line for each.

    Raises UserError with the first file whose sha256 is not that of its description, or as `FeaturePairs` does.
    """
    lines = []
    for one in (folder, *evaluation_folders(folder)):
        about = FeaturePairs(one).about
        for name in set(about.expected()) - {*HASHED_FILES}:  # which opening read
            refuse_changed_file(one / name, about.files[name])
        lines.append(f"{one}: {about.rows:,} rows, {about.texts:,} texts, content {about.content_hash[:16]}: whole")
    return lines
