"""Stored results from Python: pandas frames, matplotlib figures, reports. Never imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import UserError, nearest
from bench.store import Store

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from reports.compare import Comparison
    from reports.results import Results as SuiteResults


class Results:
    """The results below a folder. Where it holds plans of several suites, `suite` says which one is meant.

    Everything is read from disk at each call, so that what other processes finish meanwhile is seen.
    Methods raise UserError for a suite without a plan, and for names of tables, figures and labels that are not there.
    """

    def __init__(self, folder: str | Path = "results", suite: str | None = None) -> None:
        self.folder = Path(folder)
        self._store = Store(self.folder)
        self._suite = suite

    @property
    def suites(self) -> list[str]:
        """The suites that were planned or run here, sorted."""
        return sorted(path.parent.name for path in self.folder.glob("*/plan.json"))

    def records(self, suite: str | None = None) -> pd.DataFrame:
        """Every record of a suite's runs, one line each: label, noise, seed, data set, task, metric, value and more."""
        from reports.csv import records_frame

        return records_frame(self._read(suite))

    def tables(self, suite: str | None = None) -> list[str]:
        """Names of the tables that `table` knows."""
        from reports.build import all_tables

        return [table.name for table in all_tables(self._read(suite))]

    def table(self, name: str, suite: str | None = None) -> pd.DataFrame:
        """A table of the report, as its CSV has it: the mean of every column with std, n and run ids beside it."""
        from reports.build import all_tables
        from reports.csv import table_frame

        found = {table.name: table for table in all_tables(self._read(suite))}
        if name not in found:
            raise UserError(f"{name!r} is not a table of this report{nearest(name, found)}")
        return table_frame(found[name])

    def figure(self, name: str, suite: str | None = None) -> Figure:
        """A figure of the report: "radar", "noise", "cost", "wins", "similarities", as far as there are numbers."""
        from reports.build import all_pictures

        found = {picture.name: picture.figure for picture in all_pictures(self._read(suite))}
        figure = found.get(name)
        if figure is None:
            raise UserError(f"{name!r} is not a figure of this report{nearest(name, found)}")
        return figure

    def compare(self, a: str, b: str, suite: str | None = None) -> Comparison:
        """How two labels of a suite differ on every metric: difference, interval, p-value, cost and a verdict."""
        from reports.compare import compare

        return compare(self._name(suite), self._store, a, b)

    def report(self, suite: str | None = None) -> Path:
        """Write tables, figures and the page of a suite; returns the path of `report.html`."""
        from reports.build import build

        return build(self._name(suite), self._store).paths[0]

    def _read(self, suite: str | None) -> SuiteResults:
        from reports.results import load

        return load(self._name(suite), self._store)

    def _name(self, suite: str | None) -> str:
        """The suite that is meant: the one named here, or when this was made, or the only one there is."""
        known = self.suites
        name = suite or self._suite or (known[0] if len(known) == 1 else None)
        if name is None:
            which = f"say which suite: {', '.join(known)}" if known else "no suite was planned or run here"
            raise UserError(f"{self.folder}: {which}")
        return name
