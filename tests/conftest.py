"""One thread a process: two cores shared by parallel tests are faster so, and results do not depend on the machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("MPLBACKEND", "agg")

import bench.torchvision_fix  # noqa: F401  before anything imports torchvision
from bench.store import RunStore, RunWriter, writing


@pytest.fixture
def writer() -> Iterator[Callable[[RunStore], RunWriter]]:
    """The writer of a run, whose claim is held until the test ends; the same call again gives the same one."""
    with ExitStack() as stack:
        writers: dict[Path, RunWriter] = {}

        def of(run: RunStore) -> RunWriter:
            if run.folder not in writers:
                writers[run.folder] = stack.enter_context(writing(run))
            return writers[run.folder]

        yield of


def write_webdataset(
    folder: Path,
    samples: Sequence[dict[str, object]],
    *,
    split: str = "test",
    shards: int = 1,
    classes: Sequence[str] = (),
    templates: Sequence[str] = (),
    kind: str = "",
) -> Path:
    """A split as `clip_benchmark_export_wds` leaves it, written by the same writer; parts of a sample by extension."""
    import webdataset

    home = folder / split
    home.mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        with webdataset.TarWriter(str(home / f"{shard}.tar"), encoder=True) as tar:
            for number in range(shard, len(samples), shards):
                tar.write({"__key__": f"s{number:07d}", **samples[number]})
    (home / "nshards.txt").write_text(f"{shards}\n")
    for name, lines in (("classnames", classes), ("zeroshot_classification_templates", templates)):
        if lines:
            (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    if kind:
        (folder / "dataset_type.txt").write_text(f"{kind}\n")
    return folder


@pytest.fixture
def webdataset_folder() -> Callable[..., Path]:
    return write_webdataset


@pytest.fixture
def evaluation_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder's place for evaluation data."""
    monkeypatch.setenv("BENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "data" / "evaluation"
