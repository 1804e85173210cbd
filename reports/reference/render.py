"""`bench reference`: pages and tables of the committed comparisons, made from their archives of runs alone.

A folder of comparisons has one folder a comparison, with an archive of its runs that `bench pack` wrote. An older one
without an archive is named in the index and otherwise left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import resources
from bench.errors import UserError
from bench.store import Store
from bench.store.files import write_bytes
from bench.store.incoming import unpacked
from bench.store.pack import ARCHIVE
from reports.build import all_tables, build, table_files
from reports.reference.claims import Claims, read_claims
from reports.reference.claims_page import claims_text
from reports.reference.index import Entry, bare_entry, entry_of, index_page
from reports.reference.kinds import kinds_section, kinds_text
from reports.reference.orders import Ranking, ranking
from reports.reference.orders_page import orders_text
from reports.results import load
from reports.statistics.contrasts import headline_contrasts

INDEX, CLAIMS, ORDERS, KINDS, PAGE = "index.html", "CLAIMS.md", "ORDERS.md", "KINDS.md", "report.html"
TABLES, README = "tables", "README.md"
_LINKS = {
    PAGE: "the report",
    f"{TABLES}/overview.csv": "overview as CSV",
    f"{TABLES}/all.tex": "all tables as LaTeX",
    README: "notes",
    ARCHIVE: "its runs",
}


@dataclass
class Rendered:
    """What was written, and the comparisons whose runs are not committed."""

    paths: list[Path] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Summary:
    """What is computed of one comparison, without its figures."""

    entry: Entry
    tables: Mapping[str, bytes]  #: by their names below the comparison's folder; {} if its runs are not committed
    claims: str  #: CLAIMS.md; "" if another comparison judges the claims
    ranking: Ranking | None = None  #: None if nothing of it can be compared
    kinds: str = ""  #: its section of KINDS.md; "" if it has no two kinds of noise


def render(root: Path) -> Rendered:
    """Write `report.html` and `tables/` of every comparison below `root`, then the index, the claims, the orders and
    what holds across kinds of noise.

    Nothing is written unless every archive is whole. Raises UserError for a folder without comparisons, and for an
    archive that is damaged, forged or holds another number of suites than one.
    """
    claims = read_claims(resources.published())
    rendered, files, summaries = Rendered(), dict[Path, bytes](), list[Summary]()
    for folder in comparisons(root):
        if (folder / ARCHIVE).is_file():
            with opened(folder) as (suite, store):
                summaries.append(summary(folder, suite, store, claims))
                files[folder / PAGE] = build(suite, store).paths[0].read_bytes()
            files |= {folder / name: content for name, content in summaries[-1].tables.items()}
        else:
            summaries.append(bare(folder))
            rendered.bare.append(folder.name)
    files |= {root / name: content for name, content in over_all(summaries).items()}
    for path, content in files.items():
        write_bytes(path, content, durable=False)
    _remove_others(files)
    rendered.paths = list(files)
    return rendered


def summary(folder: Path, suite: str, store: Store, claims: Claims) -> Summary:
    """Return what is computed of a comparison whose runs are in `store`. Raises UserError as `load` does."""
    results = load(suite, store)
    tables = table_files(results, all_tables(results))
    text = claims_text(results, claims) if folder.name == claims.comparison else ""
    own = ranking(results) if headline_contrasts(results) else None
    return Summary(
        entry_of(folder.name, results, _links(folder, (PAGE, *tables))), tables, text, own, kinds_section(results)
    )


def bare(folder: Path) -> Summary:
    """Return what is known of a comparison whose runs are not committed. Raises Damaged for its plan."""
    return Summary(bare_entry(folder.name, Store(folder.parent).plan(folder.name), _links(folder)), {}, "")


def over_all(summaries: Sequence[Summary]) -> dict[str, bytes]:
    """Return the index, the claims, the orders and what holds across kinds of noise, by their names."""
    main = next((one for one in summaries if one.claims), None)
    texts = {CLAIMS: main.claims, ORDERS: _orders(main, summaries)} if main else {}
    texts[KINDS] = kinds_text([one.kinds for one in summaries])
    texts = {name: text for name, text in texts.items() if text}
    page = index_page([one.entry for one in summaries], texts.keys())
    return {name: text.encode() for name, text in {**texts, INDEX: page}.items()}


def _orders(main: Summary, summaries: Sequence[Summary]) -> str:
    """Return how the other comparisons rank the methods of the one that judges the claims."""
    others = [one.ranking for one in summaries if one.ranking and one is not main]
    return orders_text(main.ranking, others) if main.ranking else ""


def comparisons(root: Path) -> list[Path]:
    """Return the folders of comparisons, sorted. Raises UserError if there are none."""
    known = (ARCHIVE, "plan.json", PAGE)
    folders = sorted(root.iterdir()) if root.is_dir() else []
    found = [one for one in folders if one.is_dir() and any((one / name).is_file() for name in known)]
    if not found:
        raise UserError(f"{root}: has no comparison; `bench pack SUITE --out {root}/SUITE/{ARCHIVE}` makes one")
    return found


@contextmanager
def opened(folder: Path) -> Iterator[tuple[str, Store]]:
    """Yield a comparison's suite and a store of its runs, in a private folder. Raises UserError as `render` does."""
    with unpacked(folder / ARCHIVE) as store:
        suites = store.plans()
        if len(suites) != 1:
            raise UserError(f"{folder / ARCHIVE}: holds the plans of {len(suites)} suites, and should hold one")
        yield suites[0], store


def _links(folder: Path, made: Collection[str] = ()) -> list[tuple[str, str]]:
    """Return the files that a reader may want, those that are there or are about to be made."""
    return [(name, what) for name, what in _LINKS.items() if name in made or (folder / name).is_file()]


def _remove_others(files: Mapping[Path, bytes]) -> None:
    """Remove tables of an earlier rendering that no longer exist."""
    for folder in {path.parent for path in files if path.parent.name == TABLES}:
        for path in (*folder.glob("*.csv"), *folder.glob("*.tex")):
            if path not in files:
                path.unlink()
