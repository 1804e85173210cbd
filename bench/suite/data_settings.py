"""The section `data` of a suite's YAML: which pairs to train on."""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from bench import data_folder, resources
from bench.catalogue import training_sets
from bench.catalogue.augmentations import Images
from bench.settings_base import MAX_NAME_LETTERS, Location, Model, Rate, Strings, possible_path, printable_line
from bench.suite.keep_settings import ALL_PAIRS, KeepSettings
from bench.yaml_source import YamlSource, fault

SYNTHETIC = "synthetic:"  #: before a number of made-up pairs, in place of shards
MAX_ROWS = 10**11  #: most pairs of a training set
MAX_WIDTH = 2**16  #: most dimensions of a stored feature vector
Width = Annotated[int, Field(ge=1, le=MAX_WIDTH)]  #: of a stored feature vector


class DataSettings(Model):
    """Pairs to train on: the embedded emoji, or webdataset shards or stored features under any other name.

    Where files lie is not part of a run's identity; what they hold is.
    """

    #: a run's content holds `keep` and its rule itself, because an entry of the suite may have another
    later: ClassVar[frozenset[str]] = frozenset({"share", "block", "feature_dropout"})
    outside: ClassVar[frozenset[str]] = frozenset(
        {"shards", "index", "rows", "workers", "keep", "keep_rule", "features", "widths", "get"}
    )

    #: data of the package (`emoji`, or half of its concepts: `emoji-a`, `emoji-b`), or any other name
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=MAX_NAME_LETTERS)] = "emoji"
    size: Annotated[int, Field(ge=8, le=1024)] = 32  #: pixels a side; the emoji have 32 and 64
    #: brace pattern, folder or list of them, on this machine, "{data}" for the data folder; null = its `name`.
    #: `synthetic:N` is N pairs of noise, for timing
    shards: str | Strings | None = None
    #: null = index.parquet next to the first shard
    index: Location | None = None
    #: number of pairs as stated by the paper, which `--dry-run` counts with while the data is missing
    rows: Annotated[int, Field(ge=2, le=MAX_ROWS)] | None = None
    share: Annotated[float, Field(gt=0, le=1)] = 1.0  #: of the pairs; a smaller share is a subset of a larger one
    block: Annotated[int, Field(ge=1)] = 16  #: shards whose rows are shuffled together
    keep: KeepSettings = ALL_PAIRS  #: data selection of every entry without a `keep` of its own
    #: samples: kept pairs are repeated until as many samples are seen as without selection; passes: as many passes
    keep_rule: Literal["samples", "passes"] = "samples"
    #: folder of stored features that the towers `features` read; "{data}" stands for the data folder
    features: Location | None = None
    #: the command that makes the features, or the shards and evaluation sets of your own. It is printed where they
    #: are missing, of the package's own suites alone
    get: Annotated[str, Field(max_length=2000), AfterValidator(printable_line)] | None = None
    #: widths of stored image and text features, which `--dry-run` counts with while the folder is missing
    widths: Annotated[tuple[Width, Width], Field(strict=False)] | None = None
    #: share of an image's stored numbers that each training view zeroes; the others are divided by one minus it
    feature_dropout: Rate = 0.0
    #: decoding processes a rank; null = from the machine's cores
    workers: Annotated[int, Field(ge=0, le=1024)] | None = None

    @property
    def embedded(self) -> bool:
        """Return whether it comes with the package; stored features of such data do not."""
        return self.name in training_sets.embedded() and self.features is None

    @property
    def images(self) -> Images:
        """The kind of images that training augments."""
        if self.on_features:
            return "stored features"
        return "drawn art" if self.embedded else "photographs"

    @property
    def feature_folder(self) -> Path:
        """The folder of stored features. Raises ValueError if images are pixels."""
        if self.features is None:
            raise ValueError(f"{self.name} has no stored features")
        return Path(in_data_folder(self.features))

    @property
    def how_to_get(self) -> str | None:
        """How stored features, or shards without any, are made; None if the suite does not say.

        Only a command of the package's own suites is repeated: what a stranger wrote is not printed to be pasted.
        """
        if self.get is None or self.get in _own_commands():
            return self.get and in_data_folder(self.get)
        return "do what data.get of the suite says, if you trust whoever wrote it"

    @property
    def how_to_get_shards(self) -> str | None:
        """The command that makes the shards, and evaluation sets of no catalogue; None if the suite does not say."""
        return None if self.on_features else self.how_to_get

    @property
    def on_features(self) -> bool:
        """Return whether images are stored features."""
        return self.features is not None

    @property
    def with_all_pairs(self) -> DataSettings:
        """The same pairs, all of them."""
        fields = type(self).model_fields
        return self.model_copy(update={name: fields[name].default for name in ("keep", "keep_rule")})

    @property
    def synthetic(self) -> bool:
        """Return whether the data is synthetic."""
        return isinstance(self.shards, str) and self.shards.startswith(SYNTHETIC)

    @field_validator("name")
    @classmethod
    def _no_slip(cls, name: str) -> str:
        own = training_sets.embedded()
        near = difflib.get_close_matches(name, own, n=1, cutoff=0.8)
        if near and name not in own:
            raise fault(f"{name!r} resembles {near[0]!r}, which comes with the package; did you mean {near[0]!r}?")
        return name

    @field_validator("shards")
    @classmethod
    def _can_be_there(cls, shards: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        for source in (shards,) if isinstance(shards, str) else shards or ():
            possible_path(source)
            pairs = source.removeprefix(SYNTHETIC) if source.startswith(SYNTHETIC) else ""
            if pairs.isdecimal() and int(pairs) > MAX_ROWS:
                raise fault(f"{source!r} should have at most {MAX_ROWS:,} pairs")
        return shards

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if self.embedded:
            own = training_sets.TRAINING_SETS[self.name].sizes
            if self.size not in own:
                sizes = " or ".join(map(str, own))
                raise fault(f"{self.size} should be {sizes}: {self.name} has no other sizes", "size")
            for field in ("shards", "index", "rows"):
                if getattr(self, field) is not None:
                    raise fault(f"{self.name} comes with the package and has none; omit it", field)
        if self.share < 1 and (self.embedded or self.synthetic):
            raise fault("is of shards and stored features; omit it, or choose pairs by keep", "share")
        for field in ("widths", "feature_dropout", "get"):
            shards = field == "get" and not self.embedded
            if getattr(self, field) and not (self.on_features or shards):
                raise fault("is of stored features; name their folder in data.features", field)
        return self


@cache
def _own_commands() -> set[str]:
    """Return the `data.get` of the suites that come with the package."""
    suites = (YamlSource.read(path).data for path in resources.suites_folder().glob("*.yaml"))
    return {suite["data"]["get"] for suite in suites if "get" in suite.get("data", {})}


def in_data_folder(text: str) -> str:
    """Return a path with the data folder in place of "{data}"."""
    return text.replace("{data}", str(data_folder.data_root()))
