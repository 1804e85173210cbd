"""What is installed: a wheel and an sdist that hold everything `bench run quickstart` reads, one version everywhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import bench

ROOT = Path(bench.__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="hatchling, of the extra 'test', is not installed")
    folder = tmp_path_factory.mktemp("built")
    code = "import sys; from hatchling import build; build.build_sdist(sys.argv[1]); build.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, folder], cwd=ROOT, check=True, capture_output=True, timeout=1200)
    return folder


def tracked(*folders: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no git checkout")
    return set(listed.stdout.splitlines())


@pytest.mark.promise("wheel and sdist hold every file that a run reads")
def test_the_wheel_holds_every_file_that_is_read(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
        (entry,) = [name for name in names if name.endswith("entry_points.txt")]
        assert "bench = bench.cli:main" in wheel.read(entry).decode()
    shipped = {
        path.replace("results/published/", "bench/shipped/published/").replace("suites/", "bench/shipped/suites/", 1)
        if path.startswith(("results/", "suites/"))
        else path
        for path in tracked("bench", "methods", "reports", "suites", "results/published")
    }
    assert shipped - names == set()
    assert not any(name.startswith(("tests/", "tools/", "docs/", "results/")) for name in names)
    assert "bench/shipped/suites/quickstart.yaml" in names


#: runs `bench` and refuses to open a file of the checkout's packages, suites or results
_BENCH = """
import sys
from pathlib import Path
checkout = sys.argv.pop(1)
theirs = tuple(str(Path(checkout, name)) + "/" for name in ("bench", "methods", "reports", "suites", "results"))
def refuse(event, arguments):
    if event == "open" and str(arguments[0]).startswith(theirs):
        raise RuntimeError(f"read {arguments[0]} of the checkout")
sys.addaudithook(refuse)
from bench.cli import main
main()
"""


def test_the_wheel_runs_quickstart_in_an_empty_folder(built: Path, tmp_path: Path) -> None:
    installed, empty = tmp_path / "installed", tmp_path / "empty"
    empty.mkdir()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--target"]
    subprocess.run([*pip, installed, next(built.glob("*.whl"))], check=True, capture_output=True, timeout=600)
    settings = ("budget={samples: 128}", "noise.rates=[0.4]", "seeds=[0]", "evaluate={tasks: [retrieval], curve: []}")
    options = ["--only", "clip", "--jobs", "1", *(word for one in settings for word in ("--set", one))]
    done = subprocess.run(
        [sys.executable, "-P", "-c", _BENCH, ROOT, "run", "quickstart", *options],
        cwd=empty,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "1 done" in done.stdout
    assert (empty / "results" / "quickstart" / "report.html").is_file()


def test_the_sdist_builds_the_wheel_without_the_checkout(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    needed = tracked(
        "bench", "methods", "reports", "suites", "results/published", "pyproject.toml", "README.md", "LICENSE"
    )
    assert needed - names == set()
    assert not any("docs/generated" in name or name.startswith("build/") for name in names)


def test_one_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", PROJECT["version"])
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_extras_that_the_install_page_names_are_there() -> None:
    named = set(
        re.findall(r"`(\w+)`", "".join(re.findall(r"^\|(.*?)\|", (ROOT / "docs" / "install.md").read_text(), re.M)))
    )
    assert named == set(PROJECT["optional-dependencies"])


def test_the_container_file_names_what_there_is() -> None:
    text = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    assert {word for word, _ in steps} <= {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENTRYPOINT", "CMD"}
    assert steps[0][0] == "FROM"
    copied = [source for word, rest in steps if word == "COPY" for source in rest.split()[:-1]]
    assert all((ROOT / source).exists() for source in copied)
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*wheel["packages"], *wheel["force-include"], PROJECT["readme"], "pyproject.toml"} <= set(copied)
    assert [json.loads(rest) for word, rest in steps if word in ("ENTRYPOINT", "CMD")] == [["bench"], ["--help"]]
