"""In a process of its own, because wandb leaves threads: an interrupted run, and what its offline file then holds."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from test_trackers import interrupted
from wandb.proto import wandb_internal_pb2

from bench.store import Store

BLOCK, HEADER = 32768, 7  #: of LevelDB's log format, in which the file is


def records(data: bytes) -> Iterator[bytes]:
    """What a log holds; the file's own seven bytes come first."""
    at, parts = HEADER, b""
    while at < len(data):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def main() -> None:
    root = Path(sys.argv[1])
    interrupted(Store(root).run("b" * 64), "wandb")
    (path,) = (root / "wandb" / "wandb").glob("offline-run-*/*.wandb")
    steps: list[int] = []
    summary: dict[str, float] = {}
    for data in records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        for item in record.history.item:
            if item.key == "_step" or list(item.nested_key) == ["_step"]:
                steps.append(json.loads(item.value_json))
        for item in record.summary.update:
            name = item.key or "/".join(item.nested_key)
            if name.startswith("emoji/iid/zero_shot/concept/top1/cosine"):
                summary["at 50%" if name.endswith("at 50%") else "end"] = json.loads(item.value_json)
    print(steps)
    print(summary)


if __name__ == "__main__":
    main()
