"""Pixels on their way to a GPU while it computes: copies run on a stream of their own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Travel:
    """Sends micro-batches to a device. On a CPU they are there.

    A stream does one thing after the other, so a copy on the stream that computes would wait for all that was asked of
    the GPU before, the last backward pass included.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._asked: torch.cuda.Event | None = None  #: all that was asked of the GPU before the last micro-batch

    def send(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Begin to copy the tensors of a micro-batch; what is asked of the current stream from now on has them.

        Pinned ones travel while the current stream computes. At most one micro-batch travels while another one is
        computed: the host waits for those before, so that the GPU never holds the pixels of a whole step.
        """
        if self._stream is None:
            return [x.to(self.device) for x in tensors]
        computing = torch.cuda.current_stream(self.device)
        before, self._asked = self._asked, computing.record_event()
        if before is not None:
            before.synchronize()
        with torch.cuda.stream(self._stream):
            there = [x.to(self.device, non_blocking=True) for x in tensors]
        computing.wait_stream(self._stream)
        for x in there:
            x.record_stream(computing)  # its memory is free for others once the current stream is through with it
        return there
