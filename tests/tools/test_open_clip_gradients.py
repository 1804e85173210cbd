"""What open_clip's ClipLoss makes of a batch that several ranks share is what docs/why.md prints.

Real gloo ranks, linear towers in fp64, and the mean over ranks that DistributedDataParallel takes, for each of the
loss's ways to gather, beside one process with the whole batch. As a script: RANK RANKS FOLDER.
"""

from __future__ import annotations

import itertools
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from torch.nn.functional import normalize

import bench.machine.torchvision_fix  # noqa: F401  before open_clip

PAGE = Path(__file__).parents[2] / "docs" / "why.md"
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


def main() -> None:
    rank, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    warnings.simplefilter("ignore", FutureWarning)  # of torch, about a function that open_clip calls
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    means = []
    for way in WAYS:
        gradient = gradients(rank, ranks, *way)
        distributed.all_reduce(gradient)
        means.append(gradient / ranks)
    torch.save(means, folder / f"{rank}.pt")
    distributed.destroy_process_group()


def test_the_page_prints_what_is_measured(start_script: Callable[..., Any], tmp_path: Path) -> None:
    started = {}
    for ranks in (2, 4):
        (folder := tmp_path / str(ranks)).mkdir()
        started[folder] = [start_script(Path(__file__), rank, ranks, folder) for rank in range(ranks)]
    measured: dict[tuple[str, str], list[tuple[str, str]]] = {}
    whole = gradients(0, 1, False, False)
    for folder, processes in started.items():
        assert [process.finish()[0] for process in processes] == [0] * len(processes)
        for one, gradient in zip(WAYS, torch.load(folder / "0.pt"), strict=True):
            length, cosine = gradient.norm() / whole.norm(), torch.cosine_similarity(gradient, whole, dim=0)
            found = f"{length:.4f}", f"{cosine:.4f}"
            measured.setdefault((str(one[0]).lower(), str(one[1]).lower()), []).append(found)
    rows = re.findall(
        r"^\| (true|false)(?: \(default\))? \| (true|false)(?: \(default\))? \| (.*) \| (.*) \|$",
        PAGE.read_text(),
        re.M,
    )
    assert {(row[0], row[1]): [(length, row[3]) for length in row[2].split(", ")] for row in rows} == measured
    assert measured["true", "true"] == [("1.0000", "1.0000")] * 2


if __name__ == "__main__":
    main()
