"""What all tasks have in common: a model with a head, examples as windows, and predictions read off the head's logits.

    N  tokens of the batch      W  windows      M  tokens that heads read      B  examples      C  classes

A *shape* is one file with a `Task` and its `Schema`; a data set is a row of `catalogue.py`. Training, evaluation,
prediction and serving go the same way: `features` makes windows, `logits` reads them, `decode` says what they mean,
`score` compares that with the right answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from bertworks.config import HeadConfig, TaskArtifact, TaskConfig
from bertworks.datasets.checks import TaskData
from bertworks.datasets.example import Example
from bertworks.datasets.schema import Schema
from bertworks.measure.calibration import CalibrationLoss, class_calibration_loss
from bertworks.measure.metrics import Floats, Item, Metric, MetricValues
from bertworks.model.layout import Tokens
from bertworks.model.loss import Loss, Title, Trainable
from bertworks.model.model import Model
from bertworks.tasks.features import Array, Features, Numbers, TaskBatch
from bertworks.tasks.windows import SlidingWindows

Outputs = list[Array]  # of one example: a table of logits for each window


@dataclass(frozen=True)
class Prediction:
    """What a model says of one input; each shape has fields of its own."""

    @property
    def abstained(self) -> bool:
        """Whether something was left open for lack of confidence."""
        return False

    def abstain_below(self, confidence: float) -> Self:
        """The same, without what the model is less confident of than that."""
        return self

    def cells(self) -> dict[str, Any]:
        """What fits into the cells of a table; the rest is for JSON."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: "" if value is None else value for name, value in values.items() if not isinstance(value, list | dict)
        }


@dataclass(frozen=True)
class Score:
    """A prediction beside the right answer."""

    values: tuple[float, ...]  # from which all metrics follow
    is_wrong: bool
    severity: float  # of an error: how confident the model was, or how far off; the highest are shown
    expected: str  # for people
    predicted: str
    confidences: tuple[tuple[float, bool], ...] = ()  # of each thing that is predicted, and whether it is right
    expected_items: frozenset[Item] = frozenset()  # by class, where there are classes
    predicted_items: frozenset[Item] = frozenset()


@dataclass(frozen=True)
class ErrorTable:
    """How a report shows errors."""

    title: Title = ("The most confident errors", "最有把握的错误")
    severity: Title = ("confidence", "置信度")
    format: str = ".0%"


Answer = TypeVar("Answer")
P = TypeVar("P", bound=Prediction)


class Task(Trainable, Generic[Answer, P]):
    """An encoder, a head, and what its logits mean."""

    schema: ClassVar[Schema]  # how examples are read
    head: ClassVar[str]  # of the model
    problem_type: ClassVar[str | None] = None  # what transformers' config.json calls it
    metrics: ClassVar[tuple[Metric, ...]]  # models are compared by the first, if nothing else is said
    options: ClassVar[frozenset[str]] = frozenset()  # fields of `TaskConfig` that may be set for this shape
    loop_defaults: ClassVar[Mapping[str, Any]] = {}  # of the training loop
    has_confidence: ClassVar[bool] = True
    confidence_of: ClassVar[Title] = ("", "")  # what a confidence is about, if not the whole text
    keeps_head: ClassVar[bool] = True  # a head that was trained for the same labels goes on learning
    reads_pairs: ClassVar[bool] = False  # a text, or two that are read together
    labels_whole_texts: ClassVar[bool] = False  # labels are classes of the whole text
    compares_by_label: ClassVar[bool] = (
        False  # scores name classes by their numbers: two runs need the same order of labels
    )
    errors: ClassVar[ErrorTable] = ErrorTable()
    abstained_help: ClassVar[str] = "below a confidence of {}: no prediction"

    temperature = 1.0  # by which logits are divided, so that confidence is what it says

    def __init__(self, model: Model, config: TaskConfig) -> None:
        super().__init__()
        self.model, self.labels = model, config.labels

    # ------------------------------------------------------------------ what a shape says

    def features(self, examples: Sequence[Example], windows: SlidingWindows) -> list[Features]:
        raise NotImplementedError

    def loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        raise NotImplementedError

    def decode(self, outputs: Outputs, features: Features, example: Example) -> P:
        raise NotImplementedError

    def score(self, prediction: P, answer: Answer, texts: tuple[str, ...]) -> Score:
        raise NotImplementedError

    def metric_values(self, scores: Floats) -> MetricValues:
        """What the scores of many examples, one in each row, amount to; NaN where they cannot show it."""
        raise NotImplementedError

    def class_logits(self, outputs: Outputs, features: Features) -> Array:
        """Logits of all that could be said, (R, C): a row for the text, or for each of its words or classes."""
        raise NotImplementedError

    def targets(self, features: Features) -> Numbers:
        """Which column of each row of `class_logits` is right, (R,)."""
        raise NotImplementedError

    # ------------------------------------------------------------------ what it may say otherwise

    @classmethod
    def describe(cls, data: TaskData, labels: tuple[str, ...]) -> dict[str, Any]:
        """Fields of `TaskConfig` that follow from the examples."""
        return {}

    @classmethod
    def is_meant_by(cls, problem_type: str | None, n_labels: int) -> bool:
        """Whether a model with this shape's head, fine-tuned by others, is for it."""
        return True

    @classmethod
    def head_labels(cls, config: TaskConfig) -> tuple[str, ...]:
        """The classes of the head; where there are none, not those of what the model did before."""
        return config.labels or HeadConfig().labels

    @classmethod
    def metrics_for(cls, labels: Sequence[str]) -> tuple[Metric, ...]:
        return cls.metrics

    def fit(self, train: Sequence[Example]) -> None:
        """What the loss takes from the training examples."""

    def tune(
        self, outputs: Sequence[Outputs], features: Sequence[Features], examples: Sequence[Example]
    ) -> dict[str, float]:
        """Set what is best chosen on dev, beside the temperature; fields of `TaskArtifact`."""
        return {}

    def restore(self, artifact: TaskArtifact) -> None:
        """Set what was chosen on dev."""
        self.temperature = artifact.temperature

    def calibration_loss(
        self,
        outputs: Sequence[Outputs],
        predictions: Sequence[P],
        features: Sequence[Features],
        examples: Sequence[Example],
    ) -> CalibrationLoss:
        """Of a temperature: how unlikely it makes what is right. Rows of different length are filled up with what is
        impossible."""
        probabilities = pad_columns([self.probabilities(*pair) for pair in zip(outputs, features, strict=True)])
        return class_calibration_loss(probabilities, np.concatenate([self.targets(one) for one in features]))

    def exported(self, config: TaskConfig) -> tuple[Model, TaskConfig]:
        """The model to be saved, its logits as far as can be in the user's units, and what is left to be done to
        them."""
        return self.model, config

    def shown_texts(self, example: Example) -> tuple[str, ...]:
        """For people."""
        return example.texts

    @property
    def confusion_labels(self) -> tuple[str, ...]:
        """Classes of which one is right and one is predicted: the first two of a score's values."""
        return ()

    # ------------------------------------------------------------------ what follows from it

    def probabilities(self, outputs: Outputs, features: Features) -> Array:
        """Of `class_logits`, (R, C)."""
        return softmax(self.class_logits(outputs, features) / self.temperature)

    def decode_all(
        self, outputs: Sequence[Outputs], features: Sequence[Features], examples: Sequence[Example]
    ) -> list[P]:
        return [self.decode(*one) for one in zip(outputs, features, examples, strict=True)]

    def scores(self, predictions: Sequence[P], examples: Sequence[Example]) -> list[Score]:
        return [
            self.score(one, example.answer, example.texts) for one, example in zip(predictions, examples, strict=True)
        ]

    def forward(self, batch: TaskBatch) -> Loss:
        return self.loss(self.logits(batch), batch)

    def logits(self, batch: TaskBatch) -> Tensor:
        """Of the tokens that the head reads, (M, C)."""
        return self.model.read(self.head, self.states(batch))

    def states(self, batch: TaskBatch) -> Tensor:
        """Of the tokens that the head reads, (M, hidden). The last layer works for these alone."""
        # A model with one segment tells two texts apart by what stands between them.
        segments = self.tensor(batch.segments) if self.model.config.encoder.n_segments != 1 else None
        tokens = Tokens.ragged(self.tensor(batch.ids), batch.lengths.tolist(), segments)
        return self.model.encoder.states_at(tokens, self.tensor(batch.positions), batch.n_positions.tolist())

    @property
    def device(self) -> torch.device:
        return self.model.encoder.device

    def tensor(self, values: Array) -> Tensor:
        return torch.from_numpy(values).to(self.device, non_blocking=True)


def score_table(scores: Sequence[Score]) -> Floats:
    """One example in each row."""
    return np.array([score.values for score in scores], np.float64)


def pad_rows(logits: Tensor, sizes: Numbers) -> Tensor:
    """Rows of unequal length, one below the other; what is not there is impossible."""
    rows = torch.split(logits, sizes.tolist())
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=-torch.inf)


def pad_columns(tables: Sequence[Array]) -> Array:
    """Probabilities of a different number of things, one table below the other."""
    widest = max(table.shape[1] for table in tables)
    return np.concatenate([np.pad(table, ((0, 0), (0, widest - table.shape[1]))) for table in tables])


def softmax(logits: Array, axis: int = -1) -> Array:
    raised = np.exp(logits - logits.max(axis, keepdims=True))
    probabilities: Array = raised / raised.sum(axis, keepdims=True)
    return probabilities
