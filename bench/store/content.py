"""What the JSON files of a store hold, as models. Other fields are allowed, because later versions may add some."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, defer_build=True)


class _Error(_Part):
    type: str = ""
    message: str = ""
    step: Count | None = None
    term: str | None = None


class _Status(_Part):
    state: Literal["running", "interrupted", "failed", "done"]
    step: Count | None = None
    steps: Count | None = None
    stage: str | None = None
    updated: float | None = None
    error: _Error | None = None


def _phases(phases: list[list[Any]]) -> list[list[Any]]:
    if not all(len(one) == 2 and isinstance(one[0], str) and type(one[1]) is int and one[1] >= 0 for one in phases):
        raise ValueError("each phase should be a name and a number of steps")
    return phases


class _Resolved(_Part):
    phases: Annotated[list[list[Any]], AfterValidator(_phases)]
    step_flops: dict[str, Count]
    batch: Count
    epoch_steps: Count = 0
    budget_epoch_steps: Count = 0


class _Noise(_Part):
    kind: str | None = None
    rate: Amount = 0.0
    file: str | None = None
    options: dict[str, Any] | None = None


class _Settings(_Part):
    id: str | None = None
    format: Count | None = None
    training_version: Count | None = None
    label: str | None = None
    method: str | None = None
    preset: str | None = None
    config: dict[str, Any] | None = None
    data: dict[str, Any] | None = None
    keep: dict[str, Any] | None = None
    noise: _Noise | None = None
    seed: int | None = None
    budget: dict[str, Any] | None = None
    towers: dict[str, Any] | None = None
    train: dict[str, Any] | None = None
    evaluate: dict[str, Any] | None = None
    resolved: _Resolved | None = None


class _Budget(_Part):
    kind: str
    value: Amount


class _Ledger(_Part):
    samples: Count = 0
    image_forwards: Amount = 0.0
    image_backwards: Amount = 0.0
    text_forwards: Amount = 0.0
    text_backwards: Amount = 0.0
    flops: Amount = 0
    train_seconds: Amount = 0.0
    data_seconds: Amount = 0.0
    evaluate_seconds: Amount = 0.0
    repeated_seconds: Amount = 0.0
    peak_memory_bytes: Count = 0
    budget: _Budget | None = None
    planned: dict[str, Amount] | None = None
    spent_share: Amount | None = None
    over_budget: bool = False
    reference: _Ledger | None = None


class _Ranks(_Part):
    world: Annotated[int, Field(ge=1)] = 1
    devices: list[str] = []


class _Environment(_Part):
    packages: dict[str, str | None] = {}
    python: str | None = None
    commit: str | None = None
    hardware: dict[str, Any] = {}
    ranks: _Ranks = _Ranks()


class _Series(_Part):
    n: Count
    dropped: Count
    mean: float | None = None
    quantiles: dict[str, float] = {}
    counts: list[Count]


class _Diagnostic(_Part):
    source: str
    protocol: str = ""
    name: str
    title: str
    axis: str
    log: bool
    edges: list[float]
    series: dict[str, _Series]


def _histogram(one: _Diagnostic) -> _Diagnostic:
    bins = max(0, len(one.edges) - 1)
    if not all(low < high for low, high in pairwise(one.edges)) or (one.log and any(edge <= 0 for edge in one.edges)):
        raise ValueError("edges should rise")
    if not all(len(series.counts) in (0, bins) for series in one.series.values()):
        raise ValueError("counts should be as many as bins")
    return one


class _Diagnostics(_Part):
    diagnostics: list[Annotated[_Diagnostic, AfterValidator(_histogram)]]


class _Job(_Part):
    job: str
    log: str
    submitted: float | None = None


class _Line(_Part):
    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=True)
    step: Count


class _Manifest(_Part):
    hash: str
    realised_rate: Amount
    rows: Count


class _Shuffle(_Part):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    kind: str
    rate: Amount
    seed: int
    n: Count
    realised_rate: Amount


class _Cell(_Part):
    run: str
    method: str
    noise: str
    seed: int
    steps: Count
    reference_run: str | None
    manifest: _Manifest | None
    kept_rows: Count | None = None
    evaluations: list[str] = []


class _Method(_Part):
    label: str
    title: str
    summary: str
    paper: str
    equations: str | None = None
    fidelity: str
    bibtex: str
    note: str
    state: str = ""
    score: str
    config: dict[str, Any]
    preset: str | None
    lr: Amount | None = None
    reference: str | None
    keep: dict[str, Any] | None = None


class _Block(_Part):
    label: str
    kind: str | None = None
    title: str = ""
    rate: Amount
    towers: str = ""


class _Dataset(_Part):
    description: str = ""
    n: Count | None = None
    chance: dict[str, float] = {}


class _Trained(_Part):
    name: str
    description: str = ""
    rows: Count


class _Evaluate(_Part):
    curve: list[float]


class _Shared(_Part):
    train: dict[str, Any] = {}
    evaluate: _Evaluate | None = None


class _Trial(_Part):
    changes: dict[str, float]
    run: str
    reference_run: str | None = None
    score: float | None


class _Choice(_Part):
    chosen: dict[str, float]
    score: float | None
    trials: Annotated[list[_Trial], Field(min_length=1)]
    ledger: dict[str, Amount]


class _Tuning(_Part):
    methods: dict[str, _Choice]
    seed: int = 0
    rate: Amount | None = None
    lr: list[float] = []
    temperature: list[float] = []
    budget: dict[str, Any] | None = None


class _Plan(_Part):
    cells: list[_Cell]
    suite: str | None = None
    description: str = ""
    suite_hash: str | None = None
    made: float | None = None
    budget: _Budget | None = None
    data: _Trained | None = None
    primary: dict[str, str] | None = None
    methods: list[_Method] | None = None
    baseline: str | None = None
    noises: list[_Block] | None = None
    seeds: list[int] | None = None
    tuning: _Tuning | None = None
    protocol: str | None = None
    datasets: dict[str, _Dataset] | None = None
    settings: _Shared | None = None
    tables: dict[str, Any] | None = None


MODELS: dict[str, TypeAdapter[Any]] = {
    "status": TypeAdapter(_Status),
    "settings": TypeAdapter(_Settings),
    "ledger": TypeAdapter(_Ledger),
    "environment": TypeAdapter(_Environment),
    "diagnostics": TypeAdapter(_Diagnostics),
    "job": TypeAdapter(_Job),
    "manifest": TypeAdapter(_Shuffle),
    "line": TypeAdapter(_Line),
    "plan": TypeAdapter(_Plan),
    "trials": TypeAdapter(list[str]),
    "hashes": TypeAdapter(dict[str, Sha256]),
    "seconds": TypeAdapter(dict[str, Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]]),
}
