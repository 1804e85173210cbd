"""What open_clip's ClipLoss makes of a batch that several ranks share, beside one process with the whole batch.

`python tools/open_clip_gradients.py --ranks 1 2 4` prints, for each of its ways to gather, how long the parameters'
gradient is, in units of one process's, and the cosine between the two: real gloo ranks, linear towers in fp64, and the
mean over ranks that DistributedDataParallel takes. The towers and the batch are drawn from a fixed seed.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from torch.nn.functional import normalize

import bench.lean_open_clip  # noqa: F401  before open_clip

BATCH, WIDTH, SCALE = 16, 12, 10.0
WAYS = tuple(itertools.product((False, True), repeat=2))  #: local_loss, gather_with_grad


def gradients(rank: int, ranks: int, local_loss: bool, gather_with_grad: bool) -> Tensor:
    """Return the gradient of both towers' parameters, [2 * WIDTH * WIDTH], from this rank's share of the batch."""
    from open_clip.loss import ClipLoss

    draws = torch.Generator().manual_seed(0)
    towers = [torch.randn(WIDTH, WIDTH, generator=draws, dtype=torch.float64).requires_grad_() for _ in range(2)]
    inputs = [torch.randn(BATCH, WIDTH, generator=draws, dtype=torch.float64) for _ in range(2)]
    own = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
    image, text = (normalize(x[own] @ tower, dim=-1) for x, tower in zip(inputs, towers, strict=True))
    loss = ClipLoss(local_loss=local_loss, gather_with_grad=gather_with_grad, rank=rank, world_size=ranks)
    loss(image, text, torch.tensor(SCALE, dtype=torch.float64)).backward()
    return torch.cat([tower.grad.flatten() for tower in towers if tower.grad is not None])


def _rank(rank: int, ranks: int, folder: str) -> None:
    warnings.simplefilter("ignore", FutureWarning)  # of torch, about a function that open_clip calls
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks)
    means = []
    for way in WAYS:
        gradient = gradients(rank, ranks, *way)
        distributed.all_reduce(gradient)
        means.append(gradient / ranks)
    if rank == 0:
        torch.save(means, Path(folder) / "means.pt")
    distributed.destroy_process_group()


def means(ranks: int, context: Any = multiprocessing) -> list[Tensor]:
    """Return for each of `WAYS` the mean over real ranks of the parameters' gradient. Raises if a rank fails."""
    with tempfile.TemporaryDirectory() as folder:
        processes = [context.Process(target=_rank, args=(rank, ranks, folder)) for rank in range(ranks)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            raise RuntimeError(f"ranks ended with {[process.exitcode for process in processes]}")
        found: list[Tensor] = torch.load(Path(folder) / "means.pt", weights_only=True)
        return found


def lines(ranks: int, shared: list[Tensor]) -> list[str]:
    """Return a line for each way: settings, length of the gradient in units of one process's, and their cosine."""
    whole = gradients(0, 1, False, False)
    return [
        f"{ranks:5}  {local_loss!s:10}  {gathered!s:16}  {gradient.norm() / whole.norm():.4f}  "
        f"{torch.cosine_similarity(gradient, whole, dim=0):.4f}"
        for (local_loss, gathered), gradient in zip(WAYS, shared, strict=True)
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="numbers of ranks to try")
    print("ranks  local_loss  gather_with_grad  length  cosine")
    for ranks in parser.parse_args().ranks:
        print(*lines(ranks, means(ranks, multiprocessing.get_context("fork"))), sep="\n", flush=True)


if __name__ == "__main__":
    main()
