"""Changes every number of every adapter by 10 %, one at a time, and says which changes no check of `bench check` sees.

    python -m tools.sweep_constants RESULTS.jsonl

Of the numbers of `methods/*.py` these are changed: constants of modules, defaults and presets, and in functions all but
the integers 0, 1 and 2 and the float 0. A mutant is first examined by the check `oracles` of every method that reaches
its file, then by the others that do not train of two of them. It goes on where it stopped.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

import methods
from bench.adapters import reach, registry
from bench.checks import suite
from bench.checks.pool import RankPool
from bench.checks.subject import Subject

HOME = Path(methods.__file__).parent
NOT_NUMBERS = {"about", "space", "identities", "known_failures", "needs", "needs_under"}
TRAINING = {"purity", "mixed_precision", "randomness", "resume", "noise_mask", "learns", "ranks"}


def sites(tree: ast.AST, place: str = "") -> Iterator[tuple[ast.Constant, str]]:
    """The numbers that are changed, and where they stand."""
    for node in ast.iter_child_nodes(tree):
        inside = place
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                if target.id in NOT_NUMBERS:
                    continue
                inside = f"{place}.{target.id}"
        elif isinstance(node, ast.ClassDef):
            inside = node.name
        elif isinstance(node, ast.FunctionDef):
            inside = f"{place}.{node.name}()"
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            declared = "()" not in place
            if declared or node.value not in (0, 1, 2) or (type(node.value) is float and node.value):
                yield node, place
        yield from sites(node, inside)


def changed(value: float) -> float:
    """10 % more; at least the next integer, and 0.1 in place of 0."""
    if isinstance(value, int):
        return max(round(value * 1.1), value + 1)
    return value * 1.1 if value else 0.1


def examine(names: list[str], checks: set[str]) -> str:
    """The first failure of these methods; "" if there is none."""
    chosen = tuple(one for one in suite.CHECKS if one.name in checks)
    for name in names:
        for result in suite.run_checks(Subject(name), RankPool(), chosen):
            if result.outcome == "failed":
                return f"{name}: {result.check}: {result.reason}"[:200]
    return ""


def caught(file: Path, source: str, users: list[str]) -> str:
    """Which check of a method fails if a file of `methods` has this source; by a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "methods")
        shutil.copytree(HOME, copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / file.name).write_text(source)
        reader, writer = os.pipe()
        if not (child := os.fork()):
            try:
                methods.__path__[:] = [str(copy)]
                sys.dont_write_bytecode = True
                others = {check.name for check in suite.CHECKS} - TRAINING - {"oracles"}
                os.write(writer, (examine(users, {"oracles"}) or examine(users[:2], others)).encode())
            except Exception as error:
                os.write(writer, f"{type(error).__name__}: {error}"[:200].encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as answers:
            found = answers.read()
        os.waitpid(child, 0)
        return found


def main(out: Path) -> None:
    torch.set_num_threads(1)
    done = out.read_text().splitlines() if out.is_file() else []
    known = {(one["file"], one["number"]) for one in map(json.loads, done)}
    sources = {name: registry.method_source(name) for name in registry.method_names()}
    reached = {name: reach.Reach(one.module, one.path).items for name, one in sources.items()}
    for file in sorted(HOME.glob("*.py")):
        if file.stem in ("__init__", "protocol", "base"):  # `bench` has imported these
            continue
        module = f"methods.{file.stem}"
        users = [name for name, items in reached.items() if any(key.startswith(f"{module}:") for key in items)]
        users.sort(key=lambda name: sources[name].module != module)
        for number in range(len(list(sites(ast.parse(file.read_text()))))):
            if (file.stem, number) in known:
                continue
            tree = ast.parse(file.read_text())
            node, place = list(sites(tree))[number]
            about = {"file": file.stem, "number": number, "place": place.strip("."), "line": node.lineno}
            about |= {"value": node.value}
            node.value = changed(float(node.value) if isinstance(node.value, float) else int(str(node.value)))
            with out.open("a") as lines:
                lines.write(json.dumps({**about, "caught": caught(file, ast.unparse(tree), users)}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
