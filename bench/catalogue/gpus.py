"""GPUs by name, to convert FLOPs to hours. Needs no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bench.errors import UserError, nearest

UTILISATION = 0.35  #: share of the peak that training of such towers commonly reaches


@dataclass(frozen=True)
class Gpu:
    """A card with the numbers of its vendor's datasheet."""

    name: str
    peak: float  #: FLOP/s of dense matrix products in 16 bits, summed in 32; sparsity is not counted
    precision: str  #: the 16 bits
    datasheet: str


_ALL = (
    Gpu("T4", 65e12, "fp16", "NVIDIA T4, 2019"),
    Gpu("V100", 125e12, "fp16", "NVIDIA V100 SXM2, 2020"),
    Gpu("RTX 3090", 71e12, "bf16", "NVIDIA GA102 whitepaper, 2021"),
    Gpu("A10", 125e12, "bf16", "NVIDIA A10, 2021"),
    Gpu("RTX A6000", 154.8e12, "bf16", "NVIDIA GA102 whitepaper, 2021"),
    Gpu("A100", 312e12, "bf16", "NVIDIA A100 SXM, 2022"),
    Gpu("RTX 4090", 165.2e12, "bf16", "NVIDIA Ada whitepaper, 2022"),
    Gpu("L4", 121e12, "bf16", "NVIDIA L4, 2023"),
    Gpu("L40S", 362e12, "bf16", "NVIDIA L40S, 2023"),
    Gpu("H100 PCIe", 756e12, "bf16", "NVIDIA H100 PCIe, 2023"),
    Gpu("H100", 989e12, "bf16", "NVIDIA H100 SXM, 2023"),
    Gpu("H200", 989e12, "bf16", "NVIDIA H200 SXM, 2024"),
    Gpu("MI300X", 1307e12, "bf16", "AMD Instinct MI300X, 2023"),
    Gpu("B200", 2250e12, "bf16", "NVIDIA DGX B200, 2024"),
)


def find_gpu(name: str) -> Gpu:
    """Return a card by name, with or without "RTX", spaces, dashes and capitals. UserError for an unknown one."""
    by_key = {_key(gpu.name): gpu for gpu in _ALL}
    if _key(name) in by_key:
        return by_key[_key(name)]
    raise UserError(f"--gpu {name}: no known GPU{nearest(name.upper(), [gpu.name for gpu in _ALL])}")


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]|rtx|nvidia|geforce", "", name.lower())


def refuse_utilisation(share: float) -> None:
    """Raise UserError for a share outside (0, 1]."""
    if not 0 < share <= 1:
        raise UserError(f"--utilisation {share:g}: should be above 0 and at most 1, a share of the GPU's peak")


def gpu_hours(flops: float, gpu: Gpu, utilisation: float) -> float:
    """Return hours of one such card at a share of its peak. UserError for a share outside (0, 1]."""
    refuse_utilisation(utilisation)
    return flops / (gpu.peak * utilisation) / 3600
