"""The model card of an exported run: method, data, budget and scores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bench.adapters import oracle_file
from bench.console.markup import markdown
from bench.console.text import storable

if TYPE_CHECKING:
    from bench.store import RunStore
    from bench.suite.run import Run
    from methods.protocol import Method

_HEAD = """---
library_name: open_clip
pipeline_tag: zero-shot-image-classification
tags: [clip]
---
"""


def card(out: RunStore, run: Run, method: Method, folder: Path) -> str:
    """Return the card as Markdown, under the YAML head that the Hugging Face hub reads."""
    title = f"# {markdown(method.about.title)}"
    return _HEAD + "\n".join([title, "", *_about(out, run, method), *_use(folder), *_scores(out)])


def _about(out: RunStore, run: Run, method: Method) -> Iterator[str]:
    settings, ledger = out.settings(), out.ledger()
    noise = settings["noise"]
    yield markdown(f"{method.about.summary} ({method.about.paper})")
    yield ""
    fidelity = oracle_file.fidelity(run.method, method.about)
    yield f"- method: `{run.method}`, {fidelity}, label {markdown(repr(run.label))}, run `{out.id}`"
    yield f"- data: {markdown(run.data.name)} at {run.data.size} px"
    yield f"- noise: {noise['kind']} at rate {noise['rate']:g}" if noise["kind"] else "- noise: none added"
    yield f"- towers: {markdown(run.towers.image)} and {markdown(run.towers.text)}, D = {run.towers.dim}"
    yield f"- budget: {run.budget.value:g} {run.budget.kind}; spent: {ledger.get('samples', 0):,} pairs, "
    yield f"  {ledger.get('flops', 0):.3g} FLOPs, {ledger.get('train_seconds', 0.0):,.0f} device seconds"
    if method.about.note:
        yield f"- note: {markdown(method.about.note)}"
    if method.score != "cosine":
        yield f"- its own score is {method.score}; open_clip compares the same embeddings by cosine"


def _use(folder: Path) -> Iterator[str]:
    yield from ("", "## Use", "", "```python", "import open_clip")
    name = json.dumps(storable(f"local-dir:{folder}"), ensure_ascii=False)
    yield f"model, _, preprocess = open_clip.create_model_and_transforms({name})"
    yield f"tokenizer = open_clip.get_tokenizer({name})"
    yield from (
        "```",
        "",
        "A folder that was moved: names of paths in `open_clip_config.json` must say where it is.",
        "",
    )


def _scores(out: RunStore) -> Iterator[str]:
    yield from ("## Scores", "", "| data set | task | metric | score | value | n | protocol |")
    yield "|---|---|---|---|---|---|---|"
    for one in out.records():
        if one.at == 1.0:
            named = " | ".join(map(markdown, (one.dataset, one.task, one.metric, one.score)))
            yield f"| {named} | {one.value:.4f} | {one.n} | {markdown(one.protocol)} |"
    yield ""
