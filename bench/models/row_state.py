"""What a method learned of each training pair: vectors of its state with a number a row, and the rows at their ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.console.markup import Html, html, together
from bench.data import Pairs
from bench.data.noise import Noise
from bench.data.noise_page import page_of_pairs, picture
from bench.errors import UserError, nearest
from bench.training.inputs import Inputs, InputsReader

if TYPE_CHECKING:
    from bench.arrays import Floats, Ints
    from bench.models.stored_run import Stored


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


def row_states(stored: Stored) -> Mapping[str, RowState]:
    """Return the vectors of a run's state with one finite number a training pair, by name.

    Raises UserError if the pairs were chosen by the scores of another run, or the data is not here.
    """
    import torch

    inputs: Inputs = InputsReader().inputs(stored.run)
    if inputs.awaits_scores:
        raise UserError(
            f"run {stored.title}: its pairs were chosen by scores of another run, so rows have no keys here"
        )
    pairs, noise = inputs.seen, inputs.noise_of_seen or Noise()
    method = stored.features.method
    assert isinstance(method, torch.nn.Module)
    vectors = {
        name: buffer.double().cpu().numpy()
        for name, buffer in method.named_buffers()
        if buffer.is_floating_point() and buffer.shape == (len(pairs),) and bool(torch.isfinite(buffer).all())
    }
    return {name: RowState(name, values, pairs, noise) for name, values in vectors.items()}


def find_state(stored: Stored, name: str) -> RowState:
    """Return the vector of that name. Raises UserError if the run has none of it, and names those that it has."""
    known = row_states(stored)
    if name not in known:
        has = f"it has {', '.join(known)}" if known else f"{stored.run.method} keeps nothing of single pairs"
        raise UserError(f"run {stored.title}: no state {name!r} of each pair; {has}{nearest(name, known)}")
    return known[name]


def state_text(state: RowState, count: int) -> list[str]:
    """Return lines: the pairs with the smallest values, then those with the largest."""
    lines = []
    for title, rows in zip(("smallest", "largest"), state.ends(count), strict=True):
        lines.append(f"{title} {state.name}")
        lines += [f"  {state.values[row]:.6g}  {state.pairs.keys[row]}  {state.text(row)!r}" for row in rows.tolist()]
    return lines


def state_page(title: str, state: RowState, count: int) -> Html:
    """Return a self-contained HTML page of the pairs at both ends, as training saw them.

    Raises UserError if an image cannot be read.
    """
    sections = together(
        (
            html("<h2>{} {}</h2><ol>{}</ol>", end, state.name, _items(state, rows))
            for end, rows in zip(("Smallest", "Largest"), state.ends(count), strict=True)
        ),
        "\n",
    )
    low, middle, high = np.quantile(state.values, [0.05, 0.5, 0.95])
    body = html(
        "<h1>{}</h1>\n<p>{} of {} pairs of {}: 5 % are below {}, half below {}, 95 % below {}.</p>\n{}",
        title,
        state.name,
        len(state.values),
        state.pairs.name,
        *(f"{one:.6g}" for one in (low, middle, high)),
        sections,
    )
    return page_of_pairs(title, body)


def _items(state: RowState, rows: Ints) -> Html:
    images = state.noise.applied(state.pairs).images(np.asarray(rows, dtype=np.int64))
    return together(
        html(
            '<li><img alt="{0}" src="data:image/png;base64,{1}"><span class="wrong">{0}</span>'
            '<span class="key">{2} {3}</span></li>',
            state.text(row),
            picture(image),
            f"{state.values[row]:.6g}",
            state.pairs.keys[row],
        )
        for row, image in zip(rows.tolist(), images, strict=True)
    )
