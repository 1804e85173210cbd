"""`bench methods --cite` prints what a paper needs, once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.adapters import registry
from bench.cli import app
from bench.errors import UserError


def cite(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["methods", "--cite", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def keys(text: str) -> list[str]:
    return re.findall(r"^@\w+\{([^,]+),", text, re.MULTILINE)


def test_all_methods_are_cited_and_no_key_twice() -> None:
    text = cite()
    assert len(keys(text)) == len(set(keys(text)))
    for method in map(registry.find_method, registry.method_names()):
        assert method.about.bibtex.strip() in text
        assert method.about.bibtex.count("{") == method.about.bibtex.count("}")


def test_named_methods_alone_are_cited_in_their_order() -> None:
    assert keys(cite("siglip", "clip", "siglip")) == ["zhai2023siglip", "radford2021clip"]
    assert keys(cite("label_permutation", "label_reselection")) == ["noiseshelp"]


def test_a_suites_methods_are_cited(tmp_path: Path) -> None:
    suite = tmp_path / "s.yaml"
    suite.write_text("name: s\nbudget: {epochs: 1}\nmethods: [clip, {method: sogclr, label: mine}]\n")
    assert keys(cite("--suite", str(suite))) == ["radford2021clip", "yuan2022sogclr"]
    assert keys(cite("bayes", "--suite", str(suite)))[0] == "bayesiancl"


def test_a_plugin_without_bibtex_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_plugins", {})
    file = tmp_path / "silent.py"
    file.write_text(
        "from dataclasses import replace\n\nfrom methods.clip import Clip\n\n\n"
        'class Silent(Clip):\n    name = "silent"\n    about = replace(Clip.about, bibtex="")\n'
    )
    result = CliRunner().invoke(app, ["methods", "--cite", "silent", "--plugin", str(file)], catch_exceptions=False)
    registry.clear_caches()
    assert (result.stdout.strip(), result.stderr) == ("", "note: silent gives no BibTeX\n")


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UserError, match="'sogcrl' is not a method; did you mean 'sogclr'"):
        CliRunner().invoke(app, ["methods", "--cite", "sogcrl"], catch_exceptions=False)
