"""What all objectives have in common: a model, the loader's batches as tensors, and how held-out text is judged.

N  tokens of the batch      B  sequences      M  targets      V  vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertworks.data.loader import Hide, Numbers, PretrainBatch
from bertworks.model.layout import Tokens
from bertworks.model.loss import Loss, Term, Title, Trainable, accuracy
from bertworks.model.model import Model

Sums = dict[str, Tensor]


class Objective(Trainable):
    """An encoder plus a self-supervised loss."""

    hide: Hide  # what the loader does to the targets
    extra_metrics: ClassVar[dict[str, Title]] = {}  # beside the terms
    main_term: str  # the term by which held-out text is judged

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def targets(self, batch: PretrainBatch) -> tuple[Numbers, Numbers]:
        """Where tokens are to be found, and which."""
        return batch.targets, batch.labels

    def target_states(self, batch: PretrainBatch) -> Tensor:
        """The states (M, hidden) from which the answers are read."""
        raise NotImplementedError

    @property
    def lm_model(self) -> Model:
        """The model that finds tokens."""
        return self.model

    @torch.no_grad()
    def top1(self, batch: PretrainBatch) -> tuple[Tensor, Tensor]:
        """For each answer the likeliest token and its probability; dropout is the caller's matter."""
        logits = self.lm_model.read("lm", self.target_states(batch))
        found = logits.softmax(-1).max(-1)
        return found.indices, found.values

    def models(self) -> dict[str, Model]:
        """What is saved, by folder; "" is the one that fine-tuning keeps."""
        return {"": self.model}

    @property
    def device(self) -> torch.device:
        return self.model.encoder.device

    def tensor(self, values: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(values).to(self.device, non_blocking=True)

    def states_at_targets(self, model: Model, batch: PretrainBatch) -> Tensor:
        """A model's states (M, hidden) at the targets."""
        return model.encoder.states_at(self.tokens(batch), self.tensor(batch.targets), per_sequence(batch, batch.targets))

    def tokens(self, batch: PretrainBatch) -> Tokens:
        return Tokens.ragged(self.tensor(batch.ids), batch.lengths.tolist(), self.tensor(batch.segments))

    def eval_sums(self, batch: PretrainBatch) -> Sums:
        """What a held-out batch says, in sums that can be added over batches and processes."""
        return self.sums(self(batch), batch)

    def sums(self, loss: Loss, batch: PretrainBatch) -> Sums:
        totals = {term.name: term.total.detach().double() for term in loss}
        counts = {f"n {name}": torch.tensor(n, dtype=torch.float64, device=self.device) for name, n in self.counts(batch).items()}
        return totals | counts

    def summarise(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """The measures that the sums amount to."""
        means = {name: float(total / sums[f"n {name}"]) for name, total in sums.items() if f"n {name}" in sums and sums[f"n {name}"] > 0}
        if self.main_term in means:
            means["perplexity"] = math.exp(min(means[self.main_term], 700.0))
        return means


def with_accuracy(name: str, loss: Tensor, n_right: Tensor) -> Loss:
    """A summed cross-entropy, and how often the likeliest prediction is right."""
    return Term(name, loss), accuracy(name, n_right)


def term_counts(name: str, n: int) -> dict[str, int]:
    return {name: n, f"{name}_accuracy": n}


def per_sequence(batch: PretrainBatch, chosen: Numbers) -> list[int]:
    """How many of the positions `chosen` each sequence has."""
    sequence = np.searchsorted(np.cumsum(batch.lengths), chosen, side="right")
    return np.bincount(sequence, minlength=len(batch.lengths)).tolist()  # type: ignore[no-any-return]


@torch.no_grad()
def sum_over_batches(objective: Objective, batches: Iterable[PretrainBatch]) -> Sums:
    """Over batches, without dropout; the objective is left as it was."""
    training, sums = objective.training, Sums()
    objective.eval()
    try:
        for batch in batches:
            for name, value in objective.eval_sums(batch).items():
                sums[name] = sums[name] + value if name in sums else value
    finally:
        objective.train(training)
    return sums
