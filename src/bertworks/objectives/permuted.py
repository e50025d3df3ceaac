"""Permutation language model (Yang et al. 2019, section 2): targets in a random order, each from its place and what is ranked before it.

Partial prediction: only the last tokens of the order are targets, a share of `mask_rate`; the rest is given.
"""

from __future__ import annotations

from torch import Tensor

from bertworks.data.loader import Batch, Hide
from bertworks.model.loss import Loss
from bertworks.objectives.objective import Objective, counted, guessed, per_sequence


class Permuted(Objective):
    hide: Hide = "permuted"
    loss = "permuted"

    def counts(self, batch: Batch) -> dict[str, int]:
        return counted("permuted", len(batch.targets))

    def look(self, batch: Batch) -> Tensor:
        assert batch.ranks is not None  # the loader made them
        ranks, targets = self.tensor(batch.ranks), self.tensor(batch.targets)
        return self.model.encoder.predict(self.tokens(batch), ranks, targets, per_sequence(batch, batch.targets))

    def forward(self, batch: Batch) -> Loss:
        guesses = self.model.guess(self.look(batch), self.tensor(batch.labels))
        return guessed("permuted", guesses.loss, guesses.right)
