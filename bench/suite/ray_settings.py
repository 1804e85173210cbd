"""The section `ray` of a suite: what a run asks of a Ray cluster."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from bench.settings_base import Model
from bench.yaml_source import fault


def _whole_above_one(gpus: float) -> float:
    if gpus > 1 and gpus % 1:
        raise fault(f"{gpus:g} should be a share of one GPU or a whole number of them")
    return gpus


class RaySettings(Model):
    """What `--launcher ray` asks for. null leaves it to the cluster and the run."""

    #: of the cluster: "auto" = the one of this machine or of $RAY_ADDRESS; or HOST:PORT of its head
    address: Annotated[str, Field(pattern=r"^(auto|[A-Za-z0-9.\-]+:[0-9]+)$", max_length=100)] = "auto"
    #: a run; 0.25 = four runs share a GPU. null = one if the cluster has any, else 0
    gpus: Annotated[float, Field(ge=0, le=1024), AfterValidator(_whole_above_one)] | None = None
    cpus: Annotated[int, Field(ge=1, le=1024)] | None = None  #: a run; null = train.threads for each process
    memory_gb: Annotated[int, Field(ge=1, le=10**6)] | None = None  #: a run
