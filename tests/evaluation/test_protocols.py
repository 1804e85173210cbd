"""Evaluation on data sets of the catalogue: the protocols, what they measure on, and peers' numbers on real files."""

from __future__ import annotations

import gc
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.metrics import balanced_accuracy_score, f1_score

from bench import data
from bench.catalogue.architectures import CIFAR_CHANNELS, IMAGENET_CHANNELS
from bench.catalogue.protocols import PROTOCOLS
from bench.data import evaluation
from bench.data.noise.shuffled import shuffled_captions
from bench.data.photo import CROP, SQUASH
from bench.data.source import dataset_facts
from bench.errors import UserError
from bench.evaluation import EvaluationPlan, evaluate_features, features, measures, pixels
from bench.evaluation.diagnostics import diagnose
from bench.evaluation.features import Features, extract_images, extract_texts
from bench.evaluation.workload import evaluation_workload
from bench.store import Record, RunStore, RunWriter
from bench.suite.settings import DataSettings, EvaluateSettings
from bench.suite.suite import load_suite
from bench.towers.build import OpenClipTowers, normalise
from methods.protocol import Method

from .conftest import build

Model = tuple[Method, OpenClipTowers]
Folder = Callable[..., Path]
CLASSES = ("cat", "tree", "ship", "full moon", "red heart", "birthday cake", "clock")
TEMPLATES = ("a photo of a {c}.", "{c}")


def encoded(seed: int, size: tuple[int, int] = (40, 30)) -> bytes:
    drawn = np.random.default_rng(seed).integers(0, 255, (4, 4, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(drawn).resize(size, Image.Resampling.BICUBIC).save(file, "PNG")
    return file.getvalue()


def classified(count: int = 40, groups: int = 0) -> list[dict[str, object]]:
    samples: list[dict[str, object]] = [{"png": encoded(n), "cls": n * n % 7} for n in range(count)]
    for number, sample in enumerate(samples if groups else ()):
        sample["npy"] = np.array([number % groups, number], np.int64)
    return samples


def captioned(count: int = 12) -> list[dict[str, object]]:
    return [{"png": encoded(n), "txt": "\n".join(f"text {n} {k}" for k in range(5 + n % 2))} for n in range(count)]


def plan_of(protocol: str = "common", name: str = "cc3m", **datasets: tuple[str, ...]) -> EvaluationPlan:
    asked = {"tasks": tuple(datasets) or ("zero_shot",), "protocol": protocol, "datasets": datasets}
    return EvaluationPlan(DataSettings(name=name, rows=1000), EvaluateSettings.model_validate(asked))


def run(model: Model, plan: EvaluationPlan, out: RunWriter, at: float = 1.0) -> dict[tuple[str, str, str], Record]:
    evaluate_features(
        Features(*model, "c" * 64, plan.protocol.label, out.path("features"), plan.channels),
        plan,
        at=at,
        run="run",
        manifest=None,
        done=out.has_records,
        publish=out.write_records,
    )
    return {(r.dataset, r.metric, r.score): r for r in out.records()}


@pytest.fixture
def out(tmp_path: Path, writer: Callable[[RunStore], RunWriter]) -> RunWriter:
    return writer(RunStore(tmp_path / "run"))


def read_by_clip_benchmark(home: Path, transform: Callable[..., torch.Tensor]) -> tuple[Any, ...]:
    """Images [n, 3, H, W], labels [n], class names and prompts; webdataset warns, and leaves the tars open."""
    from clip_benchmark.datasets.builder import build_dataset

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = build_dataset("wds/cars", root=str(home), transform=transform, split="test", download=False)
        images, labels = zip(*found, strict=True)
        names, templates = found.classes, found.templates
        del found
        gc.collect()
    return torch.stack(images), torch.tensor(labels), names, templates


@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim:DeprecationWarning")  # in clip-benchmark
def test_values_are_clip_benchmarks_on_the_same_folder(
    model: Model, evaluation_folder: Path, webdataset_folder: Folder, out: RunWriter
) -> None:
    """The same tars through clip-benchmark's own reader, transform, prompts and metric."""
    from clip_benchmark.metrics import zeroshot_classification as peer
    from open_clip.transform import image_transform

    home = evaluation_folder / "wds_cars_test"
    webdataset_folder(home, classified(), shards=2, classes=CLASSES, templates=TEMPLATES)
    found = run(model, plan_of(zero_shot=("cars",)), out)
    towers = model[1].eval()
    transform = image_transform(32, is_train=False, mean=towers.channels[0], std=towers.channels[1])
    images, labels, names, templates = read_by_clip_benchmark(home, transform)
    with torch.no_grad():
        encoded_images = F.normalize(towers.encode_image(images), dim=-1)
        classifier = peer.zero_shot_classifier(towers, towers.tokenize, names, templates, "cpu", amp=False)
    expected = peer.accuracy(encoded_images @ classifier, labels, topk=(1, 5))
    values = [found["cars", f"top{k}", "cosine"].value for k in (1, 5)]
    assert values == pytest.approx(expected)
    assert 0 < values[0] < values[1] < 1


def test_the_suites_own_metrics_are_measured_under_prolip(
    evaluation_folder: Path, webdataset_folder: Folder, out: RunWriter
) -> None:
    samples, model = classified(60, groups=3), build("prolip")
    sets = {"pets": "mean_per_class_recall", "iwildcam": "f1_macro", "geode": "worst_region", "cifar10": "top1"}
    for name in sets:
        webdataset_folder(evaluation_folder / f"wds_{name}", samples, classes=CLASSES, templates=TEMPLATES)
    plan = plan_of("prolip", zero_shot=tuple(sets))
    found = run(model, plan, out)
    for name, metric in sets.items():
        assert found[name, "main", "csd"].value == found[name, metric, "csd"].value
    assert {record.protocol for record in found.values()} == {"prolip-1"}
    assert plan.tasks(1.0, None)[0].key(1.0) == "vprolip-1.100.zero_shot-class.pets"
    pairs = plan.load("pets")
    images = extract_images(*model, pairs)["embedding"]
    prompts = [extract_texts(*model, [t.replace("{}", n) for t in pairs.templates])["embedding"] for n in CLASSES]
    classes = F.normalize(torch.stack([F.normalize(p, dim=-1).mean(0) for p in prompts]), dim=-1)
    labels, predicted = pairs.labels["class"], (images @ classes.T).argmax(1).numpy()
    right = labels == predicted
    value = {name: found[name, metric, "cosine"].value for name, metric in sets.items()}
    assert value["pets"] == pytest.approx(balanced_accuracy_score(labels, predicted))
    assert value["iwildcam"] == pytest.approx(f1_score(labels, predicted, average="macro", labels=np.unique(labels)))
    assert value["geode"] == pytest.approx(min(right[np.arange(60) % 3 == group].mean() for group in range(3)))
    assert value["cifar10"] == pytest.approx(right.mean())


def test_other_protocols_have_no_main_metric(
    model: Model, evaluation_folder: Path, webdataset_folder: Folder, out: RunWriter
) -> None:
    webdataset_folder(evaluation_folder / "wds_pets", classified(), classes=CLASSES, templates=TEMPLATES)
    assert {metric for _, metric, _ in run(model, plan_of("ncu", zero_shot=("pets",)), out)} == {"top1", "top5"}


def test_pixels_are_as_each_paper_has_them(model: Model, evaluation_folder: Path, webdataset_folder: Folder) -> None:
    for name in ("cifar100", "cars"):
        webdataset_folder(evaluation_folder / f"wds_{name}", classified(8), classes=CLASSES, templates=TEMPLATES)
    webdataset_folder(evaluation_folder / "wds_flickr30k", captioned(8), kind="retrieval")
    cropped, squashed = (
        evaluation.load_evaluation_set("flickr30k", 32, how).images(np.arange(8)) for how in (CROP, SQUASH)
    )
    classes = {name: evaluation.load_evaluation_set(name, 32).images(np.arange(8)) for name in ("cifar100", "cars")}
    expected = {
        "common": {"flickr30k": (cropped, None), "cifar100": (classes["cifar100"], None)},
        "nuclr": {
            "flickr30k": (squashed, None),
            "cifar100": (classes["cifar100"], CIFAR_CHANNELS),
            "cars": (classes["cars"], IMAGENET_CHANNELS),
        },
        "ncu": {"flickr30k": (cropped, IMAGENET_CHANNELS), "cars": (classes["cars"], IMAGENET_CHANNELS)},
        "prolip": {"flickr30k": (cropped, None), "cars": (classes["cars"], None)},
    }
    method, towers = model
    towers.eval()
    for protocol, sets in expected.items():
        plan = plan_of(protocol)
        held = Features(method, towers, "c", plan.protocol.label, None, plan.channels)
        for name, (shown, channels) in sets.items():
            with torch.no_grad():
                images = normalise(shown, "cpu", channels or towers.channels)
                wanted = method.image_features(towers, images)["embedding"]
            found = held.images(plan.load(name))["embedding"]
            assert torch.allclose(found, wanted, atol=1e-5), f"{protocol} {name}"


def test_captions_are_five_or_all(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    webdataset_folder(evaluation_folder / "wds_flickr30k", captioned(), kind="retrieval")
    counts = {}
    for protocol in ("common", "prolip"):
        plan = plan_of(protocol, retrieval=("flickr30k",))
        counts[protocol] = {len(texts) for texts in plan.captions(plan.load("flickr30k"))}
    assert counts == {"common": {5}, "prolip": {5, 6}}


def test_retrieval_and_puzzles(
    model: Model, evaluation_folder: Path, webdataset_folder: Folder, out: RunWriter
) -> None:
    webdataset_folder(evaluation_folder / "wds_flickr30k", captioned(), kind="retrieval")
    names = [[f"{n} {slot}" for slot in range(10 if n % 2 else 5)] for n in range(6)]
    held = [[{"bytes": encoded(n * 10 + slot), "path": None} for slot in range(len(names[n]))] for n in range(6)]
    table = pa.table(
        {
            "candidates": names,
            "candidate_images": held,
            "cue": ["apple", "moon", "sea", "work", "ice", "ant"],
            "associations": [some[1:3] for some in names],
        }
    )
    cached = evaluation_folder / "hf_cache" / "nlphuji___winogavil"
    cached.mkdir(parents=True)
    with pa.ipc.new_stream(str(cached / "winogavil-test.arrow"), table.schema) as file:
        file.write_table(table)
    plan = plan_of("prolip", retrieval=("flickr30k", "winogavil"))
    found = run(model, plan, out)
    assert found["flickr30k", "main", "cosine"].value == found["flickr30k", "mean_r1", "cosine"].value
    assert found["winogavil", "main", "cosine"].value == found["winogavil", "jaccard_10_12", "cosine"].value
    ns = [found["winogavil", metric, "cosine"].n for metric in ("jaccard_10_12", "jaccard_5_6", "jaccard")]
    assert ns == [3, 3, 6]


def test_a_probe_whose_test_images_were_trained_on_is_refused(
    model: Model, evaluation_folder: Path, webdataset_folder: Folder, out: RunWriter
) -> None:
    """As of SUN397, whose test set is the whole set where nobody has split it."""
    samples = [{"png": encoded(n), "cls": n % 7} for n in range(35)]
    for split in ("train", "test"):
        folder = evaluation_folder / "wds_vtab-dtd"
        webdataset_folder(folder, samples[:5] if split == "train" else samples, split=split, classes=CLASSES)
    with pytest.raises(
        UserError, match=r"linear_probe/class of dtd: 5 of 35 test images are in dtd/train too; omit it"
    ):
        run(model, plan_of(linear_probe=("dtd",)), out)


def test_probes_learn_from_the_training_split(
    model: Model, evaluation_folder: Path, webdataset_folder: Folder, out: RunWriter
) -> None:
    home = evaluation_folder / "wds_vtab-dtd"
    for split in ("train", "test"):  # the same pixels in other files
        samples = [{"png": encoded(n % 7) + split.encode(), "cls": n % 7} for n in range(35)]
        webdataset_folder(home, samples, split=split, classes=CLASSES, templates=TEMPLATES)
    found = run(model, plan_of(linear_probe=("dtd",), adamw_probe=("dtd",)), out)
    assert {record.task for record in out.records()} == {"linear_probe/class", "adamw_probe/class"}
    assert found["dtd", "accuracy", ""].value == 1.0


def test_a_point_of_the_curve_is_the_first_data_sets_zero_shot(evaluation_folder: Path) -> None:
    plan = plan_of(zero_shot=("cars", "pets"), retrieval=("flickr30k",))
    assert [task.key(0.25) for task in plan.tasks(0.25, None)] == ["v1.025.zero_shot-class.cars"]
    assert plan.primary() == {"dataset": "cars", "task": "zero_shot/class", "metric": "top1"}
    assert plan.held_out == "flickr30k"
    assert not evaluation_folder.exists()


@pytest.mark.parametrize(("dataset", "held_out"), [("flickr30k", "flickr30k"), ("emoji/iid", "emoji/iid"), ("", "")])
def test_diagnostics_look_at_pairs_that_a_task_scores(dataset: str, held_out: str) -> None:
    """Runs on the embedded pairs that are measured on other sets only have their similarities, too."""
    wanted = EvaluateSettings(
        tasks=("zero_shot", "retrieval") if dataset else ("zero_shot",),
        datasets={"zero_shot": ("pets",), **({"retrieval": (dataset,)} if dataset else {})},
    )
    plan = EvaluationPlan(DataSettings(), wanted)
    assert plan.held_out == held_out


def test_a_plan_without_data_describes_what_is_published(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    plan = plan_of("prolip", zero_shot=("pets",), linear_probe=("dtd",), retrieval=("mscoco_captions",))
    facts = plan.datasets()
    assert facts["pets"]["n"] == 3669
    assert facts["pets"]["chance"]["zero_shot/class/main"] == pytest.approx(1 / 37)
    assert facts["dtd"]["chance"] == {"linear_probe/class/accuracy": pytest.approx(1 / 47)}
    assert facts["mscoco_captions"]["chance"]["retrieval/t2i_r1"] == pytest.approx(1 / 5000)
    assert [one.what for one in plan.missing()] == [
        "Oxford Pets (pets), zero_shot",
        "DTD (dtd), linear_probe",
        "DTD (dtd/train), linear_probe",
        "MSCOCO (mscoco_captions), retrieval",
    ]
    webdataset_folder(evaluation_folder / "wds_pets", classified(12), classes=CLASSES, templates=TEMPLATES)
    facts = plan.datasets()
    assert facts["pets"]["n"] == 12
    assert facts["pets"]["chance"]["zero_shot/class/top1"] == pytest.approx(1 / 7)
    assert len(plan.missing()) == 3


def test_a_set_of_ones_own_may_lie_elsewhere(evaluation_folder: Path, webdataset_folder: Folder) -> None:
    own = {"zero_shot": ("birds",), "linear_probe": ("birds",), "retrieval": ("postcards",)}
    plan = plan_of("prolip", **own)
    facts = plan.datasets()
    assert facts["birds"] == {"description": "birds, not downloaded yet", "n": 0, "chance": {}}
    assert facts["postcards"]["chance"] == {}
    gone = plan.missing()
    assert [one.what for one in gone] == [
        "birds (birds), zero_shot, linear_probe",
        "birds (birds/train), linear_probe",
        "postcards (postcards), retrieval",
    ]
    assert gone[2].looked == (str(evaluation_folder / "wds_postcards" / "test"),)
    put = "put webdataset tars there as clip_benchmark_export_wds writes them"
    assert gone[2].get == f"{put}; or bench data get postcards URL, where a URL has such tars"
    webdataset_folder(evaluation_folder / "wds_birds", classified(12), classes=CLASSES)
    cards = [{"png": one["png"], "txt": "a card"} for one in classified(12)]
    webdataset_folder(evaluation_folder / "wds_postcards", cards)
    webdataset_folder(evaluation_folder / "wds_postcards", cards, split="val")
    plan = plan_of("prolip", zero_shot=("birds",), retrieval=("postcards",), validation=("postcards",))
    assert plan.missing() == []
    facts = plan.datasets()
    assert facts["birds"]["chance"]["zero_shot/class/main"] == pytest.approx(1 / 7)
    assert facts["postcards"]["chance"]["retrieval/t2i_r1"] == pytest.approx(1 / 12)
    assert facts["postcards"]["chance"]["retrieval/main"] > 0


def test_defaults_cover_the_papers_tables() -> None:
    sets = PROTOCOLS["prolip"].datasets
    suite = [name for family in ("zero_shot", "shift", "retrieval") for name in sets[family]]
    assert len(suite) == len(set(suite)) == 38
    assert len(PROTOCOLS["common"].datasets["linear_probe"]) == 14
    assert len(PROTOCOLS["ncu"].datasets["zero_shot"]) == 16
    for protocol in PROTOCOLS:  # every data set fits its family
        plan = EvaluationPlan(DataSettings(name="cc3m"), EvaluateSettings(protocol=protocol))  # type: ignore[arg-type]
        assert plan.chosen


@pytest.mark.parametrize(
    ("family", "name", "message"),
    [
        ("zero_shot", "imagenet_a", "'imagenet_a' is not an evaluation data set; did you mean 'imagenet-a'"),
        ("retrieval", "Flickr30", "'Flickr30' is not an evaluation data set; did you mean 'flickr30k'"),
        ("zero_shot", "birds/test", "'birds/test' is not an evaluation data set; valid: "),
        ("noise_detection", "birds", "'birds': is measured on the training pairs alone"),
        ("zero_shot", "flickr30k", "'flickr30k' has no classes to be scored by"),
        ("retrieval", "cars", "'cars' has no captions to be scored by"),
        ("linear_probe", "imagenet-a", "'imagenet-a' has no training split for a probe to learn from"),
        ("validation", "winogavil", "'winogavil' has no validation split"),
        (
            "zero_shot",
            "emoji/openmoji",
            "'emoji/openmoji': zero_shot has no task on it, but on emoji/iid, ",
        ),
        ("noise_detection", "emoji", "'emoji': is measured on the training pairs alone"),
    ],
)
def test_a_wrong_name_is_said_when_the_suite_is_read(tmp_path: Path, family: str, name: str, message: str) -> None:
    suite = tmp_path / "suite.yaml"
    datasets = f"{{{family}: [{name}]}}"
    suite.write_text(f"name: mine\nbudget: {{epochs: 1}}\nmethods: [clip]\nevaluate: {{datasets: {datasets}}}\n")
    with pytest.raises(UserError, match=message) as error:
        load_suite(str(suite))
    assert f"evaluate.datasets.{family}" in str(error.value)


def test_embedded_data_keeps_its_own_sets_unless_others_are_named() -> None:
    own = EvaluationPlan(DataSettings(), EvaluateSettings())
    assert own.tasks(1.0, None)[0].key(1.0) == "v1.100.zero_shot-concept.emoji-iid"
    assert own.missing() == []
    mixed = plan_of(name="cc3m", zero_shot=("cars",)).asked
    plan = EvaluationPlan(DataSettings(), mixed.model_copy(update={"tasks": ("zero_shot", "retrieval")}))
    assert [task.dataset for task in plan.chosen] == ["cars", "emoji/iid", "emoji/openmoji"]


def test_sets_of_the_package_are_measured_by_transfer(
    model: Model,
    tmp_path: Path,
    writer: Callable[[RunStore], RunWriter],
    evaluation_folder: Path,
    webdataset_folder: Folder,
) -> None:
    """By runs on other data, whole ("emoji") or one by one, beside a folder of the user's own with such a name."""
    webdataset_folder(evaluation_folder / "wds_pets", classified(), classes=CLASSES, templates=TEMPLATES)
    webdataset_folder(evaluation_folder / "wds_flickr30k", captioned(), kind="retrieval")
    webdataset_folder(evaluation_folder / "wds_emoji", captioned(), kind="retrieval")
    named = {"zero_shot": ("emoji/novel", "pets"), "retrieval": ("emoji/iid", "flickr30k"), "shift": ("emoji",)}
    plan = plan_of(**named, linear_probe=("emoji", "digits/test", "emoji/iid"))
    assert [(task.name, task.dataset, task.train) for task in plan.chosen if task.family != "shift"] == [
        ("zero_shot/concept", "emoji/novel", ""),
        ("zero_shot/subgroup", "emoji/novel", ""),
        ("zero_shot/class", "pets", ""),
        ("linear_probe/subgroup", "emoji/iid", "emoji/train"),
        ("linear_probe/style", "emoji/iid", "emoji/train"),
        ("linear_probe/digit", "digits/test", "digits/train"),
        ("retrieval", "emoji/iid", ""),
        ("retrieval", "flickr30k", ""),
    ]
    assert [task.dataset for task in plan.chosen if task.family == "shift"][0::4] == ["emoji/openmoji", "emoji/near"]
    assert plan.missing() == []
    assert {*plan.wanted()} == {"pets", "flickr30k"}
    assert plan.held_out == "flickr30k"
    own = EvaluationPlan(DataSettings(), EvaluateSettings(tasks=("zero_shot", "shift", "linear_probe", "retrieval")))
    found, expected = (run(model, one, writer(RunStore(tmp_path / name))) for one, name in ((plan, "a"), (own, "b")))
    both = [key for key in found if key in expected]
    assert len({dataset for dataset, _, _ in both}) == 8
    assert [found[key].value for key in both] == [expected[key].value for key in both]


def test_sets_of_the_package_are_resized_to_what_the_model_sees() -> None:
    large = EvaluationPlan(DataSettings(name="cc3m", size=96), EvaluateSettings())
    assert large.load("emoji/novel").images(np.arange(2)).shape == (2, 96, 96, 3)
    assert dataset_facts(large.load("emoji/novel")) == dataset_facts(data.load_dataset("emoji/novel", 32))
    assert evaluation_workload(plan_of(retrieval=("emoji/iid",)), 1.0).images == len(data.load_dataset("emoji/iid", 32))


def test_training_pairs_pass_in_chunks_without_changing_a_number(
    model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pairs = data.load_dataset("emoji/iid", 32)
    manifest = shuffled_captions(pairs, 0.4, 0)
    held = Features(*model, "c", "1", tmp_path)
    whole = measures.pair_confidences(held, pairs, manifest)
    seen: list[int] = []
    model[1].visual.register_forward_hook(lambda _module, inputs, _output: seen.append(len(inputs[0])))
    again = measures.pair_confidences(Features(*model, "c", "1", tmp_path), pairs, manifest)
    assert seen == []  # kept through a kill
    assert torch.equal(again["confidence"], whole["confidence"])
    monkeypatch.setattr(measures, "CHUNK_PAIRS", 100)
    parts = measures.pair_confidences(Features(*model, "c", "1", None), pairs, manifest)
    assert max(seen) == 100
    torch.testing.assert_close(parts["confidence"], whole["confidence"])
    torch.testing.assert_close(parts["cosine"], whole["cosine"])


def test_features_in_memory_have_a_limit(model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(features, "HELD_BYTES", 2 * 4 * 32)
    held = Features(*model, "c", "1", tmp_path)
    seen: list[int] = []
    model[1].text.register_forward_hook(lambda _module, inputs, _output: seen.append(len(inputs[0])))
    for text in ("a", "b", "c"):
        held.texts([text])
    assert len(held._held) == 2
    held.texts(["a"])
    assert len(seen) == 3  # from the disk


def test_processes_keep_the_order_and_hand_on_mistakes(
    evaluation_folder: Path, webdataset_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pixels, "MIN_ROWS_PER_WORKER", 20)
    monkeypatch.setattr(pixels, "worker_count", lambda *_: 2)
    webdataset_folder(evaluation_folder / "wds_pets", classified(40), classes=CLASSES, templates=TEMPLATES)
    pairs = evaluation.load_evaluation_set("pets", 16)
    rows = np.random.default_rng(0).permutation(40)
    found = list(pixels.batches(pairs, rows, 17))
    assert [len(part) for part in found] == [17, 17, 6]
    np.testing.assert_array_equal(np.concatenate(found), pairs.images(rows))
    (evaluation_folder / "wds_pets" / "test" / "0.tar").write_bytes(b"overwritten")
    with pytest.raises(UserError, match=r"0\.tar: the image at byte \d+ cannot be read: the file ends"):
        list(pixels.batches(pairs, rows, 17))


def test_diagnostics_look_at_the_first_set_of_captions(
    evaluation_folder: Path, webdataset_folder: Folder, out: RunWriter
) -> None:
    webdataset_folder(evaluation_folder / "wds_flickr30k", captioned(), kind="retrieval")
    plan = plan_of(retrieval=("flickr30k",))
    diagnose(Features(*build("prolip"), "c" * 64, plan.protocol.label, None, plan.channels), plan, out, None)
    found = {entry["name"]: entry for entry in out.diagnostics()}
    assert found["similarity"]["title"] == "cosine similarity on flickr30k"
    assert found["similarity"]["series"]["positive"]["n"] == 12
    assert found["uncertainty"]["series"]["texts"]["n"] == 60
