"""Which towers reach most for the same time of one core: the table of docs/measurements.md.

    python tools/tower_search.py --results /tmp/towers --steps 500 --seeds 0 1 --image test_resnet res-16-64-128

Every pair of towers trains CLIP on the emoji pack with 40 % shuffled captions, and CLIP on the pairs known to be clean
(the oracle), for the CPU time of so many steps of the reference (`test_resnet` with `w64-l1`). Steps of both are timed
in turn, so a busy machine slows both. A line a pair: MFLOPs of a pair, steps, the time of a step in steps of the
reference, and mean recall on validation pairs. Towers are chosen by validation alone; test sets stay untouched.
Started again, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import torch
from torch import Tensor, nn

import bench
from bench import run_suite
from bench.catalogue.architectures import IMAGE_TOWERS, TEXT_TOWERS, Config
from bench.catalogue.tower_families import TOWER_FAMILIES, ImageTowers, TextTowers, TowerFamily
from bench.planning.flops import pair_price
from bench.planning.timing import time_steps
from bench.store import Store
from bench.suite.run import Run
from bench.suite.suite import Suite, load_suite
from bench.training.inputs import Inputs, InputsReader

SUITE = """\
name: towers-{name}
description: A candidate of the search for towers
data: {{name: emoji, size: {size}}}
noise: {{kind: shuffled_captions, rates: [0.4]}}
seeds: [{seeds}]
budget: {{samples: {samples}}}
towers: {{image: {image}, text: {text}, dim: {dim}, vocabulary: 2048}}
train:
  {{batch: {batch}, lr: {lr}, precision: {precision}, weight_decay: 0.1, betas: [0.9, 0.98], eps: 1.0e-6, warmup: 0.1}}
evaluate: {{tasks: [validation, zero_shot]}}
methods:
  - clip
  - {{method: clip, label: oracle, keep: oracle}}
"""


def byob(stem: int, *stages: tuple[int, int, int], pool: str = "", kind: str = "basic") -> Config:
    """A residual network of timm: a 3 x 3 stem that halves the image, then stages of (channels, stride, blocks)."""
    return {"stem": stem, "stages": stages, "pool": pool, "kind": kind}


#: name -> an open_clip `vision_cfg`, or a `byob`
IMAGES: dict[str, Config] = {
    "test_resnet": IMAGE_TOWERS["tiny-resnet"],
    **{
        name: {"timm_model_name": name, "timm_pool": "avg", "timm_proj": "linear"}
        for name in ("resnet10t", "test_byobnet", "test_convnext2")
    },
    "vit-p8-w192-l3": {"layers": 3, "width": 192, "head_width": 64, "patch_size": 8, "pool_type": "avg"},
    "vit-p4-w128-l2": {"layers": 2, "width": 128, "head_width": 64, "patch_size": 4, "pool_type": "avg"},
    "res-16-32-64-128": byob(16, (32, 1, 1), (64, 2, 1), (128, 2, 1)),
    "res-16-64-128": byob(16, (64, 2, 1), (128, 2, 1)),
    "res-16-64-128-256": byob(16, (64, 2, 1), (128, 2, 1), (256, 2, 1)),
    "res-32-64-128": byob(32, (64, 2, 1), (128, 2, 1)),
    "res-32-64x2-128x2": byob(32, (64, 2, 2), (128, 2, 2)),
    "res-32-96-192": byob(32, (96, 2, 1), (192, 2, 1)),
    "res-pool-32-64-128": byob(32, (64, 1, 1), (128, 2, 1), pool="maxpool"),
    "res-pool-32-64-128-256": byob(32, (64, 1, 1), (128, 2, 1), (256, 2, 1), pool="maxpool"),
    "bottle-32-128-256": byob(32, (128, 2, 1), (256, 2, 1), kind="bottle"),
    "rep-32-64-128-256": byob(32, (64, 2, 1), (128, 2, 1), (256, 2, 1), kind="rep"),
}
#: name -> an open_clip `text_cfg`
TEXTS: dict[str, Config] = {
    "w64-l1": TEXT_TOWERS["tiny-transformer"],
    "w128-l1": {"context_length": 24, "width": 128, "heads": 2, "layers": 1},
    "w64-l1-c16": {"context_length": 16, "width": 64, "heads": 1, "layers": 1},
}


class Byob(nn.Module):
    """A ByobNet of timm and a projection without a bias."""

    def __init__(self, config: Config, dim: int) -> None:
        from timm.models.byobnet import ByoBlockCfg, ByobNet, ByoModelCfg

        super().__init__()
        ratio = 0.25 if config["kind"] == "bottle" else 1.0
        blocks = tuple(
            ByoBlockCfg(type=config["kind"], d=blocks, c=channels, s=stride, gs=0, br=ratio)
            for channels, stride, blocks in config["stages"]
        )
        cfg = ByoModelCfg(blocks=blocks, stem_type="3x3", stem_pool=config["pool"], stem_chs=config["stem"])
        self.trunk = ByobNet(cfg, num_classes=0, global_pool="avg")
        self.project = nn.Linear(self.trunk.num_features, dim, bias=False)

    def pooled(self, images: Tensor) -> Tensor:
        out: Tensor = self.trunk(images)
        return out

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.project(self.pooled(images))
        return out


def _build(name: str, config: Config, dim: int) -> nn.Module:
    from bench.towers.build import open_clip_image

    return Byob(config, dim) if "stages" in config else open_clip_image(name, config, dim)


def add_candidates() -> None:
    """Make all candidates known to suites."""
    old = TOWER_FAMILIES["small"]
    assert old.image is not None
    assert old.text is not None
    image = ImageTowers(
        names=IMAGES.keys,
        config=lambda name, size, _dim: {**IMAGES[name], "image_size": size},
        content=lambda name: IMAGES[name],
        build=_build,
    )
    text: TextTowers = replace(
        old.text, names=TEXTS.keys, config=lambda name: TEXTS[name], content=lambda name: TEXTS[name]
    )
    TOWER_FAMILIES.add(TowerFamily(name="candidates", summary="of the search for towers", image=image, text=text))


@dataclass(frozen=True)
class Score:
    """What a pair of towers reached on validation pairs: mean recall, over seeds."""

    pair: float  #: MFLOPs of an image and a text
    steps: int
    cost: float  #: CPU time of a step, in those of the reference
    baseline: list[float]
    oracle: list[float]

    def line(self, name: str) -> str:
        gaps = [b - a for a, b in zip(self.baseline, self.oracle, strict=True)]
        spread = stdev(gaps) if len(gaps) > 1 else math.nan
        numbers = (mean(self.baseline), mean(self.oracle), mean(gaps), spread)
        percent = " ".join(f"{100 * number:6.2f}" for number in numbers)
        return f"{name:<40} {self.pair:6.2f} {self.steps:6d} {self.cost:6.2f} {percent}"


def cpu_of(run: Run, inputs: Inputs, steps: int) -> float:
    """CPU seconds of so many steps, and of what is done around them."""
    start = time.process_time()
    time_steps(run, inputs, steps)
    return time.process_time() - start


def relative_cost(suite: Suite, reference: Suite, rounds: int) -> float:
    """CPU time of a step of CLIP, in those of the reference: the median of rounds in turn."""
    both = [(one.runs()[0], InputsReader().inputs(one.runs()[0])) for one in (suite, reference)]
    ratios = []
    for _ in range(rounds):
        own, base = (cpu_of(*one, 24) - cpu_of(*one, 4) for one in both)
        ratios.append(own / base)
    return median(ratios)


def score(suite: Suite, store: Store, cost: float) -> Score:
    """Train what is not trained yet, and read what it reached."""
    summary = run_suite(suite, store.root, jobs=1)
    if summary.failed:
        raise SystemExit(f"{suite.name}: {summary.failed}")
    frame = bench.Results(store.root, suite.name).records()
    frame = frame[frame["at"] == 1.0]
    value = frame[(frame.task == "validation") & (frame.metric == "mean_recall")].sort_values("seed")
    of = {label: list(rows["value"]) for label, rows in value.groupby("label")}
    run = suite.runs()[0]
    price = pair_price(run, InputsReader().for_model(run)) / 1e6
    steps = round(run.budget.value / run.train.batch)
    return Score(price, steps, cost, of["clip"], of["oracle"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=500, help="of the reference, in batches of 128")
    parser.add_argument("--rounds", type=int, default=3, help="in which steps are timed, in turn with the reference")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--image", nargs="*", default=list(IMAGES))
    parser.add_argument("--text", nargs="*", default=["w64-l1"])
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--precision", default="fp32")
    asked = parser.parse_args()
    add_candidates()
    torch.set_num_threads(1)
    asked.results.mkdir(parents=True, exist_ok=True)
    heads = ("MFLOP", "steps", "cost", "clip", "oracle", "gap", "sd")
    print(f"{'towers':<40} " + " ".join(f"{head:>6}" for head in heads))
    common = {**vars(asked), "seeds": ", ".join(map(str, asked.seeds))}
    base = {"size": 32, "dim": 128, "batch": 128, "lr": 2e-3, "precision": "fp32", "samples": 128}
    reference = _suite("reference", {**common, **base, "image": "test_resnet", "text": "w64-l1"})
    for image in asked.image:
        for text in asked.text:
            name = f"{image}-{text}-{asked.size}-{asked.dim}-{asked.batch}-{asked.lr:g}-{asked.precision}"
            own = {**common, "image": image, "text": text}
            cost = kept_cost(
                asked.results / f"{name}.cost", _suite(name, {**own, "samples": asked.batch}), reference, asked.rounds
            )
            samples = round(asked.steps / cost) * asked.batch
            suite = _suite(f"{name}-{asked.steps}", {**own, "samples": samples})
            print(score(suite, Store(asked.results), cost).line(name), flush=True)


def kept_cost(file: Path, suite: Suite, reference: Suite, rounds: int) -> float:
    """The relative cost in a file; measured once, so that a search that goes on keeps its steps."""
    if not file.exists():
        file.write_text(f"{relative_cost(suite, reference, rounds):.3f}")
    return float(file.read_text())


def _suite(name: str, settings: dict[str, Any]) -> Suite:
    file = settings["results"] / f"{name}.yaml"
    file.write_text(SUITE.format(**{**settings, "name": name}))
    return load_suite(file)


if __name__ == "__main__":
    main()
