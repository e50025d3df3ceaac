"""The contract between whatever is trained and the trainer: sums and counts, never means.

`counts(batch)` gives, without a forward pass, the number of items that each term of the loss is a sum over. The trainer
adds these counts over all the micro-batches and processes of a step before the first backward pass, and divides each
term by its own count. So the loss is exactly the mean over the whole step, however it is divided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

Title = tuple[str, str]
"""For reports: English, Chinese."""


@dataclass(frozen=True)
class Term:
    """A part of the loss, or with weight 0 a metric that is only watched and gets no gradient."""

    name: str
    total: Tensor  # a sum over as many items as `counts` gives under this name
    weight: float = 1.0


def accuracy(name: str, n_correct: Tensor) -> Term:
    """How many of a term's items are predicted correctly."""
    return Term(f"{name}_accuracy", n_correct, 0.0)


Loss = tuple[Term, ...]


class Trainable(nn.Module):
    """What the trainer trains: an objective or a task, with its model."""

    terms: Mapping[str, Title]  # of its loss, with their titles; `NAME_accuracy` needs no title of its own

    def counts(self, batch: Any) -> dict[str, int]:
        raise NotImplementedError

    def forward(self, batch: Any) -> Loss:
        raise NotImplementedError
