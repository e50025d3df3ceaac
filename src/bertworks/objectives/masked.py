"""Masked language model (Devlin et al. 2019, section 3.1), with next-sentence prediction (the same section), sentence order
(Lan et al. 2020, section 3.1) or neither (Liu et al. 2019, section 4.2)."""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from bertworks.data.loader import Batch, Hide
from bertworks.model.loss import Loss
from bertworks.objectives.objective import Objective, counted, guessed


class Masked(Objective):
    """The vocabulary projection sees the targets only: 15 % of the tokens."""

    hide: Hide = "masked"
    loss = "masked"

    def counts(self, batch: Batch) -> dict[str, int]:
        counts = counted("masked", len(batch.targets))
        return counts | counted("pair", int((batch.pairs >= 0).sum())) if "pair" in self.model.heads else counts

    def look(self, batch: Batch) -> Tensor:
        return self.model.encoder(self.tokens(batch)).last.index_select(0, self.tensor(batch.targets))  # type: ignore[no-any-return]

    def forward(self, batch: Batch) -> Loss:
        tokens = self.tokens(batch)
        states = self.model.encoder(tokens).last
        guesses = self.model.guess(states.index_select(0, self.tensor(batch.targets)), self.tensor(batch.labels))
        loss = guessed("masked", guesses.loss, guesses.right)
        if "pair" in self.model.heads:
            labelled = np.flatnonzero(batch.pairs >= 0)
            logits = self.model.read("pair", states, tokens.layout).index_select(0, self.tensor(labelled))
            labels = self.tensor(batch.pairs[labelled])
            right = (logits.detach().argmax(1) == labels).sum()
            loss += guessed("pair", F.cross_entropy(logits, labels, reduction="sum"), right)
        return loss
