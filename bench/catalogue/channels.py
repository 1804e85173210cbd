"""Means and standard deviations that normalise pixels. Needs no torch."""

from __future__ import annotations

from typing import TypeAlias

Channels: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]  #: mean and standard deviation of red, green, blue

CLIP_CHANNELS: Channels = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
IMAGENET_CHANNELS: Channels = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# official: github.com/bokun-wang/NUCLR@ddaec8d clip.py (create_zeroshot_dataloader), its values for CIFAR-10
CIFAR_CHANNELS: Channels = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
