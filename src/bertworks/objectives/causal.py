"""Causal language model: the next token from those before it (Radford et al. 2019, section 2)."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from bertworks.data.corruption import NoCorruption, Numbers
from bertworks.data.loader import PretrainBatch
from bertworks.model.loss import Loss
from bertworks.objectives.objective import Objective, term_counts, with_accuracy


class Causal(Objective):
    """Every token but the first of its sequence is predicted."""

    corruption = NoCorruption()
    is_causal = True
    main_term = "next"
    terms = {"next": ("next token", "下一个词元")}

    def counts(self, batch: PretrainBatch) -> dict[str, int]:
        return term_counts("next", len(batch.ids) - len(batch.lengths))

    def targets(self, batch: PretrainBatch) -> tuple[Numbers, Numbers]:
        positions = _inputs(batch) + 1
        return positions, batch.ids[positions]

    def target_states(self, batch: PretrainBatch) -> Tensor:
        return self.model.encoder(self.tokens(batch)).last.index_select(0, self.tensor(_inputs(batch)))  # type: ignore[no-any-return]

    def forward(self, batch: PretrainBatch) -> Loss:
        predicted = self.model.lm_loss(self.target_states(batch), self.tensor(self.targets(batch)[1]))
        return with_accuracy("next", predicted.loss, predicted.n_correct)


def _inputs(batch: PretrainBatch) -> Numbers:
    """All positions but the last of each sequence."""
    return np.delete(np.arange(len(batch.ids)), np.cumsum(batch.lengths) - 1)
