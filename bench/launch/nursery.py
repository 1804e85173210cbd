"""Processes that start at once: each is forked from one that has imported all that a run needs.

Importing torch and open_clip takes seconds, and as long again for every further process. A process may have threads
(a notebook's, a loader's), of which a fork copies only one; so the forks are made in a process that starts none.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

MODULES = ("bench.launch.rank", "torch.utils.flop_counter", "pyarrow.parquet")  #: what runs import
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    f"from {__name__} import _serve; sys.exit(_serve(int(sys.argv[1])))"
)
_MOST = 16  #: descriptors of one request
_LENGTH = 8  #: bytes that say how long a request is
_LOST = 255  #: exit code of a process of which nobody knows it


class Flag:
    """What any process can set and all see: a pipe with a byte in it, which nobody reads."""

    def __init__(self, descriptors: tuple[int, int] | None = None) -> None:
        self.descriptors = os.pipe() if descriptors is None else descriptors

    def set(self) -> None:
        """Set it, for all processes that have it."""
        os.write(self.descriptors[1], b"!")

    def is_set(self) -> bool:
        """Return whether a process has set it."""
        return _readable(self.descriptors[0], 0)

    def close(self) -> None:
        """Give its descriptors back; this process cannot use it any more."""
        for descriptor in self.descriptors:
            os.close(descriptor)


class Child:
    """A process that a nursery forked."""

    def __init__(self, pid: int, sentinel: int) -> None:
        self.pid = pid
        self.sentinel = sentinel  #: a descriptor that can be read once the process has ended
        self._code: int | None = None

    @property
    def exitcode(self) -> int | None:
        """None while it runs; minus the number of the signal that ended it; 255 if the nursery is gone as well."""
        if self._code is None and _readable(self.sentinel, 0):
            told = os.read(self.sentinel, 16)
            self._code = int(told) if told else _LOST
        return self._code

    def is_alive(self) -> bool:
        """Return whether it runs."""
        return self.exitcode is None

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, at most `timeout` seconds."""
        if self._code is None:
            _readable(self.sentinel, timeout)

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill it unless it ended, and give its descriptor back."""
        if self.exitcode in (None, _LOST):  # without the nursery it may still run
            self.kill()
        os.close(self.sentinel)


class Nursery:
    """The process that others are forked from. It starts with the first of them, and once more if it died.

    Signals that are blocked when it starts are blocked in it and, at first, in all that it forks.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def start(self, target: Callable[..., object], arguments: Sequence[Any], descriptors: Sequence[int] = ()) -> Child:
        """Fork a process that calls `target(*descriptors, *arguments)`, a function at the top of a module.

        `arguments` can be pickled. The process has `descriptors` under other numbers. Raises OSError if none starts.
        """
        content = pickle.dumps((target, tuple(arguments)))
        sentinel, told = os.pipe()
        try:
            try:
                pid = self._ask(content, [told, *descriptors])
            except OSError:  # it is dead
                self.close()
                pid = self._ask(content, [told, *descriptors])
        except OSError:
            os.close(sentinel)
            raise
        finally:
            os.close(told)
        return Child(pid, sentinel)

    def call(self, target: Callable[..., object], arguments: Sequence[Any]) -> None:
        """Call `target(*arguments)` in it and wait for the end: what this leaves in memory, later processes share.

        `target` starts no threads. If it raises, the nursery is gone, and the next process gets a new one.
        """
        with contextlib.suppress(OSError):
            self._ask(pickle.dumps((target, tuple(arguments))), [])

    def close(self) -> None:
        """End it. Processes that it forked go on, and tell nobody when they end."""
        if self._channel is not None and self._process is not None:
            self._channel.close()
            self._process.wait()
        self._channel = self._process = None

    def _ask(self, content: bytes, descriptors: Sequence[int]) -> int:
        if self._channel is None:
            self._channel, theirs = socket.socketpair()
            with theirs:
                arguments = [str(theirs.fileno()), json.dumps(sys.path)]
                self._process = subprocess.Popen([sys.executable, "-c", _START, *arguments], pass_fds=[theirs.fileno()])
        socket.send_fds(self._channel, [len(content).to_bytes(_LENGTH, "big")], list(descriptors))
        self._channel.sendall(content)
        answer = self._channel.recv(_LENGTH, socket.MSG_WAITALL)
        if len(answer) < _LENGTH:
            raise ConnectionResetError("the process that starts others ended")
        return int.from_bytes(answer, "big")


def _readable(descriptor: int, timeout: float | None) -> bool:
    """Wait until a descriptor can be read, at most `timeout` seconds; return whether it can."""
    poll = select.poll()  # `select` knows no descriptor above 1023
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if timeout is None else max(0, round(timeout * 1000))))


def _serve(descriptor: int) -> object:
    """Fork a process for each request that has descriptors, until the starter closes its end; call what others ask.

    In a forked process, return its exit code.
    """
    gc.disable()  # modules stay: looking for garbage among them takes a quarter of the time of their import
    for name in MODULES:
        import_module(name)
    channel = socket.socket(fileno=descriptor)
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler, nothing is written to the waker
    signal.set_wakeup_fd(waker)
    tell: dict[int, int] = {}  # of each process, where its exit code goes
    poll = select.poll()
    for one in (descriptor, woken):
        poll.register(one, select.POLLIN)
    while True:
        ready = {one for one, _ in poll.poll()}
        if woken in ready:
            os.read(woken, 4096)
            for pid, code in _ended(tell):
                os.write(tell[pid], str(code).encode())
                os.close(tell.pop(pid))
        if descriptor in ready:
            request = _receive(channel)
            if request is None:
                return 0
            content, descriptors = request
            gc.freeze()  # else a process looks for garbage in what it shares with this one, and copies it by that
            pid = 0 if not descriptors else os.fork()
            if not descriptors:
                _call(content)
            elif not pid:
                _leave(channel, (descriptors[0], woken, waker, *tell.values()))
                return _call(content, *descriptors[1:])
            else:
                tell[pid] = descriptors[0]
                for one in descriptors[1:]:
                    os.close(one)
            channel.sendall(pid.to_bytes(_LENGTH, "big"))


def _leave(channel: socket.socket, descriptors: Sequence[int]) -> None:
    """Undo in a forked process what the one that it was forked from needs."""
    gc.enable()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    channel.close()
    for one in descriptors:
        os.close(one)


def _call(content: bytes, *descriptors: int) -> object:
    target, arguments = pickle.loads(content)  # of the process that started this one, through its socket
    return target(*descriptors, *arguments)


def _ended(known: dict[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the known processes that ended, with their exit codes."""
    for pid in list(known):
        gone, status = os.waitpid(pid, os.WNOHANG)
        if gone:
            yield pid, os.waitstatus_to_exitcode(status)


def _receive(channel: socket.socket) -> tuple[bytes, list[int]] | None:
    """Return the content and the descriptors of a request, a call has none; None if the starter is gone."""
    try:
        head, descriptors, _, _ = socket.recv_fds(channel, _LENGTH, _MOST, socket.MSG_WAITALL)
        content = channel.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
    except OSError:
        return None
    return (content, descriptors) if content else None
