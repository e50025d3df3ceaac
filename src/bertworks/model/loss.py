"""The contract between whatever is trained and the trainer: sums and counts, never means.

`counts(batch)` says, without a forward pass, how many things each term of the loss is a sum over. The trainer adds these counts over
all the portions and processes of a step before the first backward pass, and divides each term by its own count. So the loss is the
mean over the whole step, exactly, however the step is cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class Term:
    """A part of the loss, or with weight 0 a measure that is only watched and gets no gradient."""

    name: str
    total: Tensor  # a sum over as many things as `counts` says under this name
    weight: float = 1.0


Loss = tuple[Term, ...]


class Trainable(nn.Module):
    """What the trainer trains."""

    def counts(self, batch: Any) -> dict[str, int]:
        raise NotImplementedError

    def forward(self, batch: Any) -> Loss:
        raise NotImplementedError
