"""The small towers of our own, as open_clip configurations. Part of a run's identity; readable without torch."""

from __future__ import annotations

from typing import Any

#: Vision towers for CPUs; `image_size` is set from the data. Ten epochs of CLIP on emoji/train at 32 px (D = 128, one
#: core, top-1 on emoji/iid, 0.1 is chance; a text tower of width 96): timm's test_resnet 6.5 % in 39 CPU seconds,
#: test_byobnet 5.4 in 32, test_convnext 4.7 in 34, test_efficientnet 3.8 in 35, open_clip's ResNet [1, 1, 1, 1] of
#: width 16 4.2 in 46 and of width 32 6.9 in 99, resnet10t 8.7 in 92, this ViT 1.6 in 68.
IMAGE_TOWERS: dict[str, dict[str, Any]] = {
    "tiny-resnet": {"timm_model_name": "test_resnet", "timm_pool": "avg", "timm_proj": "linear"},
    "tiny-vit": {"layers": 4, "width": 128, "head_width": 32, "patch_size": 8},
}

#: Text towers for short captions. One layer of width 64 lost nothing against two of width 96 (6.7 % each, at a learning
#: rate of 2e-3) and saved a quarter of the step.
TEXT_TOWERS: dict[str, dict[str, Any]] = {
    "tiny-transformer": {"context_length": 24, "width": 64, "heads": 2, "layers": 1},
}
