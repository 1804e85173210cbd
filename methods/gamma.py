"""Gamma draws in the log domain, for methods that sample weights or rates."""

from __future__ import annotations

import torch
from torch import Tensor


def log_gamma_draws(shape: Tensor, generator: torch.Generator, below_one: bool) -> Tensor:
    """ln of one Gamma(shape, 1) draw an element; where shapes may be below 1, ln Gamma(shape + 1) + ln(U) / shape."""
    # torch.distributions draws from the global generator only, hence the private function behind it.
    if not below_one:
        return torch._standard_gamma(shape, generator=generator).log()
    uniform = 1 - torch.rand(shape.shape, dtype=shape.dtype, device=shape.device, generator=generator)
    return torch._standard_gamma(shape + 1, generator=generator).log() + uniform.log() / shape
