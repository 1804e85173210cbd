"""Stores with made-up numbers, written once for all tests that only read them."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.store import Store

made_up = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("stores.py"))))


@pytest.fixture(scope="session")
def stores() -> SimpleNamespace:
    """The functions and constants of stores.py."""
    return made_up


@pytest.fixture
def browsed(tmp_path: Path) -> Callable[[str, str], dict[str, Any]]:
    """A function that opens a page in a narrow browser window, runs a script there and returns its object `said`."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium on this machine")

    def open_page(page: str, script: str) -> dict[str, Any]:
        path = tmp_path / "driven.html"
        end = "document.title = JSON.stringify(said);"
        path.write_text(page.replace("</body>", f"<script>const said = {{}};{script}{end}</script></body>"))
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
        options = ["--window-size=500,844", "--dump-dom", path.as_uri()]
        dom = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300, check=True).stdout
        said: dict[str, Any] = json.loads(re.search(r"<title>(.*?)</title>", dom, re.DOTALL).group(1))  # type: ignore[union-attr]
        return said

    return open_page


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Three seeds, everything done."""
    return made_up.write_store(tmp_path_factory.mktemp("three"))


@pytest.fixture(scope="session")
def one(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One seed, everything done."""
    return made_up.write_store(tmp_path_factory.mktemp("one"), seeds=(0,))


@pytest.fixture(scope="session")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Runs that failed, were interrupted, never started, spent too much or ran elsewhere."""
    return made_up.write_store(
        tmp_path_factory.mktemp("troubled"),
        states=made_up.TROUBLED,
        over_budget=("sogclr",),
        other_torch=("prolip",),
    )


@pytest.fixture(scope="session")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Five seeds; the last row is the baseline trained on the clean pairs, the one above is hardly another method."""
    methods = (*made_up.METHODS, ("near", "Near", 1.003, "cosine"), ("oracle", "CLIP", 1.4, "cosine"))
    root = tmp_path_factory.mktemp("bounded")
    store = made_up.write_store(root, methods=methods, seeds=range(5), curve=(), diagnostics=False)
    keep = {"label": "oracle", "about": "the pairs known to be clean", "uses": "the truth", "rule": "samples"}
    plan = store.plan("emoji_noisy")
    plan["methods"][-1] |= {"method": "clip", "keep": keep}
    store.write_plan("emoji_noisy", plan)
    return store
