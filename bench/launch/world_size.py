"""Choose the number of processes per run, and refuse numbers that the machine or the batch does not allow."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bench.errors import UserError
from bench.planning.planned import Planned
from bench.towers.batchnorm import grouped_norms
from bench.training.inputs import InputsReader
from bench.training.job import build


def gpu_count() -> int:
    """Return the number of GPUs that torch can use."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def ranks_of_a_run(gpus: int | None, processes: int | None, jobs: int) -> int:
    """Return the processes per run: `gpus` with a GPU each, or `processes` on CPUs, or 1 if neither is given.

    Raises UserError if the machine has fewer GPUs than `jobs` runs need, or if `processes` would leave GPUs idle.
    """
    available = gpu_count()
    if gpus is not None and processes is not None:
        raise UserError("--gpus and --processes: say one of them")
    if gpus is not None and gpus * jobs > available:
        more = f" x --jobs {jobs}" if jobs > 1 else ""
        instead = "" if available else f"; --processes {gpus} trains on as many CPU processes"
        raise UserError(f"--gpus {gpus}{more}: this machine has {available} GPUs that torch can use{instead}")
    if processes is not None and available:
        raise UserError(f"--processes {processes}: is for machines without GPUs, this one has {available}; use --gpus")
    return gpus or processes or 1


def refuse_odd_shares(planned: Sequence[Planned], ranks: int) -> None:
    """Raise UserError if a run's batch does not divide among the ranks.

    With BatchNorm in the towers, each rank's share must also be a multiple of `bn_group`.
    """
    known: set[tuple[object, ...]] = set()
    for run in (one.run for one in planned) if ranks > 1 else ():
        key = (run.towers, run.train.batch, run.train.bn_group)
        if key in known:
            continue
        known.add(key)
        batch, group = run.train.batch, run.train.bn_group
        if batch % ranks:
            raise UserError(f"train.batch: {batch} does not divide among {ranks} processes; use another number of them")
        if batch // ranks % group and grouped_norms(build(run, InputsReader().for_model(run))[0]):
            raise UserError(
                f"train.bn_group: {group} does not divide the {batch // ranks} pairs of batch {batch} that each of "
                f"{ranks} processes has; use fewer processes, or a smaller bn_group (which makes other runs)"
            )
