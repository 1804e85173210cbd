"""What a phase with a frozen image tower leaves trainable."""

from __future__ import annotations


def besides_image_backbone(name: str) -> bool:
    """Whether a parameter is none of the image backbone's; the tower's projection or attention pooling is no part."""
    heads = ("towers.visual.proj", "towers.visual.head.", "towers.visual.attnpool.")
    return not name.startswith("towers.visual.") or name.startswith(heads)
