"""Suites and published numbers are found in a checkout and in an installed package."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bench
from bench import resources

ROOT = Path(bench.__file__).parents[1]


def test_a_checkout_has_its_own_folders() -> None:
    assert resources.suites_folder() == ROOT / "suites"
    assert resources.published_folder() == ROOT / "results" / "published"
    assert {"quickstart", "smoke", "emoji_noisy"} <= set(resources.suite_names())
    assert resources.suite_path("smoke") == ROOT / "suites" / "smoke.yaml"


def test_a_file_comes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resources.is_suite("smoke")
    assert not resources.is_suite("smoke.yaml")
    (tmp_path / "smoke.yaml").write_text("name: own\n")
    assert resources.suite_path("smoke.yaml") == Path("smoke.yaml")
    assert resources.suite_path("smoke") == ROOT / "suites" / "smoke.yaml"


def test_an_installed_package_ships_them(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "bench", tmp_path / "bench", ignore=shutil.ignore_patterns("data", "__pycache__", "shipped"))
    shutil.copytree(ROOT / "suites", tmp_path / "bench" / "shipped" / "suites")
    code = "from bench import resources; print(resources.suite_path('quickstart')); print(resources.published_folder())"
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    shipped = tmp_path / "bench" / "shipped"
    assert result.stdout.split() == [str(shipped / "suites" / "quickstart.yaml"), str(shipped / "published")]
