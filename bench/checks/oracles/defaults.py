"""Numbers of every adapter's defaults and presets as SPEC states them: most values of other code come with their own.

`defaults.json` holds them by method and preset; "" stands for the defaults.
"""

from __future__ import annotations

from functools import partial

from bench.adapters import registry
from bench.checks.oracles import Comparison, Comparisons, Entry, case, values


def _stated(name: str, expected: Entry) -> Comparisons:
    kind = registry.find(name)
    for preset, numbers in expected.items():
        given = kind.presets[preset] if preset else vars(kind.Config())
        for field, number in numbers.items():
            what = f"{field} of preset {preset}" if preset else f"{field} by default"
            yield Comparison(what, given[field], number, 1e-6, 0.0)


for _name in values()["defaults"]:
    case(_name, f"defaults/{_name}")(partial(_stated, _name))
