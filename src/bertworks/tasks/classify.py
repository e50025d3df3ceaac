"""One of several classes for a text, or for two that are read together (Devlin et al. 2019, section 4.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertworks.config import TaskConfig
from bertworks.data.tables import Row
from bertworks.datasets.checks import as_number
from bertworks.datasets.columns import Columns, is_missing
from bertworks.datasets.example import Example, InvalidRow
from bertworks.datasets.schema import Schema, one_label_error
from bertworks.errors import BadText, Remark, with_article
from bertworks.measure import metrics
from bertworks.measure.metrics import Floats, MetricValues
from bertworks.model.loss import Loss, Term, accuracy
from bertworks.model.model import Model
from bertworks.tasks.features import Array, Features, Numbers, TaskBatch
from bertworks.tasks.sequence import SequenceTask
from bertworks.tasks.task import Outputs, Prediction, Score, constant_outputs, log_frequencies

MANY_NUMERIC_LABELS = 12  # from there on they are probably a quantity, not classes


@dataclass(frozen=True)
class ClassPrediction(Prediction):
    label: str | None  # as text, also where labels were numbers or booleans; None: not confident enough
    confidence: float
    scores: dict[str, float]

    @property
    def abstained(self) -> bool:
        return self.label is None

    def abstain_below(self, confidence: float) -> ClassPrediction:
        return self if self.confidence >= confidence else replace(self, label=None)


class ClassifySchema(Schema):
    shape = "classify"
    synonyms = ("text-classification", "sentiment", "sequence-classification")
    table_help = (
        ("classify", "text, label", "I loved it, good"),
        ("pair", "sentence1, sentence2, label", "A man sleeps., Someone rests., yes"),
    )

    def answer(self, row: Row, texts: tuple[str, ...], columns: Columns) -> str:
        value: object = row[columns.labels[0]]
        if is_missing(value):
            raise InvalidRow("no label", "no-label")
        if not isinstance(value, str | int | float | bool):
            raise InvalidRow(f"a label that is {with_article(type(value).__name__)}", "bad-label")
        name = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
        if columns.label_map and name not in columns.label_map:
            raise InvalidRow(f"label {name!r}; expected: {', '.join(columns.label_map)}", "unknown-label")
        return columns.label_map.get(name, name)

    def check_labels(self, labels: Set[str], n_rows: int, *, place: str | None) -> None:
        if len(labels) > max(2, n_rows / 2):
            cause = f"{len(labels):,} different labels in {n_rows:,} rows"
            remedy = "is it the right column? for numbers: regress"
            raise BadText(cause, place=place, remedy=remedy, code="too-many-labels")

    def check_learnable(
        self, train: Sequence[Example], labels: Set[str], n_rows: int, *, place: str | None, max_rows: int | None
    ) -> None:
        if len(labels) < 2:
            raise one_label_error(labels, n_rows, place=place, max_rows=max_rows)

    def data_remarks(self, train: Sequence[Example], dev: Sequence[Example], labels: Set[str]) -> list[Remark]:
        """A remark on labels that look like a quantity."""
        if len(labels) < MANY_NUMERIC_LABELS or not all(map(as_number, labels)):
            return []
        text = (
            f"the {len(labels):,} labels are numbers, but are learned as classes without an order; "
            "`finetune regress` predicts numbers"
        )
        chinese = f"{len(labels):,} 个标签都是数字，但按无序的类别学习；预测数值请用 `finetune regress`"
        return [Remark("number-labels", text, chinese)]

    def stratum(self, example: Example) -> str:
        return str(example.answer)


class Classify(SequenceTask[str, ClassPrediction]):
    schema = ClassifySchema()
    terms = {"class": ("classes", "类别")}
    problem_type = "single_label_classification"
    metrics = (metrics.ACCURACY, metrics.F1, metrics.MATTHEWS)
    options = frozenset({"class_weights", "label_smoothing"})
    labels_whole_texts = compares_by_label = True
    weights: Tensor | None

    def __init__(self, model: Model, config: TaskConfig) -> None:
        super().__init__(model, config)
        self.label_smoothing = config.label_smoothing
        self.balanced = config.class_weights == "balanced"
        self.register_buffer("weights", None, persistent=False)

    @classmethod
    def fits_problem_type(cls, problem_type: str | None, n_labels: int) -> bool:
        return n_labels > 1 and problem_type != "multi_label_classification" and problem_type != "regression"

    def fit(self, train: Sequence[Example]) -> None:
        """Balanced class weights: all classes have the same total weight, and the mean over examples is 1."""
        if self.balanced:
            counts = Counter(str(example.answer) for example in train)
            weights = [
                len(train) / (len(self.labels) * counts[label]) if counts[label] else 0.0 for label in self.labels
            ]
            self.weights = torch.tensor(weights)

    def target(self, example: Example) -> Array:
        return np.array(self.labels.index(str(example.answer)) if example.answer is not None else -1)

    def counts(self, batch: TaskBatch) -> dict[str, int]:
        return {"class": len(batch.targets), "class_accuracy": len(batch.targets)}

    def loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        rows = self.mean_of_windows(logits, batch)
        targets = self.tensor(batch.targets)
        weights, smoothing = (self.weights, self.label_smoothing) if self.training else (None, 0.0)
        total = F.cross_entropy(rows, targets, weights, reduction="sum", label_smoothing=smoothing)
        return Term("class", total), accuracy("class", (rows.detach().argmax(1) == targets).sum())

    def decode(self, outputs: Outputs, features: Features, example: Example) -> ClassPrediction:
        (scores,) = self.probabilities(outputs, features)
        best = int(scores.argmax())
        return ClassPrediction(
            self.labels[best], float(scores[best]), dict(zip(self.labels, map(float, scores), strict=True))
        )

    def targets(self, features: Features) -> Numbers:
        return np.array([features.target])

    def baseline(self, train: Sequence[Example]) -> Callable[[Features], Outputs]:
        classes = np.array([self.target(example) for example in train])
        return constant_outputs(log_frequencies(classes, len(self.labels)))

    def score(self, prediction: ClassPrediction, answer: str, texts: tuple[str, ...]) -> Score:
        label = str(prediction.label)
        return Score(
            values=(self.labels.index(answer), self.labels.index(label)),
            is_wrong=label != answer,
            severity=prediction.confidence,
            expected=answer,
            predicted=label,
            confidences=((prediction.confidence, label == answer),),
            expected_items=frozenset({(answer, None)}),
            predicted_items=frozenset({(label, None)}),
        )

    def metric_values(self, scores: Floats) -> MetricValues:
        return metrics.class_metrics(scores[:, 0], scores[:, 1], len(self.labels))

    def resampled_metrics(self, scores: Floats) -> Callable[[Floats], MetricValues]:
        n_classes = len(self.labels)
        absent_f1 = metrics.f1_by_class(scores[:, 0], scores[:, 1], n_classes)
        return lambda rows: metrics.class_metrics(rows[:, 0], rows[:, 1], n_classes, absent_f1)

    @property
    def confusion_labels(self) -> tuple[str, ...]:
        return self.labels
