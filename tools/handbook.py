"""Pages of the documentation site that are made from the code: methods, kinds of noise, commands, promises.

`docs/conf.py` loads it as a Sphinx extension. Every build writes the pages to `docs/generated/`, which git ignores.
Formulas stand as the docstrings write them.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import re
import shutil
import subprocess
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from pydantic_core import PydanticUndefined
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

from bench.adapters import hyperparameters, oracle_file, registry
from bench.adapters.describe import EXAMPLE, describe_cost
from bench.catalogue.noise_kinds import KINDS, NoiseKind
from bench.console.markup import markdown, markdown_table
from bench.data import Pairs
from bench.data.source import data_source
from bench.suite.suite import load_suite
from methods.protocol import Method
from reports.pages.sections import FIDELITY

ROOT = Path(__file__).resolve().parents[1]
METHODS = """\
# The methods

Every file of `methods/` has a page, made from the file. In a terminal: `bench methods`, `bench methods --cite`,
`bench check --all`. A class of fidelity says how a method was checked:

{classes}
Where a paper and its code disagree there are two presets, `paper` and `official`, so that the difference can be
measured.

{table}
```{{toctree}}
:hidden:

{names}
```
"""
NOISE = """\
# The kinds of noise

Made from `bench/catalogue/noise_kinds.py`. A suite names one in `noise.kind`, with a share of the pairs in
`noise.rates` and the settings of a kind in `noise.options` ([a suite](../suites.md)).
[Noise: published, drawn, natural](../noise.md) says how published noise differs, and how files come in and go out.
The pictures are pairs of a batch of the emoji pack that seed 0 changes at a rate of 40 %.
"""
PROMISES = """\
# Promises, and the tests that hold them

Made from the markers `@pytest.mark.promise("...")` of the tests.
"""
_OPTIONS = {"poison": "{target: dog face, trigger: checker}"}  #: of the pictures, for kinds that need some
_BATCH, _SHOWN = 256, 4  #: pairs that the pictures are chosen from, and how many are shown
_CODE, _LINK = re.compile(r"(`[^`]+`)"), re.compile(r"(?<=\w)_(?![\w`])")


def write_pages(app: Sphinx) -> None:
    """Write all generated pages and pictures below the folder of sources."""
    folder = Path(app.srcdir) / "generated"
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in {
        **method_pages(),
        **noise_pages(),
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
        "Cost": prose(describe_cost(hyperparameters.make_method(name, None, {}, EXAMPLE))),
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
        "## Where our reading departs": prose(about.note),
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


def noise_pages() -> dict[str, str | bytes]:
    """Return the page of all kinds of noise, and the pictures on it, by path."""
    when = {True: "once, for the whole run", False: "anew in every step"}
    rows = [
        [f"[`{one.name}`](#{one.name})", prose(one.title), "from files" if one.files else when[one.fixed]]
        for one in KINDS
    ]
    written: dict[str, str | bytes] = {}
    text = NOISE + "\n" + docs_table(["`noise.kind`", "in tables", "drawn"], rows)
    for kind in KINDS:
        summary = f"{kind.summary[0].upper()}{kind.summary[1:]}."
        text += f"\n({kind.name})=\n## {kind.name}\n\n{prose(summary)} Corrupted pairs {prose(kind.effect)}.\n\n"
        hints, meaning = typing.get_type_hints(kind.options), comments(kind.options)
        options = [
            [
                code(name),
                prose(type_name(hints[name])),
                "" if field.default is PydanticUndefined else code(repr(field.default)),
                prose(meaning.get(name, "")),
            ]
            for name, field in kind.options.model_fields.items()
        ]
        text += docs_table(["option", "type", "default", "meaning"], options) + "\n" if options else ""
        examples: list[list[str]] = []
        for png, own, given in () if kind.files else _examples(kind):
            name = f"noise-{kind.name}-{len(examples) + 1}.png"
            written[name] = png
            examples.append([f"![{prose(own)}]({name})", prose(own), prose(given)])
        text += docs_table(["picture", "caption", "caption under the noise"], examples) if examples else ""
    return {"noise_kinds.md": text, **written}


def _examples(kind: NoiseKind) -> Iterator[tuple[bytes, str, str]]:
    """Yield pairs of a batch that the noise changes: the picture that training sees, own and given first caption."""
    options = _OPTIONS.get(kind.name, "{}")
    suite = load_suite("quickstart", ["data.size=64", f"noise={{kind: {kind.name}, rates: [0.4], options: {options}}}"])
    pairs: Pairs = data_source(suite.data).pairs()
    noise = kind.make(pairs, suite.noise, 0.4, 0)
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
    return "".join(part if number % 2 else _escaped(part) for number, part in enumerate(parts))


def _escaped(part: str) -> str:
    """`markdown` of a part of a line, with the blanks at its ends."""
    words = part.strip()
    return part.replace(words, markdown(words), 1) if words else part


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
    if origin is not None:
        return str(hint).replace("typing.", "")
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint))


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
