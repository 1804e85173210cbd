"""Pages of the documentation site that are made from the code: methods, settings, noise, commands, promises.

`docs/conf.py` loads it as a Sphinx extension. Every build writes the pages to `docs/generated/`, which git ignores.
Formulas stand as the docstrings write them.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import json
import re
import shutil
import subprocess
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

from bench.adapters import hyperparameters, oracle_file, registry
from bench.adapters.describe import EXAMPLE_FACTS, describe_cost
from bench.catalogue.augmentations import AUGMENTATIONS
from bench.catalogue.budget_kinds import BUDGET_KINDS
from bench.catalogue.families import FAMILIES
from bench.catalogue.keep import KEEPS
from bench.catalogue.noise_kinds import KINDS, NoiseKind
from bench.catalogue.tower_families import TOWER_FAMILIES, ImageTowers, TextTowers
from bench.console.markup import markdown, markdown_table
from bench.data import Pairs
from bench.data.source import data_source
from bench.settings_base import Model
from bench.suite.suite import Suite, load_suite
from methods.protocol import Method
from reports.pages.sections import FIDELITY

ROOT = Path(__file__).resolve().parents[1]
METHODS = """\
# The methods

Every file of `methods/` has a page, generated from the file. In a terminal: `bench methods`, `bench methods --cite`,
`bench check --all`. A class of fidelity says how a method was checked:

{classes}
Where a paper and its code disagree there are two presets, `paper` and `official`, so that the difference can be
measured. Where only the code could be read, there is no preset `paper`.

{table}
```{{toctree}}
:hidden:

{names}
```
"""
NOISE = """\
# The kinds of noise

Generated from `bench/catalogue/noise_kinds.py`. A suite names one in `noise.kind`, with a share of the pairs in
`noise.rates` and the settings of a kind in `noise.options` ([a suite](../suites.md)).
[Noise](../noise.md) explains natural and published noise, and how to import files of noise.
The pictures are pairs of a batch of the emoji pack that seed 0 changes at a rate of 40 %.
"""
SETTINGS = """\
# All settings of a suite

Generated from the models that read a suite; [Write a suite](../suites.md) is the tutorial. In a type, `null` is
YAML's word for "not given". A run keeps its id when settings marked † change, as with labels, descriptions and the
sections `evaluate`, `select`, `tune`, `slurm`, `ray`, `tables` and `baseline`. Everything else is part of the id.

A suite that has every section, `docs/examples/every_section.yaml`:

```{{literalinclude}} ../examples/every_section.yaml
:language: yaml
```

{parts}"""
PROMISES = """\
# Promises, and the tests that hold them

Generated from the markers `@pytest.mark.promise("...")` of the tests.
"""
_OPTIONS = {"poison": "{target: dog face, trigger: checker}"}  #: of the pictures, for kinds that need some
_BATCH, _SHOWN = 256, 4  #: pairs that the pictures are chosen from, and how many are shown
_HELD = {"keep", "keep_rule"}  #: settings of data that a run's id holds as parts of its own
_CODE, _LINK = re.compile(r"(`[^`]+`)"), re.compile(r"(?<=\w)_(?![\w`])")


def write_pages(app: Sphinx) -> None:
    """Write all generated pages and pictures below the folder of sources."""
    folder = Path(app.srcdir) / "generated"
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in {
        **method_pages(),
        **noise_pages(),
        "settings.md": settings_page(),
        "commands.md": commands(),
        "promises.md": promises(),
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def commands() -> str:
    """Return the command reference as typer writes it."""
    words = ["typer", "bench.cli", "utils", "docs", "--name", "bench"]
    made = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return made.stdout.replace("# `bench`", "# The commands", 1)


def promises() -> str:
    """Return the table of promises, in the order of the test files."""
    rows = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.promise":
                rows.append([prose(ast.literal_eval(node.args[0])), code(path.relative_to(ROOT).as_posix())])
    return f"{PROMISES}\n{docs_table(['promise', 'test'], rows)}"


def method_pages() -> dict[str, str | bytes]:
    """Return a page for each method that comes with the package, and one that lists them, by path."""
    names = [name for name in registry.method_names() if registry.method_source(name).shipped]
    rows = []
    for name in names:
        about = registry.find_method(name).about
        fidelity = prose(oracle_file.printed_fidelity(name, about))
        rows.append([f"[{prose(about.title)}]({name}.md)", code(name), prose(about.paper), fidelity])
    classes = "".join(f"- **{fidelity}**: {meaning}\n" for fidelity, meaning in FIDELITY.items())
    listed = docs_table(["method", "in suites", "paper", "fidelity"], rows)
    index = METHODS.format(classes=classes, table=listed, names="\n".join(names))
    return {"methods/index.md": index, **{f"methods/{name}.md": method_page(name) for name in names}}


def method_page(name: str) -> str:
    """Return the page of one method as Markdown."""
    kind = registry.find_method(name)
    about, fidelity = kind.about, oracle_file.printed_fidelity(name, kind.about)
    facts = {
        "Paper": f"{prose(about.paper)}, {prose(about.equations)}",
        "Fidelity": f"{prose(fidelity)}: {FIDELITY[fidelity]}",
        "State": prose(about.state),
        "Cost": prose(describe_cost(hyperparameters.make_method(name, None, {}, EXAMPLE_FACTS))),
        "Reads": prose(", ".join(sorted(kind.needs))) or "images and texts as they are",
        "Score": code(kind.score),
        "Source": code(f"methods/{name}.py"),
    }
    claims = [f"- {prose(one.claim)} (equals [`{one.equals}`]({one.equals}.md))" for one in kind.identities]
    failures = [f"- `{check}`: {prose(reason)}" for check, reason in kind.known_failures.items()]
    parts = {
        f"# {prose(about.title)}": f"`method: {name}` in a suite. {prose(about.summary)}\n\n"
        + "\n".join(f"- **{title}**: {text}" for title, text in facts.items()),
        "## Formula": f"```text\n{inspect.cleandoc(kind.__doc__ or '')}\n```",
        "## Options": _options(kind),
        "## Deviations from the paper": prose(about.note),
        "## Identities": "\n".join(claims) and "`bench check` tests them on any batch.\n\n" + "\n".join(claims),
        "## Checks that it cannot pass": "\n".join(failures),
        "## Citation": f"```bibtex\n{about.bibtex.strip()}\n```",
    }
    return "\n\n".join(f"{title}\n\n{text}" for title, text in parts.items() if text) + "\n"


def _options(kind: type[Method]) -> str:
    config: Any = kind.Config
    hints, meaning, own = typing.get_type_hints(config), comments(config), config()
    presets = {preset: config(**values) for preset, values in kind.presets.items()}
    rows = []
    for field in (one.name for one in dataclasses.fields(config)):
        default, others = getattr(own, field), [getattr(preset, field) for preset in presets.values()]
        changed = ["" if other == default else code(other) for other in others]
        rows.append(
            [code(field), prose(type_name(hints[field])), code(default), *changed, prose(meaning.get(field, ""))]
        )
    head = ["option", "type", "default", *(f"preset `{preset}`" for preset in presets), "meaning"]
    note = "An empty cell of a preset means the default.\n\n" if presets else ""
    return note + docs_table(head, rows) if rows else "None."


def settings_page() -> str:
    """Return the page of all settings of a suite, section by section, and of the words that some of them take."""
    placed: dict[type[Model], str] = {}
    for place, model in sections_below(Suite):
        placed.setdefault(model, place)
    parts = []
    for model, place in placed.items():
        about, *_ = (inspect.getdoc(model) or "").split("\n\n")
        parts.append(f"## {code(place) or 'Top level'}\n\n{prose(about)}\n\n{settings_table(model)}")
    return SETTINGS.format(parts="\n".join([*parts, *word_tables()]))


def sections_below(model: type[Model], place: str = "") -> Iterator[tuple[str, type[Model]]]:
    """Yield a model with its place in a suite, "" for the whole of it, and the models below."""
    yield place, model
    for name, field in model.model_fields.items():
        for hint in _within(field.annotation):
            if isinstance(hint, type) and issubclass(hint, Model):
                yield from sections_below(hint, f"{place}.{name}".lstrip("."))


def _within(hint: Any) -> Iterator[Any]:
    yield hint
    for inner in typing.get_args(hint):
        yield from _within(inner)


def settings_table(model: type[Model]) -> str:
    """Return the table of a model's fields; † marks those that no id of a run holds."""
    meaning = comments(model)
    rows = [
        [
            code(name) + ("†" if name in model.outside - _HELD else ""),
            prose(type_name(field.annotation)),
            "required" if field.is_required() else _default(field.get_default(call_default_factory=True)),
            prose(meaning.get(name, "")),
        ]
        for name, field in model.model_fields.items()
    ]
    return docs_table(["setting", "type", "default", "meaning"], rows) if rows else ""


def _default(value: Any) -> str:
    """Return a default as YAML writes it; "" for a section, whose fields have their own."""
    several = isinstance(value, tuple) and any(isinstance(one, Model) for one in value)
    return (
        ""
        if several or isinstance(value, Model)
        else code(value if value and isinstance(value, str) else json.dumps(value))
    )


def word_tables() -> Iterator[str]:
    """Yield the tables of the words that budgets, augmentations, towers, data selections and tasks take."""
    for title, head, rows in (
        ("Budgets", ["`budget`", "unit"], [[code(one.name), one.unit] for one in BUDGET_KINDS]),
        (
            "Augmentations",
            ["`train.augment`", "fits", "what it does"],
            [[code(one.name), ", ".join(one.build), prose(one.summary)] for one in AUGMENTATIONS],
        ),
        (
            "Towers",
            ["family", "what it is", "`towers.image`", "`towers.text`"],
            [[one.name, prose(one.summary), _names(one.image), _names(one.text)] for one in TOWER_FAMILIES],
        ),
        (
            "Data selections",
            ["`keep.kind`", "needs", "trains on", "by an external model"],
            [
                [code(one.name), ", ".join(map(code, one.takes)), prose(one.about), prose(one.about_external)]
                for one in KEEPS
            ],
        ),
        (
            "Tasks",
            ["`evaluate.tasks`", "title", "measures", "metrics, the main one first"],
            [
                [
                    code(one.name),
                    prose(one.title),
                    prose(one.text),
                    ", ".join(map(code, sorted(one.metrics, key=lambda metric: metric != one.main))),
                ]
                for one in FAMILIES
            ],
        ),
    ):
        yield f"## {title}\n\n{docs_table(head, rows)}"


def _names(towers: ImageTowers | TextTowers | None) -> str:
    """Return the names of a half of a family of towers, "any" for many, "a path" where a folder has them."""
    if towers is None or not towers.names():
        return "a path" if towers else ""
    return ", ".join(map(code, towers.names())) if len(towers.names()) < 8 else "any"


def noise_pages() -> dict[str, str | bytes]:
    """Return the page of all kinds of noise, and the pictures on it, by path."""
    when = {True: "once, for the whole run", False: "again in every step"}
    rows = [
        [f"[`{one.name}`](#{one.name})", prose(one.title), "from files" if one.files else when[one.fixed]]
        for one in KINDS
    ]
    written: dict[str, str | bytes] = {}
    text = NOISE + "\n" + docs_table(["`noise.kind`", "in tables", "drawn"], rows)
    for kind in KINDS:
        summary = f"{kind.summary[0].upper()}{kind.summary[1:]}."
        text += f"\n({kind.name})=\n## {kind.name}\n\n{prose(summary)} Corrupted pairs {prose(kind.effect)}.\n\n"
        text += settings_table(kind.options) + "\n"
        examples: list[list[str]] = []
        for png, own, given in () if kind.files else _examples(kind):
            name = f"noise-{kind.name}-{len(examples) + 1}.png"
            written[name] = png
            examples.append([f"![{prose(own)}]({name})", prose(own), prose(given)])
        text += docs_table(["picture", "caption", "caption under the noise"], examples) if examples else ""
    return {"noise_kinds.md": text, **written}


def _examples(kind: NoiseKind) -> Iterator[tuple[bytes, str, str]]:
    """Yield pairs of a batch that the noise changes: the picture that training sees, own and given first caption."""
    noisy = f"noise={{kind: {kind.name}, rates: [0.4], options: {_OPTIONS.get(kind.name, '{}')}}}"
    suite = load_suite("quickstart", ["data.size=64", "methods=[clip]", noisy])
    pairs: Pairs = data_source(suite.data).pairs()
    noise = kind.make(pairs, suite.noise[0], 0.4, 0)
    rows = np.arange(0, len(pairs), len(pairs) // _BATCH)
    given = noise.texts(pairs, rows[noise.donors_in_batch(0, len(rows))])
    seen, unchanged = noise.applied(pairs).images(rows), pairs.images(rows)
    changed = [
        place
        for place, (row, texts) in enumerate(zip(rows.tolist(), given, strict=True))
        if texts != pairs.captions(row) or (seen[place] != unchanged[place]).any()
    ]
    for place in changed[:: max(1, len(changed) // _SHOWN)][:_SHOWN]:
        Image.fromarray(seen[place]).save(png := io.BytesIO(), "PNG")
        yield png.getvalue(), pairs.captions(int(rows[place]))[0], given[place][0]


def prose(text: str) -> str:
    """Return plain text as one line of Markdown; what stands in single backquotes is code."""
    parts = _CODE.split(" ".join(text.split()))
    escaped = partial(re.sub, r"\S(?:.*\S)?", lambda words: markdown(words[0]))  # but for the blanks at the ends
    return "".join(part if number % 2 else escaped(part) for number, part in enumerate(parts))


def code(value: object) -> str:
    """Return a value as code for a cell of a table."""
    text = str(value).replace("|", r"\|")
    return f"`{text}`" if text else ""


def docs_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table of cells that are Markdown already."""
    return "\n".join(markdown_table(head, ([cell.replace("\n", " ") for cell in row] for row in rows))) + "\n"


def type_name(hint: Any) -> str:
    """Return a type as the author of a suite reads it: a choice lists its words."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return ", ".join(map(repr, inner))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(type_name, inner))
    if origin is typing.Annotated:
        return type_name(inner[0])
    if origin is tuple:
        return "list of " + ", ".join(type_name(one) for one in inner if one is not ...)
    if origin is dict:
        return f"mapping of {type_name(inner[0])} to {type_name(inner[1])}"
    if origin is not None:
        return str(hint).replace("typing.", "")
    if isinstance(hint, type) and issubclass(hint, Model):
        return "section"
    return "null" if hint is type(None) else getattr(hint, "__name__", str(hint))


def comments(kind: type) -> dict[str, str]:
    """Return by field of a class, its bases included, its `#:` comment as one line."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] in ("bench", "methods"):
            docs = ModuleAnalyzer.for_module(base.__module__).find_attr_docs()
            found |= {name: " ".join(lines).strip() for (owner, name), lines in docs.items() if owner == base.__name__}
    return found


def show_as_written(_: Sphinx, kind: str, *rest: Any) -> None:
    """Show docstrings as they stand in the source: those of modules have drawings, and `side_` is no link."""
    lines: list[str] = rest[-1]
    if kind == "module":
        lines[:] = ["::", "", *(f"    {line}" for line in lines), ""]
    else:
        lines[:] = [_LINK.sub(r"\_", line) for line in lines]


def link_from_the_root(*event: Any) -> None:
    """Turn the links of README.md, which `docs/index.md` includes, into links of a page in `docs/`."""
    content: list[str] = event[-1]
    content[0] = re.sub(r"\]\((?!https?:|#)(docs/)?", lambda link: "](" if link[1] else "](path:../", content[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the parts; Sphinx calls it."""
    app.connect("builder-inited", write_pages)
    app.connect("include-read", link_from_the_root)
    app.connect("autodoc-process-docstring", show_as_written)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
