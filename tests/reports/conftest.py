"""Stores with made-up numbers, written once for all tests that only read them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bench.store import Store

from . import stores


class Tab:
    """A page of a headless Chromium, driven over DevTools' own pipe: scripts, window sizes and keys as a person gives.

    Chromium reads commands from descriptor 3 and answers on 4: JSON, each followed by a zero byte.
    """

    KEYS: ClassVar = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " ")}  #: key -> its Windows code, what it types

    def __init__(self, browser: str, profile: Path) -> None:
        self.folder = profile.parent
        reads, self._to = os.pipe()
        self._from, writes = os.pipe()
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]
        shell = ["bash", "-c", f'exec "$@" 3<&{reads} 4>&{writes}', "bash"]
        command = [*shell, browser, *options, "about:blank"]
        self._process = subprocess.Popen(command, pass_fds=(reads, writes), stderr=subprocess.DEVNULL)
        os.close(reads)
        os.close(writes)
        self._messages = 0
        self._session: str | None = None
        self._rest = b""

    def attach(self) -> None:
        """Wait for the browser, and take its first page."""
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        self._call("Page.enable")
        self.resize(500)

    def resize(self, width: int) -> None:
        """Give the page `width` CSS pixels, as on a phone."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=True)

    def open(self, page: str) -> None:
        """Show a page, and return once it is loaded."""
        path = self.folder / "page.html"
        path.write_text(page)
        self._call("Page.navigate", url=path.as_uri())
        while self._answer().get("method") != "Page.loadEventFired":
            pass

    def run(self, script: str) -> Any:
        """Return what a JavaScript function with this body returns or promises. RuntimeError if it throws."""
        call = f"(() => {{{script}}})()"
        said = self._call("Runtime.evaluate", expression=call, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            raise RuntimeError(said["exceptionDetails"]["exception"]["description"])
        return said["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        code, text = self.KEYS[key]
        about = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        self._call("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
        self._call("Input.dispatchKeyEvent", type="keyUp", **about)

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(OSError):
            os.write(self._to, json.dumps({"id": 0, "method": "Browser.close"}).encode() + b"\0")
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._messages += 1
        message = {"id": self._messages, "method": method, "params": parameters}
        session = {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(message | session).encode() + b"\0")
        while (answer := self._answer()).get("id") != self._messages:
            pass
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def _answer(self) -> dict[str, Any]:
        """The next answer or event."""
        while b"\0" not in self._rest:
            assert select.select([self._from], [], [], 300)[0], "Chromium says nothing for five minutes"
            part = os.read(self._from, 1 << 16)
            assert part, "Chromium ended"
            self._rest += part
        first, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    """An empty page of a browser, 500 pixels wide."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium on this machine")
    shown = Tab(browser, tmp_path / "profile")
    try:
        shown.attach()
        yield shown
    finally:
        shown.close()


@pytest.fixture
def pdflatex(tmp_path: Path) -> Callable[[str], str]:
    """Compile a document to all.pdf, and return what pdflatex says. Without pdflatex the test is skipped there."""

    def compiled(text: str) -> str:
        if shutil.which("pdflatex") is None:
            pytest.skip("no TeX on this machine; the checks before this one passed")
        (tmp_path / "all.tex").write_text(text, encoding="utf-8")
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
        said = done.stdout.decode(errors="replace")
        assert done.returncode == 0, said[-1500:]
        return said

    return compiled


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Three seeds, everything done."""
    return stores.write_store(tmp_path_factory.mktemp("three"))


@pytest.fixture(scope="session")
def one(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One seed, everything done."""
    return stores.write_store(tmp_path_factory.mktemp("one"), seeds=(0,))


@pytest.fixture(scope="session")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Runs that failed, were interrupted, never started, spent too much or ran elsewhere."""
    return stores.write_store(
        tmp_path_factory.mktemp("troubled"),
        states=stores.TROUBLED,
        over_budget=("sogclr",),
        other_torch=("prolip",),
    )


@pytest.fixture(scope="session")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Five seeds; the last row is the baseline trained on the clean pairs, the one above is hardly another method."""
    methods = (*stores.METHODS, ("near", "Near", 1.003, "cosine"), ("oracle", "CLIP", 1.4, "cosine"))
    root = tmp_path_factory.mktemp("bounded")
    return stores.write_store(root, methods=methods, seeds=range(5), curve=(), diagnostics=False)
