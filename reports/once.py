"""What is computed of results a single time, and kept with them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, TypeVar, cast

from reports.results import Results

F = TypeVar("F", bound=Callable[..., Any])


def once(compute: F) -> F:
    """Let a function of results compute at its first call for them alone; what it returns must not be changed."""

    @wraps(compute)
    def known(results: Results, *rest: Hashable) -> Any:
        key = (compute, *rest)
        if key not in results.known:
            results.known[key] = compute(results, *rest)
        return results.known[key]

    return cast("F", known)
