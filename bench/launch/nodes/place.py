"""The place of this process among ranks that somebody else started, as torchrun's environment variables say it."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass

from bench.errors import UserError


@dataclass(frozen=True)
class Place:
    """One rank of a command that several processes run."""

    rank: int  #: from 0; 0 leads
    world: int  #: ranks, at least 2
    local_rank: int  #: its number on its machine, and of its GPU
    address: str  #: where the ranks meet: a host name or an IP address
    port: int

    @property
    def near(self) -> bool:
        """Whether the address leads back to the machine that names it, so that all ranks are on this machine."""
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return self.address == "localhost"


def place() -> Place | None:
    """Read RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; None if no launcher started several ranks.

    Raises UserError if WORLD_SIZE is above 1 and another one is missing or not a number that fits.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1" or "RANK" not in os.environ:
        return None
    world = _number("WORLD_SIZE", 2, 2**20)
    rank = _number("RANK", 0, world - 1)
    return Place(rank, world, _number("LOCAL_RANK", 0, rank), _text("MASTER_ADDR"), _number("MASTER_PORT", 1, 65535))


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
