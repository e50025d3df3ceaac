"""Left to right: the next token from those before it (Radford et al. 2019, section 2)."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from bertworks.data.loader import Batch, Hide, Numbers
from bertworks.model.loss import Loss
from bertworks.objectives.objective import Objective, counted, guessed


class Causal(Objective):
    """Every token but the first of its sequence is predicted."""

    hide: Hide = "nothing"
    loss = "next"

    def counts(self, batch: Batch) -> dict[str, int]:
        return counted("next", len(batch.ids) - len(batch.lengths))

    def answers(self, batch: Batch) -> tuple[Numbers, Numbers]:
        where = _before(batch) + 1
        return where, batch.ids[where]

    def look(self, batch: Batch) -> Tensor:
        return self.model.encoder(self.tokens(batch)).last.index_select(0, self.tensor(_before(batch)))  # type: ignore[no-any-return]

    def forward(self, batch: Batch) -> Loss:
        guesses = self.model.guess(self.look(batch), self.tensor(self.answers(batch)[1]))
        return guessed("next", guesses.loss, guesses.right)


def _before(batch: Batch) -> Numbers:
    """The positions that have a next one in their sequence."""
    return np.delete(np.arange(len(batch.ids)), np.cumsum(batch.lengths) - 1)
