"""What all tasks have in common: a model with a head, examples as windows, and answers read off the head's logits.

    N  tokens of the batch      W  windows      M  tokens read      B  examples      C  classes

A *shape* is a class of its own (sequence, tag, span, choice); a data set is a row of a table. Training, evaluation, prediction and serving
go the same way: `features` makes windows, `logits` reads them, `decode` says what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from bertworks.config import TaskConfig
from bertworks.model.layout import Tokens
from bertworks.model.loss import Loss, Trainable
from bertworks.model.model import Model
from bertworks.tasks import metrics
from bertworks.tasks.calibration import Cost, cost_of_classes
from bertworks.tasks.example import Batch, Example, Features, Numbers, Values, gather
from bertworks.tasks.metrics import Floats, Measures
from bertworks.tasks.windows import Reader

PREDICT_TOKENS = 2048  # of a batch that is only looked at
Progress = Callable[[int, int], None]  # done, of how many
Outputs = list[Values]  # of one example: a table of logits for each window


@dataclass(frozen=True)
class Verdict:
    """An answer beside the right one, for people."""

    wrong: bool
    sure: float  # how sure the model was, or how far off it is; the highest are shown
    right: str
    said: str


class Task(Trainable):
    """An encoder, a head, and what its logits mean."""

    head: ClassVar[str]
    confident: ClassVar[bool] = True  # whether it knows how sure it is
    temperature = 1.0  # by which logits are divided, so that confidence is what it says

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    # ------------------------------------------------------------------ what a shape says

    def features(self, examples: Sequence[Example], reader: Reader) -> list[Features]:
        raise NotImplementedError

    def loss(self, logits: Tensor, batch: Batch) -> Loss:
        raise NotImplementedError

    def decode(self, outputs: Outputs, features: Features, example: Example) -> Any:
        raise NotImplementedError

    def beliefs(self, outputs: Outputs, features: Features) -> Values:
        """Logits of all that could be said, (R, C): a row for the text, or for each of its words or classes."""
        raise NotImplementedError

    def truth(self, features: Features) -> Numbers:
        """Which column of each row of `beliefs` is right, (R,)."""
        raise NotImplementedError

    def sureness(self, prediction: Any, example: Example) -> list[tuple[float, bool]]:
        """Of each thing that is said, how sure it is, and whether it is right."""
        raise NotImplementedError

    def evidence(self, prediction: Any, example: Example) -> tuple[float, ...]:
        """What an answer says about the model, in numbers."""
        raise NotImplementedError

    def verdict(self, prediction: Any, example: Example) -> Verdict:
        raise NotImplementedError

    def measure(self, rows: Floats) -> Measures:
        """What the evidence of many examples, one in each row, amounts to; NaN where they cannot show it."""
        raise NotImplementedError

    def by_class(self, predictions: Sequence[Any], examples: Sequence[Example]) -> dict[str, metrics.Counts]:
        """How each class fares, where there are classes."""
        return {}

    def unless_unsure(self, prediction: Any, least: float) -> Any:
        """No answer, where the model is less sure than that."""
        raise NotImplementedError

    def finished(self, config: TaskConfig) -> tuple[Model, TaskConfig]:
        """The model to be saved, its logits as far as can be in the user's units, and what is left to be done to them."""
        return self.model, config

    # ------------------------------------------------------------------ what follows from it

    def room(self, example: Example, reader: Reader) -> int:
        """Tokens of its texts that fit into a window."""
        return reader.room(min(2, len(example.texts)))

    def score(self, predictions: Sequence[Any], examples: Sequence[Example]) -> Measures:
        return metrics.settled(self.measure(self.rows(predictions, examples)))

    def chances(self, outputs: Outputs, features: Features) -> Values:
        """`beliefs` as probabilities, (R, C)."""
        return shares(self.beliefs(outputs, features) / self.temperature)

    def cost(
        self, outputs: Sequence[Outputs], predictions: Sequence[Any], features: Sequence[Features], examples: Sequence[Example]
    ) -> Cost:
        """Of a temperature: how unlikely it makes what is right. Rows of different length are filled up with what is impossible."""
        chances = widened([self.chances(*pair) for pair in zip(outputs, features, strict=True)])
        return cost_of_classes(chances, np.concatenate([self.truth(one) for one in features]))

    def rows(self, predictions: Sequence[Any], examples: Sequence[Example]) -> Floats:
        return np.array([self.evidence(*pair) for pair in zip(predictions, examples, strict=True)], np.float64)

    def forward(self, batch: Batch) -> Loss:
        return self.loss(self.logits(batch), batch)

    def logits(self, batch: Batch) -> Tensor:
        """Of the tokens read, (M, C)."""
        return self.model.read(self.head, self.states(batch))

    @property
    def device(self) -> torch.device:
        return self.model.encoder.embed.tokens.weight.device

    def tensor(self, values: Values) -> Tensor:
        return torch.from_numpy(values).to(self.device, non_blocking=True)

    def states(self, batch: Batch) -> Tensor:
        """Of the tokens read, (M, hidden). The last layer works for these alone."""
        # A model with one segment tells two texts apart by what stands between them.
        segments = self.tensor(batch.segments) if self.model.config.encoder.n_segments != 1 else None
        tokens = Tokens.ragged(self.tensor(batch.ids), batch.lengths.tolist(), segments)
        return self.model.encoder.at(tokens, self.tensor(batch.read), batch.n_read.tolist())

    def predict(
        self, features: Sequence[Features], examples: Sequence[Example], progress: Progress = lambda done, total: None
    ) -> list[Any]:
        """An answer to each example, in their order."""
        return self.decode_all(self.outputs(features, progress), features, examples)

    def decode_all(self, outputs: Sequence[Outputs], features: Sequence[Features], examples: Sequence[Example]) -> list[Any]:
        return [self.decode(*one) for one in zip(outputs, features, examples, strict=True)]

    @torch.inference_mode()
    def outputs(self, features: Sequence[Features], progress: Progress = lambda done, total: None) -> list[Outputs]:
        """The logits of each example, in their order. Windows go through the model by themselves, so a text may be of any length."""
        training = self.training
        parts = [replace(one, windows=(window,)) for one in features for window in one.windows]
        owners = [at for at, one in enumerate(features) for _ in one.windows]
        left = [len(one.windows) for one in features]
        tables: list[Values] = [np.empty(0)] * len(parts)
        self.eval()
        try:
            for members in token_batches([one.length for one in parts], PREDICT_TOKENS):
                batch = gather(parts, members)
                found = np.split(self.logits(batch).float().cpu().numpy(), np.cumsum(batch.n_read)[:-1])
                for place, table in zip(members[batch.order].tolist(), found, strict=True):
                    tables[place] = table
                    left[owners[place]] -= 1
                progress(left.count(0), len(features))
        finally:
            self.train(training)
        rest = iter(tables)
        return [list(islice(rest, len(one.windows))) for one in features]


def token_batches(lengths: Sequence[int], budget: int) -> Iterator[Values]:
    """Texts of about the same length together, as many as the budget takes, at least one."""
    order = np.argsort(lengths, kind="stable")
    batch: list[int] = []
    size = 0
    for at in order.tolist():
        if batch and size + lengths[at] > budget:
            yield np.array(batch, np.int64)
            batch, size = [], 0
        batch.append(at)
        size += lengths[at]
    if batch:
        yield np.array(batch, np.int64)


def padded(logits: Tensor, sizes: Numbers) -> Tensor:
    """Rows of unequal length, one below the other; what is not there is impossible."""
    rows = torch.split(logits, sizes.tolist())
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=-torch.inf)


def widened(tables: Sequence[Values]) -> Values:
    """Probabilities of a different number of things, one table below the other."""
    widest = max(table.shape[1] for table in tables)
    return np.concatenate([np.pad(table, ((0, 0), (0, widest - table.shape[1]))) for table in tables])


def shares(logits: Values, axis: int = -1) -> Values:
    """Probabilities that add up to one."""
    raised = np.exp(logits - logits.max(axis, keepdims=True))
    found: Values = raised / raised.sum(axis, keepdims=True)
    return found


def by_label(labels: Sequence[str], values: Values) -> Mapping[str, float]:
    return dict(zip(labels, map(float, values), strict=True))
