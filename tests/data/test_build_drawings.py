"""The build tool of the drawings on a small copy of the packages, and the committed comparison on what it makes."""

from __future__ import annotations

import importlib
import json
import sys
import tarfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from bench import data, dry_run, run_suite
from bench.data.shards import indexing
from bench.data.shards.sources import expand_sources
from bench.errors import UserError
from bench.evaluation import EvaluationPlan
from bench.resources import published_folder
from bench.store import Store
from bench.suite.suite import load_suite

SUITE = published_folder().parent / "reference" / "drawings" / "suite.yaml"
SMALL = [
    "methods=[clip]",
    "seeds=[0]",
    "budget={samples: 64}",
    "train.batch=32",
    "towers.dim=8",
    "towers.vocabulary=300",
]
SVG = "<svg><dc:title>{}</dc:title><rdf:li>{}</rdf:li><rdf:li>drawing</rdf:li></svg>"


@pytest.fixture(scope="module")
def tool() -> Iterator[ModuleType]:
    folder = str(Path(__file__).parents[2] / "tools")
    sys.path.insert(0, folder)
    try:
        yield importlib.import_module("build_drawings")
    finally:
        sys.path.remove(folder)


@pytest.fixture
def packages(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders as Debian's packages have them: openclipart with titles and keywords, stamps with a sentence, icons."""
    home, pairs = tmp_path / "usr", data.load_dataset("emoji/train", 64)
    drawn = iter(np.random.default_rng(0).permutation(len(pairs)).tolist())

    def draw(path: Path, width: int = 64) -> str:
        row = next(drawn)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pairs.images(np.array([row]))[0]).resize((width, 64)).save(path)
        return pairs.captions(row)[0]

    for label in ("animals", "signs_and_symbols"):
        for number in range(70):
            title = draw(home / "openclipart" / "png" / label / f"picture_{number:02d}.png", 64 + number)
            svg = home / "openclipart" / "svg" / label / f"picture_{number:02d}.svg"
            svg.parent.mkdir(parents=True, exist_ok=True)
            svg.write_text(SVG.format(title, "key_word"))
    for number in range(10):
        draw(home / "openclipart" / "png" / "rare" / f"few {number}.png")
        stamp = home / "stamps" / "plants" / f"{number}.png"
        draw(stamp)
        stamp.with_suffix(".txt").write_text("A sentence.\nfr=Une phrase.\n" if number else "")
        draw(home / "icons" / "apps" / f"text-editor_{number}.png")
    (home / "icons" / "apps" / "link.png").symlink_to("text-editor_0.png")
    (home / "icons" / "apps" / "twin.png").write_bytes((home / "icons" / "apps" / "text-editor_0.png").read_bytes())
    Image.new("RGBA", (8, 8)).save(home / "icons" / "apps" / "nothing.png")
    monkeypatch.setattr(tool, "CLIPART", home / "openclipart")
    monkeypatch.setattr(tool, "STAMPS", home / "stamps")
    monkeypatch.setattr(tool, "THEMES", (home / "icons",))
    return home


def build(tool: ModuleType, out: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", ["build_drawings.py", str(out), "--shards", "3", *options])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)  # the tool sets it for its process
    tool.main()


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]


def test_what_the_tool_writes(
    tool: ModuleType,
    packages: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    build(tool, tmp_path / "data", monkeypatch, "--size", "48")
    shards = [members(path) for path in sorted((tmp_path / "data" / "drawings").glob("*.tar"))]
    texts = [content.decode() for shard in shards for name, content in shard.items() if name.endswith(".txt")]
    test = members(tmp_path / "data" / "evaluation" / "wds_drawings_captions" / "test" / "0.tar")
    held = [content.decode().split("\n") for name, content in test.items() if name.endswith(".txt")]
    assert len(shards) == 3
    assert len(texts) + len(held) == 140 + 10 + 9 + 10, "no link, no twin, no empty picture, no stamp without a text"
    assert f"{len(texts)} training pairs in 3 shards; {len(held)} test images of 2 classes" in capsys.readouterr().out
    assert 5 <= len(held) <= 30
    assert texts.count("A sentence.") == 9
    assert sum(text.startswith("text editor ") and text.endswith(" apps icon") for text in texts) == 10
    assert sum(text.startswith("few ") for text in texts) == 10, "a drawing without an SVG has its file's name"
    title, name, words, place, keyword = next(captions for captions in held if len(captions) == 5)
    assert name.startswith("picture ")
    assert (words, keyword) == ("key word, drawing", "key word")
    assert place in (f"{title}, animals", f"{title}, signs and symbols")
    first = {name.partition(".")[2]: content for name, content in islice(shards[0].items(), 3)}
    about = json.loads(first["json"])
    assert (about["key"], about["caption"]) == ("000000000", first["txt"].decode())
    names = (tmp_path / "data" / "evaluation" / "wds_drawings" / "classnames.txt").read_text()
    assert names == "animals\nsigns and symbols\n"
    with Image.open(packages / "openclipart" / "png" / "animals" / "picture_32.png") as whole:
        assert whole.size == (96, 64)
    picture = tool.jpeg(packages / "openclipart" / "png" / "animals" / "picture_32.png", 48)
    assert any(picture == content for shard in (*shards, test) for content in shard.values())


@pytest.mark.usefixtures("packages")
def test_the_committed_comparison_runs_on_it(
    tool: ModuleType, evaluation_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, small = load_suite(SUITE), load_suite(SUITE, SMALL)
    assert (len(whole.methods), whole.seeds, whole.noise[0].rates) == (12, (0, 1, 2, 3, 4), (0.0,))
    assert {run.block for run in whole.cells()} == {"natural noise"}
    primary = EvaluationPlan(whole.data, whole.evaluate).primary()
    assert primary == {"dataset": "drawings_captions", "task": "retrieval", "metric": "mean_recall"}
    root = evaluation_folder.parent
    lines = dry_run(small, tmp_path / "results")
    assert "    get them: do what data.get of the suite says, if you trust whoever wrote it" in lines
    assert sum(line.startswith("missing: ") for line in lines) == 4, "pairs, and three splits of two sets"
    with pytest.raises(UserError, match="lacks these inputs"):
        run_suite(small, tmp_path / "results")

    build(tool, root, monkeypatch, "--size", "64")
    found = expand_sources([str(root / "drawings")])
    indexing.build_index(found, workers=1)
    run_suite(small, tmp_path / "results", jobs=1)
    store = Store(tmp_path / "results")
    plan = store.plan("drawings")
    assert plan is not None
    assert [noise["label"] for noise in plan["noises"]] == ["natural noise"]
    (cell,) = plan["cells"]
    measured = {(one.dataset, one.task) for one in store.run(cell["run"]).records()}
    assert {("drawings_captions", "retrieval"), ("emoji/openmoji", "retrieval")} < measured
    assert {("drawings", "linear_probe/class"), ("emoji/near", "shift/concept")} < measured
    assert len(measured) == 16
