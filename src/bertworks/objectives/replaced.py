"""Replaced token detection (Clark et al. 2020, section 3.1): a small generator fills the masks, a discriminator tells
which tokens are not the original ones.

The two share their embedding. What the generator writes is drawn by the loader's uniform numbers from its softmax
(inverse of the distribution function), so that it does not depend on the state of any generator of random numbers, and
without a gradient. A token that the generator guessed right counts as original.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from bertworks.config import DataConfig, ModelConfig, PretrainConfig
from bertworks.data.corruption import MaskForReplacement
from bertworks.data.loader import PretrainBatch
from bertworks.model.folder import GENERATOR
from bertworks.model.layout import Tokens
from bertworks.model.loss import Loss, Term, accuracy
from bertworks.model.model import Model
from bertworks.objectives.objective import BuildModel, Objective, Sums, term_counts, with_accuracy

BINS = 100_000  # of the discriminator's scores; what AUC is read from


def generator_config(config: ModelConfig, share: float) -> ModelConfig:
    """The discriminator's shape, narrower, on the same embedding."""
    encoder = config.transformer
    n_heads = max(1, round(encoder.n_heads * share))
    hidden_size = max(1, round(encoder.hidden_size * share / n_heads)) * n_heads
    width = encoder.embedding_width
    changes = {"hidden_size": hidden_size, "n_heads": n_heads, "ffn_size": max(1, round(encoder.ffn_size * share))}
    return config.override(**changes, embedding_size=None if width == hidden_size else width)


class Replaced(Objective):
    corruption = MaskForReplacement()
    options = frozenset({"replaced_weight", "generator_size"})
    main_term = "masked"
    terms = {"masked": ("masked tokens", "被遮盖的词元"), "replaced": ("replaced tokens", "被替换的词元")}
    extra_metrics = {"replaced_auc": ("AUC, replaced tokens", "AUC：被替换的词元")}

    def __init__(self, model: Model, generator: Model, weight: float) -> None:
        super().__init__(model)
        self.generator, self.weight = generator, weight
        generator.encoder.share_embedding(model.encoder)

    @classmethod
    def heads(cls, data: DataConfig) -> list[str]:
        return ["replaced"]

    @classmethod
    def assemble(cls, model: Model, config: PretrainConfig, build: BuildModel) -> Replaced:
        small = generator_config(config.model, config.objective.generator_size)
        return cls(model, build(small, ["lm"], GENERATOR), config.objective.replaced_weight)

    def models(self) -> dict[str, Model]:
        return {"": self.model, GENERATOR: self.generator}

    @property
    def lm_model(self) -> Model:
        return self.generator

    def target_states(self, batch: PretrainBatch) -> Tensor:
        return self.states_at_targets(self.generator, batch)

    def counts(self, batch: PretrainBatch) -> dict[str, int]:
        return term_counts("masked", len(batch.targets)) | term_counts("replaced", len(batch.ids))

    def forward(self, batch: PretrainBatch) -> Loss:
        return self._loss(*self._run_generator(batch))

    def _loss(self, predicted: Loss, scores: Tensor, replaced: Tensor) -> Loss:
        right = ((scores.detach() > 0) == replaced).sum()
        loss = F.binary_cross_entropy_with_logits(scores, replaced.to(scores.dtype), reduction="sum")
        return (*predicted, Term("replaced", loss, self.weight), accuracy("replaced", right))

    def eval_sums(self, batch: PretrainBatch) -> Sums:
        predicted, scores, replaced = self._run_generator(batch)
        bins = (scores.double().sigmoid() * BINS).long().clamp(max=BINS - 1)
        return self.sums(self._loss(predicted, scores, replaced), batch) | {
            "scores of replaced": torch.bincount(bins[replaced], minlength=BINS),
            "scores of original": torch.bincount(bins[~replaced], minlength=BINS),
        }

    def summarise(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        metrics = super().summarise(sums)
        positive, negative = sums["scores of replaced"].double(), sums["scores of original"].double()
        if positive.sum() > 0 and negative.sum() > 0:
            below = negative.cumsum(0) - negative / 2  # ties count half
            metrics["replaced_auc"] = float((positive * below).sum() / (positive.sum() * negative.sum()))
        return metrics

    def _run_generator(self, batch: PretrainBatch) -> tuple[Loss, Tensor, Tensor]:
        """The generator's loss, the discriminator's scores (N,), and which tokens were replaced (N,)."""
        assert batch.uniforms is not None  # the loader drew them
        tokens, targets, labels = self.tokens(batch), self.tensor(batch.targets), self.tensor(batch.labels)
        predicted = self.generator.lm_loss(self.target_states(batch), labels, self.tensor(batch.uniforms))
        seen = Tokens(tokens.ids.index_copy(0, targets, predicted.samples), tokens.layout)
        replaced = torch.zeros_like(tokens.ids, dtype=torch.bool).index_copy(0, targets, predicted.samples != labels)
        scores = self.model.read("replaced", self.model.encoder(seen).last)
        return with_accuracy("masked", predicted.loss, predicted.n_correct), scores, replaced
