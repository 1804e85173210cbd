"""Find a stored run by the beginning of its id."""

from __future__ import annotations

from bench.errors import UserError
from bench.store import RunStore, Store

SHORT = 16  #: characters of an id that are printed


def find_run(store: Store, prefix: str) -> RunStore:
    """Return the one stored run whose id starts with `prefix`. Raises UserError if there are none or several."""
    ids = [run.id for run in store.runs()]
    matches = [identity for identity in ids if identity.startswith(prefix)] if prefix else []
    if prefix in matches:
        return store.run(prefix)
    if not matches:
        raise UserError(f"{prefix!r}: no run in {store.root} has an id that starts like this ({len(ids)} are stored)")
    if len(matches) > 1:
        some = ", ".join(identity[:SHORT] for identity in matches[:4])
        raise UserError(f"{prefix!r}: {len(matches)} runs start like this: {some}{', ...' if len(matches) > 4 else ''}")
    return store.run(matches[0])
