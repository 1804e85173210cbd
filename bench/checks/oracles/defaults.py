"""Numbers of every adapter's defaults and presets as papers and official code state them.

`defaults.json` holds them by method and preset; "" stands for the defaults, "phases" for shares and learning rates.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.adapters import registry
from bench.checks import lab
from bench.checks.oracles import KnownValue, KnownValues, OracleEntry, case, values


def _stated(name: str, expected: OracleEntry) -> KnownValues:
    kind: Any = registry.find_method(name)
    phases = {
        f"{phase.name} {x}": getattr(phase, x)
        for phase in lab.build_adapter(kind).phases()
        for x in ("share", "lr_scale")
    }
    given = {"": vars(kind.Config()), **kind.presets, "phases": phases}
    for preset, numbers in expected.items():
        for field, number in numbers.items():
            yield KnownValue(f"{field} of {preset or 'the defaults'}", given[preset][field], number, 1e-6, 0.0)


for _name in values()["defaults"]:
    case(_name, f"defaults/{_name}")(partial(_stated, _name))
