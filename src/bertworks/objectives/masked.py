"""Masked language model (Devlin et al. 2019, section 3.1), with next-sentence prediction (the same section), sentence order
(Lan et al. 2020, section 3.1) or neither (Liu et al. 2019, section 4.2)."""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from bertworks.data.loader import Batch, Hide
from bertworks.model.loss import Loss
from bertworks.objectives.objective import Objective, counted, guessed, per_sequence


class Masked(Objective):
    """The vocabulary projection sees the targets only: 15 % of the tokens."""

    hide: Hide = "masked"
    loss = "masked"

    def counts(self, batch: Batch) -> dict[str, int]:
        counts = counted("masked", len(batch.targets))
        return counts | counted("pair", int((batch.pairs >= 0).sum())) if "pair" in self.model.heads else counts

    def look(self, batch: Batch) -> Tensor:
        return self.targets_of(self.model, batch)

    def forward(self, batch: Batch) -> Loss:
        if "pair" not in self.model.heads:
            guesses = self.model.guess(self.look(batch), self.tensor(batch.labels))
            return guessed("masked", guesses.loss, guesses.right)
        assert self.model.summary is not None  # made together with the head
        ends = np.cumsum(batch.lengths)
        edges = ends - batch.lengths if self.model.summary.of_first else ends - 1
        read, labelled = np.union1d(batch.targets, edges), np.flatnonzero(batch.pairs >= 0)
        states = self.model.encoder.at(self.tokens(batch), self.tensor(read), per_sequence(batch, read))
        at_targets = states.index_select(0, self.tensor(np.searchsorted(read, batch.targets)))
        guesses = self.model.guess(at_targets, self.tensor(batch.labels))
        at_edges = states.index_select(0, self.tensor(np.searchsorted(read, edges[labelled])))
        logits, labels = self.model.read("pair", at_edges), self.tensor(batch.pairs[labelled])
        right = (logits.detach().argmax(1) == labels).sum()
        pairs = guessed("pair", F.cross_entropy(logits, labels, reduction="sum"), right)
        return *guessed("masked", guesses.loss, guesses.right), *pairs
