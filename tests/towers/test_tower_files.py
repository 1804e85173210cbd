"""What towers need that does not come with the package: it enters identities by its content, and is asked for."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertTokenizerFast

from bench import data_folder
from bench.errors import UserError
from bench.hashing import digest
from bench.suite.run import run_address
from bench.training.inputs import InputsReader
from bench.training.job import build_model, prepare_model

from .small import bert_folder, run_on

NAME = "bert-base-uncased"
SUITE = """\
name: lacking
budget: {samples: 64}
towers: {dim: 8, image_start: %s, text: %s}
train: {batch: 16, threads: 1}
evaluate: {tasks: [zero_shot]}
methods: [clip]
"""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, beside an empty cache of the hub and in an empty working folder."""
    monkeypatch.setenv(data_folder.DATA_VARIABLE, str(tmp_path / "data"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "data"


def named_id() -> str:
    return digest(run_address(run_on({"text": NAME}), "d", None))


def cache(hub: Path, vocabulary: Path, revision: str) -> None:
    """Leave a tokenizer.json of this vocabulary in the hub's cache."""
    home = hub / f"models--google-bert--{NAME}"
    (home / "refs").mkdir(parents=True, exist_ok=True)
    (home / "refs" / "main").write_text(revision)
    BertTokenizerFast.from_pretrained(vocabulary).save_pretrained(home / "snapshots" / revision)
    (home / "snapshots" / revision / "vocab.txt").unlink(missing_ok=True)


def test_a_vocabulary_counts_by_what_it_holds_not_by_where_it_lies(tmp_path: Path, data: Path) -> None:
    with pytest.raises(UserError, match=rf"towers\.tokenizer: no vocabulary of {NAME}; `bench run --dry-run` says"):
        named_id()
    vocabulary, other = bert_folder(data / "tokenizers" / NAME), bert_folder(tmp_path / "other")
    (other / "vocab.txt").write_text((other / "vocab.txt").read_text().replace("apple", "pear"))
    here = named_id()
    shutil.copytree(other, NAME)  # in the working folder, where a name is not looked for
    assert named_id() == here
    shutil.move(vocabulary, tmp_path / "moved")
    cache(tmp_path / "hub", tmp_path / "moved", "first")
    assert named_id() == here
    cache(tmp_path / "hub", other, "second")
    assert named_id() != here


def test_a_file_that_is_no_vocabulary_is_named(data: Path) -> None:
    (data / "tokenizers" / NAME).mkdir(parents=True)
    (data / "tokenizers" / NAME / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match=r"bert-base-uncased/tokenizer.json: cannot be read as a vocabulary"):
        named_id()


def test_weights_that_are_not_there_give_settings_but_no_id(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    folder = bert_folder(tmp_path / "bert")
    run = run_on({"image_start": str(tmp_path / "gone.pt"), "text": str(folder), "text_start": str(folder)})
    towers, method = build_model(run, InputsReader().inputs(run))
    prepare_model(method, towers, run, torch.device("cpu"), None, starts="files")
    with pytest.raises(UserError, match=r"^towers\.image_start: .*/gone\.pt: cannot be read: "):
        run_address(run, "d", None)
    empty = run_on({"text": str(folder), "text_start": str(tmp_path / "empty")})
    with pytest.raises(UserError, match=r"^towers\.text_start: .*empty: holds none of model\.safetensors"):
        run_address(empty, "d", None)


def test_a_dry_run_lists_what_towers_lack(start_bench: Callable[..., Any], tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "bert")
    (folder / "vocab.txt").unlink()
    (tmp_path / "lacking.yaml").write_text(SUITE % (tmp_path / "gone.pt", folder))
    command = ("run", "lacking.yaml", "--results", "out", "--dry-run")
    code, output = start_bench(*command, cwd=tmp_path, env={"HF_HUB_OFFLINE": "1"}).finish()
    assert code == 0, output
    assert "unknown-" in output
    assert f"missing: vocabulary of {folder}" in output
    assert f"looked in {tmp_path / 'gone.pt'}" in output
