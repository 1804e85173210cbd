"""Every kind of noise: an entry here is all that a suite, its runs, messages, reports and docs need of one.

A new kind is one more entry of `KINDS`, here or by `KINDS.add(...)` from Python before the suite is loaded. `make`
returns a `bench.data.noise.Noise`: a `NoiseManifest` (or a subclass of it, where a row's texts are edited or its image
is changed) for a fixed kind, and any other `Noise` for a kind that is drawn anew in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.registry import Registry, lazy
from bench.settings_base import Model


class Options(Model):
    """Base of a kind's own settings, `noise.options` of a suite.

    They are part of a run's identity but for the fields in `outside`, such as paths.
    """


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
    fixed: bool = True  #: the same rows for the whole run, which the manifest names; False = drawn anew in every step
    files: str = ""  #: who publishes its files, one for each rate above 0; "" = it has none
    options: type[Options] = Options


KINDS: Registry[NoiseKind] = Registry(
    "a kind of noise",
    (
        NoiseKind(
            name="shuffled_captions",
            title="shuffled captions",
            summary="a fixed share of the pairs swap captions among themselves",
            make=lazy("bench.data.noise.shuffled:make_shuffled"),
        ),
        NoiseKind(
            name="shuffled_images",
            title="images with shuffled captions",
            summary="a fixed share of the images swap captions among themselves, each all of its captions together",
            make=lazy("bench.data.noise.shuffled:make_shuffled_images"),
            effect="take the captions of another image",
        ),
        NoiseKind(
            name="resampled_positives",
            title="resampled positives",
            summary="in every step a share of the batch takes the caption of a row that is drawn in the batch",
            make=lazy("bench.data.noise.resampled:make_resampled"),
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


def noise_label(kind: str, rate: float) -> str:
    """Return the printed name: "clean", "40 % shuffled captions"."""
    return f"{rate * 100:g} % {KINDS[kind].title}" if rate else "clean"
