"""Import this before anything that imports torchvision (open_clip, clip_benchmark).

A torchvision wheel built for CUDA cannot load its C++ operators with a CPU-only torch, and then its import fails
because it registers fake kernels for `nms` and `qnms`. The two schemas are declared here when the library cannot load.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

_KEPT_ALIVE: list[torch.library.Library] = []


def prepare_torchvision() -> None:
    """Declare torchvision's schemas if its compiled operators do not load."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None or hasattr(torch.ops.torchvision, "nms"):
        return
    try:
        torch.ops.load_library(Path(spec.origin).parent / "_C.so")
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT_ALIVE.append(library)


prepare_torchvision()
