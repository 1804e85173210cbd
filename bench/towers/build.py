"""Builds image and text towers with open_clip, and turns uint8 pixels into their input."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.catalogue import architectures
from bench.catalogue.architectures import CLIP_CHANNELS, IMAGENET_CHANNELS, Channels, TowerConfig
from bench.catalogue.tower_families import image_towers, text_towers
from bench.errors import UserError, one_line
from bench.machine import torchvision_fix  # noqa: F401  before anything imports open_clip
from bench.suite import tower_files
from bench.suite.settings import TowerSettings
from bench.towers.batchnorm import group_batchnorm
from bench.towers.bert import BertText
from bench.towers.heads import Head
from bench.towers.tokenization import HubTokenizer, Tokenizer, TrainingTexts

torch.backends.cudnn.allow_tf32 = False  # on by default: convolutions of fp32 towers would round to 10 bits


class OpenClipTowers(nn.Module):
    """Two encoders of open_clip, and how they read their inputs. The logit scale belongs to the method."""

    held_side: OpenClipTowers | None = None  #: see `side`

    def __init__(
        self,
        visual: nn.Module,
        text: nn.Module,
        tokenizer: Callable[[list[str]], Tensor],
        dim: int,
        channels: Channels = CLIP_CHANNELS,
    ) -> None:
        super().__init__()
        self.visual, self.text = visual, text
        self.dim, self.channels, self.tokenizer = dim, channels, tokenizer
        self.context_length = int(text.context_length)  # type: ignore[arg-type]
        self.frozen = ""  #: "visual" or "text": this tower stays at the weights that it begins at

    def copied(self) -> OpenClipTowers:
        """Return a deep copy that shares the tokenizer: nothing changes that, and a large vocabulary takes a second."""
        return copy.deepcopy(self, {id(self.tokenizer): self.tokenizer})

    @property
    def side(self) -> OpenClipTowers:
        """The second pair of towers of a method that declares one (`bench.training.side_towers`)."""
        if self.held_side is None:
            raise RuntimeError('towers.side: the method declares none; set side = "reference" or "ema"')
        return self.held_side

    def hold_side(self, side: OpenClipTowers) -> None:
        """Keep a second pair of towers next to these; it moves with them to another device or type."""
        # No submodule: it is neither trained nor stored with the towers.
        self.__dict__["held_side"] = side.eval().requires_grad_(False)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        if self.held_side is not None:
            self.side._apply(fn, recurse)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def encode_image(self, images: Tensor) -> Tensor:
        """[b, 3, H, W] normalised, or stored features [b, P] -> [b, D], not normalised."""
        out: Tensor = self.visual(images)
        return out

    def encode_text(self, tokens: Tensor) -> Tensor:
        """[b, L] int64, or stored features [b, Q] -> [b, D], not normalised."""
        out: Tensor = self.text(tokens)
        return out

    def tokenize(self, captions: list[str]) -> Tensor:
        """b strings -> [b, L] int64, or their stored features [b, Q], on the towers' device.

        On meta, where costs are counted, only their shape.
        """
        device = next(self.text.parameters()).device
        if device.type == "meta":
            return self.blank_texts(len(captions), device)
        return self.tokenizer(captions).to(device, non_blocking=True)

    def blank_images(self, rows: int, size: int, device: torch.device | str) -> Tensor:
        """Return an uninitialised input of the image tower, [rows, 3, size, size] or [rows, P], to count costs by."""
        if isinstance(self.visual, Head):
            return self.visual.blank(rows, device)
        return torch.empty(rows, 3, size, size, device=device, dtype=next(self.visual.parameters()).dtype)

    def blank_texts(self, rows: int, device: torch.device | str) -> Tensor:
        """Return an uninitialised input of the text tower, [rows, L] or [rows, Q]."""
        if isinstance(self.text, Head):
            return self.text.blank(rows, device)
        return torch.empty(rows, self.context_length, dtype=torch.int64, device=device)

    def pooled(self, images: Tensor) -> Tensor:
        """[b, 3, H, W] -> [b, P]: image features before the projection (CLIP's linear-probe protocol).

        A ResNet with attention pooling has no such vector; there it is the mean over positions of its last layer. A
        tower with a method `pooled` says itself what they are.
        """
        visual: Any = self.visual
        if hasattr(visual, "pooled"):
            own: Tensor = visual.pooled(images)
            return own
        if getattr(visual, "proj", None) is not None:  # VisionTransformer
            projection, visual.proj = visual.proj, None
            try:
                out: Tensor = visual(images)
            finally:
                visual.proj = projection
            return out
        if not hasattr(visual, "trunk"):  # ModifiedResNet
            x: Tensor = visual.stem(images)
            for layer in (visual.layer1, visual.layer2, visual.layer3, visual.layer4):
                x = layer(x)
        elif len(visual.head):  # open_clip's head projects, and sometimes pools
            x = visual.trunk(images)
        else:  # the trunk's own classifier projects, if anything does
            x = visual.trunk.forward_head(visual.trunk.forward_features(images), pre_logits=True)
        return x if x.ndim == 2 else F.adaptive_avg_pool2d(x, 1).flatten(1)


def normalise(
    images: np.ndarray | Tensor, device: torch.device | str = "cpu", channels: Channels = CLIP_CHANNELS
) -> Tensor:
    """uint8 [b, H, W, 3] -> float32 [b, 3, H, W] by the towers' channel statistics, channels last in memory.

    Stored features, [b, P] of a floating type, stay as they are.
    """
    pixels = torch.as_tensor(images).to(device, non_blocking=True)
    if pixels.is_floating_point():
        return pixels
    mean, std = (torch.tensor(values) for values in channels)
    scale, shift = (x.to(device, non_blocking=True) for x in (1.0 / (255.0 * std), mean / std))
    return pixels.float().mul_(scale).sub_(shift).permute(0, 3, 1, 2)


def tokenizer_of(spec: TowerSettings, texts: TrainingTexts) -> Tokenizer:
    """Return the text tower's tokenizer; `texts` makes it if it depends on the training pairs."""
    tokenizer: Tokenizer = text_towers(spec.text).tokenizer(spec, tower_files.text_config(spec), texts)
    return tokenizer


def build_towers(spec: TowerSettings, tokenizer: Tokenizer, image_size: int, bn_group: int) -> OpenClipTowers:
    """Build fresh towers from the global RNG: seed it. Raises UserError for a combination that cannot be built.

    image_size: pixels a side, or the numbers of an image's stored features.
    """
    config = tower_files.image_config(spec, image_size)
    try:
        visual: nn.Module = image_towers(spec.image).build(spec.image, config, spec.dim)
        group_batchnorm(visual, bn_group)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:  # raised by parts that do not fit together
        raise UserError(f"towers.image: {spec.image} at {image_size} px cannot be built: {error}") from error
    text = text_towers(spec.text).build(spec.text, tower_files.text_config(spec), spec.dim, tokenizer)
    return OpenClipTowers(visual, text, tokenizer, spec.dim, channels_of(spec))


def open_clip_image(name: str, config: TowerConfig, dim: int) -> nn.Module:
    """Build an image tower of open_clip from a `vision_cfg`."""
    from open_clip.model import _build_vision_tower

    visual: Any = _build_vision_tower(dim, config, architectures.quick_gelu(name))
    if name in architectures.open_clip_config_files() and hasattr(getattr(visual, "trunk", None), "set_input_size"):
        visual.set_input_size(config["image_size"])  # open_clip builds timm's transformers for the size of their name
    made: nn.Module = visual
    return made


def open_clip_text(name: str, config: TowerConfig, dim: int, tokenizer: Tokenizer) -> nn.Module:
    """Build a text tower of open_clip from a `text_cfg`; without a vocabulary size it gets the tokenizer's."""
    from open_clip.model import _build_text_tower

    config = {"vocab_size": tokenizer.size, **config}
    if config.get("hf_model_name"):
        config["hf_model_pretrained"] = False
    try:
        text: nn.Module = _build_text_tower(dim, config, architectures.quick_gelu(name))
    except OSError as error:  # raised by the hub, where open_clip reads the configuration of a transformers model
        reason = one_line(error, 200)
        raise UserError(f"towers.text: {name}: its configuration cannot be fetched ({reason})") from error
    return text


def bert_text(_name: str, config: TowerConfig, dim: int, tokenizer: HubTokenizer) -> nn.Module:
    """Build a BERT or DistilBERT with a projection to the embedding."""
    first = config.get("cls_token_id")
    return BertText(config, dim, tokenizer.files.tokenizer.cls_token_id if first is None else first)


def channels_of(spec: TowerSettings) -> Channels:
    """Return the statistics that are asked for, or those of open_clip's weights of the image tower, or CLIP's."""
    from open_clip.pretrained import get_pretrained_cfg, list_pretrained_tags_by_model

    if spec.channels == "imagenet":
        return IMAGENET_CHANNELS
    tags = list_pretrained_tags_by_model(spec.image)
    preprocessing = get_pretrained_cfg(spec.image, tags[0]) if tags else {}
    return tuple(preprocessing.get("mean") or CLIP_CHANNELS[0]), tuple(preprocessing.get("std") or CLIP_CHANNELS[1])
