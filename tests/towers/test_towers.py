"""Towers of the papers in small: every method trains on them, and what they are built from is theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from bench import data, data_folder
from bench.adapters import hyperparameters, registry
from bench.catalogue import architectures
from bench.catalogue.protocols import PROTOCOLS
from bench.checks.pool import MetricsOnly
from bench.errors import UserError
from bench.evaluation.features import extract_images, extract_texts
from bench.planning.flops import count_step_flops
from bench.store import Store, writing
from bench.suite.run import Run
from bench.suite.settings import TowerSettings
from bench.suite.tower_files import missing_tower_files
from bench.towers.batchnorm import GroupedBatchNorm2d
from bench.towers.blocks import blocks, compile_blocks, recompute_blocks
from bench.towers.build import OpenClipTowers, build_towers, channels_of, tokenizer_of
from bench.towers.state_dicts import load_tensors, refuse_other_conventions
from bench.towers.tokenization import SmallVocabulary
from bench.training import job
from bench.training.inputs import InputsReader
from bench.training.job import make_job, prepare_model
from bench.training.loop import train
from bench.training.schedule import ResolvedSteps
from methods.protocol import Facts, Method

from .small import CLIP_TEXT, bert_folder, run_on

CPU = torch.device("cpu")
READER = InputsReader()
TEXTS = ["a photo of a cat", "red apple", "the grinning dogs with a blue heart and a car"]


def build(run: Run) -> tuple[OpenClipTowers, Method]:
    return job.build_model(run, READER.for_model(run))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("folders")
    return {kind: str(bert_folder(place / kind, kind)) for kind in ("bert", "distilbert")}


@pytest.fixture
def towers(folders: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    monkeypatch.setitem(architectures.PAPER_TEXT_TOWERS, "tiny-clip", CLIP_TEXT)
    return {
        "rn50+bert": {"image": "tiny-rn50", "text": folders["bert"]},
        "rn50+distilbert": {"image": "tiny-rn50", "text": folders["distilbert"]},
        "vit+clip": {"image": "tiny-vit", "text": "tiny-clip"},
    }


@pytest.mark.promise("every method trains on an attention-pooled ResNet with BERT, and on a ViT")
@pytest.mark.parametrize("kind", ["rn50+bert", "vit+clip"])
@pytest.mark.parametrize("method", registry.method_names())
def test_every_method_trains_and_is_read_out(
    tmp_path: Path, towers: dict[str, dict[str, Any]], kind: str, method: str
) -> None:
    run = run_on(towers[kind], method)
    phases = tuple((phase.name, 1) for phase in hyperparameters.make_method(method, None, {}, _facts()).phases())
    resolved = ResolvedSteps(phases, {name: 1 for name, _ in phases}, 16, 100)
    with Store(tmp_path).run("run").claim() as claim:
        job = make_job(run, READER.inputs(run), resolved, MetricsOnly(claim), None, CPU)
        before = {name: x.clone() for name, x in job.towers.named_parameters()}
        train(job)
    moved = {name.split(".")[0] for name, x in job.towers.named_parameters() if not torch.equal(x, before[name])}
    assert moved == {"visual", "text"}
    features = extract_texts(job.method, job.towers, TEXTS)
    assert features["embedding"].shape == (3, 16)
    torch.testing.assert_close(features["embedding"].norm(dim=1), torch.ones(3))


def _facts() -> Any:
    return Facts(100, 16, 16, 0)


@pytest.mark.parametrize("method", ["ncu", "prolip", "pcmepp"])
def test_costs_of_methods_that_change_bert_are_counted_without_its_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setenv(data_folder.DATA_VARIABLE, str(tmp_path))
    small = {**architectures.HF_TEXT_TOWERS["bert-base-uncased"], "hidden_size": 24, "num_hidden_layers": 3}
    monkeypatch.setitem(architectures.HF_TEXT_TOWERS, "bert-base-uncased", {**small, "vocab_size": 200})
    run = run_on({"image": "tiny-vit", "text": "bert-base-uncased"}, method)
    made, adapter = build(run)
    prepare_model(adapter, made, run, CPU, None)
    assert all(flops > 1e6 for flops in count_step_flops(adapter, made.copied().to("meta"), 16, 32, {}).values())


def test_the_papers_towers_have_their_sizes() -> None:
    """Built without weights or vocabularies at hand: parameters in millions of both towers, features' width."""
    pairs = {
        ("RN50", "bert-base-uncased", 1024, None): (38.3, 109.7, 2048),
        ("resnet50", "distilbert-base-uncased", 256, 30): (24.0, 66.6, 2048),
        ("ViT-B-16", "ViT-B-16", 512, None): (86.2, 63.4, 768),
        ("ViT-B-32", "ViT-B-32", 512, None): (87.8, 63.4, 768),
        ("ViT-B-16", "transformer-12x768", 768, 64): (86.4, 123.6, 768),
    }
    for (image, text, dim, context), (visual, words, width) in pairs.items():
        spec = TowerSettings(image=image, text=text, dim=dim, context=context)
        with torch.device("meta"):
            made = build_towers(spec, _tokenizer(spec), 224, 128).to("meta")
        millions = [sum(x.numel() for x in part.parameters()) / 1e6 for part in (made.visual, made.text)]
        assert millions == pytest.approx([visual, words], abs=0.06), (image, text)
        images = torch.empty(2, 3, 224, 224, device="meta")
        assert made.eval().encode_image(images).shape == (2, dim)
        assert made.pooled(images).shape == (2, width)
        assert made.encode_text(made.tokenize(TEXTS)).shape == (3, dim)


def _tokenizer(spec: TowerSettings) -> Any:
    return tokenizer_of(spec, lambda *_: pytest.fail("no vocabulary is learned for these"))


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_pretrained_text_weights_give_transformers_own_vectors(folders: dict[str, str], kind: str) -> None:
    import transformers

    run = run_on({"image": "tiny-vit", "text": folders[kind], "text_start": folders[kind]})
    made, method = build(run)
    prepare_model(method, made, run, CPU, None)
    made.eval()
    theirs = transformers.AutoModel.from_pretrained(folders[kind]).eval()
    tokens = made.tokenize(TEXTS)
    with torch.no_grad():
        hidden = theirs(input_ids=tokens, attention_mask=(tokens != 0).long()).last_hidden_state[:, 0]
        expected = hidden @ made.text.text_projection.weight.T  # type: ignore[union-attr, operator]
        torch.testing.assert_close(made.encode_text(tokens), expected, rtol=1e-5, atol=1e-6)
        assert made.encode_text(tokens).std() > 0


def test_image_weights_are_taken_from_files(tmp_path: Path) -> None:
    run = run_on({"image": "tiny-resnet", "text": "tiny-transformer"})
    trunk, _ = build(run)
    given = {name.removeprefix("trunk."): x + 1 for name, x in trunk.visual.state_dict().items() if "trunk" in name}
    save_file({**given, "fc.weight": torch.zeros(10, 96)}, tmp_path / "timm.safetensors")
    started = run_on({**run.towers.model_dump(), "image_start": str(tmp_path / "timm.safetensors")})
    towers, method = build(started)
    prepare_model(method, towers, started, CPU, None)
    assert all(torch.equal(towers.visual.state_dict()[f"trunk.{name}"], x) for name, x in given.items())
    assert started.key != run.key
    given.popitem()
    save_file(given, tmp_path / "timm.safetensors")
    with pytest.raises(UserError, match=r"image_start: .*timm.safetensors: does not fit: lacks trunk\."):
        prepare_model(method, towers, started, CPU, None)
    elsewhere = run_on({**run.towers.model_dump(), "image": "tiny-rn50", "image_start": "imagenet"})
    with pytest.raises(UserError, match="imagenet: tiny-rn50 is not a model of timm"):
        prepare_model(method, build(elsewhere)[0], elsewhere, CPU, None)
    prepare_model(method, build(elsewhere)[0], elsewhere, CPU, None, starts="files")  # costs do not depend on them


def test_identity_sees_the_bytes_of_a_folder_not_its_place(tmp_path: Path) -> None:
    one, same = (bert_folder(tmp_path / name) for name in ("one", "same"))
    keys = [run_on({"text": str(folder)}).key for folder in (one, same)]
    assert keys[0] == keys[1], "weights do not count where the tower starts fresh"
    started = [run_on({"text": str(folder), "text_start": str(folder)}).key for folder in (one, same)]
    assert len({*keys, *started}) == 3
    vocabulary = bert_folder(tmp_path / "other") / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text().replace("apple", "pear"))
    assert run_on({"text": str(tmp_path / "other")}).key != keys[0]


def test_a_missing_vocabulary_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(data_folder.DATA_VARIABLE, str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    spec = TowerSettings(text="bert-base-uncased")
    (missing_file,) = missing_tower_files(spec)
    assert missing_file.get == (
        "hf download google-bert/bert-base-uncased tokenizer.json vocab.txt tokenizer_config.json config.json "
        f"--local-dir {tmp_path}/tokenizers/bert-base-uncased"
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"no vocabulary of bert-base-uncased in .*; get it with: hf download"):
        _tokenizer(spec)(["a cat"])
    folder = bert_folder(tmp_path / "tokenizers" / "bert-base-uncased")
    for file in folder.iterdir():
        if file.name not in missing_file.get.split():
            file.unlink()
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true, "model_max_length": 512}')  # as on the hub
    assert list(missing_tower_files(spec)) == []
    assert _tokenizer(spec)(["a cat"]).shape == (1, 77)


def test_wrong_towers_are_said(tmp_path: Path, folders: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="CoCa"):
        TowerSettings(image="coca_ViT-B-32")
    with pytest.raises(ValueError, match=r"no image tower named 'RN5'.*RN50"):
        TowerSettings(image="RN5")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "roberta"}))
    with pytest.raises(UserError, match="model_type 'roberta' should be 'bert' or 'distilbert'"):
        build(run_on({"text": str(tmp_path)}))
    with pytest.raises(UserError, match=r"towers.context: 41 should be at most 40"):
        build(run_on({"text": folders["bert"], "context": 41}))
    with pytest.raises(UserError, match=r"trained with QuickGELU, but towers.image ViT-B-32 has GELU"):
        refuse_other_conventions("open_clip:ViT-B-32/openai", TowerSettings(image="ViT-B-32", text="ViT-B-32"))
    refuse_other_conventions("open_clip:ViT-B-32/laion2b_s34b_b79k", TowerSettings(image="ViT-B-32", text="ViT-B-32"))


def test_channel_statistics_are_those_of_the_towers_weights_unless_asked_for() -> None:
    assert channels_of(TowerSettings(image="ViT-B-16-SigLIP")) == ((0.5,) * 3, (0.5,) * 3)
    assert channels_of(TowerSettings(image="tiny-resnet")) == channels_of(TowerSettings(image="ViT-B-32"))
    asked = run_on({"vocabulary": 300, "channels": "imagenet"})
    assert build(asked)[0].channels == PROTOCOLS["ncu"].class_channels
    assert asked.key != run_on({"vocabulary": 300}).key
    assert "channels" not in run_on({}).content()["towers"]


def test_all_batch_norms_of_rn50_are_grouped(towers: dict[str, dict[str, Any]]) -> None:
    made, _ = build(run_on(towers["rn50+bert"]))
    norms = [part for part in made.visual.modules() if "Norm" in type(part).__name__]
    assert len(norms) == 3 + 4 * 4
    assert all(isinstance(part, GroupedBatchNorm2d) and part.group == 8 for part in norms)


def test_open_clips_names_of_bert_fit(tmp_path: Path, towers: dict[str, dict[str, Any]]) -> None:
    """A state dict with open_clip's HFTextEncoder; DistilBERT's as transformers names it."""
    from bench.towers.bert import hf_name

    run = run_on(towers["rn50+bert"])
    (made, method), (other, _) = build(run), build(run)
    text = {hf_name(name): x + 1 for name, x in made.text.state_dict().items()}
    text["proj.weight"] = text.pop("text_projection.weight")
    state = {f"visual.{name}": x for name, x in made.visual.state_dict().items()}
    state |= {f"text.{name}": x for name, x in text.items()}
    torch.save({"state_dict": {f"module.{name}": x for name, x in state.items()}}, tmp_path / "clip.pt")
    load_tensors(tmp_path / "clip.pt", {"towers": other, "method": method})
    for name, x in other.text.state_dict().items():
        assert torch.equal(x, made.text.state_dict()[name] + 1), name


def test_pooled_features_come_before_the_projection(towers: dict[str, dict[str, Any]]) -> None:
    pairs = data.load_dataset("emoji/iid", 32)
    for kind, width in (("rn50+bert", 512), ("vit+clip", 128)):
        run = run_on(towers[kind])
        made, method = build(run)
        rows = extract_images(method, made, pairs, "pooled")["pooled"][:4]
        assert rows.shape == (4, width)
        assert rows.std(0).min() >= 0


@pytest.mark.parametrize(("kind", "method"), [("rn50+bert", "clip"), ("vit+clip", "clip"), ("rn50+bert", "prolip")])
def test_recomputed_activations_give_the_same_weights(
    tmp_path: Path, towers: dict[str, dict[str, Any]], kind: str, method: str
) -> None:
    """Bit for bit, running statistics and dropout with them. ProLIP's masked images use running statistics."""
    states = []
    for again in (False, True):
        run = run_on(towers[kind], method, recompute=again)
        with writing(Store(tmp_path).run(str(again))) as out:
            resolved = ResolvedSteps((("train", 2),), {"train": 1}, 16, 9)
            job = make_job(run, READER.inputs(run), resolved, out, None, CPU)
            train(job)
        states.append(job.towers.state_dict())
    assert all(torch.equal(x, states[1][name]) for name, x in states[0].items())
    assert run_on(towers[kind], recompute=True).key == run_on(towers[kind]).key


def test_recomputing_keeps_fewer_activations(towers: dict[str, dict[str, Any]]) -> None:
    totals = []
    for again in (False, True):
        made, _ = build(run_on(towers["rn50+bert"]))
        if again:
            recompute_blocks(made)
        sizes: list[int] = []
        pack = lambda x, sizes=sizes: sizes.append(x.numel()) or x  # noqa: E731
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            made.encode_text(made.tokenize(TEXTS * 16))
        totals.append(sum(sizes))
    assert totals[1] < totals[0] / 3


@pytest.mark.filterwarnings("ignore")  # torch.compile uses what torch deprecates
def test_compiled_blocks_compute_the_same() -> None:
    plain, compiled = (build(run_on({"vocabulary": 300}))[0] for _ in range(2))
    compile_blocks(compiled, CPU)
    with torch.no_grad():  # trainings are compared below
        actual, expected = (made.encode_text(made.tokenize(TEXTS)) for made in (compiled, plain))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    (block,) = blocks(compiled.text)
    assert block._compiled_call_impl is not None
    assert len({run_on({}, compile=kind).key for kind in (False, True)}) == 2
    assert run_on({}, compile=False).key == run_on({}).key


@pytest.mark.filterwarnings("ignore")  # torch.compile uses what torch deprecates
def test_a_compiled_training_with_micro_batches_has_the_losses_of_a_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled_blocks: list[nn.Module] = []
    own = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda block, **how: compiled_blocks.append(block) or own(block, **how))
    losses = []
    for kind in (False, True):
        run = run_on({"image": "tiny-vit", "vocabulary": 300}, compile=kind, micro_batch=8)
        with writing(Store(tmp_path).run(str(kind))) as out:
            compiled = make_job(
                run, READER.inputs(run), ResolvedSteps((("train", 2),), {"train": 1}, 16, 9), out, None, CPU
            )
            compiled.log_every = 1
            train(compiled)
            losses.append([line["loss"] for line in out.metrics()])
    assert len(compiled_blocks) == sum(len(blocks(tower)) for tower in (compiled.towers.visual, compiled.towers.text))
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert losses[0][0] != losses[0][1]


def test_the_size_of_images_is_the_datas() -> None:
    spec, tokenizer = TowerSettings(image="tiny-rn50", text="tiny-transformer", dim=16), SmallVocabulary(TEXTS, 60, 24)
    for size, positions in ((32, 2), (64, 5)):
        visual = build_towers(spec, tokenizer, size, 8).visual
        assert visual.get_parameter("attnpool.positional_embedding").shape == (positions, 512)
