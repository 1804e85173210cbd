"""Losses of 20 steps on both towers, stored: whoever changes what the runner computes must say so.

`python tests/training/test_golden.py` writes them anew.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
import torch

from bench.catalogue.architectures import IMAGE_TOWERS
from bench.planning.planner import plan
from bench.store import Store, writing
from bench.suite.run import TRAINING_VERSION, Run
from bench.suite.settings import Budget, DataSettings, EvaluateSettings, TowerSettings, TrainSettings
from bench.training.inputs import InputsReader
from bench.training.job import make_job
from bench.training.loop import train

GOLDEN = Path(__file__).with_name("golden.json")


def losses(image_tower: str, folder: Path) -> list[float]:
    """20 steps of CLIP with 20 % noise, in fp64 so that processors agree."""
    run = Run(
        label="golden",
        method="clip",
        preset=None,
        config={"temperature": 0.07, "learnable_scale": True},
        data=DataSettings(),
        noise="shuffled_captions",
        rate=0.2,
        noise_file=None,
        seed=0,
        budget=Budget(samples=20 * 16),
        towers=TowerSettings(image=image_tower, dim=32, vocabulary=400),
        train=TrainSettings(batch=16, bn_group=8, precision="fp64", threads=1),
        evaluate=EvaluateSettings(),
    )
    store = Store(folder)
    with writing(store.run("golden")) as out:
        resolved = plan([run], store)[0].resolved
        job = make_job(run, InputsReader().inputs(run), resolved, out, None, torch.device("cpu"))
        job.log_every = 1
        train(job)
    return [line["loss"] for line in store.run("golden").metrics()]


@pytest.mark.promise("20 steps give the stored losses, or TRAINING_VERSION must rise")
@pytest.mark.parametrize("image_tower", sorted(IMAGE_TOWERS))
def test_training_gives_the_stored_losses(image_tower: str, tmp_path: Path) -> None:
    golden = json.loads(GOLDEN.read_text())
    assert golden["training_version"] == TRAINING_VERSION, "write the golden losses of this version"
    assert losses(image_tower, tmp_path) == pytest.approx(golden["losses"][image_tower], rel=1e-6), (
        "the runner computes something else than it did: bump TRAINING_VERSION in bench/identity.py, "
        "then write the golden losses anew"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        found = {name: losses(name, Path(scratch) / name) for name in sorted(IMAGE_TOWERS)}
    GOLDEN.write_text(json.dumps({"training_version": TRAINING_VERSION, "losses": found}, indent=1) + "\n")
