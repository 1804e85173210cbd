"""The small towers of our own, as open_clip configurations. Part of a run's identity; readable without torch."""

from __future__ import annotations

from typing import Any

#: Vision towers for CPUs; `image_size` is set from the data.
IMAGE_TOWERS: dict[str, dict[str, Any]] = {
    "tiny-vit": {"layers": 4, "width": 128, "head_width": 32, "patch_size": 8},
    "tiny-resnet": {"timm_model_name": "test_resnet", "timm_pool": "avg", "timm_proj": "linear"},
}

#: Text towers for short captions.
TEXT_TOWERS: dict[str, dict[str, Any]] = {
    "tiny-transformer": {"context_length": 16, "width": 96, "heads": 3, "layers": 2},
}
