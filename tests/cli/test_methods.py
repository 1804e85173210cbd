"""`bench methods` says what a reader asks before putting a method into a suite."""

from __future__ import annotations

import re

from typer.testing import CliRunner

from bench.adapters import registry
from bench.cli import app


def test_every_method_is_listed_with_what_it_is() -> None:
    result = CliRunner().invoke(app, ["methods", *registry.method_names()])
    assert result.exit_code == 0
    text = re.sub(r"\s+", " ", result.stdout)
    for name, method in ((name, registry.find_method(name)) for name in registry.method_names()):
        about = method.about
        assert f"{name}: {about.title} ({about.paper})" in text
        assert f"fidelity {about.fidelity} ({about.equations})" in text
        assert f"state {about.state}" in text


def test_cost_says_phases_forwards_and_the_start() -> None:
    result = CliRunner().invoke(app, ["methods", *registry.method_names()])
    blocks = {block.split(":")[0]: re.sub(r"\s+", " ", block) for block in result.stdout.split("\n\n")}
    assert "cost 1 image + 1 text forwards per pair" in blocks["clip"]
    assert "presets paper (the defaults)" in blocks["clip"]
    assert "temperature: 0.07" in blocks["clip"]
    assert "starts from a clip run" in blocks["ncu"]
