"""Every family of towers: an entry here is all that suites, ids, builders, messages and docs need. Needs no torch.

A new family is one more entry of `TOWER_FAMILIES`, here or by `TOWER_FAMILIES.add(...)` from Python before the suite is
loaded. The configurations of the shipped towers are in `bench.catalogue.architectures`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.catalogue import architectures
from bench.catalogue.architectures import TowerConfig
from bench.errors import UserError, nearest
from bench.registry import Registry, lazy

TowerKind = Literal["image", "text"]
FEATURES = "features"  #: the name of the towers that are heads on stored features
_OPEN_CLIP_IMAGE, _OPEN_CLIP_TEXT = (lazy(f"bench.towers.build:open_clip_{kind}") for kind in ("image", "text"))
_PUBLISHED_TOKENIZER = lazy("bench.towers.tokenization:published_tokenizer")


@dataclass(frozen=True, kw_only=True)
class ImageTowers:
    """The image towers of a family."""

    names: Callable[[], Collection[str]]  #: in suites, `towers.image`
    #: (name, pixels a side or numbers of a stored feature vector, width of the embedding) -> its configuration
    config: Callable[[str, int, int], TowerConfig]
    #: name -> JSON values that enter the ids of runs: all that results depend on, because the code of `build` does not
    #: enter them
    content: Callable[[str], Any]
    #: (name, configuration, width of the embedding D) -> nn.Module, normalised [b, 3, H, W] -> [b, D]; drawn from the
    #: global RNG. Probes read its method `pooled`, [b, 3, H, W] -> [b, P]; towers of open_clip need none.
    build: Callable[[str, TowerConfig, int], Any] = _OPEN_CLIP_IMAGE
    #: returns why a name of the family is not a tower to train; "" if it is one
    wrong: Callable[[str], str] = lambda _name: ""


@dataclass(frozen=True, kw_only=True)
class TextTowers:
    """The text towers of a family."""

    names: Callable[[], Collection[str]]  #: in suites, `towers.text`
    config: Callable[[str], TowerConfig]  #: name -> its configuration, with "context_length", tokens a caption
    content: Callable[[str], Any]  #: as of `ImageTowers`
    #: (name, configuration, width of the embedding D, tokenizer) -> nn.Module, int64 [b, L] -> [b, D], with an
    #: attribute `context_length` (L); drawn from the global RNG
    build: Callable[[str, TowerConfig, int, Any], Any] = _OPEN_CLIP_TEXT
    #: (TowerSettings, configuration, learn) -> bench.towers.tokenization.Tokenizer; `learn(tokens, context_length)`
    #: makes one from the training texts
    tokenizer: Callable[[Any, TowerConfig, Any], Any] = _PUBLISHED_TOKENIZER
    #: (name, configuration) -> the tokenizer of transformers that it reads by, whose files must be there; None = none
    vocabulary: Callable[[str, TowerConfig], str | None] = lambda _name, _config: None
    folders: bool = False  #: any other name is a folder, which holds configuration and vocabulary
    #: configuration -> what it is, if methods that change a text transformer cannot change it; "" if they can
    other: Callable[[TowerConfig], str] = lambda _config: "a tower of its own kind"
    wrong: Callable[[str], str] = lambda _name: ""  #: as of `ImageTowers`


@dataclass(frozen=True, kw_only=True, eq=False)
class TowerFamily:
    """One family of towers: images, texts or both."""

    name: str  #: in messages and docs
    summary: str  #: one phrase, for the docs
    image: ImageTowers | None = None
    text: TextTowers | None = None


def _images_of(configs: dict[str, TowerConfig]) -> ImageTowers:
    """Return the image towers of open_clip with these configurations."""
    return ImageTowers(
        names=configs.keys,
        config=lambda name, size, _dim: {**configs[name], "image_size": size},
        content=configs.__getitem__,
    )


def _texts_of(configs: dict[str, TowerConfig], **own: Any) -> TextTowers:
    return TextTowers(
        names=configs.keys,
        config=configs.__getitem__,
        content=configs.__getitem__,
        other=_other_than_a_transformer,
        **own,
    )


def _open_clip_image(name: str, size: int, dim: int) -> TowerConfig:
    model = architectures.open_clip_config(name)
    config: TowerConfig = {**model["vision_cfg"], "image_size": size}
    if config.get("timm_proj") == "none" and model["embed_dim"] != dim:
        config["timm_proj"] = "linear"  # its features are of another width than the suite's embedding
    return config


def _open_clip_text(name: str) -> TowerConfig:
    return {"context_length": 77, "vocab_size": 49408, **architectures.open_clip_config(name)["text_cfg"]}


def _writes_captions(name: str) -> str:
    captions = "multimodal_cfg" in architectures.open_clip_config(name)
    return f"{name!r} writes captions (CoCa); its towers do not compare images and texts" * captions


def _other_than_a_transformer(config: TowerConfig) -> str:
    """Return the kind of a text tower of open_clip that is not the plain TextTransformer."""
    if config.get("hf_model_name"):
        return "a model of transformers that open_clip wraps"
    return "a transformer with an appended class token" if config.get("embed_cls") else ""


def _bert(**own: Any) -> TextTowers:
    """Text towers of transformers, whose name is that of their tokenizer as well."""
    build = lazy("bench.towers.build:bert_text")
    return TextTowers(build=build, vocabulary=lambda name, _config: name, other=lambda _config: "", **own)


TOWER_FAMILIES: Registry[TowerFamily] = Registry(
    "a family of towers",
    (
        TowerFamily(
            name="small",
            summary="towers for CPUs; texts are read by a vocabulary of `towers.vocabulary` tokens, learned from them",
            image=_images_of(architectures.IMAGE_TOWERS),
            text=_texts_of(
                architectures.TEXT_TOWERS,
                tokenizer=lambda towers, config, learn: learn(towers.vocabulary, config["context_length"]),
            ),
        ),
        TowerFamily(
            name="papers",
            summary="towers of papers that open_clip has no architecture for, and its RN50 in small",
            image=_images_of(architectures.PAPER_IMAGE_TOWERS),
            text=_texts_of(architectures.PAPER_TEXT_TOWERS),
        ),
        TowerFamily(
            name="open_clip",
            summary="the image or the text tower of any architecture of open_clip, such as `RN50` or `ViT-B-16`",
            image=ImageTowers(
                names=lambda: architectures.open_clip_config_files().keys(),
                config=_open_clip_image,
                content=lambda name: name,
                wrong=_writes_captions,
            ),
            text=TextTowers(
                names=lambda: architectures.open_clip_config_files().keys(),
                config=_open_clip_text,
                content=lambda name: name,
                vocabulary=lambda _name, config: config.get("hf_tokenizer_name"),
                other=_other_than_a_transformer,
                wrong=_writes_captions,
            ),
        ),
        TowerFamily(
            name="transformers",
            summary="text towers of transformers by their name on the hub",
            text=_bert(
                names=architectures.HF_TEXT_TOWERS.keys,
                config=lambda name: architectures.bert_context(architectures.HF_TEXT_TOWERS[name]),
                content=lambda name: {**architectures.HF_TEXT_TOWERS[name], "name": name},  # that of its vocabulary
            ),
        ),
        TowerFamily(
            name="folder",
            summary="a folder of a BERT or DistilBERT as transformers writes it, given as `towers.text`",
            text=_bert(
                names=lambda: (),
                config=lambda name: architectures.bert_context(architectures.read_bert(Path(name))),
                content=lazy("bench.suite.tower_files:folder_content"),
                folders=True,
            ),
        ),
        TowerFamily(
            name=FEATURES,
            summary="a trained head (`towers.head`) on stored features, of `data.features`",
            image=ImageTowers(
                names=lambda: (FEATURES,),
                config=lambda _name, width, _dim: {"width": width},
                content=lambda name: name,
                build=lazy("bench.towers.heads:image_head"),
            ),
            text=TextTowers(
                names=lambda: (FEATURES,),
                config=lambda _name: {"context_length": 1},
                content=lambda name: name,
                build=lazy("bench.towers.heads:text_head"),
                tokenizer=lambda _towers, _config, texts: texts.stored(),  # looks captions up
            ),
        ),
    ),
)


def learns_tokens(name: str) -> bool:
    """Return whether a text tower reads by tokens that are learned from the training captions."""
    return text_towers(name) is TOWER_FAMILIES["small"].text


def image_towers(name: str) -> ImageTowers:
    """Return the image half of the family that has this tower. UserError for an unknown name."""
    for family in TOWER_FAMILIES:
        if family.image and name in family.image.names():
            return family.image
    raise UserError(f"towers.image: {unknown_tower('image', name)}")


def text_towers(name: str) -> TextTowers:
    """The text half of the family that has this tower; of a name that none has, the family whose towers are folders."""
    halves = [family.text for family in TOWER_FAMILIES if family.text]
    named = [half for half in halves if name in half.names()] or [half for half in halves if half.folders]
    return named[0]


def unknown_tower(kind: TowerKind, name: str) -> str:
    """Return what is wrong with the name of an "image" or "text" tower, with the nearest name; "" if it is valid."""
    halves = {one.name: half for one in TOWER_FAMILIES if (half := one.image if kind == "image" else one.text)}
    owners = [family for family, half in halves.items() if name in half.names()]
    if len(owners) > 1:
        return f"{name!r} is a tower of two families, {owners[0]} and {owners[1]}; rename it in one of them"
    if owners:
        return halves[owners[0]].wrong(name)
    if kind == "text" and os.path.isdir(name):  # False for a name that no folder can have
        return ""
    return f"no {kind} tower named {name!r}{nearest(name, {one for half in halves.values() for one in half.names()})}"
