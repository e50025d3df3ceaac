"""Permutation language model (Yang et al. 2019, section 2): targets in a random order, each from its place and what is ranked before it.

Partial prediction: only the last tokens of the order are targets, a share of `mask_rate`; the rest is given.
"""

from __future__ import annotations

import numpy as np

from bertworks.data.loader import Batch, Hide
from bertworks.model.loss import Loss
from bertworks.objectives.objective import Objective, counted, predicted


class Permuted(Objective):
    hide: Hide = "permuted"
    loss = "permuted"

    def counts(self, batch: Batch) -> dict[str, int]:
        return counted("permuted", len(batch.targets))

    def forward(self, batch: Batch) -> Loss:
        assert batch.ranks is not None  # the loader made them
        tokens = self.tokens(batch)
        sequence = np.searchsorted(np.cumsum(batch.lengths), batch.targets, side="right")
        n_targets = np.bincount(sequence, minlength=len(batch.lengths)).tolist()
        states = self.model.encoder.predict(tokens, self.tensor(batch.ranks), self.tensor(batch.targets), n_targets)
        return predicted("permuted", self.model.read("lm", states, tokens.layout), self.tensor(batch.labels))
