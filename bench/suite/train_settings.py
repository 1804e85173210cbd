"""The section `train` of a suite's YAML: the recipe of its runs."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from bench.catalogue.augmentations import AUGMENTATIONS, DEFAULTS
from bench.settings_base import Model, Positive, Rate, entry_of
from bench.yaml_source import fault


class TrainSettings(Model):
    """The recipe that all methods of a suite share."""

    later: ClassVar[frozenset[str]] = frozenset({"warmup_steps", "final_lr", "compile", "layer_decay", "freeze"})
    #: change time and memory, never results
    outside: ClassVar[frozenset[str]] = frozenset({"micro_batch", "checkpoint_seconds", "recompute"})

    batch: Annotated[int, Field(ge=2, le=2**20)] = 128  #: pairs a step, over all devices
    micro_batch: Annotated[int, Field(ge=1)] | None = None  #: pairs a forward pass, a multiple of `bn_group`
    #: consecutive pairs of the global batch that share BatchNorm statistics: 128, or the whole of a smaller batch. It
    #: divides `batch`; neither GPUs nor micro-batches change the statistics
    bn_group: Annotated[int, Field(ge=1)] = 128
    lr: Positive = 1e-3  #: highest learning rate, from which a cosine falls
    weight_decay: Annotated[float, Field(ge=0, le=1e9)] = 0.1  #: of AdamW; none on biases and norms
    betas: Annotated[tuple[Rate, Rate], Field(strict=False)] = (0.9, 0.98)  #: of AdamW
    eps: Positive = 1e-6  #: of AdamW
    warmup: Rate = 0.1  #: share of the steps in which the learning rate rises
    warmup_steps: Annotated[int, Field(ge=0)] | None = None  #: instead of `warmup`; at most a tenth of the steps
    final_lr: Annotated[float, Field(ge=0, le=1e9)] = 0.0  #: learning rate at which the cosine ends
    #: factor on the learning rate from each block of a tower to the one below: of n blocks the lowest has factor^n,
    #: what stands below all blocks factor^(n + 1), projections 1
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    freeze: Literal["image", "text"] | None = None  #: tower that keeps its initial weights (`image` is LiT)
    precision: Literal["fp32", "bf16", "fp64"] = "fp32"  #: of the towers; losses and state stay in fp32 under bf16
    #: augmentation of training images; default: `emoji` for drawn art, `openclip` for photographs, `none` for features
    augment: Annotated[str, entry_of(AUGMENTATIONS)] = DEFAULTS["drawn art"]
    compile: bool = False  #: towers by torch.compile, which rounds differently
    recompute: bool = False  #: gradient checkpointing: less memory, more time
    checkpoint_seconds: Annotated[float, Field(ge=0, le=1e9)] = 30.0  #: between checkpoints; 0 = after every step
    #: CPU threads of each process. The last bits of weights depend on it, so it is part of the id; use more cores by
    #: `--jobs`, which changes no id
    threads: Annotated[int, Field(ge=1, le=1024)] = 1

    @model_validator(mode="before")
    @classmethod
    def _group_of_a_small_batch(cls, values: Any) -> Any:
        """A batch under 128 is one BatchNorm group unless said otherwise."""
        if isinstance(values, dict) and "bn_group" not in values and isinstance(values.get("batch"), int):
            return {**values, "bn_group": max(1, min(128, values["batch"]))}
        return values

    @model_validator(mode="after")
    def _numbers_fit(self) -> Self:
        if self.batch % self.bn_group:
            raise fault(f"{self.bn_group} does not divide batch {self.batch}", "bn_group")
        if self.micro_batch is not None and (self.micro_batch > self.batch or self.micro_batch % self.bn_group):
            whole = f"at most batch {self.batch} and a multiple of bn_group {self.bn_group}"
            raise fault(f"{self.micro_batch} should be {whole}", "micro_batch")
        if self.final_lr > self.lr:
            raise fault(f"{self.final_lr:g} should be at most lr {self.lr:g}, from which the cosine falls", "final_lr")
        return self
