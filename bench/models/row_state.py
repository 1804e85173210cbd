"""State of each training pair: vectors of a method's state with one number per row, and the extreme rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from bench.arrays import Floats, Ints
from bench.data import Pairs
from bench.data.noise.manifest import Noise
from bench.data.pairs import webp_images
from bench.errors import UserError, nearest
from bench.models.stored_run import LoadedRun
from bench.training.inputs import Inputs, InputsReader


@dataclass(frozen=True)
class RowState:
    """One vector of a run's state over the pairs that the run saw."""

    name: str
    values: Floats  #: [N]
    pairs: Pairs  #: N
    noise: Noise

    def ends(self, count: int) -> tuple[Ints, Ints]:
        """Return the rows of the `count` smallest values, rising, and of the largest, falling; ties by row."""
        order = np.argsort(self.values, kind="stable")
        return order[:count], order[::-1][:count]

    def text(self, row: int) -> str:
        """The first text that the row trains with."""
        return self.noise.texts(self.pairs, np.array([row], dtype=np.int64))[0][0]


def row_states(stored: LoadedRun) -> Mapping[str, RowState]:
    """Return the vectors of a run's state with one finite number a training pair, by name.

    Raises UserError if the pairs were chosen by the scores of another run, or the data is not here.
    """
    inputs: Inputs = InputsReader().inputs(stored.run)
    if inputs.awaits_scores:
        fault = "its pairs were chosen by scores of another run, so rows have no keys here"
        raise UserError(f"run {stored.title}: {fault}")
    pairs, noise = inputs.seen, inputs.noise_of_seen or Noise()
    method = stored.features.method
    assert isinstance(method, torch.nn.Module)
    return {
        name: RowState(name, buffer.double().cpu().numpy(), pairs, noise)
        for name, buffer in method.named_buffers()
        if buffer.is_floating_point() and buffer.shape == (len(pairs),) and bool(torch.isfinite(buffer).all())
    }


def find_state(stored: LoadedRun, name: str) -> RowState:
    """Return the vector of that name. Raises UserError if the run has none of it, and names those that it has."""
    known = row_states(stored)
    if name not in known:
        has = f"it has {', '.join(known)}" if known else f"{stored.run.method} keeps no state of single pairs"
        raise UserError(f"run {stored.title}: no state {name!r} of each pair; {has}{nearest(name, known)}")
    return known[name]


def state_text(state: RowState, count: int) -> list[str]:
    """Return lines: the pairs with the smallest values, then those with the largest."""
    lines = []
    for title, rows in zip(("smallest", "largest"), state.ends(count), strict=True):
        lines.append(f"{title} {state.name}")
        lines += [f"  {state.values[row]:.6g}  {state.pairs.keys[row]}  {state.text(row)!r}" for row in rows.tolist()]
    return lines


def state_spread(state: RowState) -> str:
    """Return a sentence about the values of all pairs."""
    low, middle, high = (f"{one:.6g}" for one in np.quantile(state.values, [0.05, 0.5, 0.95]))
    about = f"{state.name} of {len(state.values)} pairs of {state.pairs.name}"
    return f"{about}: 5 % are below {low}, half below {middle}, 95 % below {high}."


def state_pictures(state: RowState, count: int) -> Iterator[tuple[str, list[tuple[bytes, str, str, None]]]]:
    """Yield the pairs at both ends, as training saw them, for `reports.pages.pictures.pictures_page`.

    Raises UserError if an image cannot be read.
    """
    pairs = state.noise.applied(state.pairs)
    for end, rows in zip(("Smallest", "Largest"), state.ends(count), strict=True):
        pictures = zip(rows.tolist(), webp_images(pairs, rows), strict=True)
        yield (
            f"{end} {state.name}",
            [
                (picture, state.text(row), f"{state.values[row]:.6g} {state.pairs.keys[row]}", None)
                for row, picture in pictures
            ],
        )
