"""Permutation language model (Yang et al. 2019, section 2): each target is predicted from its position and from the
tokens before it in a random order.

Partial prediction: only the last tokens of the order are targets, a share of `mask_rate`; the others are context.
"""

from __future__ import annotations

from torch import Tensor

from bertworks.data.corruption import PermuteTargets
from bertworks.data.loader import PretrainBatch
from bertworks.model.loss import Loss
from bertworks.objectives.objective import Objective, per_sequence, term_counts, with_accuracy


class Permuted(Objective):
    corruption = PermuteTargets()
    has_two_streams = True
    main_term = "permuted"
    terms = {"permuted": ("permuted tokens", "乱序预测的词元")}

    def counts(self, batch: PretrainBatch) -> dict[str, int]:
        return term_counts("permuted", len(batch.targets))

    def target_states(self, batch: PretrainBatch) -> Tensor:
        assert batch.ranks is not None  # set by this objective's corruption
        ranks = self.tensor(batch.ranks)
        targets = self.tensor(batch.targets)
        return self.model.encoder.two_stream(self.tokens(batch), ranks, targets, per_sequence(batch, batch.targets))

    def forward(self, batch: PretrainBatch) -> Loss:
        predicted = self.model.lm_loss(self.target_states(batch), self.tensor(batch.labels))
        return with_accuracy("permuted", predicted.loss, predicted.n_correct)
