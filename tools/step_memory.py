"""What a training step takes of a rank's memory, counted without a GPU and without that memory.

`python tools/step_memory.py SUITE --ranks 8 [--only LABEL] [--set train.micro_batch=128] [--gpu h100]` prints, for the
first run of each row, GiB of weights, gradients, moments, activations of a micro-batch, features of the whole batch and
the loss, by phase.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields

from bench.catalogue import gpus
from bench.console.text import columns
from bench.errors import UserError
from bench.planning.memory import StepMemory, step_memory
from bench.suite.run import Run
from bench.suite.suite import load_suite
from bench.training.inputs import InputsReader

PARTS = tuple(field.name for field in fields(StepMemory) if field.type == "int")


def main(given: Sequence[str] | None = None) -> None:
    """Print the table, or say in one line what is wrong with the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[], help="labels of rows")
    parser.add_argument("--set", nargs="*", default=[], help="KEY=VALUE of the suite", dest="overrides")
    parser.add_argument("--gpu", help="say whether it fits this card, which sizes the tiles of the loss")
    asked = parser.parse_args(given)
    if asked.ranks < 1:
        parser.error(f"--ranks {asked.ranks}: should be 1 or more")
    try:
        print(*lines(asked), sep="\n")
    except (UserError, ValueError) as error:
        parser.error(str(error))


def lines(asked: argparse.Namespace) -> list[str]:
    """The table, and how full a card is.

    Raises UserError for an unknown suite, row or card, and ValueError if the batch does not divide.
    """
    card = gpus.find(asked.gpu) if asked.gpu else None
    first: dict[str, Run] = {}
    for run in load_suite(asked.suite, asked.overrides).select(asked.only).runs():
        first.setdefault(run.label, run)
    rows, reader, largest = [("row", "phase", *PARTS, "peak")], InputsReader(), 0
    for label, run in first.items():
        for one in step_memory(
            run, reader.for_model(run), asked.ranks, card=None if card is None else card.memory_gib << 30
        ):
            sizes = (*(getattr(one, part) for part in PARTS), one.peak)
            rows.append((label, one.phase, *(f"{size / 2**30:.2f}" for size in sizes)))
            largest = max(largest, one.peak)
    told = columns(rows)
    if card:
        share = largest / 2**30 / card.memory_gib
        told.append(f"the largest peak is {share:.0%} of the {card.memory_gib} GiB of one {card.name}")
    return told


if __name__ == "__main__":
    main()
