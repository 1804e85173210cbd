"""Inputs of a run, built once and passed on: its pairs, its noise, and the facts that its method may know."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from bench import data
from bench.arrays import Ints
from bench.catalogue.keep import SelectionInputs
from bench.catalogue.noise_kinds import KINDS
from bench.data.kept import KeptPairs
from bench.data.noise.manifest import ManifestSummary, Noise, NoiseManifest
from bench.data.pairs import Pairs, StoredFeatures
from bench.data.source import data_source
from bench.errors import UserError
from bench.suite.run import Run
from bench.towers.tokenization import SmallVocabulary
from methods.protocol import Facts


@dataclass(frozen=True)
class InputsSummary:
    """A few numbers about a run's inputs. A plan keeps them, because it travels to other processes."""

    name: str
    description: str
    rows: int  #: number of all pairs
    seen: int  #: number of pairs that the run may see
    data_hash: str = ""  #: of all pairs; "" if not all data is on this machine
    manifest: ManifestSummary | None = None  #: None if the noise corrupts no fixed rows
    kept_hash: str | None = None  #: of the keys of the selected rows; None if a scorer has still to choose them

    @property
    def manifest_hash(self) -> str | None:
        """The manifest's hash, as `address` takes it."""
        return self.manifest.hash if self.manifest else None

    @property
    def hashes(self) -> tuple[str, str | None, str | None]:
        """The hashes that identify these inputs: of the pairs, of the manifest and of the kept keys."""
        return self.data_hash, self.manifest_hash, self.kept_hash


#: pairs -> (tokens, context length) -> the vocabulary. Every run of a process that reads the pairs shares them.
_learned: WeakKeyDictionary[Pairs, dict[tuple[int, int], SmallVocabulary]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Vocabularies:
    """Vocabularies of text towers on the same pairs: learned ones, each learned once, or stored text features."""

    pairs: Pairs

    def stored(self) -> Any:
        """The lookup of captions and prompts in the stored text features. UserError if there are none."""
        assert isinstance(self.pairs, StoredFeatures)
        return self.pairs.lookup()

    def __call__(self, tokens: int, context_length: int) -> SmallVocabulary:
        """The vocabulary with this number of tokens and this context length."""
        known, key = _learned.setdefault(self.pairs, {}), (tokens, context_length)
        if key not in known:
            texts = [text for row in range(len(self.pairs)) for text in self.pairs.captions(row)]
            known[key] = SmallVocabulary(texts, tokens, context_length)
        return known[key]


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs of a run. `InputsReader` makes them."""

    pairs: Pairs  #: all pairs of the run's data
    noise: Noise | None  #: None if the run has no noise
    kept: KeptPairs | None  #: the selected rows, with the captions that the noise gives them; None if the run sees all
    facts: Facts
    vocabularies: Vocabularies
    scored: bool = False  #: whether a scorer chooses the rows, so that they are not known before it is trained
    awaits_scores: bool = False  #: whether `kept` has the right number of rows, but not yet those of highest score

    def of_rows(self, rows: Ints) -> Inputs:
        """The same inputs with the rows that the run's scorer chose, rising; they are as many as before."""
        assert self.kept is not None
        assert len(rows) == len(self.kept)
        return replace(self, kept=replace(self.kept, rows=rows), awaits_scores=False)

    @property
    def seen(self) -> Pairs:
        """The pairs that the run trains on."""
        return self.pairs if self.kept is None else self.kept

    @property
    def noise_of_seen(self) -> Noise | None:
        """The noise that has still to be applied to `seen`. Kept pairs have the captions of a manifest already."""
        return None if self.kept is not None and self.manifest is not None else self.noise

    @property
    def manifest(self) -> NoiseManifest | None:
        """The corrupted rows. Returns None if the noise corrupts no fixed rows."""
        return self.noise if isinstance(self.noise, NoiseManifest) else None

    def summary(self) -> InputsSummary:
        """The numbers that a plan keeps. It hashes the content of the pairs."""
        return InputsSummary(
            self.pairs.name,
            self.pairs.description,
            len(self.pairs),
            len(self.seen),
            self.pairs.content_hash,
            self.manifest.summary if self.manifest else None,
            self.kept.keys_hash if self.kept and not self.scored else None,
        )


class InputsReader:
    """Makes the inputs of runs. Runs with the same pairs share their noise, kept rows and vocabularies.

    The caller creates one reader for the runs that it plans or executes, and the reader lives as long as they do.
    """

    def __init__(self) -> None:
        self._noise: dict[tuple[object, ...], Noise] = {}
        self._kept: dict[tuple[object, ...], KeptPairs] = {}

    def inputs(self, run: Run) -> Inputs:
        """All inputs of a run. Raises UserError if the data is missing, or too few for the run's data selection.

        A run that awaits its scorer has as many other rows, which suffice for its steps and costs but not for its
        training; see `Inputs.awaits_scores`.
        """
        return self._inputs(run, self.noise(run))

    def for_model(self, run: Run) -> Inputs:
        """The inputs without noise. They suffice to build the run's towers and method, and to count its FLOPs."""
        return self._inputs(run, None)

    def noise(self, run: Run) -> Noise | None:
        """The run's noise, drawn from the run's seed; it is the same for every method of a suite.

        Raises UserError if it gives rows new texts, and the run's text features lack one of them.
        """
        if run.noise is None:
            return None
        pairs = data_source(run.data).pairs()
        key = ("text" in run.towers.stored, *_noise_key(run, pairs))
        if key not in self._noise:
            noise = run.noise_of(pairs)
            if key[0] and isinstance(noise, NoiseManifest) and noise.edited is not None:
                try:
                    Vocabularies(pairs).stored().check_training(noise.edited.flatten().to_pylist())
                except UserError as error:
                    raise UserError(f"noise.kind: {noise.kind}: writes new texts: {error}") from error
            self._noise[key] = noise
        return self._noise[key]

    def _inputs(self, run: Run, noise: Noise | None) -> Inputs:
        pairs = data_source(run.data).pairs()
        kept, key = None, (run.keep, *_noise_key(run, pairs))
        if run.selects_data:
            if key not in self._kept:
                self._kept[key] = _choose(run, pairs, self.noise(run))
            kept = self._kept[key]
        facts, scored = method_facts(run, len(pairs if kept is None else kept)), run.keep.entry.scored
        return Inputs(pairs, noise, kept, facts, Vocabularies(pairs), scored=scored, awaits_scores=scored)


def method_facts(run: Run, seen: int) -> Facts:
    """The facts that the run's method may know. `seen`: number of pairs that the run may see."""
    return Facts(seen, run.train.batch, run.towers.dim, run.seed, data.dataset_synonyms(run.data.name))


def _noise_key(run: Run, pairs: Pairs) -> tuple[object, ...]:
    """Everything that determines noise and kept rows."""
    options = json.dumps(run.noise_options, sort_keys=True)
    return pairs, run.noise, options, run.noise_file, run.rate, run.seed


def _choose(run: Run, pairs: Pairs, noise: Noise | None) -> KeptPairs:
    """Return the rows that the run's data selection keeps. It is told the corrupted rows if these are fixed."""
    fixed = run.noise is not None and KINDS[run.noise].fixed
    corrupted = np.zeros(0, np.int64) if fixed or run.noise is None else None
    if fixed and isinstance(noise, NoiseManifest):
        corrupted = noise.rows
    keep = run.keep
    try:
        scores = np.zeros(len(pairs)) if keep.entry.scored else None  # all alike: only their number is right
        rows = keep.entry.choose(SelectionInputs(pairs.keys, corrupted, run.seed, keep.share, keep.rows, scores))
    except ValueError as error:
        raise UserError(f"keep: {keep.label}: {error} at rate {run.rate:g}, seed {run.seed} of {pairs.name}") from error
    return KeptPairs(pairs, rows, noise if fixed and noise is not None else Noise())
