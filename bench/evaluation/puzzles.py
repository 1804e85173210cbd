"""WinoGAViL: which of the candidate images does a cue stand for? As the DataComp suite scores it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from bench.data.evaluation.hub import Puzzle
from bench.evaluation.bootstrap import Floats
from bench.evaluation.ranks import offsets, require_finite

SIZES: Mapping[str, range] = {  # metric -> candidates of the puzzles it is over
    "jaccard_10_12": range(10, 13),
    "jaccard_5_6": range(5, 7),
}


def prompt(cue: str) -> str:
    """ "Werewolf" -> "A werewolf"."""
    word = cue.lower()
    return f"{'An' if word[:1] in 'aeiou' else 'A'} {word}"


def solve(images: Mapping[str, Tensor], cues: Mapping[str, Tensor], puzzles: Sequence[Puzzle], score: str) -> Floats:
    """float64 [p]: Jaccard index of the right images and as many that score highest.

    images [n] features by row, cues [p] features of their prompts.
    """
    a, b, shift = cues["embedding"], images["embedding"], offsets(images, score)
    require_finite(a, b, shift)
    found = []
    for number, puzzle in enumerate(puzzles):
        rows = list(puzzle.candidates)
        right = np.array(puzzle.right)
        scores = (b[rows] @ a[number] + shift[rows]).double().cpu().numpy()
        picked = np.argsort(-scores, kind="stable")[: right.sum()]
        shared = right[picked].sum()
        found.append(shared / (2 * right.sum() - shared))
    return np.array(found, np.float64)
