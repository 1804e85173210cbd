"""Stored results from Python: pandas frames, matplotlib figures, reports. Never imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bench.errors import UserError, nearest
from bench.store import Store

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from reports.compare import Comparison
    from reports.results import Results as SuiteResults
    from reports.tables.table import Table


class Results:
    """The results below a folder. If it holds plans of several suites, `suite` chooses one of them.

    Everything is read from disk at each call, so runs that other processes finish meanwhile are seen. Every method
    takes `suite` as well, which goes before the one given here.
    Methods raise UserError for a suite without a plan, for a damaged plan.json, and for unknown names of tables,
    figures and labels.

    >>> results = bench.Results("results", suite="quickstart")  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path = "results", suite: str | None = None) -> None:
        self.folder = Path(folder)
        self._store = Store(self.folder)
        self._suite = suite

    @property
    def suites(self) -> list[str]:
        """Names of the suites that were planned or run here, sorted.

        >>> bench.Results("results").suites  # doctest: +SKIP
        ['cc3m_noisy', 'quickstart']
        """
        return sorted(path.parent.name for path in self.folder.glob("*/plan.json"))

    def records(self, suite: str | None = None) -> pd.DataFrame:
        """Return every record of a suite's runs, one line each: label, noise, seed, data set, task, metric, value, ...

        >>> results.records().query("metric == 'top1' and at == 1.0").groupby("label")["value"].mean()  # doctest: +SKIP
        """
        from reports.tables.csv import records_frame

        return records_frame(self._read(suite))

    def tables(self, suite: str | None = None) -> list[str]:
        """Return the names of the tables that `table` knows.

        >>> results.tables()  # doctest: +SKIP
        ['overview', ...]
        """
        from reports.build import all_tables

        return [table.name for table in all_tables(self._read(suite))]

    def table(self, name: str, suite: str | None = None) -> pd.DataFrame:
        """Return a table of the report as its CSV has it: each column's mean, with std, n and run ids next to it.

        >>> results.table("overview").set_index("row")  # doctest: +SKIP
        """
        from reports.tables.csv import table_frame

        return table_frame(_table_of(self._read(suite), name))

    def latex(self, name: str, suite: str | None = None, methods: Sequence[str] = ()) -> str:
        r"""Return a table as a paper prints it: methods by their titles with `\cite`, without the report's long notes.

        methods: labels of the rows to keep, all by default. The keys are those that `bench methods --cite` prints.

        >>> Path("overview.tex").write_text(results.latex("overview", methods=["clip", "sogclr"]))  # doctest: +SKIP
        """
        from reports.tables.latex import for_a_paper

        results = self._read(suite)
        return for_a_paper(results, _table_of(results, name), methods)

    def figure(
        self,
        name: str,
        suite: str | None = None,
        methods: Sequence[str] = (),
        width: Literal["page", "column"] | None = None,
    ) -> Figure:
        """Return a figure of the report, such as "answer", "differences", "radar", "noise", "cost", "course",
        "shares", "before_after" or "embeddings".

        methods: labels to draw, for the radar, which shows a few unless it is asked for others. width: of a paper, a
        page (6.9 inches) or one of two columns (3.3 inches), with text of 7 to 8 points; by default the figure is as
        wide as on the page of the report. UserError if its numbers are not stored, or have no room in a column.

        >>> results.figure("radar", methods=["clip", "sogclr"], width="column").savefig("radar.pdf")  # doctest: +SKIP
        """
        from reports.build import figure_of

        return figure_of(self._read(suite), name, methods, width)

    def status(self, suite: str | None = None) -> pd.DataFrame:
        """Return one line per run: method, noise, seed, state, step, run (the start of its id) and a note.

        The note holds the error of a failed run, and the job of SLURM or Ray of a run that is not done.

        >>> results.status().query("state == 'failed'")[["method", "note"]]  # doctest: +SKIP
        """
        import pandas as pd

        from reports.status import HEAD, run_lines

        columns = [column or "note" for column in HEAD]
        return pd.DataFrame(run_lines(self._read(suite)), columns=columns).astype({"seed": int})

    def compare(self, a: str, b: str | None = None, suite: str | None = None) -> Comparison:
        """Compare two labels of a suite on every metric: difference, interval, p-value, cost and a verdict.

        Without `b`, `a` is compared with the suite's baseline.

        >>> print(results.compare("sogclr", "clip").text())  # doctest: +SKIP
        """
        from reports.compare import compare

        return compare(self._name(suite), self._store, a, b)

    def report(self, suite: str | None = None, widths: Sequence[Literal["page", "column"]] = ("page",)) -> Path:
        """Write tables, figures and the page of a suite; return the path of `report.html`.

        widths: of a paper, for which the figures are written as PDF: figures/NAME.pdf, and figures/NAME-column.pdf for
        one of two columns where its words can be read there.

        >>> webbrowser.open(results.report().resolve().as_uri())  # doctest: +SKIP
        """
        from reports.build import build, refuse_widths

        refuse_widths(widths, "widths")
        return build(self._name(suite), self._store, widths=widths).paths[0]

    def _read(self, suite: str | None) -> SuiteResults:
        from reports.results import load

        return load(self._name(suite), self._store)

    def _name(self, suite: str | None) -> str:
        """Return the suite named here, else the one named when this was made, else the only one in the folder."""
        known = self.suites
        name = suite or self._suite or (known[0] if len(known) == 1 else None)
        if name is None:
            which = f"choose a suite: {', '.join(known)}" if known else "no suite was planned or run here"
            raise UserError(f"{self.folder}: {which}")
        return name


def _table_of(results: SuiteResults, name: str) -> Table:
    from reports.build import all_tables

    tables = {table.name: table for table in all_tables(results)}
    if name not in tables:
        raise UserError(f"{name!r} is not a table of this report{nearest(name, tables)}")
    return tables[name]


def suite_rows(store: Store) -> list[tuple[str, ...]]:
    """Return a heading and a row for each suite that is shipped or has a plan in the store: rows, runs, data, what for.

    Runs are those done of those planned, "-" where nothing is planned.
    """
    from bench.resources import suite_names
    from bench.suite.suite import load_suite

    rows: list[tuple[str, ...]] = [("suite", "rows", "runs done", "data", "description")]
    shipped = suite_names()
    for name in sorted({*shipped, *store.plans()}):
        if plan := store.plan(name):
            runs = {cell["run"] for cell in plan["cells"] if cell["run"]}
            done = sum(store.run(one).status()["state"] == "done" for one in runs)
            count = f"{done} of {len(runs)}"
            rows += [(name, str(len(plan["methods"])), count, plan["data"]["name"], plan["description"])]
        else:
            suite = load_suite(name, check_methods=False)
            rows += [(name, str(len(suite.methods)), "-", suite.data.name, suite.description)]
    return rows
