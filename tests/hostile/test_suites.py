"""Mutated suites: whatever a file says, it is a suite or a UserError of whole lines, soon and in little memory.

Shipped suites are mutated, as text and as a tree of values, and then loaded and planned as `bench run --dry-run` does
before it counts any step. BENCH_HOSTILE_EXAMPLES is the number of mutated suites (seconds by default, thousands by
hand), BENCH_HOSTILE_SEED chooses others:

    BENCH_HOSTILE_EXAMPLES=10000 BENCH_HOSTILE_SEED=1 pytest -n0 tests/hostile/test_suites.py
"""

from __future__ import annotations

import copy
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench import resources
from bench.errors import UserError
from bench.planning import plan_file, requirements
from bench.suite.suite import load_suite

EXAMPLES = int(os.environ.get("BENCH_HOSTILE_EXAMPLES", "60"))
SEED = int(os.environ.get("BENCH_HOSTILE_SEED", "0"))
REFUSAL_SECONDS = 2.0  #: of CPU time that a refusal may take
PLAN_SECONDS = 20.0  #: of CPU time that an accepted plan may take; a thousand runs take 1 to 3, by the machine
SHIPPED = {name: resources.suite_path(name).read_text() for name in resources.suite_names()}

VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2, 3, 7, 2**31, 10**12, 10**18, 10**30, -(10**18), 0.0, -0.0, 0.5, 1.0, 1e-300,
    1e300, float("nan"), float("inf"), -float("inf"), "", " ", "x", "a" * 300, "a/" * 1500, "b" * 5000, "\0",
    "\x1b[2J", "a\nb", "\u202eab", "\ud800", "$\\frac{1}$", "é", "null", "~", "=1+1", "..", "../../etc/passwd",
    "/dev/zero", "/proc/self/mem", "file:///etc", "s3://none/{0..9}.tar", "{0..99}.tar", "{1,", "{data}",
    "{towers}", "synthetic:5", "synthetic:0", "synthetic:99999999999999999999", "open_clip:x/y", "imagenet",
    "hub", "clip", "ncu", "sogclr", "decl", "emoji", "cc3m", "oracle", "random", "trusted", "imported",
    "resampled_positives", "RN50", "ViT-B-32", "roberta-ViT-B-32", "coca_base", "bert-base-uncased",
    "zero_shot", "retrieval", "validation", "imagenet1k", "bf16", "emoji_noisy", [], {}, [[]], [None], [0, 0],
    [0.5, 0.5], [1, 2, 3], list(range(2000)), {"": None}, {"a": {"b": {}}}, {"kind": "random", "share": 0.5},
    {"method": "clip"}, {"method": []}, [{"method": "clip", "label": "x"}], {"epochs": 1, "samples": 1},
    {"flops": 1e18},
]  # fmt: skip
SCRAPS = [
    "\0", "\x07", "\x1b", "\u2028", "\u202e", "\ufeff", "é", "\t", "  ", "\n", "- ", ": ", "? ", "[", "]", "{",
    "}", ",", "#", "'", '"', "|", ">", "&a ", "*a", "&a [*a]", "<<: ", "!!binary ", "!!timestamp ", "!!bool ",
    "!!float ", "!!int ", "!!set ", "!!python/object:os.system ", "!x ", "---\n", "...\n", "%YAML 9.9\n",
    "1e999", "9" * 5000, "0x10", "²", ".nan", "-.inf", "null", "~", "[" * 100, "{a: " * 100, "a" * 300, "\\",
    '"\\0"', '"\\ud800"', "=", "@", "`", "$",
]  # fmt: skip


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The keys and positions that lead to every value below `value`."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [one for key, inner in items for one in ((*place, key), *places(inner, (*place, key)))]


def typo(draw: random.Random, word: str) -> str:
    position = draw.randrange(len(word) + 1)
    return word[:position] + draw.choice(["", "x", "_", "é", word[:1]]) + word[position + draw.randrange(2) :]


def mutate_tree(draw: random.Random, tree: Any) -> None:
    """Change one value of the tree in place: its type, number, key, or whether it is there, and how often."""
    every = places(tree)
    if not every:
        return
    place = draw.choice(every)
    target = tree
    for key in place[:-1]:
        target = target[key]
    key = place[-1]
    kind = draw.choice(("value", "value", "value", "delete", "typo", "wrap", "unwrap", "other", "repeat"))
    if kind == "value":
        target[key] = copy.deepcopy(draw.choice(VALUES))
    elif kind == "delete":
        del target[key]
    elif kind == "typo":
        if isinstance(key, str):
            target[typo(draw, key)] = target.pop(key)
        elif isinstance(target[key], str):
            target[key] = typo(draw, target[key])
    elif kind == "wrap":
        target[key] = draw.choice(([target[key]], {"a": target[key]}, [target[key]] * 3, [[target[key]]]))
    elif kind == "unwrap" and isinstance(target[key], list | dict) and target[key]:
        target[key] = draw.choice(list(target[key].values() if isinstance(target[key], dict) else target[key]))
    elif kind == "other":  # what stands elsewhere
        source = tree
        for step in draw.choice(every):
            source = source[step]
        target[key] = copy.deepcopy(source)
    elif isinstance(target, list):
        target.insert(draw.randrange(len(target) + 1), copy.deepcopy(target[key]))
    else:
        target[draw.choice(("name", "x", "kind", "label", "config", "keep", "tune"))] = copy.deepcopy(target[key])


def mutate_text(draw: random.Random, text: str) -> str:
    """Change the text at one place."""
    start = draw.randrange(len(text) + 1)
    end = min(len(text), start + draw.choice((0, 0, 1, 2, 5, 40)))
    lines = text.splitlines(keepends=True)
    kind = draw.choice(("scrap", "scrap", "scrap", "cut", "line", "twice", "swap", "indent", "value"))
    if kind == "scrap":
        return text[:start] + draw.choice(SCRAPS) + text[end:]
    if kind == "cut":
        return text[:start] if draw.random() < 0.2 else text[:start] + text[end:]
    if kind == "value":  # after a colon, so that it is a value
        colons = [position for position in range(len(text)) if text.startswith(": ", position)]
        position = draw.choice(colons) + 2 if colons else 0
        return text[:position] + draw.choice(SCRAPS) + draw.choice(("", " ")) + text[position:]
    number = draw.randrange(len(lines)) if lines else 0
    if kind == "line":
        del lines[number : number + 1]
    elif kind == "twice":
        lines[number:number] = lines[number : number + 1] * draw.choice((1, 2, 50))
    elif kind == "swap":
        draw.shuffle(lines)
    else:
        lines[number : number + 1] = [
            f"{draw.choice((' ', '    ', chr(9)))}{line}" for line in lines[number : number + 1]
        ]
    return "".join(lines)


def mutated(draw: random.Random) -> str:
    """A shipped suite with one to four mutations."""
    text = SHIPPED[draw.choice(sorted(SHIPPED))]
    if draw.random() < 0.6:
        tree = yaml.safe_load(text)
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            mutate_tree(draw, tree)
        text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=draw.random() < 0.5)
    if draw.random() < 0.5:
        for _ in range(draw.choice((1, 1, 2))):
            text = mutate_text(draw, text)
    return text


def planned(path: Path, overrides: tuple[str, ...] = ()) -> None:
    """All of a dry run that needs no tower: settings, methods, cells, ids of content, what is missing, the outline."""
    suite = load_suite(path, overrides)
    assert suite.hash
    for run in suite.narrowed().runs():
        assert run.title
    requirements.listing(requirements.missing_inputs(suite))
    plan_file.plan_outline(suite)


def refused(action: Callable[[], None]) -> str:
    """The message of the UserError that `action` ends with, "" without one, which may be all that it does."""
    begun = time.process_time()
    try:
        action()
        message = ""
    except UserError as error:
        message = str(error)
        assert message
        assert all(line.strip() for line in message.split("\n")), message
        assert len(message) < 60_000, message[:2000]
    assert time.process_time() - begun < (REFUSAL_SECONDS if message else PLAN_SECONDS)
    return message


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder without any data."""
    monkeypatch.setenv("BENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.promise("a damaged or malicious suite is one line")
def test_a_mutated_suite_is_accepted_or_refused(folder: Path) -> None:
    path = folder / "mutated.yaml"
    for text in SHIPPED.values():  # reads adapters, architectures and the catalogue, before the clock runs
        path.write_text(text)
        planned(path)
    accepted = 0
    for number in range(SEED * EXAMPLES, (SEED + 1) * EXAMPLES):
        text = mutated(random.Random(number))
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            accepted += refused(lambda: planned(path)) == ""
        except BaseException:
            print(f"example {number}:\n{text}")
            raise
    assert 0 < accepted < EXAMPLES
