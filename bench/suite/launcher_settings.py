"""The sections `slurm` and `ray` of a suite: what launchers request from a cluster."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator

from bench.settings_base import MAX_NAME_LETTERS, Model, OneLine, Word
from bench.yaml_source import fault

SbatchOption = Annotated[str, Field(pattern=r"^[a-z][a-z-]*$", max_length=40)]
#: options of sbatch that fields of `SlurmSettings` stand for
SBATCH_FIELDS = {
    "partition": "partition",
    "account": "account",
    "time": "time",
    "nodes": "nodes",
    "gpus": "gpus",
    "gpus-per-node": "gpus",
    "gres": "gpus",
    "cpus-per-task": "cpus_per_gpu",
    "cpus-per-gpu": "cpus_per_gpu",
    "mem": "memory_gb",
    "constraint": "constraint",
}
SBATCH_OURS = frozenset(
    {
        "array", "chdir", "dependency", "error", "job-name", "kill-on-invalid-dep", "no-requeue", "ntasks",
        "ntasks-per-node", "open-mode", "output", "parsable", "requeue", "signal", "test-only", "wait", "wrap",
    }
)  # fmt: skip


class SlurmSettings(Model):
    """Resources of jobs of `--launcher slurm`. null leaves them to the cluster."""

    partition: Word | None = None  #: of the cluster
    account: Word | None = None  #: that jobs are charged to
    #: limit of a job, as sbatch reads it; quote it in YAML
    time: Annotated[str, Field(pattern=r"^([0-9]+-)?[0-9]+(:[0-9]+){0,2}$", max_length=20)] = "24:00:00"
    nodes: Annotated[int, Field(ge=1, le=4096)] = 1  #: of a job; from 2 on, all of its ranks train each run together
    gpus: Annotated[int, Field(ge=0, le=1024)] = 1  #: of each node, with a rank each; 0 = CPUs only
    cpus_per_gpu: Annotated[int, Field(ge=1, le=1024)] = 8  #: CPU cores of each rank
    memory_gb: Annotated[int, Field(ge=1, le=10**6)] | None = None  #: of each node
    constraint: Word | None = None  #: features that nodes must have
    #: runs that a job executes one after another; a run that others start from has a job of its own
    runs_per_job: Annotated[int, Field(ge=1, le=1000)] = 1
    #: shell commands before a job's own, printed before submission
    setup: Annotated[tuple[OneLine, ...], Field(strict=False, max_length=100)] = ()
    #: further options of sbatch by their long names, true for one without a value: `{qos: high, exclusive: true}`
    extra: Annotated[dict[SbatchOption, Any], Field(max_length=100)] = Field(default_factory=dict)

    @field_validator("extra")
    @classmethod
    def _options(cls, extra: dict[str, Any]) -> dict[str, Any]:
        for name, value in extra.items():
            if name in SBATCH_FIELDS:
                raise fault(f"{name}: set slurm.{SBATCH_FIELDS[name]} in place of it")
            if name in SBATCH_OURS:
                raise fault(f"{name}: bench sets it, so that jobs can stop, resume and wait for each other")
            text = isinstance(value, str) and 0 < len(value) <= MAX_NAME_LETTERS and value.isprintable()
            if not text and value is not True and (isinstance(value, bool) or not isinstance(value, int)):
                raise fault(f"{name}: {value!r} should be one line of text, a whole number, or true")
        return extra


def _whole_above_one(gpus: float) -> float:
    if gpus > 1 and gpus % 1:
        raise fault(f"{gpus:g} should be a share of one GPU or a whole number of them")
    return gpus


class RaySettings(Model):
    """Resources of tasks of `--launcher ray`. null leaves them to the cluster and the run."""

    #: of the cluster: `auto` = the one of this machine or of `$RAY_ADDRESS`; or HOST:PORT of its head
    address: Annotated[str, Field(pattern=r"^(auto|[A-Za-z0-9.\-]+:[0-9]+)$", max_length=100)] = "auto"
    #: of a run; 0.25 = four runs share a GPU. null = one if the cluster has any, else 0
    gpus: Annotated[float, Field(ge=0, le=1024), AfterValidator(_whole_above_one)] | None = None
    cpus: Annotated[int, Field(ge=1, le=1024)] | None = None  #: of a run; null = train.threads for each process
    memory_gb: Annotated[int, Field(ge=1, le=10**6)] | None = None  #: of a run
