"""A suite's whole report from its plan and the store. Never imports torch."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.store import Store
from bench.store.files import write_bytes
from reports.latex import document, table_latex
from reports.results import load
from reports.tables import tables


@dataclass(frozen=True)
class Built:
    """What was written, and which runs the report still lacks."""

    paths: tuple[Path, ...]
    failed: tuple[str, ...]  #: ids of runs
    missing: tuple[str, ...]  #: ids of runs that are neither done nor failed


def build(suite: str, store: Store) -> Built:
    """Write `report.html`, `records.csv`, `tables/` and `figures/` beside the suite's plan; the page comes first.

    Works at any time: what is not there yet says so in its cell. Files of an earlier report are replaced one by one,
    and its tables and figures that no longer exist are removed.
    Raises UserError where the suite has no plan in this store.
    """
    with _no_collector():
        return _build(suite, store)


@contextmanager
def _no_collector() -> Iterator[None]:
    """A report makes a hundred thousand objects and keeps them; looking for garbage among them takes a fifth of it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _build(suite: str, store: Store) -> Built:
    from reports.csv import records_csv, table_csv  # here, where pandas and seaborn load without the collector
    from reports.figures import pictures
    from reports.html import page

    results = load(suite, store)
    made = tables(results)
    drawn = pictures(results)
    files = {"report.html": page(results, made, drawn).encode(), "records.csv": records_csv(results).encode()}
    for table in made:
        files[f"tables/{table.name}.csv"] = table_csv(table).encode()
        files[f"tables/{table.name}.tex"] = table_latex(table).encode()
    inputs = [rf"\input{{{table.name}}}" for table in made]
    files["tables/all.tex"] = document(inputs).encode()
    for picture in drawn:
        files[f"figures/{picture.name}.pdf"] = picture.pdf
        files[f"figures/{picture.name}.png"] = picture.png
    folder = store.suite(suite)
    for name, content in files.items():
        write_bytes(folder / name, content, durable=False)
    _remove_others(folder, {folder / name for name in files})
    states = {run.run: run.status["state"] for run in results.runs}
    return Built(
        paths=tuple(folder / name for name in files),
        failed=tuple(run for run, state in states.items() if state == "failed"),
        missing=tuple(run for run, state in states.items() if state not in ("failed", "done")),
    )


def _remove_others(folder: Path, written: set[Path]) -> None:
    for kind in ("tables/*.csv", "tables/*.tex", "figures/*.pdf", "figures/*.png"):
        for path in folder.glob(kind):
            if path not in written:
                path.unlink()
