"""Makes the batches of the next step while the current one trains: in a thread, or in processes that share memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Generic, TypeVar

from torch import Tensor

from bench.data.ring import Ring
from bench.data.workers import Prefetcher, pieces
from bench.training.examples import Asked, Examples, Made

T = TypeVar("T")


class StepsAhead(Generic[T]):
    """The parts of each step, made one step ahead by a thread. `close` ends the thread."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._next: tuple[tuple[object, ...], Future[list[T]]] | None = None

    def parts(self, step: int, settings: tuple[object, ...], make: Callable[[int], Iterable[T]]) -> Sequence[T]:
        """Return what `make(step)` yields, and begin with `make(step + 1)`.

        settings: all else that `make` depends on; what was made for other ones is dropped. Raises what `make` raises.
        """
        key, future = self._next or (None, None)
        self._next = None
        parts = future.result() if future is not None and key == (step, *settings) else list(make(step))
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "next step")
        self._next = (step + 1, *settings), self._thread.submit(lambda: list(make(step + 1)))
        return parts

    def close(self) -> None:
        """End the thread. The next step starts it again."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        self._thread = self._next = None


@dataclass(frozen=True)
class _Placed:
    """A part of a micro-batch, and where it goes."""

    asked: Asked
    buffer: int
    rows: slice


class InPlace:
    """Micro-batches that processes leave in a ring of shared memory, and that are used where they lie."""

    def __init__(
        self,
        examples: Examples,
        asked: Iterator[Asked],
        ring: Ring,
        workers: int,
        *,
        chunk: int,
        message: int,
        waiting: int,
    ) -> None:
        """asked: the micro-batches of all steps; chunk: rows that a process makes at a time; message: rows that it is
        asked for at a time; waiting: rows to buffer."""
        self.ring, self._message = ring, message
        placed, leave = _placed(asked, message, len(ring.fields[0])), partial(_left, examples, ring.fields, chunk)
        self._left = Prefetcher[list[str]](leave, placed, workers, message, waiting)
        self._pinned = ring.register()

    def take(self, rows: int) -> Made:
        """Return the next micro-batch, of `rows` rows. Its pixels stay as they are until the next step is begun.

        Raises what `Prefetcher` raises.
        """
        captions = [text for _ in pieces(rows, self._message) for text in next(self._left)]
        *pixels, tokens = self.ring.take(rows)
        if not self._pinned:
            pixels = [view.pin_memory() for view in pixels]
        tokens = tokens.to(self.ring.device, non_blocking=True, copy=True)
        self.ring.reading()
        return Made(pixels, captions, tokens)

    def close(self) -> None:
        """End the processes."""
        self._left.close()
        self.ring.close()


def _placed(asked: Iterator[Asked], message: int, buffers: int) -> Iterator[_Placed]:
    """What workers are asked for: the parts of each micro-batch, and which buffer they go to."""
    for buffer, micro_batch in zip(cycle(range(buffers)), asked, strict=False):
        for rows in pieces(len(micro_batch), message):
            yield _Placed(micro_batch.part(rows), buffer, rows)


def _left(examples: Examples, fields: Sequence[Tensor], chunk: int, placed: _Placed) -> list[str]:
    """Make a part of a micro-batch in a worker process, leave it in its place, and return its captions."""
    captions = list[str]()
    for asked in placed.asked.parts(chunk):
        made, start = examples.of(asked), placed.rows.start + len(captions)
        for whole, part in zip(fields, made.tensors, strict=True):
            whole[placed.buffer, start : start + len(asked)] = part
        captions += made.captions
    return captions
