"""Suites, overrides and files beside them that once gave tracebacks: each is one line, within 2 s and 300 MB.

One process reads them all under a limit on its memory, which is set when all that is heavy has been imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bench

ROOT = Path(bench.__file__).parents[1]
SECONDS, MEGABYTES = 2.0, 300
GOOD = "name: small\nbudget: {epochs: 1}\nmethods: [clip]\nseeds: [0]\n"
CHILD = """
import json, os, resource, sys, time
from pathlib import Path
from bench.adapters import oracle_file, registry
from bench.errors import UserError
from bench.planning import requirements
from bench.suite.suite import load_suite

def suite(text, override=None):
    Path("small.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    loaded = load_suite("small.yaml", [override] if override is not None else [])
    loaded.runs()
    requirements.missing_inputs(loaded)

def beside(reader, name, text):
    Path(name).write_bytes(text.encode())
    reader(Path(name))

def tower(text):
    Path("tower").mkdir(exist_ok=True)
    Path("tower/vocab.txt").write_text("a")
    Path("tower/config.json").write_text(text)
    suite(GOOD + "towers: {text: tower}")

def answer(kind, *given):
    begun = time.process_time()
    try:
        if kind == "suite":
            suite(*given)
        elif kind == "name":
            load_suite(*given)
        elif kind == "tower":
            tower(*given)
        else:
            beside({"oracles": oracle_file.read_oracles, "plugin": registry.add_plugin}[kind], kind, *given)
        said = "accepted"
    except UserError as error:
        said = str(error)
    except BaseException as error:
        said = f"{type(error).__name__}: {error}"
    return [said, time.process_time() - begun]

GOOD = json.loads(sys.stdin.readline())
suite(GOOD)
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + MEGABYTES * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for line in sys.stdin:
    print(json.dumps(answer(*json.loads(line))), flush=True)
"""
DEEP = "[" * 5000 + "]" * 5000
LONG = "a" * 300
BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 9)
)
MERGES = "a0: &a0 {k: v}\n" + "".join(
    f"a{level}: &a{level} {{<<: [{','.join([f'*a{level - 1}'] * 9)}]}}\n" for level in range(1, 9)
)
MANY = ",".join(map(str, range(9000)))

SUITES = [  # what follows a good suite, or replaces its second line, and what is said of it
    ("tables: {paper: ncu, numbers: ['1'], rows: {clip: {metod: x}}}", "5: tables.rows.clip.metod: unknown key; did"),
    ("tables: {paper: ncu, numbers: ['1'], rows: {clip: 3}}", "5: tables.rows.clip: 3 should be a mapping"),
    ("tables: {paper: nuc, numbers: ['1']}", "5: tables.paper: no paper 'nuc'; did you mean 'nuclr'?"),
    ("tables: {paper: ../README, numbers: ['1']}", "5: tables.paper: no paper '../README'"),
    ("description: a\x00b", "5: not valid YAML: the character U+0000 is not allowed; remove it"),
    ("description: a\x07b", "5: not valid YAML: the character U+0007 is not allowed; remove it"),
    ('description: "a\\0b"', "5: description: holds the control character U+0000; remove it"),
    ('description: "\\ud800"', "5: description: holds the control character U+D800; remove it"),
    ('"a\\nb": 1', "5: the file: the key 'a\\nb' should be one line"),
    ("? [a, b]\n: c", "5: the file: the key a list or mapping should be a word"),
    ("train: {? {a: b} : c}", "5: train: the key a list or mapping should be a word"),
    ("train: {1: 2}", "5: train: the key '1' should be a word; put it in quotes"),
    ("train: {~: 2}", "5: train: the key '~' should be a word; put it in quotes"),
    (f"description: {DEEP}", "5: not valid YAML: nested deeper than 20 levels; nest it less deeply"),
    ("description: " + "{a: " * 5000, "5: not valid YAML: nested deeper than 20 levels; nest it less deeply"),
    (BOMB, "5: not valid YAML: more than 10,000 values, aliases written out"),
    (MERGES, "5: not valid YAML: more than 10,000 values, aliases written out"),
    ("description: !!timestamp abc", "5: not valid YAML: the tag '!!timestamp' is unknown; remove it"),
    ("description: !!binary abc", "5: not valid YAML: the tag '!!binary' is unknown; remove it"),
    ("description: !!set {a}", "5: not valid YAML: the tag '!!set' is unknown; remove it"),
    ("description: !!bool abc", "5: not valid YAML: 'abc' is not a boolean"),
    ("description: !!float abc", "5: not valid YAML: 'abc' is not a number"),
    ("description: !!int abc", "5: not valid YAML: 'abc' is not a whole number"),
    ("description: !!int [1]", "5: not valid YAML: expected a scalar node, but found sequence"),
    ("description: " + "9" * 5000, "5: description: has 5,000 characters; at most 4,000"),
    ("description: " + "9" * 500, "5: not valid YAML: a whole number of 500 digits; at most 18"),
    ("#" + "x" * 2**18, "small.yaml: is larger than 256 KiB"),
    (f"data: {{name: {LONG}}}", "5: data.name: 'aaa"),
    (f"data: {{name: x, rows: 9, shards: {LONG}}}", "names of files have at most 255"),
    (f"data: {{name: x, rows: 9, index: a/{LONG}}}", "names of files have at most 255"),
    (f"noise: {{kind: imported, rates: [0.5], files: [{LONG}]}}", "5: noise.files.0: 'aaa"),
    (f"towers: {{text: {LONG}}}", "5: towers.text: no text tower named 'aaa"),
    (f"towers: {{image_start: {LONG}}}", "5: towers.image_start: 'aaa"),
    ("towers: {vocabulary: 1000000000000}", "5: towers.vocabulary: 1000000000000 should be less than or equal"),
    ("towers: {dim: 1000000000000}", "5: towers.dim: 1000000000000 should be less than or equal to"),
    ("towers: {context: 1000000000000}", "5: towers.context: 1000000000000 should be less than or equal to"),
    ("train: {batch: 1000000000000}", "5: train.batch: 1000000000000 should be less than or equal to"),
    ("train: {lr: 1e300}", "5: train.lr: 1e+300 should be less than or equal to"),
    ("train: {lr: .nan}", "5: train.lr: nan should be a finite number"),
    ("train: {betas: [0.9, .inf]}", "5: train.betas.1: inf should be"),
    ("noise: {rates: [.nan]}", "5: noise.rates.0: nan should be"),
    ("noise: {options: {x: [.nan]}}", "5: noise.options.x: unknown key"),
    ("data: {name: x, shards: 'synthetic:99999999999999'}", "should have at most 100,000,000,000 pairs"),
    ("tune: {trials: 1000000000}", "5: tune.trials: 1000000000 should be less than or equal to 1000"),
    ("slurm: {account: \"a\\n#SBATCH x\"}", "5: slurm.account: 'a\\n#SBATCH x' should be one line"),
    ("slurm: {setup: [\"a\\n#SBATCH x\"]}", "5: slurm.setup.0: 'a\\n#SBATCH x' should be one line"),
    ("slurm: {nodes: 0}", "5: slurm.nodes: 0 should be greater than or equal to 1"),
    ("slurm: {nodes: 1.5}", "5: slurm.nodes: 1.5 should be a valid integer"),
    ("slurm: {extra: {nodes: 2}}", "5: slurm.extra: nodes: set slurm.nodes in place of it"),
    ("slurm: {runs_per_job: 0}", "5: slurm.runs_per_job: 0 should be greater than or equal to 1"),
    ("slurm: {extra: {time: 3}}", "5: slurm.extra: time: set slurm.time in place of it"),
    ("slurm: {extra: {requeue: true}}", "5: slurm.extra: requeue: bench sets it"),
    ("slurm: {extra: {nice: 1.5}}", "5: slurm.extra: nice: 1.5 should be one line of text, a whole number, or true"),
    ("slurm: {extra: {exclusive: false}}", "5: slurm.extra: exclusive: False should be one line of text"),
    ("slurm: {extra: {comment: \"a\\nb\"}}", "5: slurm.extra: comment: 'a\\nb' should be one line of text"),
    ("slurm: {extra: {\"a b\": 1}}", "5: slurm.extra.a b"),
]  # fmt: skip
BUDGETS = [
    ("budget: {epochs: 1e300}", "2: budget.epochs: 1e+300 should be at most 1e+15"),
    ("budget: {epochs: 1e999}", "2: budget.epochs: inf should be a finite number"),
    ("budget: {epochs: 1}\nbudget: {epochs: 1}", "3: budget: duplicate key"),
]
FINITE = "nan should be a finite number"
METHODS = [
    (f"{{method: ncu, config: {{prompts: {10**12}}}}}", f"3: methods.0.config.prompts: {10**12} should be at"),
    (f"{{method: ncu, config: {{iterations: {10**7}}}}}", "3: methods.0.config.iterations: 10000000 should be at"),
    ("{method: clip, config: {temperature: .nan}}", f"3: methods.0.config.temperature: {FINITE}"),
    ("{method: clip, config: {temperature: [.nan]}}", "3: methods.0.config.temperature: [nan] should be"),
    (f"{{method: clip, label: {LONG}}}", "3: methods.0.label: 'aaa"),
    (f"{{method: clip, start: {LONG}}}", "3: methods.0.start: 'aaa"),
    (",".join(f"{{method: clip, label: x{n}}}" for n in range(1100)), "3: methods: has more than 1,000 entries"),
    (",".join(f"{{method: clip, lable: x{n}}}" for n in range(400)), "there may be more mistakes"),
]  # fmt: skip
SETS = [
    ("seeds.0.x=1", "--set seeds.0.x=1: seeds.0 is 0, which holds no values of its own"),
    ("seeds.²=1", "--set seeds.²=1: '²' is not an entry of the list"),
    ("seeds." + "9" * 5000 + "=1", "should look like --set"),
    ("seeds." + "9" * 20 + "=1", "is not an entry of the list"),
    ("train.lr=!!binary x", "the tag '!!binary' is unknown"),
    ("train.lr=!!timestamp x", "the tag '!!timestamp' is unknown"),
    (f"train.lr={DEEP}", "nested deeper than 20 levels"),
    ("train.\0=1", "should look like --set"),
    (".".join("a" * 5000) + "=1", "should look like --set"),
    (f"seeds=[{MANY},{MANY}]", "more than 10,000 values"),
    ("seeds=[1, 2]", "accepted"),
    (f"seeds=[{MANY},1]", "seeds.9000: 1 is a duplicate"),
]
PLANS = [("noise: {rates: [0, 0.1]}", f"seeds=[{MANY}]", "seeds: makes 18,000 runs with 1 methods; at most 10,000")]
ONE = (
    '{"source": {"where": "x"}, "cases": [{"name": "x", %s"steps": [{"inputs": {"image": %s, "text": [[1]]}, '
    '"loss": 1}]}]}'
)
ORACLES = [
    (DEEP, "oracles: not valid JSON"),
    ('{"a": ' + "9" * 5000 + "}", "oracles: not valid JSON"),
    (ONE % ("", DEEP[:5000] + DEEP[5000:]), "oracles: not valid JSON"),
    (ONE % ("", "[[1e400]]"), "should be a finite number"),
    (ONE % ("", '[["1"]]'), "should be a finite number"),
    (ONE % ("", "[[" + "9" * 400 + "]]"), "should be a finite number"),
    (ONE % ('"rows": 1000000000000000, ', "[[1]]"), "cases.0.rows: 1000000000000000 should be less than"),
    (ONE % ('"seed": 1000000000000000000000, ', "[[1]]"), "cases.0.seed: 1000000000000000000000 should be"),
    ("[" + "1.5," * 2**20 + "1]", "oracles: cannot be read: it has more than 4,194,304 bytes"),
]  # fmt: skip
TOWERS = [
    ("[]", "should be a mapping, as transformers writes it"),
    (DEEP, "config.json: cannot be read"),
    (
        '{"model_type": "bert", "hidden_size": 1000000000000}',
        "hidden_size 1000000000000 should be a whole",
    ),
    ('{"model_type": "bert", "num_hidden_layers": "x"}', "num_hidden_layers 'x' should be a whole number"),
]
PLUGINS = [
    ("a\0b", "source code string cannot contain null bytes"),
    ("(" * 5000, "plugin:1: SyntaxError"),
    ("x = " + "-" * 100_000 + "1", "plugin: cannot be read as Python"),
]
NAMES = [
    (LONG, f"{LONG}: no such suite file"),
    ("a\0b", "no such suite file"),
    ("/", "/: is a folder; name the YAML file of a suite"),
]

CASES: list[tuple[list[Any], str]] = [
    *((["suite", GOOD + text], said) for text, said in SUITES),
    *((["suite", GOOD.replace("budget: {epochs: 1}", text)], said) for text, said in BUDGETS),
    *((["suite", GOOD.replace("[clip]", f"[{text}]")], said) for text, said in METHODS),
    *((["suite", GOOD, override], said) for override, said in SETS),
    *((["suite", GOOD + text, override], said) for text, override, said in PLANS),
    *((["oracles", text], said) for text, said in ORACLES),
    *((["plugin", text], said) for text, said in PLUGINS),
    *((["tower", text], said) for text, said in TOWERS),
    *((["name", text], said) for text, said in NAMES),
]  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, float]]:
    """What the process says of each case, and the CPU seconds that it took."""
    folder = tmp_path_factory.mktemp("refusals")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "BENCH_DATA": str(folder / "data")}
    code = CHILD.replace("MEGABYTES", str(MEGABYTES))
    lines = "".join(f"{json.dumps(line)}\n" for line in (GOOD, *(case for case, _ in CASES)))
    command: dict[str, Any] = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
    result = subprocess.run([sys.executable, "-c", code], input=lines, check=False, **command)
    assert result.returncode == 0, result.stderr[-2000:]
    return [(message, seconds) for message, seconds in map(json.loads, result.stdout.splitlines())]


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{case[0]}-{case[-1][:40]!a}" for case, _ in CASES])
def test_one_line_soon_in_little_memory(answers: list[tuple[str, float]], number: int) -> None:
    (_, said), (message, seconds) = CASES[number], answers[number]
    assert said in message
    assert all(line.startswith(("small.yaml", "--set")) for line in message.split("\n")[:-1])
    assert len(message.split("\n")[-1]) < 4000
    assert seconds < SECONDS
