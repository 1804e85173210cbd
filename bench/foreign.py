"""Models that open_clip builds itself: pretrained ones by name, its state dicts, and folders of `bench export`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bench.vision  # noqa: F401  before open_clip, which imports torchvision
from bench import tower_configs
from bench.errors import UserError, one_line
from bench.identity import OPEN_CLIP
from bench.towers import OpenClipTowers
from bench.weights import located

CONFIG = "open_clip_config.json"


@dataclass(frozen=True)
class Foreign:
    """A model as open_clip names it."""

    name: str  #: of an architecture, or "local-dir:" and a folder
    pretrained: str  #: tag or file of its weights; "" where the folder has them
    weights: Path  #: the file they lie in

    def described(self) -> Any:
        """As identities see it: a name, or what a folder's file says."""
        if not self.name.startswith("local-dir:"):
            return self.name
        return json.loads((self.weights.parent / CONFIG).read_text(encoding="utf-8"))


def find(given: str, architecture: str | None) -> Foreign | None:
    """What `given` is of open_clip's: [open_clip:]MODEL/TAG, an exported folder, or with an `architecture` a file.

    None for any other file. Raises UserError for a model or tag that open_clip does not know, or cannot fetch.
    """
    path = Path(given)
    if path.is_dir():
        return _folder(path)
    if architecture is not None:
        wrong = tower_configs.unknown("image", architecture)
        if wrong or architecture not in tower_configs.open_clip_models():
            raise UserError(f"--towers {architecture}: {wrong or 'is no architecture of open_clip'}")
        if not path.is_file():
            raise UserError(f"{given}: no such file")
        return Foreign(architecture, given, path)
    name = given.removeprefix(OPEN_CLIP)
    model, _, tag = name.rpartition("/")
    if path.is_file() or (name == given and model not in tower_configs.open_clip_models()):
        return None
    return Foreign(model, tag, located(f"{OPEN_CLIP}{name}"))


def _folder(path: Path) -> Foreign:
    from open_clip.factory import _find_checkpoint_in_dir

    weights = _find_checkpoint_in_dir(path)
    if not (path / CONFIG).is_file() or weights is None:
        raise UserError(f"{path}: is a folder without {CONFIG} and weights; `bench export` writes such")
    return Foreign(f"local-dir:{path}", "", Path(weights))


def load(model: Foreign, size: int) -> OpenClipTowers:
    """Its towers, for images of `size` px. UserError for one of another size, or that open_clip cannot build."""
    import open_clip
    from open_clip.pretrained import get_pretrained_cfg

    tag = get_pretrained_cfg(model.name, model.pretrained) if model.pretrained else {}
    a_file = model.pretrained and not tag
    try:
        made: Any = open_clip.create_model(
            model.name,
            pretrained=model.pretrained or None,
            force_custom_text=True,
            force_quick_gelu=bool(tag.get("quick_gelu")),
            force_image_size=size if a_file else None,
        )
        tokenizer = open_clip.get_tokenizer(model.name)
    except Exception as error:  # whatever open_clip meets in files that others wrote
        reason = one_line(error, 300)
        raise UserError(f"{model.weights}: open_clip cannot build {model.name} from it: {reason}") from error
    native = made.visual.image_size
    native = native if isinstance(native, int) else native[0]
    if native != size:
        raise UserError(
            f"{model.name} sees images of {native} px, but the suite measures at {size}; --set data.size={native}"
        )
    seen = made.visual.preprocess_cfg
    dim = open_clip.get_model_config(model.name)["embed_dim"]
    return OpenClipTowers(made.visual, made.text, tokenizer, dim, (tuple(seen["mean"]), tuple(seen["std"])))
