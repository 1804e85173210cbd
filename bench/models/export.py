"""`bench export`: write a run's final weights as a folder that open_clip and the readers of its models load."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, processors
from torch import Tensor

from bench.catalogue import architectures
from bench.errors import UserError, one_line
from bench.evaluation.features import evaluation_mode
from bench.models.encoders import SUITE
from bench.models.open_clip_models import CONFIG, Preprocess
from bench.models.stored_run import (
    PROBES,
    TOLERANCE,
    distance_of,
    probe_inputs,
    rebuild_model,
    refuse_additions,
    single_run_of,
)
from bench.store import Store, files
from bench.store.run import SHORT_ID, find_run
from bench.suite import tower_files
from bench.suite.run import Run
from bench.towers.bert import BertText, bert_config, hf_name
from bench.towers.build import OpenClipTowers
from bench.towers.tokenization import PAD, ClipTokenizer, HubTokenizer, SmallVocabulary
from methods.protocol import Method

WEIGHTS_FILE = "open_clip_model.safetensors"


def export(run: str, folder: Path | str, results: Path | str = "results") -> None:
    """Write a finished run's towers to `folder` for open_clip, load them with open_clip again and compare.

    run: its id, or enough of the beginning; or suite:NAME, of a suite that has one run. results: the store's folder.

    Raises UserError for an unknown run or one without final weights, a folder that is not empty, towers that open_clip
    cannot describe, and a method whose embeddings are not those of the towers alone. Nothing is left behind then.

    >>> bench.export("3f2a", "exported")  # doctest: +SKIP
    >>> open_clip.create_model("local-dir:exported")  # torch and torchvision from one index  # doctest: +SKIP
    """
    folder, store = Path(folder), Store(Path(results))
    out = find_run(store, single_run_of(store, run.removeprefix(SUITE)) if run.startswith(SUITE) else run)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: is not an empty folder")
    settings, towers, method = rebuild_model(out, torch.device("cpu"))
    if settings.towers.stored:
        stored = " and ".join(f"towers.{kind}" for kind in settings.towers.stored)
        verb = "reads" if len(settings.towers.stored) == 1 else "read"
        raise UserError(f"run {out.id[:SHORT_ID]}: {stored} {verb} stored features, for which open_clip has no towers")
    refuse_additions(method, towers, settings, "images", "texts")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _write(folder, towers, method, settings)
        _same_as_open_clip(folder, towers, settings)
    except BaseException:
        shutil.rmtree(folder)
        raise


def _same_as_open_clip(folder: Path, towers: OpenClipTowers, run: Run) -> None:
    import open_clip

    images, tokens = probe_inputs(towers, run)
    try:
        model = open_clip.create_model(f"local-dir:{folder}")
    except Exception as error:  # whatever open_clip meets in what was written
        fault = f"open_clip cannot load it again: {one_line(error, 300)}"
        raise UserError(f"{run.towers.image} at {run.data.size} px: {fault}") from error
    with evaluation_mode(model, towers):
        distances = {
            "images": distance_of(towers.encode_image(images), model.encode_image(images.float())),
            "texts": distance_of(towers.encode_text(tokens), model.encode_text(tokens)),
        }
    read = open_clip.get_tokenizer(f"local-dir:{folder}")(list(PROBES))
    if not torch.equal(read, tokens):
        raise UserError(f"{folder}: open_clip reads captions differently from the bench")
    for what, distance in distances.items():
        if distance > TOLERANCE:
            raise UserError(f"{folder}: open_clip's embeddings of {what} differ from the bench's by {distance:.2g}")


def _write(folder: Path, towers: OpenClipTowers, method: Method, run: Run) -> None:
    from open_clip.model import CustomTextCLIP

    config: dict[str, Any] = {
        "embed_dim": run.towers.dim,
        "vision_cfg": tower_files.image_config(run.towers, run.data.size),
        "text_cfg": _text_config(folder, towers, run),
        "quick_gelu": _quick_gelu(run),
        "custom_text": True,
    }
    preprocess = Preprocess(run.data.size, towers.channels).to_json()  # evaluation's own way with photographs
    written = json.dumps({"model_cfg": config, "preprocess_cfg": preprocess}, indent=2)
    (folder / CONFIG).write_text(written + "\n", encoding="utf-8")
    blank = CustomTextCLIP(**{key: value for key, value in config.items() if key != "custom_text"})
    state = {f"visual.{name}": x for name, x in towers.visual.state_dict().items()}
    text = dict(towers.text.state_dict())
    if isinstance(towers.text, BertText):
        projection = text.pop("text_projection.weight")
        text = {**{hf_name(name): x for name, x in text.items()}, "proj.weight": projection}
    state |= {f"text.{name}": x for name, x in text.items()}  # under open_clip's names
    scale = getattr(getattr(method, "scale", None), "rho", None)  # a method need not have one
    state["logit_scale"] = scale.detach() if isinstance(scale, Tensor) else torch.tensor(math.log(1 / 0.07))  # CLIP's
    for name, x in blank.state_dict().items():
        if name not in state and name.endswith(("num_batches_tracked", "token_type_embeddings.weight")):
            state[name] = torch.zeros_like(x)  # grouped norms count no batches, and DistilBERT has no token types
    single = {name: x.float() if x.is_floating_point() else x for name, x in state.items()}
    tensors = {name: x.detach().contiguous() for name, x in single.items()}
    files.write_path(folder / WEIGHTS_FILE, lambda path: save_file(tensors, path))


def _quick_gelu(run: Run) -> bool:
    """Return whether both towers use QuickGELU; open_clip has one activation for the two of them."""
    names = {"image": run.towers.image, "text": run.towers.text}
    choosing = [name for kind, name in names.items() if architectures.chooses_activation(kind, name)]
    chosen = set(map(architectures.quick_gelu, choosing))
    if len(chosen) > 1:
        raise UserError(f"towers {run.towers.image} and {run.towers.text}: open_clip has one activation for both")
    return chosen.pop() if chosen else False


def _text_config(folder: Path, towers: OpenClipTowers, run: Run) -> dict[str, Any]:
    """Return open_clip's description of the text tower; write the files that its tokenizer reads."""
    tokenizer, config = towers.tokenizer, tower_files.text_config(run.towers)
    if isinstance(tokenizer, ClipTokenizer):
        return config
    if isinstance(tokenizer, SmallVocabulary):
        _write_small(folder, tokenizer)
        return {**config, "vocab_size": tokenizer.size, "hf_tokenizer_name": str(folder.resolve())}
    assert isinstance(tokenizer, HubTokenizer)
    tokenizer.files.tokenizer.save_pretrained(folder)
    if not isinstance(towers.text, BertText):
        return config
    made = bert_config(config)
    made.save_pretrained(folder)
    return {
        "context_length": config["context_length"],
        "vocab_size": made.vocab_size,
        "hf_model_name": str(folder.resolve()),
        "hf_tokenizer_name": str(folder.resolve()),
        "hf_model_pretrained": False,
        "hf_proj_type": "linear",
        "hf_pooler_type": "cls_last_hidden_state_pooler",
    }


def _write_small(folder: Path, vocabulary: SmallVocabulary) -> None:
    """Write the learned vocabulary as transformers reads it; its post-processor adds the start and end tokens."""
    tokenizer = Tokenizer.from_str(vocabulary.tokenizer.to_str())
    start, end = "<|start|>", "<|end|>"
    tokenizer.add_special_tokens([start, end])
    ids = [(start, vocabulary.start), (end, vocabulary.end)]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{start} $A {end}", special_tokens=ids)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": PAD}
    (folder / "tokenizer_config.json").write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
