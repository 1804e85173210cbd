"""Frozen encoders by name: models of open_clip, image models of timm, text models of transformers, stored runs."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bench.arrays import Pixels
from bench.catalogue.architectures import Channels
from bench.data.photo import CROP, Resize
from bench.errors import UserError, nearest, one_line
from bench.models import open_clip_models, stored_run
from bench.reading import JSON_BYTES, parse_json, read_file
from bench.store import Store
from bench.towers.build import OpenClipTowers, normalise
from bench.towers.state_dicts import read_state_dict

TIMM, TRANSFORMERS, RUN, SUITE = "timm:", "transformers:", "run:", "suite:"
DEFAULT_TOKENS = 512  #: tokens of a text for a model of transformers that states no limit
POOLINGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first token"}  #: of sentence-transformers
POOLING_FILE = "1_Pooling/config.json"  #: of sentence-transformers, below a model's folder


@dataclass(frozen=True)
class ImagePreparation:
    """Preparation of an image encoder's images: made square at `scaled` px, cropped to `size` px, normalised."""

    scaled: int
    size: int
    channels: Channels
    resize: Resize = CROP

    @property
    def words(self) -> str:
        """A text for features.json."""
        mean, std = self.channels
        crop = f", centre {self.size} px" if self.scaled != self.size else ""
        return f"{self.resize.label} {self.scaled} px{crop}, mean {list(mean)}, std {list(std)}"


@dataclass(frozen=True)
class ImageEncoder:
    """A frozen image encoder."""

    name: str
    module: nn.Module
    encode: Callable[[Tensor], Tensor]  #: maps [b, 3, size, size] to [b, P]
    preparation: ImagePreparation

    def features(self, pixels: Pixels) -> npt.NDArray[Any]:
        """Map uint8 [b, scaled, scaled, 3] to float32 [b, P]."""
        weight, size = next(self.module.parameters()), self.preparation.size
        margin = round((pixels.shape[1] - size) / 2)
        square = pixels[:, margin : margin + size, margin : margin + size]
        with torch.inference_mode():
            images = normalise(square, weight.device, self.preparation.channels).to(weight.dtype)
            return np.asarray(self.encode(images).float().cpu())


@dataclass(frozen=True)
class TextEncoder:
    """A frozen text encoder."""

    name: str
    module: nn.Module
    encode: Callable[[list[str]], Tensor]  #: maps b texts to [b, Q]
    words: str  #: how texts are prepared, for features.json

    def features(self, texts: Sequence[str]) -> npt.NDArray[Any]:
        """Map b texts to float32 [b, Q]."""
        with torch.inference_mode():
            return np.asarray(self.encode(list(texts)).float().cpu())


def image_encoder(given: str, results: Path, device: torch.device) -> ImageEncoder:
    """Build an image encoder on `device`.

    given: [open_clip:]MODEL/TAG, ARCHITECTURE@FILE, a folder, timm:NAME[@FILE], run:ID or suite:NAME.

    results: the folder of the store with the run. Raises UserError for a name that is unknown, weights that cannot be
    read or fetched, and a model of texts alone.
    """
    if given.startswith(TRANSFORMERS):
        raise UserError(f"--images {given}: transformers' models are for --texts; give a model of timm or open_clip")
    if given.startswith(TIMM):
        return _timm(given, device)
    towers, size, resize = _towers(given, "--images", results, device)
    preparation = ImagePreparation(size, size, towers.channels, resize)
    return ImageEncoder(given, towers.visual, towers.encode_image, preparation)


def text_encoder(given: str, results: Path, device: torch.device) -> TextEncoder:
    """Build a text encoder on `device`: as `image_encoder`, with transformers:NAME or its folder in place of timm.

    Raises UserError as `image_encoder` does.
    """
    if given.startswith(TIMM):
        raise UserError(f"--texts {given}: timm's models are for --images; give one of open_clip or transformers")
    if given.startswith(TRANSFORMERS):
        return _transformers(given, device)
    towers, _, _ = _towers(given, "--texts", results, device)
    words = f"tokens of its own tokenizer, at most {towers.context_length}"
    return TextEncoder(given, towers.text, lambda texts: towers.encode_text(towers.tokenize(texts)), words)


def weights_digest(module: nn.Module) -> str:
    """Return a sha256 over the names, types, shapes and numbers of all parameters and buffers, whatever their file."""
    total = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        tensor = value.detach().cpu().contiguous()
        total.update(repr((name, str(tensor.dtype), tuple(tensor.shape))).encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy() if tensor.numel() else b"")
    return total.hexdigest()


def _towers(given: str, option: str, results: Path, device: torch.device) -> tuple[OpenClipTowers, int, Resize]:
    """Return the towers of a stored run or of open_clip, the size of their images, and how images are made square."""
    if given.startswith((RUN, SUITE)):
        kind, _, name = given.partition(":")
        store = Store(results)
        stored = stored_run.load_run(store, name if kind == "run" else stored_run.single_run_of(store, name))
        towers: Any = stored.features.towers
        stored_run.refuse_additions(stored.features.method, towers, stored.run, option.removeprefix("--"))
        return _frozen(towers, device), stored.run.data.size, CROP
    architecture, at, file = given.partition("@") if not Path(given).exists() else (given, "", "")
    model = open_clip_models.find_open_clip_model(file if at else given, architecture if at else None)
    if model is None:
        kinds = "MODEL/TAG of open_clip, ARCHITECTURE@FILE, a folder of `bench export`, timm:NAME, transformers:NAME"
        raise UserError(f"{option} {given}: names no model; valid: {kinds}, run:ID, suite:NAME")
    size = model.preprocess.size or open_clip_models.native_size(architecture, given)
    return _frozen(open_clip_models.build_open_clip(model, size), device), size, model.preprocess.resize


def _timm(given: str, device: torch.device) -> ImageEncoder:
    import timm
    from timm.data.config import resolve_model_data_config

    import bench.machine.torchvision_fix  # noqa: F401  before timm, which imports torchvision

    name, at, file = given.removeprefix(TIMM).partition("@")
    if not timm.is_model(name.split(".")[0]):
        raise UserError(f"--images {given}: timm has no such model{nearest(name, timm.list_models())}")
    try:
        made: Any = timm.create_model(name, pretrained=not at, num_classes=0)
        if at:
            classifier = made.pretrained_cfg.get("classifier") or "head"
            heads = tuple(f"{one}." for one in ([classifier] if isinstance(classifier, str) else classifier))
            state = read_state_dict(Path(file))
            made.load_state_dict({key: x for key, x in state.items() if not key.startswith(heads)})
    except UserError:
        raise
    except Exception as error:  # raised by requests, the hub, the file system or a state dict that does not fit
        fix = f"fetch the weights elsewhere and give them as {TIMM}{name}@FILE"
        raise UserError(f"--images {given}: cannot be built ({one_line(error, 300)}); {fix}") from error
    config: Any = resolve_model_data_config(made)  # type: ignore[no-untyped-call]
    size = int(config["input_size"][-1])
    kernel = "bilinear" if config["interpolation"] == "bilinear" else "bicubic"
    if config.get("crop_mode") == "border":
        raise UserError(f"--images {given}: pads images at their borders (crop_mode border), which is not supported")
    mode = "squash" if config.get("crop_mode") == "squash" else "shortest"
    scaled = math.floor(size / float(config.get("crop_pct") or 1))
    resize = Resize(mode, kernel)  # type: ignore[arg-type]
    channels = (tuple(config["mean"]), tuple(config["std"]))
    return ImageEncoder(given, _frozen(made, device), made, ImagePreparation(scaled, size, channels, resize))


def _transformers(given: str, device: torch.device) -> TextEncoder:
    """Build a text model: the mean over its last layer's tokens, unless the folder's settings say otherwise."""
    name = given.removeprefix(TRANSFORMERS)
    try:
        from transformers import AutoModel, AutoTokenizer

        local = Path(name).is_dir()
        tokenizer: Any = AutoTokenizer.from_pretrained(name, local_files_only=local)
        model: Any = AutoModel.from_pretrained(name, local_files_only=local)
    except ImportError as error:
        raise UserError(f"--texts {given}: needs transformers; install it: pip install transformers") from error
    except Exception as error:  # raised by requests, the hub, the file system or files that others wrote
        fix = f"fetch it elsewhere (hf download {name} --local-dir FOLDER) and give {TRANSFORMERS}FOLDER"
        raise UserError(f"--texts {given}: cannot be read ({one_line(error, 300)}); {fix}") from error
    pooling = _pooling(Path(name, POOLING_FILE) if local else _pooling_file_of_hub(name))
    positions = getattr(model.config, "max_position_embeddings", DEFAULT_TOKENS)
    longest = min(tokenizer.model_max_length, DEFAULT_TOKENS, positions)

    def encode(texts: list[str]) -> Tensor:
        tokens = tokenizer(texts, padding=True, truncation=True, max_length=longest, return_tensors="pt").to(device)
        layer: Tensor = model(**tokens).last_hidden_state
        if pooling == "first token":
            return layer[:, 0]
        mask = tokens["attention_mask"].unsqueeze(-1).to(layer.dtype)
        mean: Tensor = (layer * mask).sum(1) / mask.sum(1)
        return mean

    words = f"{type(tokenizer).__name__}, at most {longest} tokens, {pooling} of the last layer"
    return TextEncoder(given, _frozen(model, device), encode, words)


def _pooling_file_of_hub(name: str) -> Path | None:
    """Return the pooling file of a model in the hub's cache; None if it has none."""
    from transformers.utils.hub import cached_file

    file = cached_file(name, POOLING_FILE, _raise_exceptions_for_missing_entries=False)
    return None if file is None else Path(file)


def _pooling(path: Path | None) -> str:
    """Return which vector stands for a text, by a pooling file. Raises UserError for one that is not supported."""
    if path is None or not path.is_file():
        return "mean"
    try:
        stored = parse_json(read_file(path, JSON_BYTES))
        asked = {key for key, value in stored.items() if value is True and "pooling_mode" in key}
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: cannot be read: {one_line(error, 200)}") from error
    if len(asked) != 1 or not asked <= POOLINGS.keys():
        raise UserError(f"{path}: {', '.join(sorted(asked)) or 'no pooling'}; valid: {', '.join(POOLINGS)}")
    return POOLINGS[asked.pop()]


def _frozen(module: Any, device: torch.device) -> Any:
    return module.to(device).eval().requires_grad_(False)
