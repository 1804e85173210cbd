"""Places training pairs in the plane by their embeddings: PCA, then t-SNE (Figure 4 of the Bayesian-weights paper).

Distances between distant groups of a t-SNE have no meaning; neighbours in the plane are neighbours in the space.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from bench import counter
from bench.arrays import Floats, Ints
from bench.data import Pairs
from bench.data.noise.manifest import Noise, NoiseManifest, noisy_mask
from bench.errors import UserError
from bench.evaluation.features import Features

MAX_COMPONENTS = 50  #: of the PCA, at most
MAX_PERPLEXITY = 30.0  #: of the t-SNE, at most
MIN_MAP_PAIRS = 5  #: fewest pairs of a map


@dataclass(frozen=True)
class EmbeddingMap:
    """Pairs and their places in the plane. The scale has no unit."""

    keys: tuple[str, ...]
    corrupted: np.ndarray  #: bool [n]
    images: Floats  #: [n, 2]
    texts: Floats  #: [n, 2]


def map_rows(pairs: Pairs, count: int) -> Ints:
    """Return `count` rows, rising, the same for every run on these pairs; all rows if there are fewer.

    They are drawn from the keys alone, so the share of corrupted rows among them is close to the noise rate.
    """
    return np.sort(counter.hash_order(pairs.keys, b"embedding map")[:count])


def embedding_map(features: Features, pairs: Pairs, noise: Noise | None, rows: Ints, seed: int) -> EmbeddingMap:
    """Place images and texts of `rows` [n] as training saw them, each image with the first of its texts.

    Images and texts are placed together, so that a pair that a model matches lies together. Raises UserError for fewer
    than five pairs, and FloatingPointError for embeddings that are not finite.
    """
    if len(rows) < MIN_MAP_PAIRS:
        raise UserError(f"{len(rows)} pairs make no map; take at least {MIN_MAP_PAIRS}")
    applied = noise or Noise()
    texts = [texts[0] for texts in applied.texts(pairs, rows)]
    image, text = features.extracted_images(applied.applied(pairs), rows), features.extracted_texts(texts)
    vectors = torch.cat((image["embedding"], text["embedding"])).double().cpu().numpy()
    if not np.isfinite(vectors).all():
        raise FloatingPointError(f"embeddings of {pairs.name} are not finite")
    placed = place_in_plane(vectors, seed)
    corrupted = np.zeros(len(rows), dtype=bool)
    if isinstance(applied, NoiseManifest):
        corrupted = noisy_mask(applied, len(pairs))[rows]
    return EmbeddingMap(tuple(pairs.keys[row] for row in rows), corrupted, placed[: len(rows)], placed[len(rows) :])


def place_in_plane(vectors: Floats, seed: int) -> Floats:
    """Return places [n, 2] of vectors [n, D]: PCA to at most 50 numbers, t-SNE from the first two of them."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    parts = PCA(n_components=min(MAX_COMPONENTS, *vectors.shape), svd_solver="full").fit_transform(vectors)
    perplexity = min(MAX_PERPLEXITY, (len(vectors) - 1) / 3)
    start = parts[:, :2] / max(float(parts[:, 0].std()), 1e-12) * 1e-4  # as scikit-learn's init="pca" scales it
    tsne = TSNE(n_components=2, perplexity=perplexity, init=start.astype(np.float32), random_state=seed, n_jobs=1)
    return np.asarray(tsne.fit_transform(parts), dtype=np.float64)
