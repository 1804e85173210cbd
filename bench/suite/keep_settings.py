"""Data selection, the section `keep`: which training pairs a run may see."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from bench.catalogue import architectures, tower_families
from bench.catalogue.keep import KEEPS, DataSelection
from bench.errors import nearest
from bench.hashing import OPEN_CLIP
from bench.settings_base import Location, Model, Word
from bench.yaml_source import fault


class KeepSettings(Model):
    """Data selection: which pairs a run may see. A bare word means a kind without parameters."""

    kind: str = "all"  #: a word of the table Data selections
    #: of the pairs that are kept; a list of shares makes an entry of each
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    rows: Annotated[int, Field(ge=1)] | None = None  #: number of pairs that are kept
    #: label of the entry whose method scores the pairs in place of the baseline: with `score` by its own confidence
    by: Annotated[Word, Field(min_length=1)] | None = None
    #: the run that scores the pairs is paid from the entry's budget, given on top of it, or given and trained on clean
    #: pairs (marked §); null = as `budget_rule` says
    teacher: Literal["paid", "given", "given_clean"] | None = None
    #: of an external model that scores the pairs, in place of a run of this noise: a file, or `open_clip:MODEL/TAG`.
    #: Its training is not charged. `{data}` stands for the data folder
    weights: Annotated[Location, Field(min_length=1)] | None = None
    #: architecture of open_clip that these weights are of; null = that of the settings.json beside them, of the tag, or
    #: the entry's own towers
    towers: Annotated[Word, Field(min_length=1)] | None = None

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
                raise fault(f"{self.kind} {'needs it' if takes else 'has none; omit it'}", name)
        if self.weights is not None and not self.entry.about_external:
            raise fault(f"{self.kind} has none; omit it", "weights")
        for name in ("by", "teacher"):
            if getattr(self, name) is not None and not self.by_run:
                raise fault("no run of this suite scores the pairs; omit it", name)
        if self.weights is None and not self.entry.about:
            raise fault(f"{self.kind} needs those of a model with variances, such as a stored run of ProLIP", "weights")
        if self.towers is not None and self.weights is None:
            raise fault("is of keep.weights; name the file, or omit it", "towers")
        field, model = ("towers", self.towers) if self.towers else ("weights", self.architecture)
        if model is not None and model not in architectures.open_clip_config_files():
            known = nearest(model, architectures.open_clip_config_files())
            raise fault(f"{model!r} is not an architecture of open_clip{known}", field)
        if model is not None and (message := tower_families.unknown_tower("image", model)):
            raise fault(message, field)
        return self

    @property
    def entry(self) -> DataSelection:
        """What this kind is."""
        return KEEPS[self.kind]

    @property
    def label(self) -> str:
        """As printed: "oracle", "random 0.5", "trusted 500", "score 0.6 by rcl given"."""
        by, teacher = f"by {self.by}" if self.by else "", self.teacher or ""
        parts = [f"{getattr(self, name):g}" for name in self.entry.takes]
        return " ".join(filter(None, [self.kind, *parts, by, teacher, "external" if self.weights else ""]))

    @property
    def about(self) -> str:
        """The kept rows, as a clause after "trained on"."""
        return (self.entry.about_external if self.weights else self.entry.about).format(score=self.score)

    @property
    def uses(self) -> str:
        """Knowledge that no method has, in the choice or in the run that scores the pairs."""
        return "a scorer trained on clean pairs" if self.teacher == "given_clean" else self.entry.uses

    @property
    def score(self) -> str:
        """What the scorer says of a pair."""
        return "confidence" if self.by and self.entry.score == "cosine" else self.entry.score

    @property
    def by_run(self) -> bool:
        """Return whether a run of the same noise and seed scores the pairs."""
        return self.entry.scored and self.weights is None

    @property
    def architecture(self) -> str | None:
        """The architecture of open_clip that `towers`, or the tag in `weights`, names; None if neither names one."""
        if self.towers or not (self.weights or "").startswith(OPEN_CLIP):
            return self.towers
        return (self.weights or "").removeprefix(OPEN_CLIP).rpartition("/")[0]

    def is_paid(self, rule: str) -> bool:
        """Return whether the run's budget pays for its reference run and scoring, under the suite's `budget_rule`."""
        return rule == "total" if self.teacher is None else self.teacher == "paid"

    def under(self, rate: float) -> KeepSettings:
        """Itself, or the default where it excludes nothing: the clean rows at rate 0, or a share of 1."""
        leaves_nothing = self.share == 1.0 or (self.entry.truth_alone and not rate)
        return ALL_PAIRS if leaves_nothing else self

    def content(self) -> dict[str, Any]:
        """What ids depend on: the kind with its own parameters. `Scorer` has the same for the weights."""
        by = {"by": "confidence"} if self.score == "confidence" else {}
        return {"kind": self.kind, **{name: getattr(self, name) for name in self.entry.takes}, **by}


ALL_PAIRS = KeepSettings()


def shares_apart(entry: Any) -> list[Any]:
    """An entry as written, as one entry for each share that its `keep` lists."""
    keep = entry.get("keep") if isinstance(entry, dict) else None
    if not isinstance(keep, dict):
        return [entry]
    shares = keep.get("share")
    if not isinstance(shares, list) or not all(type(one) in (int, float) for one in shares):
        return [entry]
    label = entry.get("label", entry.get("method"))
    return [
        {**entry, "label": f"{label}, {100 * share:g} % kept", "keep": {**keep, "share": share}} for share in shares
    ]
