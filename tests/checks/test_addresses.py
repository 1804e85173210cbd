"""Where a comment or docstring speaks of official code, its file says which: repository, commit, file."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

from bench.checks import oracles

ROOT = Path(oracles.__file__).parents[3]
ADDRESS = re.compile(r"official: github\.com/([\w.-]+/[\w.-]+)@([0-9a-f]{7})(?: \S|$)")
SPOKEN = re.compile(
    r"official (?:\w+ )?(?:code|codes|loss|run|script|constructor|configuration|command|form|one)\b", re.I
)


def spoken(path: Path) -> str:
    """Comments and docstrings of a file."""
    text = path.read_text()
    comments = [
        one.string for one in tokenize.generate_tokens(io.StringIO(text).readline) if one.type == tokenize.COMMENT
    ]
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    documented = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    return "\n".join([*comments, *filter(None, map(ast.get_docstring, documented))])


def files() -> list[Path]:
    return sorted(
        [*(ROOT / "methods").glob("*.py"), *(ROOT / "bench").rglob("*.py"), ROOT / "tests/evaluation/official.py"]
    )


def test_official_code_has_an_address() -> None:
    oracle = ROOT / "bench/checks/oracles"
    generic = {oracle / "__init__.py", oracle / "defaults.py", ROOT / "bench/adapters/oracle_file.py"}
    speaking = [path for path in files() if path not in generic and SPOKEN.search(spoken(path))]
    assert len(speaking) >= 15
    assert [str(path) for path in speaking if not ADDRESS.search(spoken(path))] == []


def test_the_repositories_and_commits_are_those_of_the_values() -> None:
    commits = {}
    for section in oracles.values().values():
        commits |= section.get("commits", {})
    addresses = [(path, line) for path in files() for line in spoken(path).splitlines() if "official: " in line]
    assert len(addresses) >= 50
    for path, line in addresses:
        match = ADDRESS.search(line)
        assert match, f"{path}: {line}"
        assert commits[match[1]].startswith(match[2]), f"{path}: {line}"
