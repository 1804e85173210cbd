"""Encoded images to batches: the same for any workers, ranks and starts; errors come out, processes end."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import subprocess
import tarfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import ForkServerProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
import torch
from PIL import Image

from bench.checks.lab import TinyTowers
from bench.data import shards
from bench.data.noise.shuffled import Resampled
from bench.data.shards import indexing
from bench.data.shards.sources import expand_sources
from bench.errors import UserError
from bench.loading.loader import HostRows, Loader
from bench.loading.workers import CHUNK_BYTES, CHUNK_ROWS, buffer_sizes
from bench.store import RunStore, RunWriter, Store
from bench.suite.run import Run
from bench.suite.settings import Budget, DataSettings, TowerSettings, TrainSettings
from bench.training.checkpoint import weights_name
from bench.training.inputs import InputsReader
from bench.training.job import make_job
from bench.training.loop import Interrupted, TrainingJob, train
from bench.training.schedule import ResolvedSteps
from methods.protocol import Clock, Rows

from ..towers.small import a_run

#: torch's word on more workers than cores; they may be as many as one likes
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

SHARDS, IN_EACH, BATCH = 3, 18, 16  #: three steps an epoch and six rows over
WHOLE = slice(0, BATCH)


def workers_of_loaders() -> list[BaseProcess]:
    """The processes that loaders started; ranks of `bench check` may be left by other tests of this process."""
    return [one for one in multiprocessing.active_children() if not isinstance(one, ForkServerProcess)]


def write_shards(folder: Path, spoiled: str = "") -> None:
    """Crops of scikit-learn's two photographs, as img2dataset leaves them; the image of a key may end in zeros."""
    images = sorted((Path(sklearn.datasets.__file__).parent / "images").glob("*.jpg"))
    pictures = [Image.open(path) for path in images]
    draws = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(SHARDS):
        with tarfile.open(folder / f"{shard:05d}.tar", "w") as archive:
            for number in range(IN_EACH):
                key, (left, top, w, h) = (
                    f"{shard:05d}{number:04d}",
                    draws.integers((0, 0, 60, 60), (400, 250, 200, 160)),
                )
                file = io.BytesIO()
                pictures[number % 2].crop((left, top, left + w, top + h)).save(file, "JPEG")
                image = file.getvalue()
                if key == spoiled:
                    image = image[:900] + bytes(len(image) - 900)
                for name, data in ((f"{key}.jpg", image), (f"{key}.txt", f"picture {number} of {w}".encode())):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "photographs"
    write_shards(folder)
    indexing.build_index(expand_sources([str(folder)]), folder / "index.parquet", workers=1)
    return folder


def settings(folder: Path, workers: int | None = None) -> DataSettings:
    return DataSettings(name="photographs", size=32, shards=str(folder), block=2, workers=workers)


def loader(folder: Path, workers: int = 0, recipe: str = "prolip") -> Loader:
    return Loader(
        shards.load_shard_pairs(settings(folder)),
        Resampled(rate=0.25, seed=1),
        TinyTowers(),
        batch=BATCH,
        seed=1,
        recipe=recipe,
        dtype=torch.float64,
        device=torch.device("cpu"),
        workers=workers,
    )


@dataclass
class Taken:
    """What a stretch of steps gave, all its micro-batches put together."""

    pixels: torch.Tensor  #: [views, rows, 32, 32, 3]
    tokens: torch.Tensor
    captions: list[str]
    ids: torch.Tensor

    def same(self, other: Taken) -> None:
        assert self.captions == other.captions
        for one, two in ((self.pixels, other.pixels), (self.tokens, other.tokens), (self.ids, other.ids)):
            assert torch.equal(one, two)


def held(loader: Loader, step: int, share: slice = WHOLE, size: int = BATCH, views: int = 1) -> list[HostRows]:
    """The micro-batches of a step."""
    return list(loader.micro_batches(Clock(step, "train", 0.0, 0), share, size, views))


def taken(loader: Loader, steps: range, shares: tuple[slice, ...] = (WHOLE,), size: int = BATCH) -> Taken:
    """One share after the other of each step; a share is a rank's, so each has a loader of its own in earnest."""
    parts = [part for step in steps for share in shares for part in held(loader, step, share, size)]
    pixels = torch.stack([torch.cat([part.pixels[view] for part in parts]) for view in range(2)])
    tokens, ids = torch.cat([part.tokens for part in parts]), torch.cat([part.ids for part in parts])
    return Taken(pixels, tokens, [caption for part in parts for caption in part.captions], ids)


@pytest.fixture(scope="module")
def expected(folder: Path) -> Taken:
    """Seven steps, over two ends of epochs, made in this process."""
    made = taken(loader(folder), range(7))
    assert made.pixels.dtype == torch.uint8
    assert len(set(made.ids[: 3 * BATCH].tolist())) == 3 * BATCH
    assert not torch.equal(made.pixels[0], made.pixels[1]), "views differ"
    return made


@pytest.mark.promise("batches are the same for any packing, number of workers and ranks, and after a resume")
@pytest.mark.parametrize(("workers", "size"), [(0, 5), (1, BATCH), (2, 5), (3, 1)])
def test_workers_and_micro_batches_are_nothing(folder: Path, expected: Taken, workers: int, size: int) -> None:
    with closing(loader(folder, workers)) as one:
        taken(one, range(7), size=size).same(expected)
        assert len(workers_of_loaders()) == workers
    assert not workers_of_loaders()


def test_with_no_shared_memory_to_spare_the_rows_are_the_same(
    folder: Path, expected: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.loading.workers.MAX_BUFFER_BYTES", 0)
    with closing(loader(folder, 2)) as one:
        taken(one, range(7), size=5).same(expected)


def where(captions: list[str], context: int) -> torch.Tensor:
    """The number of the process that is asked for tokens, once a caption."""
    return torch.full((len(captions), context), os.getpid())


def test_the_training_process_makes_no_tokens(folder: Path) -> None:
    with closing(loader(folder, 2)) as one:
        one.towers.tokenizer = partial(where, context=16)
        parts = [part for step in range(4) for part in held(one, step, size=5)]
        workers = {child.pid for child in workers_of_loaders()}
    assert all(part.tokens.shape == (len(part.captions), 16) for part in parts)
    assert {int(number) for part in parts for number in part.tokens.unique()} == workers


def test_small_rows_come_in_large_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """To receive one costs the training process about 1 ms. No worker is left without work, and none holds much."""
    monkeypatch.setattr("bench.loading.workers.SHARED_MEMORY", Path("/nowhere"))
    small, photo = 32 * 32 * 3 + 77 * 8, 224 * 224 * 3 + 77 * 8
    assert buffer_sizes(small, 1024, 1, 1) == (512, 1024)
    assert buffer_sizes(small, 65536, 1, 1) == (CHUNK_BYTES // small, 65536)
    assert buffer_sizes(small, 1024, 16, 1) == (32, 1024)
    assert buffer_sizes(photo, 1024, 1, 1)[0] * photo <= CHUNK_BYTES
    assert buffer_sizes(9 * photo, 1024, 1, 1) == (CHUNK_ROWS, 1024)


def test_ranks_take_their_shares_of_the_same_batches(folder: Path, expected: Taken) -> None:
    for share in (slice(0, 8), slice(8, 16)):
        with closing(loader(folder, 2)) as rank:
            found = taken(rank, range(7), (share,), size=4)
        chosen = torch.arange(7 * BATCH).reshape(7, BATCH)[:, share].flatten()
        assert torch.equal(found.pixels, expected.pixels[:, chosen])
        assert torch.equal(found.ids, expected.ids[chosen])
        assert found.captions == [expected.captions[i] for i in chosen.tolist()]


@pytest.mark.parametrize("first", [1, 4])
def test_any_step_can_be_the_first_and_any_the_next(folder: Path, expected: Taken, first: int) -> None:
    with closing(loader(folder, 2)) as one:
        for steps in (range(first, 6), range(first - 1, first + 1)):
            here = slice(steps.start * BATCH, steps.stop * BATCH)
            found = taken(one, steps)
            assert torch.equal(found.pixels, expected.pixels[:, here])
            assert torch.equal(found.ids, expected.ids[here])


def test_a_step_given_up_half_way_does_not_shift_the_next(folder: Path, expected: Taken) -> None:
    with closing(loader(folder, 2)) as one:
        next(one.micro_batches(Clock(0, "train", 0.0, 0), WHOLE, 4, 1))
        assert torch.equal(taken(one, range(1, 2)).pixels, expected.pixels[:, BATCH : 2 * BATCH])


def test_workers_leave_torchs_generator_alone(folder: Path) -> None:
    before = torch.random.get_rng_state()
    with closing(loader(folder, 1)) as one:
        held(one, 0)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_image_that_cannot_be_read_is_named(tmp_path: Path, workers: int) -> None:
    at = tmp_path / "spoiled"
    write_shards(at)
    indexing.build_index(expand_sources([str(at)]), at / "index.parquet", workers=1)
    write_shards(at, spoiled="000010007")
    with closing(loader(at, workers)) as one, pytest.raises(UserError) as caught:
        taken(one, range(3))
    assert "00001.tar" in str(caught.value)
    assert "'000010007'" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert not workers_of_loaders()


def test_a_process_that_dies_is_an_error_and_no_wait(folder: Path) -> None:
    with closing(loader(folder, 2)) as one:
        held(one, 0)
        os.kill(workers_of_loaders()[0].pid or 0, signal.SIGKILL)
        with pytest.raises(RuntimeError, match=r"killed by signal|exited unexpectedly|died"):
            taken(one, range(1, 200))
    assert not workers_of_loaders()


def test_a_signal_to_all_processes_ends_no_worker(folder: Path, expected: Taken) -> None:
    with closing(loader(folder, 2)) as one:
        held(one, 0)
        for child in workers_of_loaders():
            for number in (signal.SIGINT, signal.SIGTERM):
                subprocess.run(["kill", f"-{number}", str(child.pid)], check=True)  # not from its parent
        assert torch.equal(taken(one, range(1, 7)).pixels, expected.pixels[:, BATCH:])
        assert len(workers_of_loaders()) == 2


def latent_run(folder: Path, workers: int, **train: Any) -> Run:
    return a_run(
        "latent",
        data=settings(folder, workers),
        noise="shuffled_captions",
        rate=0.3,
        budget=Budget(samples=5 * BATCH),
        towers=TowerSettings(dim=16, vocabulary=200),
        train=TrainSettings(batch=BATCH, bn_group=4, threads=1, augment="nuclr", **train),
    )


def a_job(run: Run, results: Path, name: str, writer: Callable[[RunStore], RunWriter]) -> TrainingJob:
    store = Store(results)
    resolved = ResolvedSteps((("train", 5),), {"train": 0}, BATCH, SHARDS * IN_EACH // BATCH)
    job = make_job(run, InputsReader().inputs(run), resolved, writer(store.run(name)), None, torch.device("cpu"))
    job.log_every = 1
    return job


def test_a_training_stopped_in_mid_epoch_goes_on_to_the_same_weights(
    folder: Path, tmp_path: Path, writer: Callable[[RunStore], RunWriter]
) -> None:
    whole = a_job(latent_run(folder, 0), tmp_path, "whole", writer)
    ledger = train(whole)
    stopped = a_job(latent_run(folder, 2), tmp_path, "parts", writer)
    stopped.should_stop = iter([False, True]).__next__
    with pytest.raises(Interrupted):
        train(stopped)
    assert not workers_of_loaders()
    resumed = a_job(latent_run(folder, 1), tmp_path, "parts", writer)
    train(resumed)
    store = Store(tmp_path)
    assert list(store.run("whole").metrics()) == list(store.run("parts").metrics())
    weights = [store.run(name).path(weights_name(1.0)) for name in ("whole", "parts")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert 0 < ledger.data_seconds < ledger.train_seconds


def test_only_one_micro_batch_is_the_towers_input_at_a_time(
    folder: Path, tmp_path: Path, writer: Callable[[RunStore], RunWriter]
) -> None:
    """The others of the global batch wait as bytes."""
    made: list[weakref.ref[torch.Tensor]] = []
    most = 0

    class Watched(Loader):
        def on_device(self, held: HostRows) -> Rows:
            nonlocal most
            assert {view.dtype for view in held.pixels} == {torch.uint8}
            rows = super().on_device(held)
            made.append(weakref.ref(rows.images))
            most = max(most, sum(one() is not None for one in made))
            return rows

    job = a_job(latent_run(folder, 0, micro_batch=4), tmp_path, "micro", writer)
    job.loader.__class__ = Watched
    train(job)
    assert len(made) == 2 * 5 * BATCH / 4
    assert most == 1


SUITE = """
name: photographs
data: {{name: photographs, size: 32, shards: {shards}, workers: 2}}
budget: {{samples: {samples}}}
towers: {{dim: 16, vocabulary: 200}}
train: {{batch: 16, bn_group: 4, threads: 1, augment: openclip, checkpoint_seconds: 0.2}}
evaluate: {{tasks: [noise_detection]}}
noise: {{rates: [0.4]}}
methods: [clip]
"""


def alive(group: int) -> Iterator[int]:
    """Processes of a process group, without those that only wait to be reaped."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = stat.read_text().rsplit(")", 1)[1].split()[:3]
        except OSError:
            continue
        if int(of) == group and state != "Z":
            yield int(stat.parent.name)


def test_an_interrupted_command_leaves_no_process(
    start_bench: Callable[..., Any], folder: Path, tmp_path: Path
) -> None:
    """The signal goes to every process, as terminals and schedulers send it."""
    suite = tmp_path / "photographs.yaml"
    suite.write_text(SUITE.format(shards=folder, samples=16_000_000))
    process = start_bench("run", suite, "--results", tmp_path / "out")
    logged = lambda: any(path.stat().st_size for path in tmp_path.glob("out/runs/*/metrics.jsonl"))  # noqa: E731
    process.wait_until(logged, "the first line of metrics")
    assert len(list(alive(process.pid))) == 3
    os.killpg(process.pid, signal.SIGTERM)
    code, output = process.finish()
    assert code == 75, output
    (status,) = tmp_path.glob("out/runs/*/status.json")
    assert json.loads(status.read_text())["state"] == "interrupted", output
    assert not list(alive(process.pid))
