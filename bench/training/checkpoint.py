"""Checkpoints, from which training resumes to the same bytes, and the weights that evaluation reads."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bench.errors import one_line
from bench.store import Damaged, RunStore, RunWriter
from bench.store.run import SHORT_ID
from bench.store.run import weights_name as weights_name
from bench.store.verify import CHECKPOINT_FILE as CHECKPOINT_FILE
from bench.towers.build import OpenClipTowers
from bench.towers.state_dicts import refusal
from bench.training import side_towers
from bench.training.ledger import Ledger
from methods.protocol import Method

THREAD_PREFIX = "checkpoint"  #: prefix of the name of the thread that writes them
_PARTS = {"towers", "method", "optimiser", "ledger"}


class CheckpointWriter:
    """Writes checkpoints of a run in a thread, from copies in host memory, while training continues. One at a time.

    The run's status names a step once its checkpoint is published. An error of the thread is raised by the next call.
    As a context manager it waits at the end; if the context ends with an error of its own, that one counts.
    """

    def __init__(self, out: RunWriter, steps: int) -> None:
        """steps: of the whole training, for the status."""
        self._out, self._steps = out, steps
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=THREAD_PREFIX)
        self._writing: Future[None] | None = None
        self._published = time.monotonic()

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.shutdown()
        if kind is None:
            self.wait()

    def due(self, seconds: float) -> bool:
        """Return whether `seconds` passed since the last published checkpoint, and none is being written; 0: always."""
        if self._writing is not None and self._writing.done():
            self.wait()
        return not seconds or (self._writing is None and time.monotonic() - self._published >= seconds)

    def save(
        self,
        step: int,
        method: Method,
        towers: OpenClipTowers,
        optimiser: torch.optim.Optimizer,
        ledger: Ledger,
    ) -> None:
        """Copy the state after `step` steps, and begin to replace the checkpoint by it; wait for the one before.

        Randomness and order are functions of (seed, step): step is their state.
        """
        self.wait()
        assert isinstance(method, nn.Module)
        state = {
            "run": self._out.id,
            "step": step,
            "towers": towers.state_dict(),
            "method": method.state_dict(),
            "optimiser": optimiser.state_dict(),
            "ledger": asdict(ledger),
            **side_towers.side_state(method, towers),
        }
        self._writing = self._thread.submit(self._publish, host_copy(state))

    def wait(self) -> None:
        """Wait until the last checkpoint is published. Raises what kept it from being so."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _publish(self, state: dict[str, Any]) -> None:
        self._out.write_path(CHECKPOINT_FILE, lambda path: torch.save(state, path))
        self._published = time.monotonic()
        self._out.set_status("running", stage="train", step=state["step"], steps=self._steps)


def host_copy(state: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of nested mappings and lists, with tensors in host memory. `torch.save` writes the same bytes."""
    return copy.deepcopy(state, {id(x): x.detach().cpu() for x in _tensors(state) if x.is_cuda})


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(part)


def checkpoint_step(out: RunStore) -> int | None:
    """Return the step of the last checkpoint without reading its tensors; errors as in `load_checkpoint`."""
    state = load_checkpoint(out, mmap=True)
    return None if state is None else int(state["step"])


def load_checkpoint(out: RunStore, mmap: bool = False) -> dict[str, Any] | None:
    """Return the last checkpoint in host memory, or mapped from its file (`mmap`); None if there is none.

    Raises Damaged for a file that is none, or is of another run.
    """
    path = out.path(CHECKPOINT_FILE)
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # the unpickler raises whatever the bytes lead it to
        raise Damaged(path, f"is not a checkpoint: {refusal(error)}") from error
    if not isinstance(state, dict) or type(state.get("step")) is not int or not state.keys() >= _PARTS:
        raise Damaged(path, f"is not a checkpoint: it should hold step, {', '.join(sorted(_PARTS))}")
    if state.get("run", out.id) != out.id:  # one from before it was stored has none
        raise Damaged(path, f"is of another run, {str(state['run'])[:SHORT_ID]}")
    return state


def save_weights(out: RunWriter, at: float, method: Method, towers: nn.Module) -> None:
    """Keep towers and method as safetensors under the name of `at`, and the sha256 of the file next to it."""
    assert isinstance(method, nn.Module)
    tensors = {
        f"{prefix}.{name}": tensor.detach().cpu().contiguous()
        for prefix, module in (("towers", towers), ("method", method))
        for name, tensor in module.state_dict().items()
    }
    out.write_path(weights_name(at), lambda path: save_file(tensors, path))


def load_weights(path: Path, method: Method, towers: nn.Module) -> None:
    """Put stored weights into towers and method; every name must match. Raises Damaged for a file of no weights."""
    assert isinstance(method, nn.Module)
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise Damaged(path, f"cannot be read: {one_line(error, 120)}") from error
    for prefix, module in (("towers", towers), ("method", method)):
        own = {name[len(prefix) + 1 :]: x for name, x in tensors.items() if name.startswith(f"{prefix}.")}
        module.load_state_dict(own)
