"""RoCLIP: from time to time, match images with the nearest captions of a pool instead of their own."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from methods.base import Contrastive, Presets, check, check_scale, info_nce, stream, unit
from methods.eda import Eda
from methods.embedding_queue import EmbeddingQueue
from methods.protocol import (
    TEMPERATURE,
    About,
    Batch,
    Choice,
    Clock,
    Facts,
    Identity,
    Log,
    Rows,
    Space,
    Tensors,
    Towers,
)

CYCLES = 12  #: matching parts of a run: 24 epochs, of which every second one matches


# official: github.com/BigML-CS-UCLA/RoCLIP@f34a929 src/parser.py, src/train.py (get_loss)
@dataclass(frozen=True)
class RoclipConfig:
    """Hyper-parameters of RoCLIP; defaults are those of the official code as shares of the run and of the rows."""

    every: int | None = 2  #: the last one of so many equal parts of each cycle matches; null: none, which is CLIP
    cycle: Literal["share", "pass"] = "share"  #: a cycle is a twelfth of the run, or `every` passes over the rows
    pool: int | None = None  #: captions in the pool; null: pool_share of the rows, at least a batch
    pool_share: float = 0.022  #: (21845 of a million)
    #: the pool starts empty, and nothing is matched until it has an entry; or as noise, as in the official code
    pool_start: Literal["empty", "noise"] = "empty"
    eda_alpha: float = 0.1  #: share of a caption's words that its edit touches
    #: folder with WordNet's data files, for synonyms beyond the data's own; a run's id hashes the files' content
    wordnet: str | None = dataclasses.field(default=None, metadata={"path": True})
    temperature: float = 0.07  #: the logit scale starts at 1/temperature
    learnable_scale: bool = True  #: learn the scale (clamped to [1, 100]) or keep it

    def __post_init__(self) -> None:
        for name in ("every", "pool"):
            given = getattr(self, name)
            check(self, name, given is None or (isinstance(given, int) and given > 0), "null or a whole number > 0")
        check(self, "cycle", self.cycle in ("share", "pass"), '"share" or "pass"')
        check(self, "pool_share", 0 < self.pool_share <= 1, "in (0, 1]")
        check(self, "pool_start", self.pool_start in ("empty", "noise"), '"empty" or "noise"')
        check(self, "eda_alpha", 0 <= self.eda_alpha <= 1, "in [0, 1]")
        check_scale(self)


class Roclip(Contrastive):
    """CLIP on (v, t); in matching steps on (v, n) with n_i the pool's caption nearest to v_i, a constant."""

    name = "roclip"
    about = About(
        title="RoCLIP",
        summary="In every second part of training, contrasts images with the captions of a large pool that are nearest "
        "to them instead of with their own. A poisoned caption is then rarely seen with its image.",
        paper="Yang et al., NeurIPS 2023",
        equations="as in the authors' code",
        fidelity="official-checked",
        bibtex="""@inproceedings{yang2023roclip,
  title = {Robust Contrastive Language-Image Pretraining against Data Poisoning and Backdoor Attacks},
  author = {Yang, Wenhan and Gao, Jingdong and Mirzasoleiman, Baharan},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2023}
}""",
        state="logit scale, pool of caption embeddings",
        note="In matching steps the text tower has no gradient; AdamW then still moves it by momentum and decay. The "
        "pool starts empty; the official one starts as noise of length sqrt(D), which images are matched with (preset "
        "official). A batch enters the pool in the order of its rows' ids. Captions are edited in every step, so a "
        "CLIP with the same augmentations belongs beside it.",
    )
    Config = RoclipConfig
    presets: ClassVar[Presets] = {
        "paper": {},
        # official: github.com/BigML-CS-UCLA/RoCLIP@f34a929 src/memory_bank.py, src/parser.py
        "official": {"cycle": "pass", "pool": 21845, "pool_start": "noise"},
    }
    space: ClassVar[Space] = {**TEMPERATURE, "every": Choice((1, 2, 4)), "pool_share": Log(0.005, 0.2)}
    needs = frozenset({"tokens"})
    identities = (Identity("without matching it is CLIP on edited captions", equals="clip", config={"every": None}),)

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.eda = Eda.of(facts, "roclip", config.eda_alpha, config.wordnet)
        size = config.pool or max(facts.batch, round(config.pool_share * facts.rows))
        noise = stream(facts.seed, "roclip/pool") if config.pool_start == "noise" else None
        self.pool = EmbeddingQueue(size, facts.dim, noise)

    def encode(self, towers: Towers, rows: Rows) -> Tensors:
        text = towers.encode_text(towers.tokenize(self.eda.edited(rows)))
        return {"image": unit(towers.encode_image(rows.images)), "text": unit(text)}

    def matches(self, clock: Clock) -> bool:
        """Whether images of this step are matched with the pool."""
        every = self.config.every
        if every is None:
            return False
        if self.config.cycle == "pass":
            return bool((clock.epoch + 1) % every == 0)
        place = CYCLES * clock.progress + 1e-9  # 1/24 of 24 steps is meant exactly
        return bool(place - math.floor(place) >= 1 - 1 / every)

    def observe(self, z: Tensors, batch: Batch) -> Tensors:
        if not self.matches(batch.clock):
            return {}
        neighbour = self.pool.nearest(z["image"])
        self.pool.push(z["text"], batch.ids)
        return {} if neighbour is None else {"neighbour": neighbour}

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        text: Tensor = observed.get("neighbour", z["text"])
        return {"contrastive": info_nce({"image": z["image"], "text": text}, self.scale(), anchors)}
