"""`bench data index` and `verify`, and a suite on what they made."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import bench
from bench import data_folder as folders_of_data
from bench.cli import app
from bench.errors import UserError


def write_set(folder: Path, changed: str = "") -> Path:
    """Three shards of ten pairs; the caption of key `changed` is another."""
    folder.mkdir(parents=True)
    for shard in range(3):
        with tarfile.open(folder / f"{shard:05d}.tar", "w") as tar:
            for i in range(10):
                key = f"{shard:05d}{i:04d}"
                buffer = io.BytesIO()
                Image.new("RGB", (12, 12), (shard * 9, i * 20, 77)).save(buffer, "JPEG")
                text = f"picture {key}" if key != changed else "something else"
                for suffix, data in (("jpg", buffer.getvalue()), ("txt", text.encode())):
                    info = tarfile.TarInfo(f"{key}.{suffix}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    return folder


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(folders_of_data.DATA_VARIABLE, str(tmp_path))
    return tmp_path


def called(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def test_an_index_says_its_content(data_folder: Path) -> None:
    folder = write_set(data_folder / "toy")
    result = called("index", "toy", "--workers", "1")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{folder / 'index.parquet'}: 30 rows in 3 shards")
    assert "omitted: 0 samples" in result.stdout
    assert "3 of 3 shards, 30 rows" in result.stderr
    content = result.stdout.splitlines()[-1]
    other = write_set(data_folder / "other", changed="000010004")
    assert called("index", other, "--workers", "1").stdout.splitlines()[-1] != content
    assert called("index", folder, "--out", data_folder / "again.parquet").stdout.splitlines()[-1] == content


def test_a_faulty_set_is_an_error_in_a_real_process(data_folder: Path) -> None:
    folder = write_set(data_folder / "toy")
    cut = folder / "00002.tar"
    cut.write_bytes(cut.read_bytes()[:9000])
    command = [sys.executable, "-m", "bench", "data", "index", str(folder), "--workers", "1"]
    environment = {**os.environ, "PYTHONPATH": str(Path(bench.__file__).parents[1]), "PYTHONWARNINGS": "error"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "samples are faulty, more than --limit 0.01" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "index.parquet").exists()
    assert called("index", folder, "--workers", "1", "--limit", "0.5").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["index", "nowhere"], "nowhere: no such folder"),
        (["index", "memory://a/{0..1}.tar"], "is not on this machine; first copy it: bench data get NAME URL"),
    ],
)
def test_bad_input_is_named(arguments: list[str], said: str) -> None:
    result = called(*arguments)
    assert isinstance(result.exception, UserError)
    assert said in str(result.exception)


def test_every_verb_that_reads_data_takes_the_folder(data_folder: Path) -> None:
    write_set(data_folder / "there" / "toy")
    assert called("index", data_folder / "there" / "toy", "--workers", "1").exit_code == 0
    suite = data_folder / "s.yaml"
    suite.write_text(
        "name: mine\ndata: {name: toy, size: 16}\nnoise: {kind: shuffled_captions, rates: [0.4]}\nbudget: {epochs: 1}\n"
        "train: {batch: 10, augment: none}\nevaluate: {tasks: [noise_detection]}\nmethods: [clip]\n"
    )
    shown = CliRunner().invoke(app, ["noise", "show", str(suite), "--data", str(data_folder / "there")])
    assert shown.exit_code == 0, shown.exception
    assert "picture 0000" in shown.stdout
    for arguments in (
        ["report", "smoke"],
        ["noise", "show", "smoke"],
        ["eval", "x.pt", "--suite", "smoke"],
        ["export", "abc", str(data_folder / "out")],
    ):
        result = CliRunner().invoke(app, [*arguments, "--data", str(suite)])
        assert str(result.exception) == f"--data {suite}: not a folder"


SUITE = """
name: imported
data: {{name: toy, size: 16}}
noise: {{kind: imported, rates: [0.4], files: ["{file}"]}}
budget: {{epochs: 2}}
towers: {{dim: 16, vocabulary: 256}}
train: {{batch: 10, augment: none}}
evaluate: {{tasks: [noise_detection]}}
methods: [clip]
"""


def test_a_run_is_told_by_what_its_index_file_says_not_by_its_path(data_folder: Path) -> None:
    from bench.planning.planner import plan
    from bench.store import Store
    from bench.suite.suite import load_suite
    from bench.training.inputs import InputsReader

    write_set(data_folder / "toy")
    called("index", "toy", "--workers", "1")
    moved = np.sort(np.random.default_rng(0).permutation(30)[:12])
    ids = []
    for name, shift in (("a.npy", 1), ("b.npy", 1), ("c.npy", 2)):
        index = np.arange(30)
        index[moved] = np.roll(moved, shift)
        np.save(data_folder / name, index)
        (data_folder / "s.yaml").write_text(SUITE.format(file=data_folder / name))
        (run,) = load_suite(data_folder / "s.yaml").runs()
        [planned] = plan([run], Store(data_folder / "results"))
        assert planned.manifest is not None
        assert planned.manifest.realised_rate == 0.4
        manifest = InputsReader().inputs(run).manifest
        assert manifest is not None
        assert manifest.rows.tolist() == moved.tolist()
        assert manifest.summary == planned.manifest
        ids.append(planned.id)
    assert ids[0] == ids[1] != ids[2]
    (data_folder / "s.yaml").write_text(SUITE.format(file=data_folder / "c.npy").replace("0.4", "0.1"))
    with pytest.raises(UserError, match=r"c\.npy: 40\.0% of its captions .* noise\.rates says 10\.0%"):
        plan(load_suite(data_folder / "s.yaml").runs(), Store(data_folder / "results"))
