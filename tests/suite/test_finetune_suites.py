"""The suites that fine-tune CLIP: what they compare, and Flickr30K and COCO as people have them."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from torch.nn.functional import normalize

from bench import data_folder
from bench.checks.pool import MetricsOnly
from bench.data import evaluation
from bench.data.noise.manifest import NoiseManifest
from bench.data.source import data_source
from bench.planning.plan_file import plan_outline
from bench.planning.planner import Planner
from bench.store import Store
from bench.suite.suite import Suite, load_suite
from bench.training.inputs import InputsReader
from bench.training.job import make_job
from bench.training.loop import train
from bench.training.schedule import ResolvedSteps
from reports.results import Results
from reports.tables.footnotes import _starts

from ..command import call_bench

#: name -> pairs, rates, seeds, steps, steps of warm-up
FACTS = {
    "flickr30k_clip_finetune": (145_000, (0.0, 0.2, 0.4, 0.6), 5, 2_830, 283),
    "coco_clip_finetune": (566_747, (0.0, 0.2, 0.4, 0.6), 5, 11_065, 500),
    "own_pairs": (10_000, (0.0, 0.2, 0.4), 3, 195, 19),
}
OURS = {  # printed tables with a number of ours
    "flickr30k_clip_finetune": {"Flickr30K, no noise", "Flickr30K, 20 % noise"},
    "coco_clip_finetune": {f"MS-COCO {k}, {noise}" for k in ("1K", "5K") for noise in ("no noise", "20 % noise")},
}
PAPERS = {"flickr30k_clip_finetune": 1, "coco_clip_finetune": 3, "own_pairs": 0}
CPU = torch.device("cpu")
TINY = [
    "towers={image: tiny-resnet, text: tiny-transformer, dim: 8, vocabulary: 300}",
    "start=null",
    "train={batch: 16, threads: 1}",
    "data.size=32",
]


@pytest.fixture(scope="module")
def suites() -> dict[str, Suite]:
    return {name: load_suite(name) for name in FACTS}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of its own, beside which commands are given."""
    monkeypatch.setenv(data_folder.DATA_VARIABLE, str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data"


def image(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8, 3), number * 7 % 256, np.uint8)).save(path)


def karpathy(path: Path, images: list[tuple[str, str, str]], captions: int) -> None:
    """Write Karpathy's JSON, and the images: (folder, name, split) each."""
    entries = []
    for number, (folder, name, split) in enumerate(images):
        image(path.parent / "flickr30k-images" / name if not folder else path.parent / folder / name, number)
        sentences = [{"raw": f"a scene number {number}, seen {at}", "tokens": ["a"]} for at in range(captions)]
        entry = {"filename": name, "split": split, "sentences": sentences, "imgid": number, "sentids": [number]}
        entries.append({**entry, "filepath": folder} if folder else entry)
    path.write_text(json.dumps({"images": entries, "dataset": path.stem.removeprefix("dataset_")}))


def flickr(path: Path) -> None:
    splits = ["train"] * 40 + ["val"] * 6 + ["test"] * 6
    karpathy(path / "dataset_flickr30k.json", [("", f"{10_000 + n}.jpg", s) for n, s in enumerate(splits)], 5)


def coco(path: Path) -> None:
    splits = ["train"] * 30 + ["restval"] * 10 + ["val"] * 6 + ["test"] * 10
    years = ["train2014" if split == "train" else "val2014" for split in splits]
    listed = zip(years, splits, strict=True)
    karpathy(path / "dataset_coco.json", [(y, f"COCO_{y}_{n:012d}.jpg", s) for n, (y, s) in enumerate(listed)], 5)


def own(path: Path) -> None:
    for split, count in (("train", 40), ("test", 6), ("validation", 6)):
        lines = ["filepath,title"]
        for number in range(count):
            image(path / "pictures" / f"{split}{number}.png", number)
            lines += [f'pictures/{split}{number}.png,"{split} {number}, said {at}"' for at in range(2)]
        (path / f"{split}.csv").write_text("\n".join(lines))


@pytest.mark.parametrize("name", FACTS)
def test_what_a_suite_compares(suites: dict[str, Suite], name: str, tmp_path: Path) -> None:
    suite = suites[name]
    cells = [
        run for run in suite.cells() if run.seed == 0 and run.rate == 0.2 and run.label in ("clip", "oracle", "osa")
    ]
    planned = Planner(Store(tmp_path), here=False).plan([cells[0]])
    steps, train = planned[0].resolved.steps, suite.train
    warm = int(min(train.warmup_steps or 0, 0.1 * steps))
    assert (suite.data.rows, suite.noise[0].rates, len(suite.seeds), steps, warm) == FACTS[name]
    assert (train.batch, train.lr, suite.budget[0].label) == (256, 1e-5, "5 epochs")
    assert {run.start for run in suite.cells()} == {"open_clip:ViT-B-32/openai"}
    assert suite.methods == suites["own_pairs"].methods
    assert len({entry.label for entry in suite.methods} & {"zero-shot", "wise-ft", "oracle", "clip early"}) == 4
    (osa,) = (run for run in cells if run.label == "osa")
    assert osa.reference is not None
    assert osa.reference.untrained, "the estimator is the model that all start from"


def test_the_tables_say_what_a_start_had_seen() -> None:
    suite = load_suite("own_pairs", ["methods=[clip, siglip, {method: clip, label: other, start: own.pt}]"])
    entries = [{"label": entry.label, "start": entry.start} for entry in suite.methods]
    openai, other = _starts(Results({**plan_outline(suite), "methods": entries}, ()))
    assert openai == f"Start of training: open_clip:ViT-B-32/openai, trained on {suite.start_trained_on}."
    assert other.endswith("own.pt, trained on data that the suite does not name.")


@pytest.mark.usefixtures("folder")
def test_a_dry_run_says_what_is_downloaded() -> None:
    lines = call_bench("run", "own_pairs", "--dry-run", "--only", "clip", "--seeds", "0").splitlines()
    assert sum(line.startswith("downloaded when runs start") for line in lines) == 1
    assert any(line.endswith("cache has them: open_clip:ViT-B-32/openai") for line in lines)


@pytest.mark.parametrize(
    ("name", "write", "images", "captions"),
    [("flickr30k_clip_finetune", flickr, 40, 5), ("coco_clip_finetune", coco, 40, 5), ("own_pairs", own, 40, 2)],
)
def test_its_commands_make_what_it_reads(
    name: str, write: Callable[[Path], None], images: int, captions: int, folder: Path
) -> None:
    write(folder.parent)
    for command in (load_suite(name).data.how_to_get or "").split("then: ")[1].split(" && "):
        call_bench(*shlex.split(command)[1:])
    suite = load_suite(name, [*TINY, "tables=null", "methods=[clip]"])
    pairs = data_source(suite.data).pairs()
    each = captions == 5
    assert len(pairs) == (images * captions if each else images)
    assert {len(pairs.captions(row)) for row in range(len(pairs))} == {1 if each else captions}
    test = next(iter(suite.evaluate.datasets["retrieval"]))
    held = evaluation.load_evaluation_set(test, 32)
    assert len(held.captions(0)) == captions
    assert len(evaluation.load_evaluation_set(f"{test}/validation", 32)) == 6
    assert not {key.split("/")[-1] for key in held.keys} & {key.split("/")[-1] for key in pairs.keys} or not each
    run = next(run for run in suite.cells() if run.rate == 0.4 and run.label == "clip")
    by_caption, by_image = run.noise_of(pairs), replace(run, noise="shuffled_images").noise_of(pairs)
    assert isinstance(by_caption, NoiseManifest)
    assert len(by_caption.rows) == len(by_image.rows) == round(0.4 * len(pairs))
    if each:
        wrong = [len(set((one.rows // captions).tolist())) for one in (by_caption, by_image)]
        assert wrong[0] > wrong[1] == round(0.4 * images), "by image all captions of an image are wrong together"


def test_pairs_of_img2dataset_have_a_row_each(folder: Path) -> None:
    """Shards as it writes them: .jpg, .txt and .json of each sample, one caption."""
    call_bench("data", "stand-in", "cc3m_noisy", folder, "--pairs", "64")
    (folder / "cc3m").rename(folder / "own-pairs")
    assert len(data_source(load_suite("own_pairs").data).pairs()) == 64


@pytest.mark.parametrize("name", FACTS)
def test_it_trains_on_stand_ins_and_its_tables_stand_beside_the_printed_ones(name: str, folder: Path) -> None:
    toy, results = folder.parent / "toy", folder.parent / "results"
    call_bench("data", "stand-in", name, toy, "--pairs", "60")
    untrained = "{method: clip, label: zero-shot, untrained: true}, {method: pau, untrained: true}"
    rows = f"methods=[{untrained}, {{method: pcmepp, untrained: true}}, clip, {{method: osa, reference: zero-shot}}]"
    less = ["evaluate.tasks=[retrieval]", "evaluate.curve=[]", "evaluate.along=[]", "budget={samples: 64}", rows]
    changes = [word for one in (*TINY, *less, "noise.rates=[0.0, 0.2]") for word in ("--set", one)]
    assert "10 done" in call_bench("run", name, "--data", toy, "--results", results, "--seeds", "0", *changes)
    tables = {path.name: path.read_text() for path in (results / name / "tables").glob("*.csv")}
    printed = {own: text for own, text in tables.items() if own.startswith("paper_")}
    assert len(printed) == PAPERS[name]
    declared = {paper.paper: len(paper.rows) for paper in load_suite(name).tables}
    for own, text in printed.items():
        ours = [row for row in csv.DictReader(io.StringIO(text)) if row["I→T R@1 ours difference"]]
        assert {row["group"] for row in ours} == {one for one in OURS[name] if "ugncl" not in own or "5K" in one}, own
        assert len({row["row"] for row in ours}) == declared[own.split("_")[1]], own
    if name.startswith("coco"):
        assert any("mscoco_captions_1k" in text for text in tables.values())


@pytest.mark.usefixtures("folder")
def test_the_towers_of_the_suites_start_from_a_file_of_open_clip_embed_as_it_does_and_train(tmp_path: Path) -> None:
    """A ViT-B/32 with random weights, stored as open_clip stores its own."""
    theirs = open_clip.create_model("ViT-B-32-quickgelu", output_dict=True).eval()
    torch.save(theirs.state_dict(), tmp_path / "vit.pt")
    call_bench("data", "stand-in", "flickr30k_clip_finetune", tmp_path / "toy", "--pairs", "32")
    changes = [f"start={tmp_path / 'vit.pt'}", "methods=[clip]", "train.batch=4", "train.precision=fp32"]
    run = load_suite("flickr30k_clip_finetune", changes).cells()[0]
    steps = ResolvedSteps((("train", 2),), {"train": 1}, 4, 8)
    with Store(tmp_path).run("0" * 64).claim() as claim:
        job = make_job(run, InputsReader().inputs(run), steps, MetricsOnly(claim), None, CPU)
        captions, images = ["a cat on a mat", "two dogs"], torch.randn(2, 3, 224, 224)
        with torch.no_grad():
            tokens = open_clip.get_tokenizer("ViT-B-32-quickgelu")(captions)
            expected = theirs(images, tokens)
            assert torch.equal(job.towers.tokenize(captions), tokens)
            torch.testing.assert_close(normalize(job.towers.encode_image(images), dim=1), expected["image_features"])
            torch.testing.assert_close(normalize(job.towers.encode_text(tokens), dim=1), expected["text_features"])
        assert job.method.scale().item() == pytest.approx(expected["logit_scale"].item())  # type: ignore[attr-defined]
        train(job)
        losses = [line["loss"] for line in job.out.metrics()]
    assert [math.isfinite(loss) for loss in losses] == [True, True]
    moved = job.towers.visual.conv1.weight.detach() - theirs.visual.conv1.weight.detach()
    assert 0 < float(moved.abs().max()) < 1e-4, "two steps of a rate of 1e-5"
