"""The base class of pre-training objectives: a model, the loader's batches as tensors, metrics on held-out text.

N  tokens of the batch      B  sequences      M  targets      V  vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertworks.config import DataConfig, ModelConfig, PretrainConfig
from bertworks.data.corruption import Corruption, Numbers
from bertworks.data.loader import PretrainBatch
from bertworks.errors import BadConfig
from bertworks.model.layout import Tokens
from bertworks.model.loss import Loss, Term, Title, Trainable, accuracy
from bertworks.model.model import Model

Sums = dict[str, Tensor]
LABELLED_PAIRS = ("nsp", "sop")
BuildModel = Callable[[ModelConfig, list[str], str], Model]
"""(config, heads, its folder within a saved model) -> a model, new or initialised from a trained one."""


class Objective(Trainable):
    """An encoder plus a self-supervised loss."""

    corruption: ClassVar[Corruption]  # of a sequence, before the model sees it
    options: ClassVar[frozenset[str]] = frozenset()  # fields of `ObjectiveConfig` that it uses, beside its name
    is_causal: ClassVar[bool] = False  # needs a left-to-right model
    has_two_streams: ClassVar[bool] = False  # needs two-stream attention
    has_pairs: ClassVar[bool] = False  # can also classify labelled sentence pairs
    extra_metrics: ClassVar[dict[str, Title]] = {}  # beside the loss terms
    main_term: str  # the loss term by which checkpoints are compared

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    @classmethod
    def heads(cls, data: DataConfig) -> list[str]:
        """The heads of the model that is trained."""
        return ["lm"]

    @classmethod
    def check(cls, config: PretrainConfig) -> None:
        """A `BadConfig` where model or data do not suit the objective."""
        name = config.objective.name
        if not cls.has_pairs and config.data.pairs in LABELLED_PAIRS:
            raise config_conflict(
                f"objective {name} has no sentence pairs: use data.pairs none or stream", "objective.name", "data.pairs"
            )
        encoder = config.model.encoder
        if cls.is_causal and not encoder.can_be_causal:
            raise config_conflict(
                f"objective {name} needs an encoder that can be causal", "objective.name", "model.kind"
            )
        if cls.is_causal != encoder.causal:
            verb = "needs" if cls.is_causal else "does not work with"
            raise config_conflict(
                f"objective {name} {verb} a left-to-right model (model.causal)", "objective.name", "model.causal"
            )
        if cls.has_two_streams != encoder.has_two_streams:
            verb = "needs" if cls.has_two_streams else "does not work with"
            raise config_conflict(
                f"objective {name} {verb} two-stream attention (model.attention relative)",
                "objective.name",
                "model.attention",
            )
        if "mask_rate" in cls.corruption.uses and not config.data.mask_rate:
            raise config_conflict(
                f"objective {name} has nothing to predict with data.mask_rate 0", "objective.name", "data.mask_rate"
            )

    @classmethod
    def assemble(cls, model: Model, config: PretrainConfig, build: BuildModel) -> Objective:
        """The objective with its model, and with further ones that it needs, from `build`."""
        return cls(model)

    def targets(self, batch: PretrainBatch) -> tuple[Numbers, Numbers]:
        """The positions to be predicted and their tokens, (M,) each."""
        return batch.targets, batch.labels

    def target_states(self, batch: PretrainBatch) -> Tensor:
        """The states (M, hidden) from which the language-model head predicts the targets."""
        raise NotImplementedError

    @property
    def lm_model(self) -> Model:
        """The model that predicts the targets."""
        return self.model

    @torch.no_grad()
    def top1(self, batch: PretrainBatch) -> tuple[Tensor, Tensor]:
        """The most probable token of each target and its probability; the caller sets evaluation mode."""
        logits = self.lm_model.read("lm", self.target_states(batch))
        top = logits.softmax(-1).max(-1)
        return top.indices, top.values

    def pair_logits(self, batch: PretrainBatch) -> Tensor | None:
        """For the label of each sequence's sentence pair, (B, 2); None: the model does not classify pairs."""
        return None

    @torch.no_grad()
    def top1_pairs(self, batch: PretrainBatch) -> tuple[Tensor, Tensor] | None:
        """The more probable label of each sentence pair and its probability."""
        logits = self.pair_logits(batch)
        if logits is None:
            return None
        top = logits.softmax(-1).max(-1)
        return top.indices, top.values

    def models(self) -> dict[str, Model]:
        """The models to save, by subfolder; "" is the one to fine-tune."""
        return {"": self.model}

    @property
    def device(self) -> torch.device:
        return self.model.encoder.device

    def tensor(self, values: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(values).to(self.device, non_blocking=True)

    def states_at_targets(self, model: Model, batch: PretrainBatch) -> Tensor:
        """A model's states (M, hidden) at the targets."""
        return model.encoder.states_at(
            self.tokens(batch), self.tensor(batch.targets), per_sequence(batch, batch.targets)
        )

    def tokens(self, batch: PretrainBatch) -> Tokens:
        return Tokens.ragged(self.tensor(batch.ids), batch.lengths.tolist(), self.tensor(batch.segments))

    def eval_sums(self, batch: PretrainBatch) -> Sums:
        """The sums of a held-out batch, which can be added over batches and processes."""
        return self.sums(self(batch), batch)

    def sums(self, loss: Loss, batch: PretrainBatch) -> Sums:
        totals = {term.name: term.total.detach().double() for term in loss}
        counts = {
            f"n {name}": torch.tensor(n, dtype=torch.float64, device=self.device)
            for name, n in self.counts(batch).items()
        }
        return totals | counts

    def summarise(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Metrics from sums."""
        means = {
            name: float(total / sums[f"n {name}"])
            for name, total in sums.items()
            if f"n {name}" in sums and sums[f"n {name}"] > 0
        }
        if self.main_term in means:
            means["perplexity"] = math.exp(min(means[self.main_term], 700.0))
        return means


def config_conflict(cause: str, *fields: str) -> BadConfig:
    return BadConfig(cause, remedy="correct these config fields", fields=fields)


def with_accuracy(name: str, loss: Tensor, n_correct: Tensor) -> Loss:
    """A summed cross-entropy, and the top-1 accuracy."""
    return Term(name, loss), accuracy(name, n_correct)


def term_counts(name: str, n: int) -> dict[str, int]:
    return {name: n, f"{name}_accuracy": n}


def per_sequence(batch: PretrainBatch, positions: Numbers) -> list[int]:
    """How many of these positions are in each sequence."""
    sequence = np.searchsorted(np.cumsum(batch.lengths), positions, side="right")
    return np.bincount(sequence, minlength=len(batch.lengths)).tolist()  # type: ignore[no-any-return]


@torch.no_grad()
def sum_over_batches(objective: Objective, batches: Iterable[PretrainBatch]) -> Sums:
    """`eval_sums` over batches, in evaluation mode; the objective's mode is restored."""
    training = objective.training
    sums = Sums()
    objective.eval()
    try:
        for batch in batches:
            for name, value in objective.eval_sums(batch).items():
                sums[name] = sums[name] + value if name in sums else value
    finally:
        objective.train(training)
    return sums
