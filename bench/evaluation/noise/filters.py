"""s-CLIPLoss and NormSim, scores of pairs by which filters choose rows (Wang et al., NeurIPS 2024)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from bench import counter
from bench.arrays import Ints

BATCH, TEMPERATURE, REPEATS = 32_768, 0.01, 10  #: of s-CLIPLoss, as published
MAX_TARGETS = 4_096  #: images that NormSim compares with, at most
_ROWS = 1_024  #: rows whose similarities are in memory at a time


def s_clip_loss(
    images: Tensor, texts: Tensor, orders: Iterable[Ints], batch: int = BATCH, temperature: float = TEMPERATURE
) -> Tensor:
    """Return s-CLIPLoss [n] <= 0 of unit embeddings [n, D]: minus `temperature` times the CLIP loss of each pair.

    The loss of a pair is among the consecutive `batch` rows of an order [n]; it is averaged over `orders`. float64,
    because well matched pairs lose all digits of the others in float32.
    """
    totals = []
    for order in orders:
        total = torch.zeros(len(images), dtype=torch.float64)
        for rows in torch.from_numpy(order).split(batch):
            image, text = images[rows].double(), texts[rows].double()
            own = (image * text).sum(1, keepdim=True)
            for part in torch.arange(len(rows)).split(_ROWS):
                apart = (one[part] @ other.T - own[part] for one, other in ((image, text), (text, image)))
                losses = [torch.logsumexp(differences / temperature, 1) for differences in apart]
                total[rows[part]] = -temperature / 2 * (losses[0] + losses[1])
        totals.append(total)
    return torch.stack(totals).mean(0)


def norm_sim(images: Tensor, targets: Tensor, p: float = 2.0) -> Tensor:
    """Return NormSim [n]: the p-norm of the similarities of unit image embeddings [n, D] with `targets` [m, D]."""
    parts = (torch.linalg.vector_norm(part.double() @ targets.double().T, p, dim=1) for part in images.split(_ROWS))
    return torch.cat(list(parts))


def _s_clip_loss(images: Tensor, texts: Tensor, keys: Sequence[str], seed: int) -> Tensor:
    repeats = REPEATS if len(keys) > BATCH else 1  # one batch is the same in any order
    orders = (counter.hash_order(keys, f"s_clip_loss {seed} {repeat}".encode()) for repeat in range(repeats))
    return s_clip_loss(images, texts, orders)


def _norm_sim(images: Tensor, _: Tensor, keys: Sequence[str], seed: int) -> Tensor:
    return norm_sim(images, images[counter.hash_order(keys, f"norm_sim {seed}".encode())[:MAX_TARGETS]])


#: score of `keep` -> its function of unit embeddings [n, D] of images and texts, keys and seed
FILTERS: Mapping[str, Callable[[Tensor, Tensor, Sequence[str], int], Tensor]] = {
    "s_clip_loss": _s_clip_loss,
    "norm_sim": _norm_sim,
}
