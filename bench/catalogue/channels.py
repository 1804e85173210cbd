"""Mean and standard deviation that pixels are normalised with. Needs no torch."""

from __future__ import annotations

from typing import TypeAlias

Channels: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]  #: mean and standard deviation of red, green, blue

CLIP_CHANNELS: Channels = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
IMAGENET_CHANNELS: Channels = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR_CHANNELS: Channels = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))  # those of CyCLIP's and NUCLR's code
