"""What CREAM, L2RM and BiCro share: rows are divided after every pass by their losses, once the warm part is over."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from methods.base import Adapter
from methods.protocol import Clock, Diagnostic, Facts, Tensors


class Divided(Adapter):
    """Keeps each row's last loss, and from the end of a pass its probability of being clean and a flag.

    A subclass says in `division` how losses become the two, and puts "row_loss" [B] among its constants.
    """

    monitored = "row_loss"

    seen: Tensor
    fitted: Tensor
    row_loss: Tensor
    clean_probability: Tensor
    clean: Tensor

    def __init__(self, config: Any, facts: Facts) -> None:
        super().__init__(config, facts)
        self.register_buffer("seen", torch.zeros(facts.rows, dtype=torch.bool))
        self.register_buffer("fitted", torch.tensor(False))
        self.register_buffer("row_loss", torch.zeros(facts.rows))
        self.register_buffer("clean_probability", torch.ones(facts.rows))
        self.register_buffer("clean", torch.ones(facts.rows, dtype=torch.bool))

    def division(self, losses: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities of being clean [n], in the type of the losses [n], and flags, bool [n]."""
        raise TypeError(f"{type(self).__name__} must define division(losses)")

    def remember(self, ids: Tensor, row_loss: Tensor) -> None:
        """Store the losses of these rows."""
        self.row_loss[ids] = row_loss.to(self.row_loss.dtype)
        self.seen[ids] = True

    def divides(self, clock: Clock) -> bool:
        """Whether a step uses the division: the warm share is over, and a pass has been divided."""
        return clock.progress >= self.config.warm and bool(self.fitted)

    def end_epoch(self, epoch: int) -> None:
        """Divide all rows that were ever visited by their last losses."""
        if not bool(self.seen.any()):
            return
        self.clean_probability[self.seen], self.clean[self.seen] = self.division(self.row_loss[self.seen])
        self.fitted.fill_(True)

    def monitor(self, z: Tensors, observed: Tensors) -> dict[str, float]:
        return {"row_loss": float(observed["row_loss"].mean()), "clean": float(self.clean.double().mean())}

    def diagnostics(self, z: Tensors, observed: Tensors) -> tuple[Diagnostic, ...]:
        series = {"pairs": self.clean_probability[self.seen]}
        return (Diagnostic("clean", "Probability of being clean of each training pair", "probability", series),)
