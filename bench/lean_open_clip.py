"""Import this before open_clip: it starts without transformers, which a quarter of its import time is spent on.

open_clip imports transformers if it can and works without it, but for text towers that transformers builds; code that
makes a text tower calls `load_for` first.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

import bench.torchvision_fix  # noqa: F401  before open_clip, which imports torchvision

_LIBRARY = "transformers"


def _start() -> None:
    """Import open_clip as it is where transformers is not installed. Does nothing if either was imported before."""
    if "open_clip" in sys.modules or _LIBRARY in sys.modules:
        return
    sys.modules[_LIBRARY] = None  # type: ignore[assignment]  # what Python takes for a module that is not there
    try:
        importlib.import_module("open_clip")
    finally:
        del sys.modules[_LIBRARY]


def load_for(text_config: Mapping[str, Any]) -> None:
    """Let open_clip build the text tower of a `text_cfg`: import transformers if the tower is one of its models."""
    from open_clip import hf_model

    if text_config.get("hf_model_name") and hf_model.transformers is None:
        encoder = hf_model.HFTextEncoder
        importlib.reload(hf_model)
        hf_model.HFTextEncoder = encoder  # the class that others hold already; it looks its names up in the module


_start()
