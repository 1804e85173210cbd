"""Ranks that a launcher such as torchrun starts on one or several machines; all run the same command."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from bench.console.progress import Progress
from bench.console.text import echo
from bench.errors import EXIT_UNFINISHED, UserError, one_line
from bench.launch.claimed import work_on_run
from bench.launch.ranks import ALONE, Ranks, gpu_count
from bench.machine.device_lock import hold_device
from bench.machine.processes import stop_requests
from bench.planning.planned import Planned
from bench.store import Store
from bench.training.inputs import InputsReader
from bench.training.loop import Interrupted

MEETING_TIMEOUT = timedelta(minutes=10)  #: how long ranks wait for the others to start

_ranks: ContextVar[Ranks] = ContextVar("ranks", default=ALONE)


@dataclass(frozen=True)
class RankPlace:
    """The place of this process among ranks that a launcher started, from torchrun's environment variables."""

    rank: int  #: from 0
    world: int  #: ranks, at least 2
    local_rank: int  #: its number on its machine, and of its GPU
    address: str  #: where the ranks meet: a host name or an IP address
    port: int

    @property
    def near(self) -> bool:
        """Return whether the address is a loopback address, so that all ranks are on this machine."""
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return self.address == "localhost"


def launcher_place() -> RankPlace | None:
    """Read RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; None if no launcher started several ranks.

    Raises UserError if WORLD_SIZE is above 1 and another one is missing or not a number that fits.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1" or "RANK" not in os.environ:
        return None
    world = _number("WORLD_SIZE", 2, 2**20)
    rank = _number("RANK", 0, world - 1)
    return RankPlace(
        rank, world, _number("LOCAL_RANK", 0, rank), _text("MASTER_ADDR"), _number("MASTER_PORT", 1, 65535)
    )


def _text(name: str) -> str:
    found = os.environ.get(name, "")
    if not found:
        raise UserError(
            f"{name}: is not set, but WORLD_SIZE and RANK are; start every rank with torchrun, or unset WORLD_SIZE"
        )
    return found


def _number(name: str, least: int, most: int) -> int:
    text = _text(name)
    if not text.isdecimal() or not least <= int(text) <= most:
        raise UserError(
            f"{name}: {text} should be a whole number from {least} to {most}; torchrun sets it, as it does WORLD_SIZE"
        )
    return int(text)


def current_ranks() -> Ranks:
    """Return the ranks that run this command, inside of `on_all_ranks`; else this process alone."""
    return _ranks.get()


def on_all_ranks(met: Ranks, root: Path, lead: Callable[[], int]) -> int:
    """Call `lead` in the first rank, execute its runs in all ranks, and return its exit code in all.

    root: the folder of results, which all ranks share. Raises what `lead` raises, in the first rank; the others then
    return 2 after a UserError, else 1. They return 75 if the first one is lost, or on a stop request before a run.
    """
    if met.rank:
        return _follow(met, root)
    code, token = 1, _ranks.set(met)
    try:
        code = lead()
    except UserError:
        code = 2
        raise
    finally:
        _ranks.reset(token)
        met.leave(code)
    return code


def _follow(met: Ranks, root: Path) -> int:
    """Execute the runs that the first rank begins; return the exit code that it ends with."""
    store, reader = Store(root), InputsReader()
    with open(os.devnull, "w") as unread, stop_requests() as requested, hold_device(alone=False):
        try:
            while isinstance(given := met.first(stopped=requested), Planned):
                stop = lambda: bool(requested) or met.orphaned()  # noqa: E731
                work_on_run(given, store, Progress(unread), stop, reader=reader, ranks=met)
                if 0 in met.lost:
                    raise dist.DistError
            met.leave()
            return int(given)
        except Interrupted:
            met.leave()
            return EXIT_UNFINISHED
        except dist.DistError:
            met.lost = [0]
            echo(f"rank {met.rank}: lost the connection to rank 0", err=True)
            return EXIT_UNFINISHED


def meet_ranks(here: RankPlace) -> Ranks:
    """Wait for the other ranks. The first one holds the keys by which they meet, or torchrun's agent does.

    Raises UserError if they do not come, or if this machine has no GPU for this rank.
    """
    gpus = gpu_count()
    if gpus and here.local_rank >= gpus:
        raise UserError(
            f"LOCAL_RANK: {here.local_rank}, but this machine has {gpus} GPUs; start one rank per GPU: "
            f"torchrun --nproc-per-node {gpus}"
        )
    if gpus:
        torch.cuda.set_device(here.local_rank)
    starter = os.getppid()
    try:
        store, _, _ = next(rendezvous("env://", timeout=MEETING_TIMEOUT))
    except dist.DistError as error:
        raise UserError(
            f"MASTER_ADDR, MASTER_PORT: rank {here.rank} of {here.world} met no other rank at "
            f"{here.address}:{here.port} ({one_line(error, 200)})"
        ) from error
    keys = PrefixStore("bench", store)
    return Ranks(here.rank, here.world, keys, here.near, orphaned=lambda: os.getppid() != starter)
