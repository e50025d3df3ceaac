"""Masked language model (Devlin et al. 2019, section 3.1), with next-sentence prediction (the same section), sentence order
(Lan et al. 2020, section 3.1) or neither (Liu et al. 2019, section 4.2)."""

from __future__ import annotations

import numpy as np

from bertworks.data.loader import Batch, Hide
from bertworks.model.loss import Loss
from bertworks.objectives.objective import Objective, counted, predicted


class Masked(Objective):
    """The vocabulary projection sees the targets only: 15 % of the tokens."""

    hide: Hide = "masked"
    loss = "masked"

    def counts(self, batch: Batch) -> dict[str, int]:
        counts = counted("masked", len(batch.targets))
        return counts | counted("pair", int((batch.pairs >= 0).sum())) if "pair" in self.model.heads else counts

    def forward(self, batch: Batch) -> Loss:
        tokens = self.tokens(batch)
        states = self.model.encoder(tokens).last
        targets = states.index_select(0, self.tensor(batch.targets))
        loss = predicted("masked", self.model.read("lm", targets, tokens.layout), self.tensor(batch.labels))
        if "pair" in self.model.heads:
            labelled = np.flatnonzero(batch.pairs >= 0)
            logits = self.model.read("pair", states, tokens.layout).index_select(0, self.tensor(labelled))
            loss += predicted("pair", logits, self.tensor(batch.pairs[labelled]))
        return loss
