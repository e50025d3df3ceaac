"""What all objectives have in common: a model, the loader's batches as tensors, and how held-out text is judged.

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
"""(config, heads, folder of its own) -> a model, new or grown from a trained one."""


class Objective(Trainable):
    """An encoder plus a self-supervised loss."""

    corruption: ClassVar[Corruption]  # what is done to a sequence before the model sees it
    options: ClassVar[frozenset[str]] = frozenset()  # fields of `ObjectiveConfig` that it uses, beside its name
    is_causal: ClassVar[bool] = False  # it needs a left-to-right model
    has_two_streams: ClassVar[bool] = False
    has_pairs: ClassVar[bool] = False  # it can learn from labelled pairs of sentences, too
    extra_metrics: ClassVar[dict[str, Title]] = {}  # beside the terms
    main_term: str  # the term by which held-out text is judged

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    @classmethod
    def heads(cls, data: DataConfig) -> list[str]:
        """Of the model that is trained."""
        return ["lm"]

    @classmethod
    def check(cls, config: PretrainConfig) -> None:
        """Whether it can be learned so; else a `BadConfig`."""
        name = config.objective.name
        if not cls.has_pairs and config.data.pairs in LABELLED_PAIRS:
            raise misfit(
                f"objective {name} knows no pairs: use data.pairs none or stream", "objective.name", "data.pairs"
            )
        encoder = config.model.encoder
        if cls.is_causal != encoder.causal:
            verb = "needs" if cls.is_causal else "does not fit"
            raise misfit(
                f"objective {name} {verb} a left-to-right model, from the beginning", "objective.name", "model.causal"
            )
        if cls.has_two_streams != encoder.has_two_streams:
            verb = "needs" if cls.has_two_streams else "does not fit"
            raise misfit(
                f"objective {name} {verb} two streams (model.attention relative)", "objective.name", "model.attention"
            )
        if "mask_rate" in cls.corruption.uses and not config.data.mask_rate:
            raise misfit(
                f"objective {name} has nothing to predict with data.mask_rate 0", "objective.name", "data.mask_rate"
            )

    @classmethod
    def assemble(cls, model: Model, config: PretrainConfig, build: BuildModel) -> Objective:
        """With a model that is built, and others that it needs."""
        return cls(model)

    def targets(self, batch: PretrainBatch) -> tuple[Numbers, Numbers]:
        """Where tokens are to be found, and which."""
        return batch.targets, batch.labels

    def target_states(self, batch: PretrainBatch) -> Tensor:
        """The states (M, hidden) from which the answers are read."""
        raise NotImplementedError

    @property
    def lm_model(self) -> Model:
        """The model that finds tokens."""
        return self.model

    @torch.no_grad()
    def top1(self, batch: PretrainBatch) -> tuple[Tensor, Tensor]:
        """For each answer the likeliest token and its probability; dropout is the caller's matter."""
        logits = self.lm_model.read("lm", self.target_states(batch))
        found = logits.softmax(-1).max(-1)
        return found.indices, found.values

    def models(self) -> dict[str, Model]:
        """What is saved, by folder; "" is the one that fine-tuning keeps."""
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
        """What a held-out batch says, in sums that can be added over batches and processes."""
        return self.sums(self(batch), batch)

    def sums(self, loss: Loss, batch: PretrainBatch) -> Sums:
        totals = {term.name: term.total.detach().double() for term in loss}
        counts = {
            f"n {name}": torch.tensor(n, dtype=torch.float64, device=self.device)
            for name, n in self.counts(batch).items()
        }
        return totals | counts

    def summarise(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """The metrics that the sums amount to."""
        means = {
            name: float(total / sums[f"n {name}"])
            for name, total in sums.items()
            if f"n {name}" in sums and sums[f"n {name}"] > 0
        }
        if self.main_term in means:
            means["perplexity"] = math.exp(min(means[self.main_term], 700.0))
        return means


def misfit(cause: str, *fields: str) -> BadConfig:
    return BadConfig(cause, remedy="correct these config fields", fields=fields)


def with_accuracy(name: str, loss: Tensor, n_right: Tensor) -> Loss:
    """A summed cross-entropy, and how often the likeliest prediction is right."""
    return Term(name, loss), accuracy(name, n_right)


def term_counts(name: str, n: int) -> dict[str, int]:
    return {name: n, f"{name}_accuracy": n}


def per_sequence(batch: PretrainBatch, chosen: Numbers) -> list[int]:
    """How many of the positions `chosen` each sequence has."""
    sequence = np.searchsorted(np.cumsum(batch.lengths), chosen, side="right")
    return np.bincount(sequence, minlength=len(batch.lengths)).tolist()  # type: ignore[no-any-return]


@torch.no_grad()
def sum_over_batches(objective: Objective, batches: Iterable[PretrainBatch]) -> Sums:
    """Over batches, without dropout; the objective is left as it was."""
    training, sums = objective.training, Sums()
    objective.eval()
    try:
        for batch in batches:
            for name, value in objective.eval_sums(batch).items():
                sums[name] = sums[name] + value if name in sums else value
    finally:
        objective.train(training)
    return sums
