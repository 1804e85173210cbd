"""Models that open_clip builds: pretrained models by name, state dicts, and folders that `bench export` wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.catalogue import architectures, tower_families
from bench.catalogue.architectures import CLIP_CHANNELS, Channels
from bench.data.photo import CROP, Resize
from bench.errors import UserError, nearest, one_line
from bench.hashing import OPEN_CLIP
from bench.reading import JSON_BYTES, parse_json, read_file
from bench.towers.build import OpenClipTowers
from bench.towers.state_dicts import fetch_weights

CONFIG = "open_clip_config.json"
_MODES, _INTERPOLATIONS = ("shortest", "longest", "squash"), ("bicubic", "bilinear", "random")


@dataclass(frozen=True)
class Preprocess:
    """Preparation of a model's images: open_clip's PreprocessCfg, as its evaluation transform reads it."""

    size: int | None = None  #: pixels a side; None means the suite's
    channels: Channels = CLIP_CHANNELS
    resize: Resize = CROP

    @classmethod
    def read(cls, config: Mapping[str, Any], size: int | None, where: str) -> Preprocess:
        """Read open_clip's configuration; missing keys have open_clip's defaults.

        The interpolation "random" is for training; open_clip evaluates such a model bicubically. Raises UserError, with
        `where`, for a value that is not supported.
        """
        given = {key: value for key, value in config.items() if value is not None}
        mode, interpolation = given.get("resize_mode", "shortest"), given.get("interpolation", "bicubic")
        fill, layout = given.get("fill_color", 0), given.get("mode", "RGB")
        for key, value, valid in (
            ("resize_mode", mode, _MODES),
            ("interpolation", interpolation, _INTERPOLATIONS),
            ("mode", layout, ("RGB",)),
        ):
            if value not in valid:
                raise UserError(f"{where}: preprocess_cfg.{key}: {value!r}{nearest(value, valid)}")
        if type(fill) is not int or not 0 <= fill <= 255:
            raise UserError(f"{where}: preprocess_cfg.fill_color: {fill!r} should be a whole number from 0 to 255")
        mean, std = (_three(given, key, CLIP_CHANNELS[row], where) for row, key in enumerate(("mean", "std")))
        kernel = "bilinear" if interpolation == "bilinear" else "bicubic"
        return cls(size, (mean, std), Resize(mode, kernel, fill))  # type: ignore[arg-type]

    def to_json(self) -> dict[str, Any]:
        """Return open_clip's configuration, as `read` takes it."""
        mean, std = self.channels
        drawn = {"interpolation": self.resize.interpolation, "resize_mode": self.resize.mode}
        return {"size": self.size, "mode": "RGB", "mean": mean, "std": std, **drawn, "fill_color": self.resize.fill}


def _three(given: Mapping[str, Any], key: str, default: tuple[float, ...], where: str) -> tuple[float, ...]:
    """Return the values for red, green and blue; one number applies to all three."""
    value = given.get(key, default)
    rgb = tuple(value) if isinstance(value, (list, tuple)) else (value,) * 3
    if len(rgb) != 3 or not all(type(one) in (int, float) for one in rgb) or (key == "std" and min(rgb) <= 0):
        sort = "numbers above 0" if key == "std" else "numbers"
        raise UserError(f"{where}: preprocess_cfg.{key}: {value!r} should be three {sort}")
    return tuple(map(float, rgb))


@dataclass(frozen=True)
class OpenClipModel:
    """A model that open_clip builds."""

    name: str  #: an architecture, or "local-dir:" and a folder
    pretrained: str  #: tag or file of its weights; "" if the folder holds them
    weights: Path  #: the file with its weights
    preprocess: Preprocess = Preprocess()
    quick_gelu: bool = False  #: whether the tag asks for QuickGELU; an architecture or a folder may ask for it as well

    def content(self) -> dict[str, Any]:
        """Return everything apart from the weights that its embeddings depend on, as canonical content."""
        model = _config(self.weights.parent) if self.name.startswith("local-dir:") else self.name
        own = {"open_clip": model, "preprocess": self.preprocess.to_json()}
        return {**own, "quick_gelu": True} if self.quick_gelu else own


def find_open_clip_model(given: str, architecture: str | None) -> OpenClipModel | None:
    """Return the model of open_clip that `given` names: [open_clip:]MODEL/TAG, or a folder of `bench export`.

    With an `architecture`, `given` is a file with its state dict. A file does not describe its images: they have the
    suite's size and open_clip's default preprocessing. Returns None for any other file. Raises UserError for a model
    or a tag that open_clip does not know or cannot fetch.
    """
    from open_clip.pretrained import get_pretrained_cfg

    path = Path(given)
    if path.is_dir():
        if architecture is not None:
            raise UserError(f"--towers {architecture}: {path / CONFIG} says what the folder holds; omit it")
        return _folder(path)
    if architecture is not None:
        wrong = tower_families.unknown_tower("image", architecture)
        if wrong or architecture not in architectures.open_clip_config_files():
            raise UserError(f"--towers {architecture}: {wrong or 'is not an architecture of open_clip'}")
        if not path.is_file():
            raise UserError(f"{given}: no such file")
        return OpenClipModel(architecture, given, path)
    name = given.removeprefix(OPEN_CLIP)
    model, _, tag = name.rpartition("/")
    if path.is_file() or (name == given and model not in architectures.open_clip_config_files()):
        return None
    config = get_pretrained_cfg(model, tag) or {}
    repository, _, file = config.get("hf_hub", "").rpartition("/")
    fix = f"fetch it elsewhere (hf download {repository} --local-dir FOLDER) and give the folder"
    if file:  # a repository with nothing but weights does not describe the model, so its cache folder is copied
        fix = f"fetch it elsewhere (hf download {repository} {file}) and copy its folder of ~/.cache/huggingface/hub"
    weights = fetch_weights(name, given, fix)
    preprocess = Preprocess.read(config, native_size(model, given), given)
    return OpenClipModel(model, tag, weights, preprocess, bool(config.get("quick_gelu")))


def _folder(path: Path) -> OpenClipModel:
    from open_clip.factory import _find_checkpoint_in_dir

    weights = _find_checkpoint_in_dir(path)
    lacking = [CONFIG] * (not (path / CONFIG).is_file()) + ["weights"] * (weights is None)
    if weights is None or lacking:
        raise UserError(f"{path}: is a folder without {' and '.join(lacking)}; `bench export` writes one that has them")
    config, name = _config(path), f"local-dir:{path}"
    preprocess = Preprocess.read(config.get("preprocess_cfg") or {}, native_size(name, str(path)), str(path / CONFIG))
    return OpenClipModel(name, "", Path(weights), preprocess)


def _config(folder: Path) -> dict[str, Any]:
    """Read the configuration of an exported folder. Raises UserError if it is damaged."""
    try:
        config = parse_json(read_file(folder / CONFIG, JSON_BYTES))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / CONFIG}: is not JSON: {one_line(error)}") from error
    if not isinstance(config, dict) or not isinstance(config.get("model_cfg"), dict):
        raise UserError(f"{folder / CONFIG}: has no model_cfg; `bench export` writes one")
    return config


def native_size(name: str, given: str) -> int:
    """Return the pixels a side of an architecture's images. Raises UserError, with `given`, if they are not square."""
    import open_clip

    vision: Mapping[str, Any] = (open_clip.get_model_config(name) or {}).get("vision_cfg", {})
    size = vision.get("image_size", 224)
    sides = tuple(size) if isinstance(size, (list, tuple)) else (size, size)
    if len(set(sides)) != 1:
        raise UserError(f"{given}: sees images of {' x '.join(map(str, sides))} px; only squares can be measured")
    return int(sides[0])


def build_open_clip(model: OpenClipModel, size: int) -> OpenClipTowers:
    """Build the towers of a model for images of `size` px.

    Raises UserError if the model has another size, or if open_clip cannot build it.
    """
    import open_clip

    a_file = bool(model.pretrained) and Path(model.pretrained) == model.weights
    try:
        made: Any = open_clip.create_model(
            model.name,
            pretrained=model.pretrained or None,
            force_custom_text=True,
            force_quick_gelu=model.quick_gelu,
            force_image_size=size if a_file else None,
        )
        tokenizer = open_clip.get_tokenizer(model.name)
    except Exception as error:  # whatever open_clip meets in files that others wrote
        reason = one_line(error, 300)
        raise UserError(f"{model.weights}: open_clip cannot build {model.name} from it: {reason}") from error
    native = made.visual.image_size
    native = native if isinstance(native, int) else native[0]
    if native != size:
        raise UserError(f"{model.name}: sees images of {native} px, not the {size} px of its configuration")
    _refuse_other_tokenizer(model, made.text, tokenizer)
    dim = open_clip.get_model_config(model.name)["embed_dim"]
    return OpenClipTowers(made.visual, made.text, tokenizer, dim, model.preprocess.channels)


def _refuse_other_tokenizer(model: OpenClipModel, tower: Any, tokenizer: Any) -> None:
    """Encode a text. Raises UserError if the tokenizer cannot, or has ids that the text tower lacks."""
    try:
        known: dict[str, int] = getattr(getattr(tokenizer, "tokenizer", None), "get_vocab", dict)()
        largest, size = max(known.values(), default=0), getattr(tower, "vocab_size", None)
        if size is not None and largest >= size:
            raise ValueError(f"it has the id {largest}, and the tower {size} ids from 0 on")
        with torch.no_grad():
            tower(tokenizer(["a text"]))
    except Exception as error:  # whatever it meets in files that others wrote
        fault = f"its tokenizer does not fit its text tower: {one_line(error, 300)}"
        raise UserError(f"{model.name}: {fault}; export it, or get it again") from error
