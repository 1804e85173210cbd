"""The sections of a suite's YAML as typed models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from bench.catalogue import families, tower_families, training_sets
from bench.catalogue.budget_kinds import BUDGET_KINDS
from bench.catalogue.families import FAMILIES
from bench.catalogue.tower_families import FEATURES
from bench.errors import nearest
from bench.settings_base import Location, Model, NoDuplicates, NonEmptyList, Positive, Rate, Word, Words, one_or_several
from bench.store.selection import LAST, Select
from bench.suite.data_settings import SYNTHETIC as SYNTHETIC
from bench.suite.data_settings import DataSettings as DataSettings
from bench.suite.data_settings import in_data_folder
from bench.suite.keep_settings import KeepSettings
from bench.suite.train_settings import TrainSettings as TrainSettings
from bench.yaml_source import fault

Protocol = Literal["common", "bayes", "nuclr", "ncu", "prolip"]
SNAPSHOTS = (0.25, 0.5, 0.75)  #: shares of the budget at which every run keeps its weights


class Budget(Model):
    """What a run may spend: `{kind: value}`, of one kind of the table Budgets."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[float, Field(gt=0)]] = Field(init=False)

    @property
    def label(self) -> str:
        """As printed: "40 epochs"."""
        return f"{self.value:g} {BUDGET_KINDS[self.kind].unit}"

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        return {key: value for key, value in given.items() if value is not None} if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        kinds = list(self.__pydantic_extra__)
        for kind in kinds:
            if kind not in BUDGET_KINDS:
                raise fault(f"unknown key{nearest(kind, BUDGET_KINDS.names())}", kind)
            if self.__pydantic_extra__[kind] > (most := BUDGET_KINDS[kind].most):
                raise fault(f"{self.__pydantic_extra__[kind]:g} should be at most {most:g}", kind)
        if len(kinds) != 1:
            given = " and ".join(kinds) if kinds else "nothing"
            raise fault(f"has {given}; should have exactly one of {', '.join(BUDGET_KINDS.names())}")
        return self

    @property
    def kind(self) -> str:
        """The name of its kind, such as "epochs"."""
        return next(iter(self.__pydantic_extra__))

    @property
    def value(self) -> float:
        """How much, in the unit of its kind."""
        return float(self.__pydantic_extra__[self.kind])

    @property
    def timed(self) -> bool:
        """Return whether steps are timed on the machine that trains, which needs the device alone."""
        return BUDGET_KINDS[self.kind].timed

    def scaled(self, share: float) -> Budget:
        """`share` of this budget."""
        return Budget.model_validate({self.kind: self.value * share})


def _in_one_unit(budgets: tuple[Budget, ...]) -> tuple[Budget, ...]:
    for number, one in enumerate(budgets):
        if one.kind != budgets[0].kind:
            raise fault(f"is in {one.kind}; all budgets of a suite are in one unit, here {budgets[0].kind}", number)
        if one in budgets[:number]:
            raise fault(f"duplicate budget {one.label}", number)
    if not budgets:
        raise fault("is empty; name a budget such as {epochs: 10}")
    return budgets


#: one or several, in any order
Budgets = Annotated[tuple[Budget, ...], one_or_several, AfterValidator(_in_one_unit)]


class HeadSettings(Model):
    """The trained tower of a run on stored features."""

    #: linear: y = Wx + b; mlp: hidden layers with GELU, then a linear one; residual: y = p + mlp(p), p = x or, if the
    #: widths differ, a linear map of x
    kind: Literal["linear", "mlp", "residual"] = "linear"
    hidden: Annotated[int, Field(ge=1, le=2**16)] = 1024  #: width of each hidden layer
    layers: Annotated[int, Field(ge=1, le=64)] = 1  #: hidden layers
    dropout: Rate = 0.0  #: of hidden units

    @model_validator(mode="after")
    def _a_linear_head_is_one_layer(self) -> Self:
        for field in ("hidden", "layers", "dropout"):
            written = getattr(self, field) != type(self).model_fields[field].default  # a stored run has the defaults
            if self.kind == "linear" and written:
                raise fault("a linear head has no hidden layers; omit it, or set kind: mlp", field)
        return self


class TowerSettings(Model):
    """The two encoders."""

    later: ClassVar[frozenset[str]] = frozenset(
        {"context", "image_start", "text_start", "channels", "head", "vocabulary_of"}
    )
    outside: ClassVar[frozenset[str]] = frozenset({"label"})

    label: Word = ""  #: in tables, where a suite compares several
    image: str = "tiny-resnet"  #: a name of the table Towers
    #: a name of the table Towers, or a folder of a transformers model
    text: str = "tiny-transformer"
    dim: Annotated[int, Field(ge=1, le=2**16)] = 128  #: width of the shared embedding
    vocabulary: Annotated[int, Field(ge=2, le=10**6)] = 4096  #: tokens of a small text tower, learned from the captions
    #: data of the package whose captions these tokens are learned from, such as `emoji-a`; null = the run's own
    vocabulary_of: str | None = None
    context: Annotated[int, Field(ge=3, le=2**13)] | None = None  #: tokens a caption; null = the text tower's own
    #: pretrained weights of the image tower: a file, or `imagenet` (timm's); null = random
    image_start: Annotated[Location, Field(min_length=1)] | None = None
    #: pretrained weights of the text tower: a folder, or `hub` (transformers'); null = random
    text_start: Annotated[Location, Field(min_length=1)] | None = None
    #: `imagenet`: pixels by ImageNet's mean and standard deviation; null = those of the tower's open_clip weights
    channels: Literal["imagenet"] | None = None
    head: HeadSettings | None = None  #: of towers that read stored features; null = a linear one for these

    @property
    def stored(self) -> tuple[str, ...]:
        """Which of the two towers, "image" and "text", read stored features."""
        return tuple(kind for kind in ("image", "text") if getattr(self, kind) == FEATURES)

    @model_validator(mode="before")
    @classmethod
    def _a_head_for_features(cls, values: Any) -> Any:
        """Towers on features have a head, the same one whether it is written or left at its default."""
        if isinstance(values, dict) and FEATURES in (values.get("image"), values.get("text")):
            return {**values, "head": {} if values.get("head") is None else values["head"]}
        return values

    @model_validator(mode="after")
    def _a_head_alone(self) -> Self:
        if self.head is not None and not self.stored:
            raise fault(f"is of towers on stored features; set image: {FEATURES} or text: {FEATURES}", "head")
        for kind in self.stored:
            if getattr(self, f"{kind}_start") is not None:
                raise fault("a head on stored features has no pretrained weights; omit it", f"{kind}_start")
        return self

    @field_validator("vocabulary_of")
    @classmethod
    def _of_the_package(cls, name: str | None, info: ValidationInfo) -> str | None:
        if name is not None and name not in (own := training_sets.embedded()):
            raise fault(f"{name!r} does not come with the package{nearest(name, own)}")
        if name is not None and not tower_families.learns_tokens(text := info.data.get("text", "")):
            raise fault(f"towers.text {text} brings its own vocabulary; omit it")
        return name

    @field_validator("image", "text")
    @classmethod
    def _known(cls, name: str, info: ValidationInfo) -> str:
        if message := tower_families.unknown_tower("image" if info.field_name == "image" else "text", name):
            raise fault(message)
        return name


def _told_apart(towers: tuple[TowerSettings, ...]) -> tuple[TowerSettings, ...]:
    labels = [one.label for one in towers]
    for position, label in enumerate(labels):
        if len(towers) > 1 and (not label or label in labels[:position]):
            raise fault("each of several towers needs a label of its own", position, "label")
    return towers


Towers = Annotated[
    tuple[TowerSettings, ...], one_or_several, Field(min_length=1, max_length=100), AfterValidator(_told_apart)
]


def _known_family(name: str) -> str:
    if message := FAMILIES.unknown(name):
        raise fault(message)
    return name


Task = Annotated[str, AfterValidator(_known_family)]  #: a family of `bench.catalogue.families`


class EvaluateSettings(Model):
    """Measurements at the end of a run and along it."""

    tasks: Annotated[tuple[Task, ...], NonEmptyList, NoDuplicates] = (
        "zero_shot",
        "shift",
        "linear_probe",
        "retrieval",
        "noise_detection",
    )  #: families of evaluation tasks, of the table Tasks
    #: points along a run that are measured as well: 0.25, 0.5 or 0.75 of the budget
    curve: Annotated[tuple[float, ...], Field(strict=False), NoDuplicates] = ()
    #: families of `tasks` measured at these points, on all of their data sets; none: `zero_shot` on its first data set,
    #: and `memorisation`
    along: Annotated[tuple[Task, ...], Field(strict=False), NoDuplicates] = ()
    protocol: Protocol = "common"  #: rules for pixels, prompts and metrics
    #: family whose main metric is the suite's primary metric; null = the first of `tasks` in the order of their table
    headline: Task | None = None
    #: family -> data sets: names of the catalogue, `NAME` of a folder `wds_NAME`, or data of the package, where `emoji`
    #: is all that the family measures on the emoji and `emoji/iid` one set; default: those of the protocol
    datasets: dict[Task, Annotated[Words, NoDuplicates]] = Field(default_factory=dict)

    def of_trials(self, by: Task, rules: Iterable[Select]) -> EvaluateSettings:
        """What trials measure, under the same protocol: every family of validation; along the run those of rules."""
        along = tuple(dict.fromkeys(rule for rule in rules if rule != LAST))
        others = (name for name in self.tasks if FAMILIES[name].split == "validation")
        tasks = tuple(dict.fromkeys((by, *along, *others)))
        datasets = {family: names for family, names in self.datasets.items() if family in tasks}
        own = {"curve": self.curve if along else (), "along": along, "headline": None}
        return self.model_copy(update={"tasks": tasks, "datasets": datasets, **own})

    @field_validator("headline")
    @classmethod
    def _measured(cls, name: str | None, info: ValidationInfo) -> str | None:
        compared = [one for one in info.data.get("tasks", (name,)) if one and FAMILIES[one].main]
        if name is not None and name not in compared:
            raise fault(f"{name!r} should be one of evaluate.tasks that methods are compared by: {', '.join(compared)}")
        return name

    @field_validator("along")
    @classmethod
    def _among_the_tasks(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        asked = info.data.get("tasks", names)
        for position, name in enumerate(names):
            if name not in asked:
                raise fault(f"{name!r} is not among evaluate.tasks{nearest(name, asked)}", position)
        if names and not info.data.get("curve", True):
            raise fault("has no effect: evaluate.curve has no points; add some")
        return names

    @field_validator("datasets")
    @classmethod
    def _in_the_catalogue(cls, datasets: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for family, names in datasets.items():
            for position, name in enumerate(names):
                if message := families.why_unmeasurable(family, name):
                    raise fault(message, family, position)
        return datasets

    @field_validator("curve")
    @classmethod
    def _kept_weights(cls, curve: tuple[float, ...]) -> tuple[float, ...]:
        for position, share in enumerate(curve):
            if share not in SNAPSHOTS:
                raise fault(f"{share:g} should be 0.25, 0.5 or 0.75", position)
        return curve


class MethodEntry(Model):
    """A suite entry: a method with its hyper-parameters. A bare name means its defaults."""

    method: str  #: name of a method
    label: Annotated[Word, Field(min_length=1)] = ""  #: name of the entry in tables; default: the method's
    preset: str | None = None  #: a preset of the method, instead of its defaults
    config: dict[str, Any] = Field(default_factory=dict)  #: hyper-parameters of the method, which override the preset's
    lr: Positive | None = None  #: instead of `train.lr`
    weight_decay: Positive | None = None  #: instead of `train.weight_decay`
    keep: KeepSettings | None = None  #: instead of `data.keep`
    #: weights to start from, instead of random ones or a reference run: a file of this store or of open_clip's
    #: format, or `open_clip:MODEL/TAG`. Their training is not charged. `{data}` stands for the data folder, `{towers}`
    #: for the label of the towers
    start: Annotated[Location, Field(min_length=1)] | None = None
    #: label of the entry whose run the method starts from, or holds as a frozen copy, instead of its own choice
    reference: Word | None = None
    untrained: bool = False  #: no training: the entry measures the weights that its method starts from
    #: share of the start in an average of the start's weights with those of the same entry without this setting
    #: (WiSE-FT, Wortsman et al., CVPR 2022, whose alpha is one minus this)
    average_with_start: Annotated[float, Field(gt=0, lt=1)] | None = None
    select: Select | None = None  #: instead of the suite's; entries that differ only in it share runs

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"method": value}
        if isinstance(value, dict) and isinstance(value.get("method"), str):
            return {"label": value["method"], **value}
        return value

    def without_noise(self, baseline: MethodEntry) -> MethodEntry:
        """The entry at rate 0: an oracle of the baseline's method is the baseline there, whatever its trials chose."""
        of_it = (self.method, self.preset, self.start) == (baseline.method, baseline.preset, baseline.start)
        if self.keep is None or not self.keep.entry.truth_alone or not of_it:
            return self
        return baseline.model_copy(update={"label": self.label, "keep": self.keep})

    @property
    def steps(self) -> bool:
        """Return whether its runs train."""
        return not self.untrained and self.average_with_start is None

    @property
    def recipe(self) -> dict[str, float]:
        """The values that replace fields of `train`."""
        own = {"lr": self.lr, "weight_decay": self.weight_decay}
        return {name: value for name, value in own.items() if value is not None}

    def start_of(self, towers: TowerSettings) -> str | None:
        """The weights that these towers start from."""
        return self.start and in_data_folder(self.start.replace("{towers}", towers.label))
