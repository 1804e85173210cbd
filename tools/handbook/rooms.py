"""The plan of the house: every room, on the floor that its imports give it, drawn from the imports themselves.

`tests/test_house.py` reads the same imports and fails on a circle or an arrow up.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from types import ModuleType

from bench.console.markup import Html, html, together
from tools.handbook.links import ROOT
from tools.handbook.text import code, prose, table

WIDTH, BOX, GAP, FLOOR = 980, 30, 10, 68  #: points: of the drawing, a box's height, least between boxes, between floors
LETTER = 7.6  #: points a letter, in the drawing's font

Rooms = Mapping[str, set[str]]


def page() -> str:
    """Return the drawing and the table of rooms as Markdown, to be included."""
    house = _house()
    arrows: dict[str, set[str]] = {room: set(other) for room, other in house.arrows().items() if room != "tools"}
    floors: dict[str, int] = house.floors(arrows)
    rows = [
        [
            code(_short(room)),
            str(floors[room]),
            ", ".join(code(_short(other)) for other in sorted(direct(arrows)[room])),
            prose(_about(room)),
        ]
        for room in sorted(floors, key=lambda room: (floors[room], room))
    ]
    return f"{drawing(arrows, floors)}\n\n{table(['room', 'floor', 'imports', 'holds'], rows)}"


def _house() -> ModuleType:
    """The test that measures the house; its functions are the one reading of the imports."""
    spec = importlib.util.spec_from_file_location("handbook_house", ROOT / "tests" / "test_house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _about(room: str) -> str:
    """The first line of a room's docstring."""
    path = ROOT.joinpath(*room.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    lines = source.read_text(encoding="utf-8").lstrip().removeprefix('"""').splitlines()
    return lines[0].removesuffix('"""') if lines else ""


def direct(arrows: Rooms) -> dict[str, set[str]]:
    """Return the arrows that no other way replaces: with a -> b -> c, an arrow a -> c is left out."""
    return {
        room: {other for other in others if not any(other in _below(arrows, one) for one in others - {other})}
        for room, others in arrows.items()
    }


def _below(arrows: Rooms, room: str) -> set[str]:
    return set().union(*({other} | _below(arrows, other) for other in arrows.get(room, ())))


def drawing(arrows: Rooms, floors: Mapping[str, int]) -> Html:
    """Return the plan as SVG; the ground floor is at the bottom, an arrow leads from a room to one that it imports."""
    top = max(floors.values())
    places: dict[str, tuple[float, float, float]] = {}  # room -> left, upper edge, width
    for floor in range(1, top + 1):
        rooms = sorted(room for room in floors if floors[room] == floor)
        widths = [LETTER * len(_short(room)) + 16 for room in rooms]
        gap = max(GAP, min(90.0, (0.6 * WIDTH - sum(widths)) / len(rooms)))
        left = (WIDTH - sum(widths) - gap * (len(rooms) - 1)) / 2
        for room, width in zip(rooms, widths, strict=True):
            places[room] = (left, (top - floor) * FLOOR + 8, width)
            left += width + gap
    lines = together(
        _line(places[room], places[other], f"{_short(room)} imports {_short(other)}")
        for room, others in sorted(direct(arrows).items())
        for other in sorted(others)
    )
    boxes = together(_box(_short(room), *place) for room, place in sorted(places.items()))
    return html(
        '<div class="plan"><svg viewBox="0 0 {} {}" role="img" aria-label="The rooms by floor, with the imports '
        'between them. The table below has the same.">{}{}</svg></div>',
        WIDTH,
        top * FLOOR - FLOOR + BOX + 16,
        lines,
        boxes,
    )


def _short(room: str) -> str:
    return room.removeprefix("bench.")


def _line(start: tuple[float, float, float], end: tuple[float, float, float], title: str) -> Html:
    x, y, width = start
    x, y = x + width / 2, y + BOX
    to_x, to_y = end[0] + end[2] / 2, end[1]
    middle = (y + to_y) / 2
    return html(
        '<path d="M{} {} C{} {} {} {} {} {}"><title>{}</title></path>',
        *map(_number, (x, y, x, middle, to_x, middle, to_x, to_y)),
        title,
    )


def _number(value: float) -> Html:
    return Html(f"{value:.0f}")


def _box(name: str, left: float, upper: float, width: float) -> Html:
    numbers = [_number(value) for value in (left, upper, width, BOX, left + width / 2, upper + BOX / 2 + 4.5)]
    return html('<rect x="{}" y="{}" width="{}" height="{}" rx="5"/><text x="{}" y="{}">{}</text>', *numbers, name)
