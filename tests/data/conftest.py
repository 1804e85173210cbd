"""Shards as img2dataset writes them, and broken ones."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Members = Iterable[tuple[str, bytes]]


def encoded(seed: int, form: str = "JPEG", size: int = 16) -> bytes:
    """An image file of noise."""
    pixels = np.random.default_rng(seed).integers(0, 255, (size, size, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form)
    return buffer.getvalue()


def write_tar(path: Path, members: Members, form: int = tarfile.USTAR_FORMAT) -> Path:
    """A tar of files with these names and bytes, in this order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=form) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def sample(key: str, seed: int, caption: str | None = None) -> list[tuple[str, bytes]]:
    """A pair as img2dataset writes it."""
    text = f"caption of {key}" if caption is None else caption
    return [(f"{key}.jpg", encoded(seed)), (f"{key}.json", b'{"caption": "-"}'), (f"{key}.txt", text.encode())]


def write_set(folder: Path, shards: int = 4, rows: int = 10) -> Path:
    """Whole shards with keys such as 000010003."""
    for shard in range(shards):
        keys = [(f"{shard:05d}{i:04d}", shard * rows + i) for i in range(rows)]
        write_tar(folder / f"{shard:05d}.tar", [member for key, seed in keys for member in sample(key, seed)])
    return folder


class Tars:
    """What the tests write."""

    encoded = staticmethod(encoded)
    write = staticmethod(write_tar)
    sample = staticmethod(sample)
    write_set: Callable[..., Path] = staticmethod(write_set)


@pytest.fixture(scope="session")
def tars() -> type[Tars]:
    return Tars
