"""Noise: which training pairs are corrupted, how, and where their captions come from.

A run has one kind of noise (`bench.catalogue.noise_kinds`). Fixed noise corrupts rows for the whole run: a manifest
lists the corrupted rows and their donors. Other kinds draw captions anew within the batch in every step. A module here
makes one kind, or several that are made alike.
"""

from bench.data.noise.edited import edited_captions
from bench.data.noise.imported import IMPORTED, import_ncr, index_shape
from bench.data.noise.manifest import ManifestSummary, Noise, NoiseManifest, caption_choice, draw_captions, noisy_mask
from bench.data.noise.poison import Poison, make_poisoned
from bench.data.noise.semantic import semantic_swap
from bench.data.noise.shuffled import Resampled, shuffled_captions, shuffled_images
from bench.data.noise.targeted import Targeted

__all__ = [
    "IMPORTED",
    "ManifestSummary",
    "Noise",
    "NoiseManifest",
    "Poison",
    "Resampled",
    "Targeted",
    "caption_choice",
    "draw_captions",
    "edited_captions",
    "import_ncr",
    "index_shape",
    "make_poisoned",
    "noisy_mask",
    "semantic_swap",
    "shuffled_captions",
    "shuffled_images",
]
