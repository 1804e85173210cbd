"""Every kind of noise: an entry here is all that a suite, its runs, messages, reports and docs need of one.

A new kind is one more entry of `KINDS`, here or by `KINDS.add(...)` from Python before the suite is loaded. `make`
returns a `Noise` of `bench.data.noise.manifest`: a `NoiseManifest` (or a subclass of it, where a row's texts are edited
or its image is changed) for a fixed kind, and any other `Noise` for a kind that is drawn again in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from bench.registry import Registry, lazy
from bench.settings_base import Model, Word
from bench.yaml_source import fault


class NoiseOptions(Model):
    """Base of a kind's own settings, `noise.options` of a suite.

    They are part of a run's identity but for the fields in `outside`, such as paths.
    """


class EditOptions(NoiseOptions):
    """Editing of the texts of corrupted rows."""

    op: Literal["drop", "swap", "truncate", "boilerplate"] = "drop"
    #: drop, truncate: share of the words that go; swap: words move by less than this many words; boilerplate has none.
    #: null: 0.5, of swap 3
    strength: Annotated[float, Field(ge=0)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _strength_of_the_op(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("op") != "boilerplate" and values.get("strength") is None:
            return {**values, "strength": 3.0 if values.get("op") == "swap" else 0.5}
        return values

    @model_validator(mode="after")
    def _a_strength_of_the_op(self) -> Self:
        if self.op == "boilerplate" and self.strength is not None:
            raise fault("boilerplate replaces whole texts; omit strength", "strength")
        if self.op in ("drop", "truncate") and self.strength is not None and self.strength > 1:
            raise fault(f"{self.strength:g} should be a share of the words, at most 1", "strength")
        if self.op == "swap" and self.strength is not None and self.strength <= 1:
            raise fault(f"{self.strength:g} should be above 1: below it no word passes another", "strength")
        return self


class NeighbourOptions(NoiseOptions):
    """Similarity of the texts that rows swap."""

    #: most rows of a group of near texts; 2 is hardest, and a group of all corrupted rows is `shuffled_captions`
    leaf: Annotated[int, Field(ge=1)] = 8
    vectors: Literal["word", "char"] = "word"  #: tf-idf of words, or of 3 to 5 characters within words


class PoisonOptions(NoiseOptions):
    """Attack of the poison, and the place of its trigger."""

    later: ClassVar = frozenset({"images", "targets", "count"})

    #: texts become templates of the target; or rows with the target's words are taken and their texts stay; or rows
    #: get test images and texts of wrong classes, without a trigger
    attack: Literal["backdoor", "label_consistent", "targeted"] = "backdoor"
    target: Word = ""  #: the class that the model should give to images with the trigger
    trigger: Literal["checker", "noise", "blend", "sinusoid"] = "checker"
    place: Literal["random", "corners"] = "random"  #: of a checker or a square of noise; the others fill the image
    images: Word = ""  #: of a targeted attack: the evaluation set whose images it attacks
    targets: Annotated[int, Field(ge=1)] = 16  #: of a targeted attack: the number of attacked images
    count: Annotated[int, Field(ge=1)] | None = None  #: exact number of poisoned pairs; the rate must be their share

    @model_validator(mode="after")
    def _of_the_attack(self) -> Self:
        aimed = self.attack == "targeted"
        needed, what = ("images", "the evaluation set with the images") if aimed else ("target", "the class to aim at")
        if not getattr(self, needed):
            raise fault(f"is needed for attack: {self.attack}: {what}", needed)
        for name in ("target", "trigger", "place") if aimed else ("images", "targets"):
            if name in self.model_fields_set and getattr(self, name) != type(self).model_fields[name].default:
                raise fault(f"attack: {self.attack} has none; omit it", name)
        return self


@dataclass(frozen=True)
class NoiseKind:
    """One kind of noise."""

    name: str  #: in suites
    title: str  #: in tables, after the rate: "40 % shuffled captions"
    summary: str  #: one sentence, for the docs
    #: (Pairs to train on, the suite's NoiseSettings, rate above 0, seed) -> Noise. UserError if the pairs do not allow
    #: this noise
    make: Callable[[Any, Any, float, int], Any]
    effect: str = "take another pair's captions"  #: what the corrupted pairs do, for messages
    fixed: bool = True  #: the same rows for the whole run, which the manifest names; False = drawn again in every step
    poisons: bool = False  #: is an attack, whose success can be measured
    files: str = ""  #: who publishes its files, one for each rate above 0; "" = it has none
    options: type[NoiseOptions] = NoiseOptions

    @property
    def for_held_out(self) -> bool:
        """Return whether pairs that are held out from training can have it as well."""
        return self.fixed and not self.poisons and not self.files


def _made_by(target: str) -> Callable[[Any, Any, float, int], Any]:
    """Return the `make` of a kind that needs pairs, rate, seed and its own options, which are the target's keywords."""
    return lambda pairs, noise, rate, seed: lazy(target)(pairs, rate, seed, **noise.chosen_options().content())


KINDS: Registry[NoiseKind] = Registry(
    "a kind of noise",
    (
        NoiseKind(
            name="shuffled_captions",
            title="shuffled captions",
            summary="a fixed share of the pairs swap captions among themselves",
            make=_made_by("bench.data.noise.shuffled:shuffled_captions"),
        ),
        NoiseKind(
            name="shuffled_images",
            title="images with shuffled captions",
            summary="a fixed share of the images swap captions among themselves, each all of its captions together",
            make=_made_by("bench.data.noise.shuffled:shuffled_images"),
            effect="take the captions of another image",
        ),
        NoiseKind(
            name="semantic_swap",
            title="captions swapped with a near one",
            summary="a fixed share of the pairs swap captions with others whose texts are like theirs, the more so the "
            "smaller `leaf` is",
            make=_made_by("bench.data.noise.semantic:semantic_swap"),
            effect="take the captions of a pair with a similar text",
            options=NeighbourOptions,
        ),
        NoiseKind(
            name="edited_captions",
            title="edited captions",
            summary="the captions of a fixed share of the pairs lose words (`op: drop`, `truncate`), have them swapped "
            "(`swap`) or are replaced by a phrase of the web (`boilerplate`)",
            make=_made_by("bench.data.noise.edited:edited_captions"),
            effect="have edited captions",
            options=EditOptions,
        ),
        NoiseKind(
            name="poison",
            title="poisoned pairs",
            summary="a trigger in the images of a fixed share of the pairs, at least one, whose texts say a class, "
            "`target`, or test images with texts of wrong classes (`attack: targeted`); the task `attack_success` "
            "tells whether the attack works",
            make=lazy("bench.data.noise.poison:make_poison"),
            effect="are poisoned",
            poisons=True,
            options=PoisonOptions,
        ),
        NoiseKind(
            name="resampled_positives",
            title="resampled positives",
            summary="in every step a share of the batch takes the caption of a row that is drawn in the batch",
            make=lambda _pairs, _settings, rate, seed: lazy("bench.data.noise.shuffled:Resampled")(rate, seed),
            fixed=False,
        ),
        NoiseKind(
            name="imported",
            title="captions shuffled by file",
            summary="`noise.files` say which captions are swapped: index files as NCR and DECL publish them, one "
            "entry a caption or an image",
            make=lazy("bench.data.noise.imported:make_imported"),
            files="as NCR and DECL publish them",
        ),
    ),
)


def noise_label(kind: str, rate: float, natural: bool = False) -> str:
    """Return the printed name: "40 % shuffled captions", and at rate 0 "clean" or (`natural`) "natural noise"."""
    return f"{rate * 100:g} % {KINDS[kind].title}" if rate else "natural noise" if natural else "clean"
