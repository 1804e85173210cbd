"""Compare noise-robust contrastive image-text learning methods: same budget, same noise, more than chance.

    import bench

    print(*bench.dry_run("quickstart"), sep="\\n")             # runs, steps, hours, missing data
    bench.run_suite("quickstart", results="results")
    results = bench.Results("results")
    results.table("overview")                                 # a pandas frame
    results.figure("radar")                                   # a matplotlib figure
    run = results.status()["run"][0]
    bench.export(run, "exported", results="results")          # a folder that open_clip loads

Names are resolved when they are first used: `import bench` is instant, and `Results` never imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.adapters.registry import add_plugin
    from bench.checks.suite import check
    from bench.errors import UserError
    from bench.launch.dry_run import dry_run
    from bench.launch.run_suite import run_suite
    from bench.models.evaluate_checkpoint import evaluate_checkpoint as evaluate
    from bench.models.export import export
    from bench.results import Results
    from bench.suite.suite import Suite, load_suite

#: public name -> its module, and its name there
_HOME = {
    "Results": ("bench.results", "Results"),
    "Suite": ("bench.suite.suite", "Suite"),
    "UserError": ("bench.errors", "UserError"),
    "add_plugin": ("bench.adapters.registry", "add_plugin"),
    "check": ("bench.checks.suite", "check"),
    "dry_run": ("bench.launch.dry_run", "dry_run"),
    "evaluate": ("bench.models.evaluate_checkpoint", "evaluate_checkpoint"),
    "export": ("bench.models.export", "export"),
    "load_suite": ("bench.suite.suite", "load_suite"),
    "run_suite": ("bench.launch.run_suite", "run_suite"),
}

__all__ = [
    "Results",
    "Suite",
    "UserError",
    "add_plugin",
    "check",
    "dry_run",
    "evaluate",
    "export",
    "load_suite",
    "run_suite",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bench' has no attribute {name!r}")
    module, own = _HOME[name]
    return getattr(import_module(module), own)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
