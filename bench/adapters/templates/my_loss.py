"""CLIP with label smoothing: L = (1 - e) CLIP + e * cross-entropy to the uniform distribution, both directions."""

from dataclasses import dataclass
from typing import ClassVar

from torch.nn.functional import cross_entropy

from methods.base import Contrastive, Presets, check
from methods.protocol import About, Identity, Log, Space, Tensors


@dataclass(frozen=True)
class MyLossConfig:  # one line for each hyper-parameter: type, default, meaning
    epsilon: float = 0.1  #: share of each target that is spread evenly over the batch

    def __post_init__(self) -> None:
        check(self, "epsilon", 0 <= self.epsilon < 1, "in [0, 1)")  # what is refused, by name


class MyLoss(Contrastive):  # Contrastive learns CLIP's logit scale; a method without one derives from RowWise
    name = "my_loss"  # in suites; the file's name as well
    about = About(  # what tables, `bench methods` and `bench methods --cite` say of it
        title="My loss",
        summary="CLIP whose targets give a share of their weight to the whole batch. No single pair is trusted fully.",
        paper="Szegedy et al., CVPR 2016 (label smoothing)",
        equations="Section 7",
        fidelity="derived",  # or official-checked, formula-checked, reconstructed
        bibtex="@inproceedings{szegedy2016, title = {Rethinking the Inception Architecture for Computer Vision}}",
        state="logit scale",
    )
    Config = MyLossConfig
    presets: ClassVar[Presets] = {"paper": {"epsilon": 0.1}}
    space: ClassVar[Space] = {"epsilon": Log(0.01, 0.5)}  # what a suite's tune: searches, at most four
    identities = (Identity("without smoothing it is CLIP", equals="clip", config={"epsilon": 0.0}),)

    def loss(self, z: Tensors, observed: Tensors, anchors: slice) -> Tensors:
        total = self.scale().new_zeros(())
        for logits, own in self.logits(z, anchors):  # [n, B] of image, then of text anchors; own partner's column [n]
            total = total + cross_entropy(logits, own, reduction="sum", label_smoothing=self.config.epsilon)
        return {"contrastive": total / (2 * len(z["image"]))}  # divided by B, so that tiles sum to the objective
