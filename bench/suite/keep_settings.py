"""The section of a suite that says which training rows a run may see."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from bench.catalogue.keep import KEEPS, Keep
from bench.settings_base import Model
from bench.yaml_source import fault


class KeepSettings(Model):
    """Which training rows a run may see; a bare word means a kind without parameters."""

    kind: str = "all"
    share: Annotated[float, Field(gt=0, le=1)] | None = None  #: of the rows
    rows: Annotated[int, Field(ge=1)] | None = None  #: how many

    @model_validator(mode="before")
    @classmethod
    def _bare_word(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _offered(self) -> Self:
        if message := KEEPS.unknown(self.kind):
            raise fault(message, "kind")
        for name in ("share", "rows"):
            given, takes = getattr(self, name) is not None, name in KEEPS[self.kind].takes
            if given != takes:
                raise fault(f"{self.kind} {'needs it' if takes else 'has none; leave it away'}", name)
        return self

    @property
    def entry(self) -> Keep:
        """What this kind is."""
        return KEEPS[self.kind]

    @property
    def label(self) -> str:
        """As printed: "oracle", "random 0.5", "trusted 500"."""
        return " ".join([self.kind, *(f"{getattr(self, name):g}" for name in self.entry.takes)])

    def under(self, rate: float) -> KeepSettings:
        """Itself, or the default where it leaves nothing out: the clean rows at rate 0, or the whole share."""
        leaves_nothing = self.share == 1.0 or (self.entry.truth_alone and not rate)
        return UNTREATED if leaves_nothing else self

    def content(self) -> dict[str, Any]:
        """What identities see: the kind with its own parameters."""
        return {"kind": self.kind, **{name: getattr(self, name) for name in self.entry.takes}}


UNTREATED = KeepSettings()
