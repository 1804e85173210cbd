"""The section `towers.head` of a suite's YAML: the trained towers of a run on stored features."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bench.settings_base import Model, Rate
from bench.yaml_source import fault


class HeadSettings(Model):
    """A head on stored features; `bench.towers.heads` has the formulas."""

    kind: Literal["linear", "mlp", "residual"] = "linear"
    hidden: Annotated[int, Field(ge=1, le=2**16)] = 1024  #: width of each hidden layer
    layers: Annotated[int, Field(ge=1, le=64)] = 1  #: hidden layers
    dropout: Rate = 0.0  #: of hidden units

    @model_validator(mode="after")
    def _a_linear_head_is_one_layer(self) -> Self:
        for field in ("hidden", "layers", "dropout"):
            written = getattr(self, field) != type(self).model_fields[field].default  # a stored run has the defaults
            if self.kind == "linear" and written:
                raise fault("a linear head has no hidden layers; omit it, or say kind: mlp", field)
        return self
