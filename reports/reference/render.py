"""`bench board reference`: pages and tables of the committed comparisons, made from their archives of runs alone.

A comparison is a folder with an archive of its runs, which `bench store pack` writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import resources
from bench.console.markup import html, together
from bench.errors import UserError
from bench.store import Store
from bench.store.files import write_bytes
from bench.store.incoming import unpack_incoming
from bench.store.pack import ARCHIVE
from reports.build import all_tables, build, table_files
from reports.pages.answer import question, verdict
from reports.pages.html import document
from reports.pages.sections import last_run, listed
from reports.reference.agreement import Ranking, agreement_page, ranking
from reports.reference.budgets import budgets_page, budgets_part
from reports.reference.claims import Claims, read_claims
from reports.reference.claims_page import ClaimsPart, claims_part, claims_text
from reports.results import Results, load
from reports.statistics.validity import ANSWERS, validity

INDEX, CLAIMS, AGREEMENT, BUDGETS = "index.html", "CLAIMS.md", "AGREEMENT.md", "BUDGETS.md"
PAGE, SUMS = "report.html", "tables.sha256"  #: of a comparison
_TITLE = "Committed comparisons"
_HEADS = ("comparison", "question", "data", "methods", "seeds", "answer", "speaks of robustness", "last run")


@dataclass(frozen=True)
class Comparison:
    """What is computed of one comparison, without its page."""

    name: str  #: of its folder
    about: tuple[str, ...]  #: as `_HEADS`, after the first
    tables: Mapping[str, bytes]  #: by their names below the folder
    claims: ClaimsPart | None  #: None if other comparisons judge all claims
    is_main: bool  #: whether claims are judged by it that name no other, and the others are compared with it
    ranking: Ranking
    budgets: list[str]  #: lines of `BUDGETS`; [] for one budget

    @property
    def sums(self) -> str:
        """A line a table, as sha256sum writes it."""
        lines = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(self.tables.items()))
        return "".join(lines)


def render(root: Path, out: Path) -> list[Path]:
    """Write page, tables and checksums of each comparison below `root` to `out`, and the pages over all, index last.

    Nothing is written unless every archive is whole. Raises UserError for a folder without comparisons, and for an
    archive that is damaged, forged or holds another number of suites than one.
    """
    claims = read_claims(resources.published_folder())
    files, made = dict[str, bytes](), list[Comparison]()
    for folder in comparisons(root):
        with opened(folder) as (suite, store):
            one = computed(folder.name, load(suite, store), claims)
            own = {**one.tables, SUMS: one.sums.encode(), PAGE: build(suite, store).paths[0].read_bytes()}
        made.append(one)
        files |= {f"{folder.name}/{name}": content for name, content in own.items()}
    files |= {name: text.encode() for name, text in over_all(made).items()}
    for name, content in files.items():
        write_bytes(out / name, content, durable=False)
    return [out / name for name in files]


def computed(name: str, results: Results, claims: Claims) -> Comparison:
    """Return what is computed of a comparison's results."""
    own = claims.judged_by(name)
    return Comparison(
        name,
        _about(results),
        table_files(results, all_tables(results)),
        claims_part(results, own) if own.papers else None,
        name == claims.comparison,
        ranking(results),
        budgets_part(results),
    )


def over_all(made: Sequence[Comparison]) -> dict[str, str]:
    """Return the index and the pages over all, by their names: two if the main comparison is among these, and one if
    one of these has several budgets.
    """
    texts = dict[str, str]()
    for main in (one for one in made if one.is_main):
        others = [one.ranking for one in made if one is not main]
        claims = claims_text([one.claims for one in made if one.claims])
        texts |= {CLAIMS: claims, AGREEMENT: agreement_page(main.ranking, others)}
    if budgets := budgets_page([one.budgets for one in made]):
        texts[BUDGETS] = budgets
    beside = together(html('<a href="{0}">{0}</a>', name) for name in texts)
    rows = [(html('<a href="{}/{}">{}</a>', one.name, PAGE, one.name), *one.about) for one in made]
    body = [html("<h1>{}</h1><nav>{}</nav>{}", _TITLE, beside, listed(_HEADS, rows, (1, 5)))]
    return {**texts, INDEX: document(_TITLE, body)}


def _about(results: Results) -> tuple[str, ...]:
    """A comparison in the cells of the index."""
    data, seeds = results.plan["data"], len(results.plan["seeds"])
    robust = dict.fromkeys(ANSWERS[one.outcome] for one in validity(results)) or ("not asked",)
    made = f"{data['name']}, {data['rows']:,} pairs"
    counts = (str(len({run.method for run in results.runs})), str(seeds))  # some rows apply to none of its towers
    return question(results), made, *counts, verdict(results), ", ".join(robust), last_run(results)


def comparisons(root: Path) -> list[Path]:
    """Return the folders of comparisons, sorted. Raises UserError if there are none."""
    found = sorted(path.parent for path in root.glob(f"*/{ARCHIVE}"))
    if not found:
        raise UserError(f"{root}: has no comparison; `bench store pack SUITE --out {root}/SUITE/{ARCHIVE}` makes one")
    return found


@contextmanager
def opened(folder: Path) -> Iterator[tuple[str, Store]]:
    """Yield a comparison's suite and a store of its runs, in a private folder. Raises UserError as `render` does."""
    with unpack_incoming(folder / ARCHIVE) as store:
        suites = store.plans()
        if len(suites) != 1:
            raise UserError(f"{folder / ARCHIVE}: holds the plans of {len(suites)} suites, and should hold one")
        yield suites[0], store
