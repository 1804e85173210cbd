"""Your own kind of noise: captions are exchanged with others of as many words. `python own_noise.py`, seconds."""

import numpy as np

import bench
from bench import counter
from bench.catalogue.noise_kinds import KINDS, NoiseKind
from bench.data import Pairs
from bench.data.noise.manifest import NoiseManifest


def same_length(pairs: Pairs, _settings: object, rate: float, seed: int) -> NoiseManifest:
    """Corrupt `rate` of the pairs, in the order of a keyed hash, so that those of a lower rate are among them."""
    order = counter.hash_order(pairs.keys, f"{seed}/same length".encode())[: round(rate * len(pairs))]
    words = np.array([len(pairs.captions(row)[0].split()) for row in order.tolist()])
    rows, donors = [], []
    for count in np.unique(words):
        group = order[words == count]
        rows.append(group)
        donors.append(np.roll(group, 1))  # a row that is alone keeps its caption
    row, donor = np.concatenate(rows), np.concatenate(donors)
    order = [place for place in np.argsort(row) if row[place] != donor[place]]
    row, donor = row[order], donor[order]
    lost = sum(set(pairs.captions(a)).isdisjoint(pairs.captions(b)) for a, b in zip(row, donor, strict=True))
    return NoiseManifest.of(pairs, "same_length", rate, seed, row, donor, lost)


if __name__ == "__main__":
    KINDS.add(NoiseKind("same_length", "captions of equal length", "pairs swap captions of equal length", same_length))
    suite = bench.load_suite("smoke", ["noise={kind: same_length, rates: [0.4]}"])
    bench.run_suite(suite, "results", jobs=1)  # other processes know only the kinds of the catalogue
    print(bench.Results("results").table("noise_detection").filter(regex="^method|AUROC$"))
