"""How often the interval of `bench noise audit` holds the true share: a table in Markdown, for docs/noise.md.

Usage: python tests/evaluation/audit_coverage.py [DRAWS]. 4,000 draws of each of 81 settings take minutes.
"""

from __future__ import annotations

import itertools
import sys

import numpy as np

from bench.evaluation.noise.audit import estimate_wrong_share

SEPARATIONS, SHARES, SIZES = (2.0, 3.0, 4.0), (0.05, 0.2, 0.5), (300, 1000, 5000)


def coverage(separation: float, share: float, injected: int, others: int, draws: int) -> tuple[float, float, float]:
    """Share of draws whose interval holds the true share, share that has no lower end, and median width.

    Wrong pairs have confidences N(0, 1), right ones N(separation, 1).
    """
    rng = np.random.default_rng(0)
    wrong = round(share * others)
    means = np.where(np.arange(others) < wrong, 0.0, separation)
    found = [
        estimate_wrong_share(rng.standard_normal(injected), means + rng.standard_normal(others)).interval
        for _ in range(draws)
    ]
    low, high = np.array(found).T
    held = (low <= wrong / others) & (wrong / others <= high)
    return float(held.mean()), float((low == 0).mean()), float(np.median(high - low))


def main(draws: int) -> None:
    print("| separation | share | held the share | width, median | without a lower end |\n|---|---|---|---|---|")
    every: list[float] = []
    for separation, share in itertools.product(SEPARATIONS, SHARES):
        cells = 100 * np.array(
            [coverage(separation, share, *sizes, draws) for sizes in itertools.product(SIZES, SIZES)]
        )
        every += cells[:, 0].tolist()
        (held, none, width), (most, all_, widest) = cells.min(0), cells.max(0)
        spans = f"{held:.1f} to {most:.1f} % | {width:.0f} to {widest:.0f} points | {none:.0f} to {all_:.0f} %"
        print(f"| {separation:g} | {share:.0%} | {spans} |")
    inside = sum(93 <= held <= 97 for held in every)
    print(f"\n{inside} of {len(every)} settings between 93 and 97 %; least {min(every):.1f}, most {max(every):.1f} %")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
