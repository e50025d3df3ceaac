"""Replaced token detection (Clark et al. 2020, section 3.1): a small generator fills the masks, a discriminator
classifies each token as original or replaced.

The two share their embedding. The generator's tokens are sampled from its softmax by inverse transform of uniform
numbers from the loader, so they do not depend on the state of any random number generator; no gradient flows through
them. A sampled token that equals the original counts as original.
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

AUC_BINS = 100_000  # of the histogram of the discriminator's probabilities, from which AUC is computed


def generator_config(config: ModelConfig, share: float) -> ModelConfig:
    """The config of the generator: the discriminator's layers, narrower, with the same embedding."""
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
        self.generator = generator
        self.weight = weight
        generator.encoder.share_embedding(model.encoder)

    @classmethod
    def heads(cls, data: DataConfig) -> list[str]:
        return ["replaced"]

    @classmethod
    def assemble(cls, model: Model, config: PretrainConfig, build: BuildModel) -> Replaced:
        generator = build(generator_config(config.model, config.objective.generator_size), ["lm"], GENERATOR)
        return cls(model, generator, config.objective.replaced_weight)

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
        return self._loss(*self._run_both(batch))

    def _loss(self, generator_loss: Loss, logits: Tensor, is_replaced: Tensor) -> Loss:
        n_correct = ((logits.detach() > 0) == is_replaced).sum()
        loss = F.binary_cross_entropy_with_logits(logits, is_replaced.to(logits.dtype), reduction="sum")
        return (*generator_loss, Term("replaced", loss, self.weight), accuracy("replaced", n_correct))

    def eval_sums(self, batch: PretrainBatch) -> Sums:
        generator_loss, logits, is_replaced = self._run_both(batch)
        bins = (logits.double().sigmoid() * AUC_BINS).long().clamp(max=AUC_BINS - 1)
        return self.sums(self._loss(generator_loss, logits, is_replaced), batch) | {
            "scores of replaced": torch.bincount(bins[is_replaced], minlength=AUC_BINS),
            "scores of original": torch.bincount(bins[~is_replaced], minlength=AUC_BINS),
        }

    def summarise(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        metrics = super().summarise(sums)
        positive = sums["scores of replaced"].double()
        negative = sums["scores of original"].double()
        if positive.sum() > 0 and negative.sum() > 0:
            below = negative.cumsum(0) - negative / 2  # ties count half
            metrics["replaced_auc"] = float((positive * below).sum() / (positive.sum() * negative.sum()))
        return metrics

    def _run_both(self, batch: PretrainBatch) -> tuple[Loss, Tensor, Tensor]:
        """The generator's loss, the discriminator's logits (N,), and which tokens are replaced (N,)."""
        assert batch.uniforms is not None  # set by this objective's corruption
        tokens = self.tokens(batch)
        targets = self.tensor(batch.targets)
        labels = self.tensor(batch.labels)
        predicted = self.generator.lm_loss(self.target_states(batch), labels, self.tensor(batch.uniforms))
        filled = Tokens(tokens.ids.index_copy(0, targets, predicted.samples), tokens.layout)
        is_replaced = torch.zeros_like(tokens.ids, dtype=torch.bool).index_copy(0, targets, predicted.samples != labels)
        logits = self.model.read("replaced", self.model.encoder(filled).last)
        return with_accuracy("masked", predicted.loss, predicted.n_correct), logits, is_replaced
