"""WinoGAViL: find the candidate images that a cue refers to. Scored as in the DataComp suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from bench.arrays import Floats
from bench.data.evaluation.hub import Puzzle
from bench.evaluation.ranks import offsets, require_finite

SIZES: Mapping[str, range] = {  # metric -> number of candidates of its puzzles
    "jaccard_10_12": range(10, 13),
    "jaccard_5_6": range(5, 7),
}


def cue_prompt(cue: str) -> str:
    """Return the text that is encoded for a cue: "Werewolf" -> "A werewolf"."""
    word = cue.lower()
    return f"{'An' if word[:1] in 'aeiou' else 'A'} {word}"


def solve(images: Mapping[str, Tensor], cues: Mapping[str, Tensor], puzzles: Sequence[Puzzle], score: str) -> Floats:
    """Return float64 [p]: the Jaccard index of the right images and the equally many that score highest.

    images: features of n rows; cues: features of the prompts of the p puzzles. Raises FloatingPointError if features
    are not finite, and ValueError for an unknown score.
    """
    a, b, shift = cues["embedding"], images["embedding"], offsets(images, score)
    require_finite(a, b, shift)
    indices = []
    for number, puzzle in enumerate(puzzles):
        rows = list(puzzle.candidates)
        right = np.array(puzzle.right)
        scores = (b[rows] @ a[number] + shift[rows]).double().cpu().numpy()
        picked = np.argsort(-scores, kind="stable")[: right.sum()]
        shared = right[picked].sum()
        indices.append(shared / (2 * right.sum() - shared))
    return np.array(indices, np.float64)
