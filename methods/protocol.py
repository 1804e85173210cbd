"""What a method is: the contract between an adapter and the runner.

An adapter is an `nn.Module` with a frozen `Config` dataclass. Its buffers are its state, its parameters are its own
scalars, prompts and heads; both travel in `state_dict`. A training step calls it in this order:

    z = encode(towers, rows)              once a micro-batch, row-local, with gradient
    (all ranks' z are gathered and made leaves)
    observed = observe(z, batch)          once, without gradient, all B rows on every rank
    for every tile of anchors:
        constants = draw(z, observed, anchors)      without gradient
        terms = loss(z, constants, anchors)         pure; the terms of all tiles sum to the objective
    (dL/dz is summed over ranks and sent back through the towers)
    after_step(clock)

`methods` never imports `bench`: the runner knows methods, methods do not know the runner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from torch import Tensor, nn

Tensors = dict[str, Tensor]
Fidelity = Literal["official-checked", "formula-checked", "derived", "reconstructed"]
#: what `prepare` and `encode` read beside `encode_image` of whole images or views and `encode_text` of `rows.tokens`:
#: "pixels": they cut, mask or mix images, or reach into `towers.visual`; "tokens": they read captions or token ids;
#: "text_transformer": they reach into `towers.text`; "second_view": they read `rows.views`
Need = Literal["pixels", "tokens", "text_transformer", "second_view"]


@dataclass(frozen=True)
class About:
    """What a reader wants to know of a method before trusting its row in a table."""

    title: str  #: as printed in tables
    summary: str  #: two sentences: what it minimises, why that should help
    paper: str  #: authors, venue, year
    equations: str  #: where the formula stands in the paper
    fidelity: Fidelity  #: how the adapter was checked
    bibtex: str
    state: str = "none"  #: what it keeps besides the towers, in words
    note: str = ""  #: where our reading departs from paper or code


@dataclass(frozen=True)
class Linear:
    """A range of numbers that trials spread over evenly."""

    low: float
    high: float
    #: "low" or "high", the end beyond which the method does not exist, so that no range is wider
    limit: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"

    def at(self, place: float) -> float:
        """Return the number at a place in [0, 1], to three digits."""
        return float(f"{self.low + (self.high - self.low) * place:.3g}")

    def place(self, value: float) -> float:
        """Return where a number lies: 0 at the low end, 1 at the high one, beyond them outside."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Log(Linear):
    """A range of positive numbers that trials spread over evenly on a logarithmic scale."""

    def __str__(self) -> str:
        return f"{super().__str__()} (log)"

    def at(self, place: float) -> float:
        """Return the number at a place in [0, 1], to three digits."""
        return float(f"{self.low * (self.high / self.low) ** place:.3g}")

    def place(self, value: float) -> float:
        """Return where a positive number lies, as of `Linear`."""
        return math.log(value / self.low) / math.log(self.high / self.low)


@dataclass(frozen=True)
class Choice:
    """Values without an order, and so without an edge."""

    values: tuple[Any, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.values))

    def at(self, place: float) -> Any:
        """Return the value whose equal part of [0, 1) a place lies in."""
        return self.values[int(place * len(self.values))]

    def place(self, value: Any) -> float:
        """Return the middle for one of the values, infinity for any other."""
        return 0.5 if value in self.values else math.inf


Space = Mapping[str, Linear | Choice]  #: hyper-parameter -> what trials try
#: CLIP's own space, which no start and no fixed temperature of a method exceeds; iSogCLR may cap its rows' at 1.2
TEMPERATURE: Space = {"temperature": Log(0.005, 0.5), "learnable_scale": Choice((True, False))}
STARTS = ("temperature", "temperature_init", "scale", "negative_scale")  #: names of a temperature or of its start


@dataclass(frozen=True)
class Facts:
    """What a method may know of the run it is built for. Which pairs are noisy is not among it."""

    rows: int  #: N, number of training rows
    batch: int  #: B, global batch
    dim: int  #: D, embedding width
    seed: int
    synonyms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  #: word or phrase -> other names


@dataclass(frozen=True)
class Clock:
    """Where a step stands in its run."""

    step: int  #: steps done before this one, over all phases
    phase: str
    progress: float  #: share of the run's steps done before this one, in [0, 1)
    epoch: int  #: complete passes over the training rows before this step


@dataclass(frozen=True)
class Rows:
    """A micro-batch as `encode` sees it: b consecutive rows of the global batch."""

    images: Tensor  #: [b, 3, H, W], normalised
    tokens: Tensor  #: [b, L] int64, the tokenised captions
    captions: list[str]  #: b drawn captions
    ids: Tensor  #: [b] int64, stable training rows 0..N-1
    positions: range  #: b consecutive places in the global batch 0..B-1
    clock: Clock
    views: tuple[Tensor, ...] = ()  #: `extra_views` further augmentations of the images, each [b, 3, H, W]


@dataclass(frozen=True)
class Batch:
    """The global batch as `observe` sees it; embeddings come beside it."""

    ids: Tensor  #: [B] int64, unique
    clock: Clock


@dataclass(frozen=True)
class Cost:
    """Tower forwards per pair in one step (1.0 = every row once). Frozen parts are found by the runner."""

    image: float = 1.0
    text: float = 1.0
    side_image: float = 0.0  #: of the side towers: forwards without a backward, a third of a pass each
    side_text: float = 0.0


@dataclass(frozen=True)
class Phase:
    """A part of training with a fresh optimiser and schedule of its own."""

    name: str = "train"
    share: float = 1.0  #: of the run's own budget; the shares of all phases sum to 1
    lr_scale: float = 1.0  #: times the suite's learning rate, for towers (fine-tuning phases)
    #: receives names such as "towers.visual.conv1.weight" or "method.prompts"
    trainable: Callable[[str], bool] = lambda _: True


@dataclass(frozen=True)
class Identity:
    """A claim about any batch: with `config`, the loss is `factor` times another method's. `bench check` tests it."""

    claim: str  #: one line, as printed by `bench check`
    equals: str  #: the other method's name
    config: Mapping[str, Any]  #: hyper-parameters of this method under which it holds
    other: Mapping[str, Any] = field(default_factory=dict)  #: hyper-parameters of the other one
    factor: float = 1.0
    gradient_only: bool = False  #: the gradients agree, the values need not
    phase: str = ""  #: of this method; "" is its last
    rtol: float = 1e-9  #: in fp64


@dataclass(frozen=True)
class Diagnostic:
    """What a method learned besides the towers, as sets of numbers; the report draws their distributions."""

    name: str  #: an identifier, unique within the method
    title: str  #: one line above the figure
    axis: str  #: what the numbers are, with unit
    series: Mapping[str, Tensor]  #: legend -> 1-D numbers
    log: bool = False  #: the numbers are positive and span magnitudes


class Towers(Protocol):
    """The two encoders. `visual` and `text` are modules whose parameters a method may freeze or extend."""

    visual: nn.Module
    text: nn.Module
    dim: int
    context_length: int

    @property
    def side(self) -> Towers:
        """The second pair of towers of a method that declares one, in evaluation mode and without gradient."""

    def encode_image(self, images: Tensor) -> Tensor:
        """[b, 3, H, W] -> [b, D], not normalised."""

    def encode_text(self, tokens: Tensor) -> Tensor:
        """[b, L] -> [b, D], not normalised."""

    def tokenize(self, captions: list[str]) -> Tensor:
        """b strings -> [b, L] int64, on the towers' device."""


@runtime_checkable
class Method(Protocol):
    """An adapter. `methods.base.RowWise` and `WholeBatch` provide everything but `encode`-to-`loss`."""

    name: ClassVar[str]  #: as written in suites; equals the file's name
    about: ClassVar[About]
    Config: ClassVar[type]  #: frozen dataclass of hyper-parameters
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]  #: "paper", "official": loss hyper-parameters only
    #: at most four hyper-parameters of the loss that a suite's `tune` searches, the temperature or its start among them
    space: ClassVar[Space]
    reference: ClassVar[str | None]  #: the method whose run it starts from or holds beside (trained once, charged)
    starts_from_reference: ClassVar[bool]  #: whether the trained towers begin at the reference's weights
    #: a second pair of towers, `towers.side` in `encode`: the reference run's final weights, or an average of this
    #: run's own over its steps. Tensors that come from them are named "side_..."; they are gathered, but no leaves.
    side: ClassVar[Literal["none", "reference", "ema"]]
    needs: ClassVar[frozenset[Need]]  #: of all options together; empty for two encoders and a loss
    whole_batch: ClassVar[bool]  #: its loss needs all B anchors at once
    score: ClassVar[str]  #: the main score at evaluation, "cosine" or "csd"
    monitored: ClassVar[str]  #: "loss", or the number of `monitor` that training lowers where the loss is a surrogate
    identities: ClassVar[tuple[Identity, ...]]  #: claims that `bench check` tests
    known_failures: ClassVar[Mapping[str, str]]  #: check of `bench check` -> why this method cannot pass it
    extra_views: int  #: augmented views beyond the first

    @classmethod
    def needs_under(cls, config: Any) -> frozenset[Need]:
        """Those of `needs` that hold under a Config: all of them, or fewer where an option leaves a part out."""

    def prepare(self, towers: Towers) -> None:
        """Change the towers (heads, tokens) before the optimiser is made. Drawn from the global RNG, seeded."""

    def phases(self) -> tuple[Phase, ...]:
        """Parts of training in order; their shares sum to 1."""

    def cost(self, phase: str) -> Cost:
        """Tower forwards a pair in one step of a phase, as declared to the ledger."""

    def options(self, name: str) -> Mapping[str, float]:
        """{"lr": ..., "weight_decay": ...} for a parameter this method added ("method.*"); {} takes the suite's."""

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        """Named tensors with one row per pair, [b, ...]; row-local."""

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        """Update the state, return the step's constants. No gradient; same result on every rank."""

    def draw(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        """Constants of one tile that would take B x B at once (weights). No gradient; counter-based draws."""

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        """Scalar terms of these anchors (as image and as text anchors); over all tiles they sum to the objective."""

    def monitor(self, z: Tensors, observed: Tensors) -> Mapping[str, float]:
        """Numbers to log beside the terms; no gradient."""

    def diagnostics(self, z: Tensors, observed: Tensors) -> tuple[Diagnostic, ...]:
        """What there is to see at the end of training, from the last step's batch and the state; no gradient."""

    def side_decay(self, clock: Clock) -> float:
        """m in [0, 1], only of "ema": after each optimiser step, side <- m * side + (1 - m) * towers."""

    def after_step(self, clock: Clock) -> None:
        """Called after every optimiser step: clamps and schedules of own scalars."""

    def end_epoch(self, epoch: int) -> None:
        """Called after the last step of each pass over the training rows."""

    def image_features(self, towers: Towers, images: Tensor) -> Tensors:
        """Evaluation: {"embedding": [b, D] unit} and, for probabilistic methods, {"logvar": [b, D]}."""

    def text_features(self, towers: Towers, tokens: Tensor) -> Tensors:
        """As `image_features`, for texts."""

    def confidence(self, image: Tensors, text: Tensors) -> Tensor:
        """[n] how clean each pair seems, higher = cleaner, from matched rows of features."""
