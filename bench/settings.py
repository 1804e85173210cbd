"""The sections of a suite's YAML as typed models."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from bench.located import fault, nearest, shown
from bench.tower_configs import IMAGE_TOWERS, TEXT_TOWERS

NoiseKind = Literal["shuffled_captions", "resampled_positives"]
Task = Literal["zero_shot", "shift", "linear_probe", "adamw_probe", "retrieval", "noise_detection", "validation"]
Rate = Annotated[float, Field(ge=0.0, lt=1.0)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Range = Annotated[tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]], Field(strict=False)]
Several = Field(min_length=1, strict=False)  # a YAML list is no tuple, strictly

SNAPSHOTS = (0.25, 0.5, 0.75)  #: shares of the budget at which every run keeps its weights


class Model(BaseModel):
    """Frozen, no unknown keys, no silent conversion ("3" is not 3), no infinities."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class DataSettings(Model):
    """Which pairs to train on; the sets to evaluate on belong to the same family."""

    name: Literal["emoji"] = "emoji"
    size: Literal[32, 64] = 32  #: pixels a side


class NoiseSettings(Model):
    """One kind of noise at several rates; the seed of the noise is the seed of the run."""

    kind: NoiseKind = "shuffled_captions"
    rates: Annotated[tuple[Rate, ...], Several] = (0.0,)

    @field_validator("rates")
    @classmethod
    def _once(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        return once(rates)


class Budget(Model):
    """What a run may spend: exactly one of the four."""

    epochs: Annotated[float, Field(gt=0)] | None = None
    samples: Annotated[float, Field(gt=0)] | None = None
    flops: Annotated[float, Field(gt=0)] | None = None
    device_seconds: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        kinds = [kind for kind in type(self).model_fields if getattr(self, kind) is not None]
        if len(kinds) != 1:
            said = " and ".join(kinds) if kinds else "nothing"
            raise fault(f"says {said}; should say exactly one of epochs, samples, flops, device_seconds")
        return self

    @property
    def kind(self) -> str:
        """ "epochs", "samples", "flops" or "device_seconds"."""
        return next(kind for kind in type(self).model_fields if getattr(self, kind) is not None)

    @property
    def value(self) -> float:
        """Epochs, samples, FLOPs or seconds."""
        return float(getattr(self, self.kind))

    def scaled(self, share: float) -> Budget:
        """`share` of this budget."""
        return Budget.model_validate({self.kind: self.value * share})


class TowerSettings(Model):
    """The two encoders: names in `bench.tower_configs`."""

    image: str = "tiny-resnet"
    text: str = "tiny-transformer"
    dim: Annotated[int, Field(ge=1)] = 128  #: width of the shared embedding
    vocabulary: Annotated[int, Field(ge=2)] = 4096  #: tokens

    @field_validator("image", "text")
    @classmethod
    def _known(cls, name: str, info: ValidationInfo) -> str:
        towers = IMAGE_TOWERS if info.field_name == "image" else TEXT_TOWERS
        if name not in towers:
            raise fault(f"{name!r} is no {info.field_name} tower{nearest(name, towers)}")
        return name


class TrainSettings(Model):
    """The recipe every method of a suite shares."""

    batch: Annotated[int, Field(ge=2)] = 128  #: pairs a step, over all devices
    micro_batch: Annotated[int, Field(ge=1)] | None = None  #: pairs a forward pass; changes memory, not results
    bn_group: Annotated[int, Field(ge=1)] = 128  #: consecutive pairs that share BatchNorm statistics
    lr: Annotated[float, Field(gt=0)] = 1e-3
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    betas: Annotated[tuple[Rate, Rate], Field(strict=False)] = (0.9, 0.98)
    eps: Annotated[float, Field(gt=0)] = 1e-6
    warmup: Rate = 0.1  #: share of the steps
    precision: Literal["fp32", "bf16", "fp64"] = "fp32"  #: of the towers
    augment: Literal["emoji", "none"] = "emoji"
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30.0  #: between checkpoints; 0 = after every step
    threads: Annotated[int, Field(ge=1)] | None = None  #: CPU threads; null = torch's choice

    @model_validator(mode="before")
    @classmethod
    def _group_of_a_small_batch(cls, values: Any) -> Any:
        """A batch under 128 is one BatchNorm group unless said otherwise."""
        if isinstance(values, dict) and "bn_group" not in values and isinstance(values.get("batch"), int):
            return {**values, "bn_group": max(1, min(128, values["batch"]))}
        return values

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.batch % self.bn_group:
            raise fault(f"{self.bn_group} does not divide batch {self.batch}", "bn_group")
        if self.micro_batch is not None and (self.micro_batch > self.batch or self.micro_batch % self.bn_group):
            whole = f"at most batch {self.batch} and a multiple of bn_group {self.bn_group}"
            raise fault(f"{self.micro_batch} should be {whole}", "micro_batch")
        return self


class EvaluateSettings(Model):
    """What is measured: at the end, and along the way for curves of score against cost."""

    tasks: Annotated[tuple[Task, ...], Several] = (
        "zero_shot",
        "shift",
        "linear_probe",
        "retrieval",
        "noise_detection",
    )
    curve: Annotated[
        tuple[float, ...], Field(strict=False)
    ] = ()  #: shares of the budget at which it is measured as well

    @field_validator("tasks", "curve")
    @classmethod
    def _once(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return once(values)

    @field_validator("curve")
    @classmethod
    def _kept_weights(cls, curve: tuple[float, ...]) -> tuple[float, ...]:
        for position, share in enumerate(curve):
            if share not in SNAPSHOTS:
                raise fault(f"{share:g} should be 0.25, 0.5 or 0.75", position)
        return curve


class TuneSettings(Model):
    """Trials that every method gets alike before it is compared; the best on the validation pairs sets its row.

    The first trial is the suite's own settings. The others spread over the ranges, evenly on a logarithmic scale.
    """

    trials: Annotated[int, Field(ge=2)]  #: of every method
    budget: Budget | None = None  #: of one trial; null = the suite's
    rate: Rate | None = None  #: noise of the trials; null = the suite's highest
    seed: Seed = 1000  #: of the trials; best none of the suite's
    lr: Range = (5e-4, 8e-3)
    temperature: Range = (0.01, 0.2)  #: of methods that keep it fixed and whose entry does not name it

    @field_validator("lr", "temperature")
    @classmethod
    def _ordered(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not value[0] < value[1]:
            raise fault(f"{list(value)} should be [low, high]")
        return value


class MethodEntry(Model):
    """A row of the tables: a method with its hyper-parameters. A bare name means its defaults."""

    method: str
    label: Annotated[str, Field(min_length=1)] = ""
    preset: str | None = None
    config: dict[str, Any] = {}
    lr: Annotated[float, Field(gt=0)] | None = None  #: in place of `train.lr`
    #: weights to begin at, in place of fresh towers or of a reference run: a file of this store or of open_clip's
    #: format, or "open_clip:MODEL/TAG". What they cost is not known and not charged.
    start: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"method": value}
        if isinstance(value, dict) and isinstance(value.get("method"), str):
            return {"label": value["method"], **value}
        return value


def once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values as they are; a fault at the first that stands twice."""
    for position, value in enumerate(values):
        if value in values[:position]:
            raise fault(f"{shown(value)} stands twice", position)
    return values
