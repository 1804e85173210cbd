"""The model card shows what a suite and a plug-in say as text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from bench.adapters import hyperparameters
from bench.models.export_card import card
from bench.store import Record, Store, writing
from bench.suite.suite import load_suite
from methods.protocol import Facts

EVIL = "<script>x</script> | [y](javascript:z) `a` **b**\n## Fake\x1b"


def lines(tmp_path: Path, words: str, folder: str) -> list[str]:
    run = load_suite("quickstart").runs()[0]
    out = Store(tmp_path / (words and "evil")).run("a" * 64)
    record = Record(
        out.id, 1.0, f"set{words}", f"task{words}", "top1", "cosine", 0.5, 4, None, None, True, f"1{words}", "c"
    )
    with writing(out) as writer:
        writer.write_settings({"noise": {"kind": None, "rate": 0.0}})
        writer.write_records("one", [record], {})
    method = hyperparameters.make("clip", None, {}, Facts(rows=8, batch=4, dim=8, seed=0))
    about = {name: f"{name}{words}" for name in ("title", "summary", "paper", "note")}
    method.about = replace(method.about, **about)
    return card(out, replace(run, label=f"label{words}"), method, Path(folder)).splitlines()


def test_no_word_becomes_markup_a_row_or_code(tmp_path: Path) -> None:
    plain, evil = lines(tmp_path, "", "/models/x"), lines(tmp_path, EVIL, '/models/"); import os\n```\n# "')
    assert len(evil) == len(plain)
    assert [line[:2] for line in evil] == [line[:2] for line in plain]
    bare = re.sub(r"\\.", "", "\n".join(line for line in evil if "open_clip" not in line))
    assert not re.search(r"<|\]\(|\*\*", bare)
    rows = [line for line in evil if line.startswith("| set")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [8]
    calls = [line for line in evil if "local-dir:" in line]
    assert len(calls) == 2
    for call in calls:
        compile(call, "card", "exec")
        assert call.count(");") == 1, "within the string alone"
