"""What tests of towers share: tiny folders of transformers, and runs on the towers of the papers in small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from bench.adapters import hyperparameters
from bench.suite.run import Run
from bench.suite.settings import Budget, DataSettings, EvaluateSettings, TowerSettings, TrainSettings
from bench.towers.build import OpenClipTowers, build_towers
from bench.towers.tokenization import SmallVocabulary

WORDS = ["a", "photo", "of", "the", "face", "red", "apple", "black", "cat", "blue", "dog", "##s", "##ing", "##ed"]
CLIP_TEXT = {"context_length": 24, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2}
SIZES = {
    "bert": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32},
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
}


def bert_folder(folder: Path, kind: str = "bert", **changed: Any) -> Path:
    """A folder as transformers writes it: a tiny BERT or DistilBERT with weights, and its vocabulary."""
    import transformers

    folder.mkdir(parents=True)
    letters = [f"{before}{letter}" for before in ("", "##") for letter in "abcdefghijklmnopqrstuvwxyz0123456789-,"]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    )
    settings = {"vocab_size": len(vocabulary), "max_position_embeddings": 40, **SIZES[kind], **changed}
    config = {"bert": transformers.BertConfig, "distilbert": transformers.DistilBertConfig}[kind](**settings)
    model = {"bert": transformers.BertModel, "distilbert": transformers.DistilBertModel}[kind](config)
    model.save_pretrained(folder)
    return folder


def fresh_towers(image: str = "tiny-resnet", dim: int = 8, seed: int = 0) -> OpenClipTowers:
    """New towers for images of 32 px and texts of 16 tokens; the global generator stays as it is."""
    vocabulary = SmallVocabulary(["a red apple", "two dogs"], 64, 16)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_towers(TowerSettings(image=image, dim=dim), vocabulary, 32, 8)


def a_run(method: str = "clip", **fields: Any) -> Run:
    """A run on emoji at 32 px, without noise and as the defaults have it but for `fields`."""
    usual = {
        "label": method,
        "method": method,
        "preset": None,
        "config": hyperparameters.resolve_config(method, None, {}),
        "data": DataSettings(),
        "noise": None,
        "rate": 0.0,
        "seed": 3,
        "budget": Budget(samples=32),
        "towers": TowerSettings(),
        "train": TrainSettings(),
        "evaluate": EvaluateSettings(),
    }
    return Run(**{**usual, **fields})


def run_on(towers: dict[str, Any], method: str = "clip", **train: Any) -> Run:
    """A run of two batches of 16 on these towers."""
    return a_run(
        method,
        towers=TowerSettings.model_validate({"dim": 16, "context": 24, **towers}),
        train=TrainSettings.model_validate({"batch": 16, "bn_group": 8, "threads": 1, **train}),
    )
