"""A stored run by the beginning of its id."""

from __future__ import annotations

from bench.errors import UserError
from bench.store import RunStore, Store

SHORT = 16  #: characters of an id that are printed


def find_run(store: Store, prefix: str) -> RunStore:
    """The one stored run whose id starts with `prefix`; UserError where there is none or several."""
    ids = [run.id for run in store.runs()]
    found = [identity for identity in ids if identity.startswith(prefix)] if prefix else []
    if prefix in found:
        return store.run(prefix)
    if not found:
        raise UserError(f"{prefix!r}: no run in {store.root} has an id that starts like this ({len(ids)} are stored)")
    if len(found) > 1:
        some = ", ".join(identity[:SHORT] for identity in found[:4])
        raise UserError(f"{prefix!r}: {len(found)} runs start like this: {some}{', ...' if len(found) > 4 else ''}")
    return store.run(found[0])
