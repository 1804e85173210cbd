"""SafeCLIP: only pairs that a mixture of similarities calls safe teach across modalities, the others within them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import Contrastive, Presets, check, check_scale, portion, similarities, spans, stream, unit, wide
from methods.eda import Eda
from methods.embedding_queue import EmbeddingQueue
from methods.mixture import posteriors
from methods.protocol import (
    TEMPERATURE,
    About,
    Batch,
    Clock,
    Cost,
    Diagnostic,
    Facts,
    Linear,
    Phase,
    Rows,
    Space,
    Tensors,
    Towers,
)


# official: github.com/BigML-CS-UCLA/SafeCLIP@91488ce src/parser.py, src/main.py
@dataclass(frozen=True)
class SafeclipConfig:
    """Hyper-parameters of SafeCLIP; defaults are those of the official code, its 32 epochs as shares of the run."""

    warm_share: float = 5 / 32  #: share of the run that contrasts within modalities only
    slow_share: float = 1 / 32  #: share of the run after it with CLIP on all pairs at a low learning rate
    slow_lr_scale: float = 0.01  #: times the suite's learning rate, then
    threshold: float = 0.9  #: least probability of the upper component at which a pair is safe at first
    growth: float = 0.26  #: by how much the safe share of the rows grows over the rest of the run (0.01 an epoch)
    largest: float = 0.85  #: the safe share grows no further
    bank: bool = False  #: contrast within modalities against nearest neighbours among past embeddings
    bank_size: int = 256  #: embeddings of each modality in the bank
    bank_start: Literal["empty", "noise"] = "empty"  #: the bank starts empty, or as noise, as in the official code
    eda_alpha: float = 0.1  #: share of a caption's words that its edit touches
    #: folder with WordNet's data files, for synonyms beyond the data's own; a run's id hashes the files' content
    wordnet: str | None = dataclasses.field(default=None, metadata={"path": True})
    temperature: float = 0.07  #: the logit scale starts at 1/temperature
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        for name in ("warm_share", "slow_share"):
            check(self, name, 0 < getattr(self, name) < 1, "in (0, 1)")
        check(self, "slow_share", self.warm_share + self.slow_share < 1, "less than 1 - warm_share")
        check(self, "slow_lr_scale", 0 < self.slow_lr_scale < math.inf, "a finite number > 0")
        for name in ("threshold", "growth", "largest", "eda_alpha"):
            check(self, name, 0 <= getattr(self, name) <= 1, "in [0, 1]")
        check(self, "bank", isinstance(self.bank, bool), "true or false")
        check(self, "bank_size", isinstance(self.bank_size, int) and self.bank_size > 0, "a whole number > 0")
        check(self, "bank_start", self.bank_start in ("empty", "noise"), '"empty" or "noise"')
        check_scale(self)


def safest(similarity: Tensor, posterior: Tensor, count: int) -> Tensor:
    """Positions of the `count` rows of largest posterior; equal ones by similarity, then by their order."""
    order = similarity.argsort(descending=True, stable=True)
    return order[posterior[order].argsort(descending=True, stable=True)][:count]


class Safeclip(Contrastive):
    """L = (|S| L_x(S) + |R| L_in(R)) / B over the safe rows S and the risky rows R of a batch, each among themselves.

    L_x = 1/2 [CE(a v t'^T) + CE(a t v'^T)] and L_in = 1/2 [CE(a v' v^T) + CE(a t' t^T)], of rows only.
    """

    name = "safeclip"
    about = About(
        title="SafeCLIP",
        summary="Trains within modalities first, then splits the pairs by a mixture of two normals over their "
        "similarities: safe pairs are contrasted across modalities, risky ones within each. Poisoned or mismatched "
        "pairs then rarely tie an image to its caption.",
        paper="Yang et al., ICML 2024",
        equations="as in the authors' code",
        fidelity="official-checked",
        bibtex="""@inproceedings{yang2024safeclip,
  title = {Better Safe than Sorry: Pre-training {CLIP} against Targeted Data Poisoning and Backdoor Attacks},
  author = {Yang, Wenhan and Gao, Jingdong and Mirzasoleiman, Baharan},
  booktitle = {International Conference on Machine Learning},
  year = {2024}
}""",
        state="logit scale; each row's similarity at its last visit, the safe rows; with a bank, past embeddings",
        note="The losses are those of the official code, which passes over risky and over safe rows in turn and scores "
        "all rows before. Here both kinds share a batch, so anchors have fewer candidates, and a row's score is that "
        "of its last visit. Rows not yet visited are risky: with less than one pass before the split, most are. Every "
        "phase has a schedule of its own; the official one rises again at the end by mistake.",
    )
    Config = SafeclipConfig
    presets: ClassVar[Presets] = {
        "paper": {},
        # official: github.com/BigML-CS-UCLA/SafeCLIP@91488ce src/memory_bank.py on lightly 1.2.39
        "official": {"bank_start": "noise"},
    }
    space: ClassVar[Space] = {
        **TEMPERATURE,
        "threshold": Linear(0.5, 1.0, limit="high"),
        "warm_share": Linear(0.02, 0.5),
    }
    needs = frozenset({"tokens", "second_view"})
    monitored = "contrast"

    seen: Tensor
    similarity: Tensor
    safe: Tensor
    first_safe: Tensor
    split_epoch: Tensor
    main_start: Tensor

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.extra_views = 1
        self.eda = Eda.of(facts, "safeclip", config.eda_alpha, config.wordnet)
        self.first_eda = Eda(self.eda.synonyms, facts.seed, "safeclip/eda0", config.eda_alpha)
        self.register_buffer("seen", torch.zeros(facts.rows, dtype=torch.bool))
        self.register_buffer("similarity", torch.zeros(facts.rows))  # at the last visit
        self.register_buffer("safe", torch.zeros(facts.rows, dtype=torch.bool))
        self.register_buffer("first_safe", torch.tensor(0))  # safe rows of the first split
        self.register_buffer("split_epoch", torch.tensor(-1))  # the pass that began with the last split
        self.register_buffer("main_start", torch.zeros(()))  # share of the run done at the first split
        for modality in ("image", "text") if config.bank else ():
            noise = stream(facts.seed, f"safeclip/{modality}_bank") if config.bank_start == "noise" else None
            self.add_module(f"{modality}_bank", EmbeddingQueue(config.bank_size, facts.dim, noise))

    def phases(self) -> tuple[Phase, ...]:
        warm, slow = self.config.warm_share, self.config.slow_share
        return (
            Phase("warm", warm),
            Phase("slow", slow, lr_scale=self.config.slow_lr_scale),
            Phase("main", 1 - warm - slow),
        )

    def cost(self, phase: str) -> Cost:
        return Cost(image=2.0, text=2.0)

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        captions = {"text": self.first_eda.edited(rows), "text_view": self.eda.edited(rows)}
        return {
            "image": unit(towers.encode_image(rows.images)),
            "image_view": unit(towers.encode_image(rows.views[0])),
            **{name: unit(towers.encode_text(towers.tokenize(texts))) for name, texts in captions.items()},
        }

    def safe_share(self, progress: float) -> float:
        """Share of all rows that is safe in a pass that begins when `progress` of the run is done."""
        first, start = int(self.first_safe) / self.facts.rows, float(self.main_start)
        grown: float = first + self.config.growth * (progress - start) / (1 - start)
        return min(grown, float(self.config.largest))

    def split(self, clock: Clock) -> None:
        """Choose the safe rows at the first step of the main phase and of each pass after it."""
        if clock.phase != "main" or int(self.split_epoch) == clock.epoch:
            return
        visited = self.seen.nonzero().squeeze(1)
        similarity = self.similarity[visited].double()
        # official: github.com/BigML-CS-UCLA/SafeCLIP@91488ce src/samplers.py (fit_gmm_to_cos_sim)
        posterior = posteriors(similarity, "larger", 100, tolerance=1e-3, added_variance=1e-6, rescaled=False)
        if int(self.split_epoch) < 0:
            chosen = visited[posterior >= self.config.threshold]
            self.first_safe.fill_(len(chosen))
            self.main_start.fill_(clock.progress)
        else:
            chosen = visited[safest(similarity, posterior, portion(self.safe_share(clock.progress), self.facts.rows))]
        self.safe.fill_(False)
        self.safe[chosen] = True
        self.split_epoch.fill_(clock.epoch)

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        ids, phase = batch.ids, batch.clock.phase
        self.split(batch.clock)
        safe = self.safe[ids] if phase == "main" else torch.full_like(self.safe[ids], phase == "slow")
        self.similarity[ids] = (wide(z["image"]) * wide(z["text"])).sum(1).to(self.similarity.dtype)
        self.seen[ids] = True
        constants = {"safe": safe}
        for modality in ("image", "text") if self.config.bank else ():
            bank = cast("EmbeddingQueue", self.get_submodule(f"{modality}_bank"))
            neighbour = bank.nearest(z[modality])
            bank.push(z[modality][~safe], ids[~safe])
            if neighbour is not None:
                constants[f"{modality}_neighbour"] = neighbour
        return constants

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        safe, total = observed["safe"], z["image"].shape[0]
        return {
            "cross_modal": self._across(z, safe, anchors) / (2 * total),
            "in_modal": self._within(z, observed, ~safe, anchors) / (2 * total),
        }

    def _across(self, z: Tensors, members: Tensor, tile: slice) -> Tensor:
        by_image = self._entropies(z["image"], z["text_view"], members, tile)
        return by_image + self._entropies(z["text"], z["image_view"], members, tile)

    def _within(self, z: Tensors, observed: Tensors, members: Tensor, tile: slice) -> Tensor:
        image, text = (observed.get(f"{modality}_neighbour", z[modality]) for modality in ("image", "text"))
        by_image = self._entropies(z["image_view"], image, members, tile)
        return by_image + self._entropies(z["text_view"], text, members, tile)

    def _entropies(self, anchors: Tensor, candidates: Tensor, members: Tensor, tile: slice) -> Tensor:
        """Sum over the tile's members of the cross-entropy against all members, bool [B]; 0 where there is none."""
        inside = members[tile]
        logits = self.scale() * similarities(anchors[tile][inside], candidates[members])
        own = (members.cumsum(0) - 1)[tile][inside]
        return F.cross_entropy(logits, own, reduction="sum") if len(own) else logits.sum()

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        """`contrast` is the loss with all rows of the batch in one part: the safe one, unless no row of it is safe."""
        everyone, tiles = torch.ones_like(observed["safe"]), spans(len(observed["safe"]))
        if bool(observed["safe"].any()):
            parts = [self._across(z, everyone, tile) for tile in tiles]
        else:
            parts = [self._within(z, observed, everyone, tile) for tile in tiles]
        return {
            "contrast": float(torch.stack(parts).sum()) / (2 * len(everyone)),
            "safe": float(self.safe.double().mean()),
            "unvisited": float((~self.seen).sum()),
        }

    def diagnostics(self, z: Tensors, observed: Tensors) -> tuple[Diagnostic, ...]:
        risky = self.seen & ~self.safe
        series = {"safe": self.similarity[self.safe], "risky": self.similarity[risky]}
        return (Diagnostic("similarities", "Similarities of safe and of risky pairs", "cosine", series),)
