"""One run: method x noise x seed under one budget, and its content address."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bench import hashing
from bench.adapters import hyperparameters, registry
from bench.adapters.reach import adapter_source_hash
from bench.catalogue.noise_kinds import KINDS, noise_label
from bench.errors import UserError, one_line
from bench.hashing import OPEN_CLIP, Absent, MissingFile
from bench.suite import tower_files
from bench.suite.keep_settings import ALL_PAIRS, KeepSettings
from bench.suite.noise_settings import NoiseSettings
from bench.suite.settings import Budget, DataSettings, EvaluateSettings, TowerSettings, TrainSettings

#: Raised whenever the runner or `methods/protocol.py` gives other results for the same settings. 2: embeddings are
#: normalised in fp32, the number of threads is a run's own, and of an adapter's source only its meaning counts.
TRAINING_VERSION = 2


def run_address(
    run: Run,
    data_hash: str,
    manifest_hash: str | None,
    reference_id: str | None = None,
    calibration_hash: str | None = None,
    kept_hash: str | None = None,
) -> dict[str, Any]:
    """Return all that a run's result depends on; its digest is the run's id. A run's settings.json holds it.

    data_hash, manifest_hash: `content_hash` of the training pairs and of the noise manifest (None without one).
    reference_id: of the run that it starts from or that scores its pairs.
    calibration_hash: of what turned device seconds into steps.
    kept_hash: of the keys of the selected rows; if these follow from the truth alone, they represent the noise.
    Raises MissingFile if the weights it begins at, or files of its towers, are not there.
    """
    content = run.content()
    for place, value in hashing.flattened(content):
        if isinstance(value, Absent):
            other = f"; a path, or {OPEN_CLIP}MODEL/TAG" if place == "start" else ""
            raise MissingFile(f"{place}: {value.reason}{other}")
    if kept_hash is not None:
        content["kept"] = kept_hash
        if run.keep.entry.truth_alone:  # whose captions the others have changes nothing
            content["noise"] = manifest_hash = None
    return {
        **content,
        "training_version": TRAINING_VERSION,
        "adapter": adapter_source_hash(run.method),
        **({"scorer_adapter": adapter_source_hash(run.scorer.run.method)} if run.scorer and run.scorer.stored else {}),
        "pairs": data_hash,
        "manifest": manifest_hash if run.rate else None,
        "reference": reference_id,
        "calibration": calibration_hash,
    }


@dataclass(frozen=True)
class Run:
    """One method x noise x seed under one budget. Two runs with equal `content()` are the same run."""

    label: str
    method: str
    preset: str | None
    config: dict[str, Any]  #: all hyper-parameters, resolved
    data: DataSettings
    noise: str | None  #: a kind; None at rate 0
    rate: float
    seed: int
    budget: Budget  #: what this run itself may spend, its reference run not counted
    towers: TowerSettings
    train: TrainSettings
    evaluate: EvaluateSettings
    reference: Run | None = None  #: the run that it starts from, or that scores its pairs
    start: str | None = None  #: the weights it starts from instead
    untrained: bool = False  #: takes no step: the weights that it starts from are measured
    #: share of the weights that it begins at in their average with the reference run's final ones; no step is made
    average: float | None = None
    keep: KeepSettings = ALL_PAIRS  #: which rows it may see
    keep_rule: str = "samples"
    pays_scorer: bool = False  #: whether its budget pays for scoring its pairs, if these are chosen by a score
    noise_file: str | None = None  #: an index file that defines the wrong pairs
    noise_options: dict[str, Any] = field(default_factory=dict)  #: the kind's own settings, defaults included
    #: whether nobody knows that pairs without injected noise are right; for the printed name alone
    natural: bool = False
    budget_label: str = ""  #: for the printed name alone, where a suite has several: "40 epochs"
    scorer: Scorer | None = None  #: the external model that scores its pairs
    measured: bool = True  #: False if it is no row of its suite; others need its weights

    @property
    def points(self) -> tuple[float, ...]:
        """Return the shares of its budget after which it is measured; () if it is not."""
        return (*self.evaluate.curve, 1.0) if self.measured else ()

    @property
    def steps(self) -> bool:
        """Return whether it trains."""
        return not self.untrained and self.average is None

    @property
    def selects_data(self) -> bool:
        """Return whether the run may see only some of the pairs."""
        return self.keep != ALL_PAIRS

    @property
    def block(self) -> str:
        """Which runs it is compared with: its noise, and its towers and budget where a suite has several."""
        noise = noise_label(self.noise or "shuffled_captions", self.rate, self.natural)
        return ", ".join(filter(None, (self.towers.label, noise, self.budget_label)))

    @property
    def title(self) -> str:
        """One line for progress and messages."""
        return f"{self.label}, {self.block}, seed {self.seed}"

    def noise_of(self, pairs: Any) -> Any:
        """Make the `bench.data.noise.Noise` that pairs have in it, keyed by its seed; None if it has none."""
        if self.noise is None:
            return None
        files = () if self.noise_file is None else (self.noise_file,)
        noise = NoiseSettings(kind=self.noise, rates=(self.rate,), files=files, options=self.noise_options)
        return noise.entry.make(pairs, noise, self.rate, self.seed)

    @property
    def noise_of_held_out(self) -> Callable[[Any], Any] | None:
        """Makes the noise of pairs that it does not train on; None if it trains on clean ones, or these cannot have it.

        A run that the truth kept from corrupted pairs has clean ones held out as well.
        """
        known = self.noise is not None and KINDS[self.noise].for_held_out and not self.keep.entry.truth_alone
        return self.noise_of if known else None

    def content(self) -> dict[str, Any]:
        """Everything of the settings that its result depends on; no labels, no performance-only keys."""
        options = KINDS[self.noise].options.model_validate(self.noise_options).content() if self.noise else {}
        paid = {"pays_scorer": self.pays_scorer} if self.keep.entry.scored else {}
        external = self.scorer.content() if self.scorer else {}
        keep = {**self.keep.content(), "rule": self.keep_rule, **paid, **external}
        method = registry.find_method(self.method)
        return {
            **({"start": hashing.weights_identity(self.start)} if self.start else {}),
            **({"scale_and_bias": "together"} if self.start and hyperparameters.has_logit_bias(method) else {}),
            **({"untrained": True} if self.untrained else {}),
            **({"average": self.average} if self.average is not None else {}),
            **({"keep": keep} if self.selects_data else {}),
            "method": self.method,
            "config": hyperparameters.config_content(self.method, self.config),
            "data": self.data.content(),
            "noise": {"kind": self.noise, "rate": self.rate, **({"options": options} if options else {})},
            "seed": self.seed,
            "budget": {"kind": self.budget.kind, "value": self.budget.value},
            "towers": tower_files.towers_content(self.towers),
            "train": self.train.content(),
            "reference": self.reference.content() if self.reference else None,
        }

    @cached_property
    def key(self) -> str:
        """Hash of `content()`: equal for equal runs, known before any data is read."""
        return hashing.digest(self.content())

    def settings(self) -> dict[str, Any]:
        """Everything, for settings.json."""
        options = {"options": self.noise_options} if self.noise and self.noise_options else {}
        scorer = {"weights": self.keep.weights, "towers": self.keep.towers}
        return {
            **self.content(),
            **({"scorer": scorer} if self.keep.weights else {}),
            "config": self.config,
            "start": self.start,
            "label": self.label,
            "preset": self.preset,
            "data": self.data.model_dump(mode="json"),
            "noise": {"kind": self.noise, "rate": self.rate, "file": self.noise_file, **options},
            "towers": self.towers.model_dump(mode="json"),
            "train": self.train.model_dump(mode="json"),
            "evaluate": self.evaluate.model_dump(mode="json"),
        }


#: fields of earlier versions in stored settings, at values that changed no result
REMOVED_FIELDS = (
    ("shard_optimizer", False),
    ("shard_optimizer", True),
    ("augment_on", "host"),
    ("texts", None),
    ("features", ""),
)


@dataclass(frozen=True)
class Scorer:
    """External weights that score a run's pairs, and how they are read. Its training is charged to no run."""

    weights: str  #: a file, or "open_clip:MODEL/TAG"
    run: Run  #: settings with the towers that the weights fit, and the size of the images that these see
    stored: str = ""  #: id of the run that the weights are of, whose method reads them; "" = towers without a method

    def content(self) -> dict[str, Any]:
        """What ids depend on: the weights' bytes, wherever they lie, and how they are read."""
        towers = {"towers": tower_files.towers_content(self.run.towers), "size": self.run.data.size}
        return {
            "weights": hashing.weights_identity(self.weights),
            "read": {"run": self.stored} if self.stored else towers,
        }


def current_section(section: dict[str, Any]) -> dict[str, Any]:
    """Return a section of a settings.json without what earlier versions wrote of fields that are gone."""
    return {key: value for key, value in section.items() if (key, value) not in REMOVED_FIELDS}


def run_of_settings(settings: dict[str, Any], path: Path) -> Run:
    """Return the run that a settings.json describes, without the run it started from or that scored its pairs.

    Raises UserError, with `path`, for settings that this version does not understand, and for an unknown method.
    """
    try:
        if (name := settings["method"]) not in registry.method_names():
            fix = "give the file that defines it: --plugin FILE"
            raise UserError(f"{path}: was trained with the method {name!r}; {fix}")
        keep = settings.get("keep", {})
        own = {key: keep[key] for key in ("kind", "share", "rows", "by") if key in keep}
        return Run(
            label=settings["label"],
            method=name,
            preset=settings["preset"],
            config=settings["config"],
            data=DataSettings.model_validate(current_section(settings["data"])),
            keep=KeepSettings.model_validate({**own, **settings.get("scorer", {})}),
            keep_rule=keep.get("rule", "samples"),
            pays_scorer=keep.get("pays_scorer", False),
            untrained=settings.get("untrained", False),
            average=settings.get("average"),
            noise=settings["noise"]["kind"],
            rate=settings["noise"]["rate"],
            noise_file=settings["noise"].get("file"),
            noise_options=current_section(settings["noise"].get("options", {})),
            seed=settings["seed"],
            budget=Budget.model_validate({settings["budget"]["kind"]: settings["budget"]["value"]}),
            towers=TowerSettings.model_validate(settings["towers"]),
            train=TrainSettings.model_validate(current_section(settings["train"])),
            evaluate=EvaluateSettings.model_validate(settings["evaluate"]),
        )
    except (KeyError, TypeError, ValidationError) as error:
        reason = one_line(error)
        raise UserError(f"{path}: is not a run's settings of this version: {type(error).__name__}: {reason}") from error
