"""Your own loss compared with CLIP, at the same cost and on the same noise: `python own_loss.py`, seconds."""

from dataclasses import dataclass

import bench
from methods.base import Contrastive, check
from methods.protocol import About, Tensors


@dataclass(frozen=True)
class GceConfig:
    q: float = 0.5  #: towards 0 it is CLIP's cross-entropy, at 1 the mean absolute error

    def __post_init__(self) -> None:
        check(self, "q", 0 < self.q <= 1, "in (0, 1]")


class Gce(Contrastive):
    name = "gce"
    about = About(
        title="Generalised cross-entropy",
        summary="An anchor's loss is (1 - p^q) / q, p its partner's share. A pair that cannot be matched pulls less.",
        paper="Zhang and Sabuncu, NeurIPS 2018",
        equations="Equation 6",
        fidelity="derived",
        bibtex="@inproceedings{zhang2018, title = {Generalized Cross Entropy Loss}}",
    )
    Config = GceConfig

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        q, total = self.config.q, self.scale().new_zeros(())
        for logits, own in self.logits(z, anchors):  # [n, B] of image, then of text anchors; own partner's column [n]
            total = total - ((q * logits.log_softmax(1).gather(1, own[:, None])).expm1() / q).sum()
        return {"contrastive": total / (2 * len(z["image"]))}


if __name__ == "__main__":
    bench.add_plugin(__file__)
    bench.run_suite(bench.load_suite("smoke", ["methods=[clip, gce]", "noise.rates=[0.4]"]), "results")
    print(bench.Results("results").compare("gce", "clip").text())
