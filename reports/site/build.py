"""`bench site`: the whole board in a folder that works without a network."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.errors import UserError
from bench.store.files import write_bytes
from reports.site.pages import VERSION, board_csv, has_page, index_page, method_page, run_csv, run_page
from reports.site.rows import BoardRow, board_rows, slug
from reports.site.sources import Source, listed, opened

ABOUT = "board.json"  #: of a site: its version and files; a folder without it is never written to unless it is empty
_ID = re.compile(r"[0-9a-f]{64}")


@dataclass
class _Site:
    """What is known of the site so far."""

    rows: list[BoardRow] = field(default_factory=list)
    methods: dict[str, Mapping[str, Any]] = field(default_factory=dict)  #: label -> what the first plan says of it
    sources: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def add(self, source: Source) -> None:
        """Add a suite's rows, and the pages of its runs, which are read while the source is open."""
        results = source.results
        self.rows += board_rows(source)
        self.methods = {**results.methods, **self.methods}
        done, data = results.states()["done"], results.plan["data"]
        parts = [f"{done} of {len(results.runs)} runs", f"protocol {results.plan['protocol']}"]
        parts += [f"plan {str(results.plan.get('suite_hash', ''))[:12]}", f"{data['name']}, {data['rows']:,} pairs"]
        self.sources.append(f"{source.name}: suite {results.suite}; {'; '.join(parts)}")
        for run in results.runs:
            if not _ID.fullmatch(run.run):
                raise UserError(f"{source.name}: plan: run: {run.run[:80]!r} should be 64 hex digits, as ids are")
            if has_page(run) and f"runs/{run.run}.html" not in self.files:
                self.files[f"runs/{run.run}.html"] = run_page(run, [results.suite]).encode()
                self.files[f"runs/{run.run}.csv"] = run_csv(run).encode()

    def finished(self) -> dict[str, bytes]:
        """Return all files by their names."""
        for label, about in self.methods.items():
            own = [row for row in self.rows if row.method == label]
            self.files[f"methods/{slug(label)}.html"] = method_page(label, about, own).encode()
        about = {"version": VERSION, "sources": self.sources, "files": sorted(self.files)}
        return {
            **self.files,
            "board.csv": board_csv(self.rows).encode(),
            "index.html": index_page(self.rows, self.sources).encode(),
            ABOUT: (json.dumps(about, indent=1) + "\n").encode(),
        }


def site(paths: Sequence[Path], out: Path) -> list[Path]:
    """Write the board over stores, committed comparisons and bundles; return its files, the index first.

    An earlier site in `out` is replaced. Raises UserError if there are no runs, if an archive is damaged or forged, and
    if `out` has other files than a site.
    """
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / ABOUT).is_file())):
        raise UserError(f"--out {out}: is neither an empty folder nor an earlier site; choose another")
    whole = _Site()
    for path in listed(paths):
        with opened(path) as sources:
            for source in sources:
                whole.add(source)
    if not whole.rows:
        raise UserError(f"{', '.join(map(str, paths))}: has no planned runs to show")
    files = whole.finished()
    for folder in ("runs", "methods"):
        for old in (out / folder).glob("*"):
            if f"{folder}/{old.name}" not in files and old.suffix in (".html", ".csv"):
                old.unlink()
    for name, content in files.items():
        write_bytes(out / name, content, durable=False)
    return [out / "index.html", *(out / name for name in files if name != "index.html")]
