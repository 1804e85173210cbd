"""The page of tools/gpu_evidence.py: one HTML file that stands alone."""

from __future__ import annotations

import html
from typing import Any

Part = dict[str, Any]
GOAL = 4.0  #: runs an hour, some at a time, beside one at a time
STYLE = (
    "body{font:15px/1.4 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "td,th{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #8884}"
    "div{overflow-x:auto}@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}"
)


def page(found: Part) -> str:
    """The evidence as a page: what machine it is of, and a section for each part and step."""
    hardware, packages = found["environment"]["hardware"], found["environment"]["packages"]
    first = f"On {hardware['device']}" if found["gpu"] else "No GPU on this machine: the CPU half, at small sizes"
    about = (
        f"{first}; torch {packages.get('torch', '?')}, commit {(found['environment'].get('commit') or 'unknown')[:12]}."
    )
    body = [f"<h1>GPU evidence</h1><p><strong>{html.escape(about)}</strong></p>"]
    for name, part in found["parts"].items():
        body.append(f"<h2>{html.escape(name)}</h2>")
        body += [f"<p>{html.escape(line)}</p>" for line in ratios(part)]
        for title, step in part.items():
            body.append(f"<h3>{html.escape(title)} ({step['seconds']:.0f} s)</h3>{_shown(step)}")
    head = '<!doctype html>\n<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    return f"{head}\n<title>GPU evidence</title>\n<style>{STYLE}</style>\n{''.join(body)}\n"


def ratios(part: Part) -> list[str]:
    """Of a sweep, how many times the runs of one at a time are made in an hour; of another part nothing."""
    rows = [row for step in part.values() for row in step.get("rows", []) if "runs an hour" in row]
    alone = next((row["runs an hour"] for row in rows if row["runs at a time"] == 1), None)
    more = [row for row in rows if row["runs at a time"] != 1]
    if alone is None or not more:
        return []
    best = max(more, key=lambda row: row["runs an hour"])
    told = [f"{row['runs at a time']}: {row['runs an hour'] / alone:.2f}" for row in more]
    reached = best["runs an hour"] / alone
    return [
        f"Runs an hour beside one at a time, {', '.join(told)}. At the most {reached:.2f} times; {GOAL:g} are aimed at."
    ]


def _shown(step: Part) -> str:
    """Lists of rows as tables, other lists a line an entry, all else as a line; nothing of what is empty."""
    found = []
    for key, value in step.items():
        if key == "seconds" or value == []:
            continue
        if isinstance(value, list) and isinstance(value[0], dict):
            heads = "".join(f"<th>{html.escape(str(head))}</th>" for head in value[0])
            rows = "".join(
                "<tr>" + "".join(f"<td>{_cell(one)}</td>" for one in row.values()) + "</tr>" for row in value
            )
            title = "" if key == "rows" else f"<h4>{html.escape(key)}</h4>"
            found.append(f"{title}<div><table><tr>{heads}</tr>{rows}</table></div>")
        else:
            found += [
                f"<p>{html.escape(key)}: {_cell(one)}</p>" for one in (value if isinstance(value, list) else [value])
            ]
    return "".join(found)


def _cell(value: object) -> str:
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))
