"""Reads files of weights: this store's, or open_clip's state dicts with its names."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from bench.adapters import hyperparameters
from bench.catalogue import architectures
from bench.errors import UserError, nearest, one_line
from bench.hashing import OPEN_CLIP
from bench.reading import open_file
from bench.suite.settings import TowerSettings
from bench.towers.bert import BertText, own_name
from methods.protocol import Method

#: open_clip's CLIP keeps the parts of its text tower at the top level
_TEXT_PARTS = ("token_embedding", "positional_embedding", "transformer", "ln_final", "text_projection")
#: tensors of a CLIP state dict that belong to neither tower; no score uses them
_UNUSED = re.compile(r"(^|\.)(logit_scale|logit_bias|attn_mask|num_batches_tracked)$")
_SHOWN_TENSORS = 3  #: wrong tensors that an error names


def read_state_dict(path: Path) -> dict[str, Any]:
    """Return the content of a file without executing it. UserError if it is neither safetensors nor a state dict."""
    try:
        open_file(path).close()  # a FIFO would be waited for
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the unpickler may raise anything, such as KeyError for the text "hi"
        raise UserError(f"{path}: neither safetensors nor a state dict of tensors: {refusal(error)}") from error
    if not isinstance(state, dict):
        raise UserError(f"{path}: holds a {type(state).__name__}, not a state dict")
    return state


def read_unwrapped(path: Path) -> dict[str, Any]:
    """Return the content of a file without the dictionaries that trainers wrap around; errors of `read_state_dict`."""
    state = read_state_dict(path)
    for wrapper in ("state_dict", "model"):
        if isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    return state


def refuse_misfit(
    place: str, tensors: Mapping[str, tuple[str, Tensor]], wanted: Mapping[str, Tensor], fresh: tuple[str, ...] = ()
) -> None:
    """Raise UserError that names the first `tensors` of `place`, each with its name there, that are not as `wanted`.

    fresh: prefixes of names that may be missing.
    """
    wrong = [f"lacks {x} {_shape(wanted[x])}" for x in wanted if x not in tensors and not x.startswith(fresh)]
    for name, (given, x) in tensors.items():
        if name not in wanted:
            wrong.append(f"has {given} {_shape(x)}, which the model does not")
        elif x.shape != wanted[name].shape:
            wrong.append(f"{given} is {_shape(x)} in the file, but {_shape(wanted[name])} in the model")
    if wrong:
        more = f"; and {len(wrong) - _SHOWN_TENSORS} more" if len(wrong) > _SHOWN_TENSORS else ""
        raise UserError(f"{place}: does not fit: {'; '.join(wrong[:_SHOWN_TENSORS])}{more}")


def refusal(error: Exception) -> str:
    """Return why a file of weights was not read, as one line, without torch's advice to execute what is in it."""
    if isinstance(error, pickle.UnpicklingError):
        return "it holds something else than tensors, which is never executed"
    return one_line(error, 200)


def tensors_of(path: Path, bert: bool = False) -> dict[str, tuple[str, Tensor]]:
    """Return a file's tensors by their names in the store, "towers.*" and "method.*", each with its name in the file.

    Names of open_clip's CLIP and CustomTextCLIP are translated, with or without "module." before them; `bert`: the
    tower is our BERT, whose names differ from open_clip's.
    """
    tensors: dict[str, tuple[str, Tensor]] = {}
    for given, value in _entries(path).items():
        name = given.removeprefix("module.")
        top = name.split(".")[0]
        if top not in ("towers", "method") and _UNUSED.search(name):
            continue
        if top == "text" and bert:
            own = own_name(name.removeprefix("text.transformer."))
            if name != "text.proj.weight" and own is None:
                continue  # open_clip's tower has it and does not use it
            name = f"towers.text.{own or 'text_projection.weight'}"
        elif top in ("visual", "text"):
            name = f"towers.{name}"
        elif top in _TEXT_PARTS:
            name = f"towers.text.{name}"
        tensors[name] = (given, value)
    return tensors


def _entries(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by its own names, without dictionaries that are wrapped around them."""
    state = read_unwrapped(path)
    if {"towers", "method", "step"} <= state.keys():  # a checkpoint of ours
        state = {f"{part}.{name}": value for part in ("towers", "method") for name, value in state[part].items()}
    for given, value in state.items():
        if not isinstance(given, str) or not isinstance(value, Tensor):
            raise UserError(f"{path}: {given!r} is of type {type(value).__name__}; a state dict holds only tensors")
    return state


def load_tensors(path: Path, modules: dict[str, Any]) -> None:
    """Put the tensors of a file into `modules` ("towers", "method"); every name and shape must fit.

    A file without tensors of the method leaves it fresh: scores use only the towers. The UserError names tensors.
    """
    bert = isinstance(modules["towers"].text, BertText)
    tensors = tensors_of(path, bert)
    tensors = {name: x for name, x in tensors.items() if name.split(".")[0] != "method" or "method" in modules}
    states = {part: module.state_dict() for part, module in modules.items()}
    if not any(name.startswith("method.") for name in tensors):
        states.pop("method", None)
    wanted = {f"{part}.{name}": value for part, state in states.items() for name, value in state.items()}
    refuse_misfit(str(path), tensors, wanted)
    for part, state in states.items():
        modules[part].load_state_dict({name: tensors[f"{part}.{name}"][1] for name in state})


@torch.no_grad()
def average_with_file(path: Path, modules: dict[str, Any], share: float) -> None:
    """Average the tensors of `modules` with those of a file: `share` of their own, the rest of the file.

    Parameters and the towers' running statistics are averaged; what a method counts or keeps of its rows is the file's.
    """
    own = {part: {name: x.clone() for name, x in module.state_dict().items()} for part, module in modules.items()}
    load_tensors(path, modules)
    for part, module in modules.items():
        averaged = module.state_dict() if part == "towers" else dict(module.named_parameters())
        for name, x in averaged.items():
            if x.is_floating_point():
                x.lerp_(own[part][name], share)


def _shape(value: Tensor) -> str:
    return json.dumps(list(value.shape))


def start_from(path: Path, method: Method, towers: nn.Module) -> None:
    """Start from the weights in a file: all of the towers, and the method's parameters of the same name and shape.

    Called before `prepare`, so that whatever the method adds to the towers starts fresh; what it keeps fixed stays as
    configured, and so does a logit scale with a bias if the file has no bias: they fit only together. UserError if
    towers differ.
    """
    assert isinstance(method, nn.Module)
    load_tensors(path, {"towers": towers})
    given = {name.removeprefix("module."): value for name, value in _entries(path).items()}
    theirs = {"logit_scale": "method.scale.rho", "logit_bias": "method.bias"}  # open_clip's names for ours
    given |= {own: given[name] for name, own in theirs.items() if name in given}
    if hyperparameters.has_logit_bias(type(method)) and "method.bias" not in given:
        given.pop("method.scale.rho", None)
    with torch.no_grad():
        for name, own in method.named_parameters():
            value = given.get(f"method.{name}")
            if value is not None and own.shape == value.shape:
                own.copy_(value)


def refuse_other_conventions(start: str, towers: TowerSettings, field: str = "start") -> None:
    """Raise UserError if pretrained weights want another activation or other pixels: shapes do not show it.

    field: of the suite, that names the weights.
    """
    from open_clip.pretrained import get_pretrained_cfg

    from bench.towers.build import channels_of

    model, _, tag = start.removeprefix(OPEN_CLIP).rpartition("/")
    given_cfg = get_pretrained_cfg(model, tag)
    own, theirs = channels_of(towers), (given_cfg.get("mean"), given_cfg.get("std"))
    for name, mine, value in zip(("mean", "std"), own, theirs, strict=True):
        if value is not None and tuple(value) != mine:
            raise UserError(f"{field}: {start}: was trained with {name} {value} of pixels, but towers have {mine}")
    wanted = bool(given_cfg.get("quick_gelu"))
    for kind in ("image", "text"):
        name = getattr(towers, kind)
        if architectures.quick_gelu(name) != wanted and architectures.chooses_activation(kind, name):
            have, given = ("QuickGELU", "GELU")[:: 1 if wanted else -1]
            raise UserError(f"{field}: {start}: was trained with {have}, but towers.{kind} {name} has {given}")


def locate_weights(start: str, field: str = "start") -> Path:
    """Return the file of a suite's `start`: a path, or "open_clip:MODEL/TAG" for weights, downloaded if not here.

    field: of the suite, that names the weights.

    Raises UserError for a missing file, and for a model or tag that open_clip does not know or cannot fetch.
    """
    if not start.startswith(OPEN_CLIP):
        path = Path(start)
        if not path.is_file():
            raise UserError(f"{field}: {start}: no such file; a path, or {OPEN_CLIP}MODEL/TAG")
        return path
    return fetch_weights(start.removeprefix(OPEN_CLIP), f"{field}: {start}", "fetch it elsewhere and give its path")


def fetch_weights(name: str, prefix: str, otherwise: str) -> Path:
    """Return the file of open_clip's pretrained weights "MODEL/TAG", downloaded if it is not here.

    Raises a UserError that begins with `prefix` if open_clip does not know the weights or cannot fetch them; in the
    second case it ends with the fix `otherwise`.
    """
    import open_clip
    from open_clip.pretrained import download_pretrained, get_pretrained_cfg

    model, _, tag = name.rpartition("/")
    known = [f"{model}/{one}" for model, one in open_clip.list_pretrained()]
    if name not in known:
        raise UserError(f"{prefix}: open_clip knows no such weights{nearest(name, known)}")
    try:
        return Path(download_pretrained(get_pretrained_cfg(model, tag)))
    except Exception as error:  # raised by requests, the hub or the file system
        raise UserError(f"{prefix}: cannot be fetched ({one_line(error, 200)}); {otherwise}") from error
