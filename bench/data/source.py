"""Source of a suite's pairs and evaluation sets: the package, shards, or stored features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from bench import data
from bench.catalogue.evaluation_sets import evaluation_sets, parse_dataset
from bench.catalogue.families import DatasetFacts
from bench.catalogue.training_sets import TRAINING_SETS
from bench.data import evaluation, features, shards, synthetic
from bench.data.features import about as description
from bench.data.pairs import Pairs
from bench.data.photo import CROP, Resize
from bench.data_folder import Missing
from bench.errors import UserError
from bench.suite.settings import DataSettings


@dataclass(frozen=True)
class DataSource:
    """The pairs and evaluation sets of a suite; the sets are those of the package and the catalogue by default."""

    settings: DataSettings
    in_memory: ClassVar[bool] = False  #: whether rows are read without decoding, so that no worker processes are needed

    def pairs(self) -> Pairs:
        """Return the training pairs, loaded once a process. UserError if they are not here, with how to get them."""
        raise NotImplementedError

    def missing(self) -> list[Missing]:
        """List what is missing of the training pairs; [] if nothing is."""
        return []

    def about(self) -> dict[str, Any]:
        """Return what plan.json says of it beyond the pairs, which are on this machine."""
        return {}

    def of_package(self, dataset: str) -> bool:
        """Return whether an evaluation set is read from the package."""
        return dataset in data.dataset_names()

    def evaluation(self, dataset: str, drawn: int = 0, seen: int = 0, resize: Resize = CROP) -> Pairs:
        """Return an evaluation set with images of `seen` px a side, those of the package loaded at `drawn` px.

        Raises UserError, with how to get it, if it is not here.
        """
        if dataset in data.dataset_names():
            return data.load_resized(dataset, drawn, seen, resize)
        return evaluation.load_evaluation_set(dataset, seen, resize)

    def missing_evaluation(self, dataset: str, purpose: str = "") -> Missing | None:
        """Describe an evaluation set that is not here; None if it is. `purpose` says what it is used for."""
        gone = evaluation.missing_evaluation_set(dataset, purpose)
        if gone is None or parse_dataset(dataset)[0].name in evaluation_sets():
            return gone
        return replace(gone, get=self.settings.how_to_get_shards or gone.get)

    def check(self, dataset: str) -> None:
        """Read a sample of an evaluation set that is here. Raises UserError if it is broken."""
        if evaluation.find_evaluation_set(dataset) is not None:
            evaluation.check_evaluation_set(dataset)

    def facts(self, dataset: str, drawn: int) -> DatasetFacts:
        """Return the facts of an evaluation set; if it is not here, those that its publishers state."""
        if dataset in data.dataset_names():
            return dataset_facts(data.load_dataset(dataset, drawn))
        entry, _ = parse_dataset(dataset)
        images, classes = evaluation.evaluation_set_counts(dataset)
        return DatasetFacts(entry.description, images, {evaluation.CLASS: classes} if classes else {}, entry.metric)

    def has_captions(self, dataset: str) -> bool:
        """Return whether an evaluation set has captions rather than classes alone."""
        return dataset in data.dataset_names() or parse_dataset(dataset)[0].kind == "retrieval"


def data_source(settings: DataSettings) -> DataSource:
    """Return the source of a suite's data."""
    if settings.embedded:
        return EmbeddedSource(settings)
    return FeatureSource(settings) if settings.on_features else ShardSource(settings)


def dataset_facts(pairs: Pairs) -> DatasetFacts:
    """The facts of a data set that is there."""
    return DatasetFacts(pairs.description, len(pairs), {label: len(names) for label, names in pairs.classes.items()})


class EmbeddedSource(DataSource):
    """Pairs that come with the package."""

    in_memory = True

    def pairs(self) -> Pairs:
        return _embedded(self.settings.name, self.settings.size)


@cache
def _embedded(name: str, size: int) -> Pairs:
    load = TRAINING_SETS[name].load
    assert load is not None
    pairs: Pairs = load(size)
    return pairs


class ShardSource(DataSource):
    """Pairs in indexed shards, or any number of made-up ones."""

    def pairs(self) -> Pairs:
        if self.settings.synthetic:
            return synthetic.make_synthetic_pairs(self.settings.name, str(self.settings.shards), self.settings.size)
        return shards.load_shard_pairs(self.settings)

    def missing(self) -> list[Missing]:
        return [] if self.settings.synthetic else shards.missing_shard_data(self.settings)


class FeatureSource(DataSource):
    """Stored features, with the evaluation sets that lie next to them; or made-up ones."""

    in_memory = True

    def pairs(self) -> Pairs:
        if self.settings.synthetic:
            return synthetic.make_synthetic_features(self.settings)
        for gone in self.missing():
            raise _not_there(gone)
        own = self.settings
        return features.open_feature_set(own.feature_folder, own.share, own.feature_dropout)

    def missing(self) -> list[Missing]:
        folder = self.settings.feature_folder
        if self.settings.synthetic or _is_there(folder):
            return []
        what = f"{self.settings.name}, stored features"
        get = f"bench features extract DATA {folder} --images MODEL --texts MODEL, or bench features convert"
        return [Missing(what, (str(folder / description.NAME),), self.settings.how_to_get or get, None)]

    def about(self) -> dict[str, Any]:
        pairs = self.pairs()
        own = {"image": pairs.about.image, "text": pairs.about.text} if isinstance(pairs, features.FeaturePairs) else {}
        made = {kind: {"name": one.name, "width": one.width, "views": one.views} for kind, one in own.items() if one}
        return {"features": {"dropout": self.settings.feature_dropout, **made}}

    def of_package(self, dataset: str) -> bool:
        return False

    def evaluation(self, dataset: str, drawn: int = 0, seen: int = 0, resize: Resize = CROP) -> features.FeaturePairs:
        if (gone := self.missing_evaluation(dataset)) is not None:
            raise _not_there(gone)
        return features.open_feature_set(self._folder(dataset))

    def missing_evaluation(self, dataset: str, purpose: str = "") -> Missing | None:
        folder, own = self._folder(dataset), self.settings.feature_folder
        if _is_there(folder):
            return None
        what = f"{dataset}, stored features{f', {purpose}' * bool(purpose)}"
        get = f"bench features extract DATA {own} --images MODEL --texts MODEL --evaluation {dataset}"
        return Missing(what, (str(folder / description.NAME),), self.settings.how_to_get or get, None)

    def check(self, dataset: str) -> None:
        if not self.missing_evaluation(dataset):
            self.evaluation(dataset)

    def facts(self, dataset: str, drawn: int) -> DatasetFacts:
        if self.missing_evaluation(dataset):
            return super().facts(dataset, drawn)
        metric = "" if dataset in data.dataset_names() else parse_dataset(dataset)[0].metric
        return replace(dataset_facts(self.evaluation(dataset)), metric=metric)

    def has_captions(self, dataset: str) -> bool:
        here = not self.missing_evaluation(dataset)
        return not self.evaluation(dataset).classes if here else parse_dataset(dataset)[0].kind == "retrieval"

    def _folder(self, dataset: str) -> Path:
        return self.settings.feature_folder / description.EVALUATION_FOLDER / dataset


def _is_there(folder: Path) -> bool:
    return (folder / description.NAME).is_file()


def _not_there(gone: Missing) -> UserError:
    return UserError(f"{gone.what}: not found; looked in {', '.join(gone.looked)}. To get it: {gone.get}")
