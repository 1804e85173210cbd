"""Pretrained weights of one tower: of images by a file or timm, of texts by a folder or transformers' hub."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from bench.errors import UserError, one_line
from bench.suite import tower_files
from bench.suite.settings import TowerSettings
from bench.suite.tower_files import hub_name
from bench.towers.bert import BertText, own_name
from bench.towers.build import OpenClipTowers
from bench.towers.state_dicts import read_state_dict, read_unwrapped, refuse_misfit

#: prefixes of a classifier's weights, which a tower does not use
_CLASSIFIERS = ("fc.", "head.", "classifier.", "last_linear.")
#: prefixes of the projection to the shared embedding; files that were trained otherwise lack it, and it starts fresh
_PROJECTIONS = ("proj", "head.", "attnpool.c_proj.", "attnpool.positional_embedding", "text_projection")


def start_pretrained(towers: OpenClipTowers, spec: TowerSettings, fetch: bool) -> None:
    """Put `image_start` and `text_start` into fresh towers; a projection that they lack stays fresh.

    Without `fetch`, missing weights and those that are only a name are omitted. Raises UserError for weights that
    cannot be read or fetched, or do not fit.
    """
    for kind, tower, weights, start in (
        ("image", towers.visual, _image_weights, spec.image_start),
        ("text", towers.text, _text_weights, spec.text_start),
    ):
        if start and (fetch or (tower_files.is_place(start) and tower_files.start_files(start))):
            given = weights(tower, spec, start)
            given = {name: x for name, x in given.items() if not name.endswith("num_batches_tracked")}
            named, own = {name: (name, x) for name, x in given.items()}, tower.state_dict()
            refuse_misfit(f"towers.{kind}_start: {start}", named, own, _PROJECTIONS)
            tower.load_state_dict({**own, **given})


def fetch_pretrained(spec: TowerSettings) -> None:
    """Download the weights that are given by name. Raises UserError if they cannot be fetched."""
    if spec.image_start == "imagenet":
        _from_timm(spec)
    if spec.text_start == "hub":
        _from_hub(spec.text)


def _image_weights(visual: nn.Module, spec: TowerSettings, start: str) -> dict[str, Tensor]:
    if start == "imagenet":
        return _from_timm(spec)
    if not Path(start).is_file():
        raise UserError(f"towers.image_start: {start}: no such file; a file of weights, or imagenet")
    state = read_unwrapped(Path(start))
    weights = {name.removeprefix("module."): x for name, x in state.items() if isinstance(x, Tensor)}
    if any(name.startswith("visual.") for name in weights):  # a whole CLIP
        return {name.removeprefix("visual."): x for name, x in weights.items() if name.startswith("visual.")}
    if hasattr(visual, "trunk") and not any(name.startswith("trunk.") for name in weights):
        return {f"trunk.{name}": x for name, x in weights.items() if not name.startswith(_CLASSIFIERS)}
    return weights


def _from_timm(spec: TowerSettings) -> dict[str, Tensor]:
    """Return the ImageNet weights of a timm tower, downloaded if they are not here."""
    import timm

    architecture = tower_files.image_config(spec, 224).get("timm_model_name")
    if architecture is None:
        fix = "resnet50 is one, or give a file"
        raise UserError(f"towers.image_start: imagenet: {spec.image} is not a model of timm; {fix}")
    try:
        made = timm.create_model(architecture, pretrained=True, num_classes=0)
    except Exception as error:  # raised by requests, the hub or the file system
        fault = f"the weights of timm's {architecture} cannot be fetched ({one_line(error, 200)})"
        raise UserError(f"towers.image_start: imagenet: {fault}; fetch them elsewhere and give the file") from error
    return {f"trunk.{key}": x for key, x in made.state_dict().items()}


def _text_weights(text: nn.Module, spec: TowerSettings, start: str) -> dict[str, Tensor]:
    if not isinstance(text, BertText):
        fix = "weights of open_clip go below a method's `start`, as in start: open_clip:MODEL/TAG"
        raise UserError(f"towers.text_start: {spec.text} is not a model of transformers; {fix}")
    folder = Path(start)
    files = [folder / name for name in ("model.safetensors", "pytorch_model.bin") if (folder / name).is_file()]
    if start != "hub" and not files:
        raise UserError(f"towers.text_start: {folder}: holds neither model.safetensors nor pytorch_model.bin")
    path = _from_hub(spec.text) if start == "hub" else files[0]
    named = {own_name(name): x for name, x in read_state_dict(path).items()}
    weights = {name: x for name, x in named.items() if name is not None}
    if text.type_embedding is None:
        weights.pop("type_embedding", None)
    return weights


def _from_hub(name: str) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(hub_name(name), "model.safetensors"))
    except Exception as error:  # raised by requests or the hub
        fault = f"the weights of {name} cannot be fetched ({one_line(error, 200)})"
        fix = f"fetch them elsewhere (hf download {hub_name(name)} --local-dir FOLDER) and give the folder"
        raise UserError(f"towers.text_start: hub: {fault}; {fix}") from error
