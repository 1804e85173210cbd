"""Makes the batches of the next step in a thread while the current step trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

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
