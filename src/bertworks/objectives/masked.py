"""Masked language model (Devlin et al. 2019, section 3.1), with next-sentence prediction (the same section), sentence
order (Lan et al. 2020, section 3.1) or neither (Liu et al. 2019, section 4.2)."""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from bertworks.config import DataConfig, PretrainConfig
from bertworks.data.corruption import MaskTokens, Numbers
from bertworks.data.loader import PretrainBatch
from bertworks.model.loss import Loss
from bertworks.objectives.objective import (
    LABELLED_PAIRS,
    Objective,
    config_conflict,
    per_sequence,
    term_counts,
    with_accuracy,
)


class Masked(Objective):
    """The vocabulary projection is computed for the targets only: 15 % of the tokens."""

    corruption = MaskTokens()
    has_pairs = True
    main_term = "masked"
    terms = {"masked": ("masked tokens", "被遮盖的词元"), "pair": ("sentence pairs", "句对")}

    @classmethod
    def heads(cls, data: DataConfig) -> list[str]:
        return ["lm", "pair"] if data.pairs in LABELLED_PAIRS else ["lm"]

    @classmethod
    def check(cls, config: PretrainConfig) -> None:
        super().check(config)
        pairs = config.data.pairs
        if pairs in LABELLED_PAIRS and config.model.encoder.n_segments == 1:
            cause = f"objective mlm+{pairs} needs two segments, the model has one: set model.n_segments=2"
            raise config_conflict(cause, "data.pairs", "model.n_segments")

    def counts(self, batch: PretrainBatch) -> dict[str, int]:
        counts = term_counts("masked", len(batch.targets))
        return counts | term_counts("pair", int((batch.pairs >= 0).sum())) if "pair" in self.model.heads else counts

    def target_states(self, batch: PretrainBatch) -> Tensor:
        return self.states_at_targets(self.model, batch)

    def _summaries(self, batch: PretrainBatch) -> Numbers:
        """The position of each sequence's summary token, (B,)."""
        assert self.model.summary is not None  # built together with the head
        ends = np.cumsum(batch.lengths)
        return ends - batch.lengths if self.model.summary.reads_first else ends - 1

    def pair_logits(self, batch: PretrainBatch) -> Tensor | None:
        if "pair" not in self.model.heads:
            return None
        summaries = self._summaries(batch)
        states = self.model.encoder.states_at(
            self.tokens(batch), self.tensor(summaries), per_sequence(batch, summaries)
        )
        return self.model.read("pair", states)

    def forward(self, batch: PretrainBatch) -> Loss:
        if "pair" not in self.model.heads:
            predicted = self.model.lm_loss(self.target_states(batch), self.tensor(batch.labels))
            return with_accuracy("masked", predicted.loss, predicted.n_correct)
        summaries = self._summaries(batch)
        labelled = np.flatnonzero(batch.pairs >= 0)
        # One pass of the last layer for both heads: the targets, and the token of each sequence's summary.
        positions = np.union1d(batch.targets, summaries)
        states = self.model.encoder.states_at(
            self.tokens(batch), self.tensor(positions), per_sequence(batch, positions)
        )
        target_states = states.index_select(0, self.tensor(np.searchsorted(positions, batch.targets)))
        predicted = self.model.lm_loss(target_states, self.tensor(batch.labels))
        summary_states = states.index_select(0, self.tensor(np.searchsorted(positions, summaries[labelled])))
        logits = self.model.read("pair", summary_states)
        labels = self.tensor(batch.pairs[labelled])
        n_correct = (logits.detach().argmax(1) == labels).sum()
        pairs = with_accuracy("pair", F.cross_entropy(logits, labels, reduction="sum"), n_correct)
        return *with_accuracy("masked", predicted.loss, predicted.n_correct), *pairs
