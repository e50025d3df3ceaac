"""Left to right: the next token from those before it (Radford et al. 2019, section 2)."""

from __future__ import annotations

import numpy as np

from bertworks.data.loader import Batch, Hide, Numbers
from bertworks.model.loss import Loss
from bertworks.objectives.objective import Objective, counted, predicted


class Causal(Objective):
    """Every token but the first of its sequence is predicted."""

    hide: Hide = "nothing"
    loss = "next"

    def counts(self, batch: Batch) -> dict[str, int]:
        return counted("next", len(batch.ids) - len(batch.lengths))

    def answers(self, batch: Batch) -> Numbers:
        return batch.ids[_before(batch) + 1]

    def forward(self, batch: Batch) -> Loss:
        tokens = self.tokens(batch)
        states = self.model.encoder(tokens).last.index_select(0, self.tensor(_before(batch)))
        return predicted("next", self.model.read("lm", states, tokens.layout), self.tensor(self.answers(batch)))


def _before(batch: Batch) -> Numbers:
    """The positions that have a next one in their sequence."""
    return np.delete(np.arange(len(batch.ids)), np.cumsum(batch.lengths) - 1)
