"""`keep: {kind: distance, share: k, weights: FILE}`: what a model from elsewhere with variances holds for nearest.

Chun et al., ProLIP, ICLR 2025, Section C.8: "ProLIP distance" of Table C.7.
"""

from __future__ import annotations

from bench.catalogue.keep.entry import Keep
from bench.catalogue.keep.score import highest

DISTANCE = Keep(
    "distance",
    "",
    highest,
    takes=("share",),
    reference_keeps_all=True,
    scored=True,
    score="csd",
    about_external="the pairs of smallest distance (CSD) under a model from elsewhere",
)
