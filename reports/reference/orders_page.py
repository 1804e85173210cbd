"""ORDERS.md: whether the other committed comparisons rank the methods as the main one does."""

from __future__ import annotations

from collections.abc import Sequence

from bench.console.markup import markdown, markdown_table
from reports.reference.orders import HEAD, NOTES, Ranking, agreement_cells, agreements


def orders_text(first: Ranking, others: Sequence[Ranking]) -> str:
    """Return the page as Markdown; "" if no other comparison shares a noise and enough methods."""
    sections = []
    for other in others:
        if compared := agreements(first, other):
            lines = markdown_table(HEAD, [[markdown(cell) for cell in agreement_cells(one)] for one in compared])
            about = f"{markdown(first.headline)} there, {markdown(other.headline)} here."
            sections.append("\n".join([f"## {markdown(other.suite)}", "", about, "", *lines, ""]))
    if not sections:
        return ""
    head = f"# Do other comparisons rank the methods as {markdown(first.suite)} does?"
    notes = "\n".join(f"- {markdown(note)}" for note in NOTES)
    return "\n".join(
        [head, "", "`bench orders SUITE OTHER` prints the same for any two suites.", "", notes, "", *sections]
    )
