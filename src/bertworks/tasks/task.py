"""The base class of tasks: a model with a head, examples as windows, and predictions from the head's logits.

    N  tokens of the batch      W  windows      M  tokens that heads read      B  examples      C  classes

A *shape* is one file with a `Task` and its `Schema`; a data set is a row of `catalogue.py`. Training, evaluation and
prediction share one path: `features` builds windows, `logits` runs the model on them, `decode` turns logits into
predictions, `score` compares these with the correct answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Generic, Self, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from bertworks.config import HeadConfig, TaskArtifact, TaskConfig
from bertworks.datasets.checks import TaskData
from bertworks.datasets.example import Example
from bertworks.datasets.schema import Schema
from bertworks.measure.calibration import CalibrationLoss, class_calibration_loss
from bertworks.measure.metrics import Floats, Item, Metric, MetricValues
from bertworks.model.heads import ClassHead
from bertworks.model.layout import Tokens
from bertworks.model.loss import Loss, Title, Trainable
from bertworks.model.model import Model
from bertworks.tasks.features import Array, Features, Numbers, TaskBatch
from bertworks.tasks.windows import SlidingWindows

Outputs = list[Array]  # of one example: the logits of each window, (tokens that the head reads, C)


@dataclass(frozen=True)
class Prediction:
    """The prediction for one input; each shape adds its fields."""

    @property
    def abstained(self) -> bool:
        """Whether all or part of it was withheld for lack of confidence."""
        return False

    def abstain_below(self, confidence: float) -> Self:
        """The same prediction, without what has a lower confidence."""
        return self

    def cells(self) -> dict[str, object]:
        """The fields for a table: scalars only, lists and dicts are for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: "" if value is None else value for name, value in values.items() if not isinstance(value, list | dict)
        }

    def shown(self) -> dict[str, object]:
        """The fields for a line on the terminal."""
        return self.cells()


@dataclass(frozen=True)
class Score:
    """A prediction compared with the correct answer."""

    values: tuple[float, ...]  # from which all metrics are computed
    is_wrong: bool
    severity: float  # of an error: the confidence in it, or its size; reports show the most severe
    expected: str  # for display
    predicted: str  # for display
    confidences: tuple[tuple[float, bool], ...] = ()  # of each class, tag or answer: confidence, and if it is correct
    expected_items: frozenset[Item] = frozenset()  # for metrics by class
    predicted_items: frozenset[Item] = frozenset()


@dataclass(frozen=True)
class ErrorTableFormat:
    """How a report titles and formats its table of errors."""

    title: Title = ("The most confident errors", "最有把握的错误")
    severity: Title = ("confidence", "置信度")
    format: str = ".0%"


Answer = TypeVar("Answer")
PredictionT = TypeVar("PredictionT", bound=Prediction)


class Task(Trainable, Generic[Answer, PredictionT]):
    """An encoder, a head, and how its logits become predictions."""

    schema: Schema  # how examples are read; of a class, and of a fine-tuned task with what it has learned of that
    head: ClassVar[str]  # of the model
    problem_type: ClassVar[str | None] = None  # in transformers' config.json
    metrics: ClassVar[tuple[Metric, ...]]  # models are compared by the first, by default
    options: ClassVar[frozenset[str]] = frozenset()  # fields of `TaskConfig` that the user may set for this shape
    loop_defaults: ClassVar[Mapping[str, object]] = {}  # of the training loop
    has_confidence: ClassVar[bool] = True
    confidence_of: ClassVar[Title] = ("", "")  # what a confidence refers to, if not to the whole text
    keeps_head: ClassVar[bool] = True  # a head that was trained for the same labels is not initialised anew
    reads_pairs: ClassVar[bool] = False  # inputs are one text or a pair
    samples_windows: ClassVar[bool] = False  # training may read some windows of a text instead of all
    labels_whole_texts: ClassVar[bool] = False  # labels are classes of the whole text
    compares_by_label: ClassVar[bool] = False  # scores hold class numbers: comparing runs needs the same label order
    errors: ClassVar[ErrorTableFormat] = ErrorTableFormat()
    abstained_help: ClassVar[str] = "below a confidence of {}: no prediction"

    temperature = 1.0  # logits are divided by it, for calibrated confidence

    def __init__(self, model: Model, config: TaskConfig) -> None:
        super().__init__()
        self.model = model
        self.labels = config.labels

    # ------------------------------------------------------------------ to be implemented by each shape

    def features(self, examples: Sequence[Example], windows: SlidingWindows) -> list[Features]:
        """Examples as windows of tokens."""
        raise NotImplementedError

    def loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        raise NotImplementedError

    def decode(self, outputs: Outputs, features: Features, example: Example) -> PredictionT:
        """The prediction from the logits of an example."""
        raise NotImplementedError

    def score(self, prediction: PredictionT, answer: Answer, texts: tuple[str, ...]) -> Score:
        raise NotImplementedError

    def metric_values(self, scores: Floats) -> MetricValues:
        """Metrics from the scores of many examples, one per row; NaN where undefined."""
        raise NotImplementedError

    def class_logits(self, outputs: Outputs, features: Features) -> Array:
        """Logits over classes, (R, C): one row for the text, or for each of its words or classes."""
        raise NotImplementedError

    def example_logits(self, outputs: Outputs, features: Features) -> Array:
        """The logits of an input, before temperature, thresholds and Viterbi decoding."""
        raise NotImplementedError

    def targets(self, features: Features) -> Numbers:
        """The correct class of each row of `class_logits`, (R,)."""
        raise NotImplementedError

    # ------------------------------------------------------------------ to be overridden where needed

    @classmethod
    def describe(cls, data: TaskData, labels: tuple[str, ...]) -> dict[str, object]:
        """Fields of `TaskConfig` that are determined by the examples."""
        return {}

    @classmethod
    def fits_problem_type(cls, problem_type: str | None, n_labels: int) -> bool:
        """Whether a model with this shape's head, fine-tuned elsewhere, is of this shape."""
        return True

    @classmethod
    def head_labels(cls, config: TaskConfig) -> tuple[str, ...]:
        """The classes of the head. Without labels the default ones, not those of an earlier task of the model."""
        return config.labels or HeadConfig().labels

    @classmethod
    def metrics_for(cls, labels: Sequence[str]) -> tuple[Metric, ...]:
        return cls.metrics

    def fit(self, train: Sequence[Example]) -> None:
        """Set what the loss needs from the training examples, such as class weights."""

    def tune(
        self, outputs: Sequence[Outputs], features: Sequence[Features], examples: Sequence[Example]
    ) -> dict[str, float]:
        """Choose parameters on dev, beside the temperature, and set them; returns them as fields of `TaskArtifact`."""
        return {}

    def learned(self, train: Sequence[Example]) -> dict[str, object]:
        """Fields of `TaskArtifact` that the training examples determine."""
        return {}

    def restore(self, artifact: TaskArtifact) -> None:
        """Set what was learned, and the parameters that were chosen on dev."""
        self.temperature = 1.0 if artifact.temperature_in_head else artifact.temperature

    def calibration_loss(
        self,
        outputs: Sequence[Outputs],
        predictions: Sequence[PredictionT],
        features: Sequence[Features],
        examples: Sequence[Example],
    ) -> CalibrationLoss:
        """The negative log-likelihood of the correct answers, as a function of the temperature."""
        probabilities = pad_columns([self.probabilities(*pair) for pair in zip(outputs, features, strict=True)])
        return class_calibration_loss(probabilities, np.concatenate([self.targets(item) for item in features]))

    def baseline(self, train: Sequence[Example]) -> Callable[[Features], Outputs] | None:
        """The logits of a model that does not read its input and knows how frequent the answers of train are; None:
        this shape has no such answer."""
        return None

    def resampled_metrics(self, scores: Floats) -> Callable[[Floats], MetricValues]:
        """The metrics of resamples of these scores."""
        return self.metric_values

    def exported(self, config: TaskConfig) -> tuple[Model, TaskConfig]:
        """The model to save, whose logits are in the user's units as far as possible, and the config of what remains to
        be done to them."""
        return self.model, config

    def shown_texts(self, example: Example) -> tuple[str, ...]:
        """The texts of an example for display."""
        return example.texts

    @property
    def confusion_labels(self) -> tuple[str, ...]:
        """The classes of a confusion matrix; if there are any, a score's first two values are the target class and the
        predicted one."""
        return ()

    # ------------------------------------------------------------------ the same for all shapes

    def probabilities(self, outputs: Outputs, features: Features) -> Array:
        """Calibrated probabilities of the classes, (R, C)."""
        return softmax(self.class_logits(outputs, features) / self.temperature)

    @torch.no_grad()
    def scale_logits(self, factor: float) -> None:
        """Multiply the weights of the head: its logits are from now on `factor` times as large."""
        out = cast(ClassHead, self.model.heads[self.head]).out
        out.weight.mul_(factor)
        if out.bias is not None:
            out.bias.mul_(factor)

    def move_temperature_to_head(self, artifact: TaskArtifact) -> TaskArtifact:
        """Divide the weights of the head by the temperature: the softmax of other libraries is calibrated then, too.
        Returns the artifact for these weights."""
        if self.temperature == 1.0:
            return artifact
        self.scale_logits(1 / self.temperature)
        self.temperature = 1.0
        return artifact.model_copy(update={"temperature_in_head": True})

    def decode_all(
        self, outputs: Sequence[Outputs], features: Sequence[Features], examples: Sequence[Example]
    ) -> list[PredictionT]:
        return [self.decode(*item) for item in zip(outputs, features, examples, strict=True)]

    def scores(self, predictions: Sequence[PredictionT], examples: Sequence[Example]) -> list[Score]:
        return [
            self.score(prediction, example.answer, example.texts)
            for prediction, example in zip(predictions, examples, strict=True)
        ]

    def forward(self, batch: TaskBatch) -> Loss:
        return self.loss(self.logits(batch), batch)

    def logits(self, batch: TaskBatch) -> Tensor:
        """Logits at the positions that the head reads, (M, C)."""
        return self.model.read(self.head, self.states(batch))

    def states(self, batch: TaskBatch) -> Tensor:
        """States at the positions that the head reads, (M, hidden). The last layer is computed for these alone."""
        # A model with one segment separates two texts by special tokens only.
        segments = self.tensor(batch.segments) if self.model.config.encoder.n_segments != 1 else None
        tokens = Tokens.ragged(self.tensor(batch.ids), batch.lengths.tolist(), segments)
        return self.model.encoder.states_at(tokens, self.tensor(batch.positions), batch.n_positions.tolist())

    @property
    def device(self) -> torch.device:
        return self.model.encoder.device

    def tensor(self, values: Array) -> Tensor:
        return torch.from_numpy(values).to(self.device, non_blocking=True)


def score_table(scores: Sequence[Score]) -> Floats:
    """The values of each score, one example per row."""
    return np.array([score.values for score in scores], np.float64)


def pad_rows(logits: Tensor, sizes: Numbers) -> Tensor:
    """Logits of rows of these sizes, one after the other, as a padded matrix; padding has probability 0."""
    rows = torch.split(logits, sizes.tolist())
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=-torch.inf)


def pad_columns(tables: Sequence[Array]) -> Array:
    """Tables of probabilities with different numbers of columns, concatenated by rows and padded with 0."""
    width = max(table.shape[1] for table in tables)
    return np.concatenate([np.pad(table, ((0, 0), (0, width - table.shape[1]))) for table in tables])


def constant_outputs(logits: Array) -> Callable[[Features], Outputs]:
    """The same logits (C,) at every position that the head reads."""
    return lambda item: [np.tile(logits, (len(window.positions), 1)) for window in item.windows]


def log_frequencies(classes: Numbers, n_classes: int) -> Array:
    """(C,), as if each class had been seen half a time more."""
    counts = np.bincount(classes, minlength=n_classes) + 0.5
    frequencies: Array = np.log(counts / counts.sum())
    return frequencies


def softmax(logits: Array, axis: int = -1) -> Array:
    exponentials = np.exp(logits - logits.max(axis, keepdims=True))
    probabilities: Array = exponentials / exponentials.sum(axis, keepdims=True)
    return probabilities
