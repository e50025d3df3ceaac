"""Any number of classes for a text, or for two that are read together; each class is a binary decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from bertworks.data.tables import Row
from bertworks.datasets.columns import LABEL_NAMES, Columns, NamedColumns, TableSample, parse_list
from bertworks.datasets.example import Example, InvalidRow
from bertworks.datasets.schema import Schema
from bertworks.errors import BadText
from bertworks.measure import metrics
from bertworks.measure.metrics import Floats, MetricValues
from bertworks.model.loss import Loss, Term, accuracy
from bertworks.tasks.features import Array, Features, Numbers, TaskBatch
from bertworks.tasks.sequence import SequenceTask
from bertworks.tasks.task import Outputs, Prediction, Score, constant_outputs

# Values in a column for one class.
TRUE_VALUES = ("1", "1.0", "true", "yes")
FALSE_VALUES = ("0", "0.0", "false", "no")
SEPARATORS = "|;,"  # between the classes of a cell, in order of preference: commas also occur in names
MIN_SEPARATOR_SHARE = 0.1  # of the cells with the most frequent separator: a rarer one is a typo


@dataclass(frozen=True)
class MultilabelPrediction(Prediction):
    labels: list[str]
    scores: dict[str, float]
    undecided: list[str] = field(default_factory=list)  # classes whose confidence is too low

    @property
    def abstained(self) -> bool:
        return bool(self.undecided)

    def abstain_below(self, confidence: float) -> MultilabelPrediction:
        undecided = [label for label, score in self.scores.items() if max(score, 1 - score) < confidence]
        return replace(self, labels=[label for label in self.labels if label not in undecided], undecided=undecided)

    def cells(self) -> dict[str, object]:
        scores = {f"score_{label}": score for label, score in self.scores.items()}
        return {"labels": ", ".join(self.labels), "undecided": ", ".join(self.undecided), **scores}

    def shown(self) -> dict[str, object]:
        undecided = {"undecided": f"undecided: {self._with_scores(self.undecided)}"} if self.undecided else {}
        return {"labels": self._with_scores(self.labels) or "none", **undecided}

    def _with_scores(self, labels: Sequence[str]) -> str:
        return ", ".join(f"{label} {self.scores[label]:.2f}" for label in labels)


class MultilabelSchema(Schema):
    shape = "multilabel"
    synonyms = ("multi-label",)
    takes_several_labels = True
    label_names = ("labels", "tags")
    table_help = (
        ("multilabel", "text, labels; or a column of 0 and 1 for each class", "the bill is wrong, money|complaint"),
    )

    def legacy_named_columns(self, text: str | None, pair: Sequence[str], label: str | None) -> NamedColumns:
        """The columns of several classes were one string, with commas."""
        return (
            super()
            .legacy_named_columns(text, pair, None)
            .model_copy(update={"label": tuple(label.split(",")) if label else ()})
        )

    def label_columns(self, table: TableSample) -> tuple[str, ...]:
        named = table.find((*self.label_names, *LABEL_NAMES))
        return (named,) if named is not None else self._binary_columns(table) or super().label_columns(table)

    def _binary_columns(self, table: TableSample) -> tuple[str, ...]:
        """The columns with nothing but 0 and 1, or the like, if there are several: one per class."""
        binary = [
            name
            for name in table.columns
            if {str(row.get(name)).strip().lower() for row in table.rows} <= {*TRUE_VALUES, *FALSE_VALUES}
        ]
        return tuple(binary) if len(binary) > 1 else ()

    def label_format(self, rows: Sequence[Row], columns: Columns) -> Columns:
        """With the separator of the classes in a cell; none where each class has a column, or cells hold lists or one
        class."""
        if len(columns.labels) > 1:
            return columns
        values = (row.get(columns.labels[0]) for row in rows)
        cells = [value for value in values if isinstance(value, str) and isinstance(parse_list(value), str)]
        counts = {separator: sum(separator in cell for cell in cells) for separator in SEPARATORS}
        min_count = max(1, MIN_SEPARATOR_SHARE * max(counts.values()))
        return replace(
            columns, separator=next((separator for separator, count in counts.items() if count >= min_count), None)
        )

    def answer(self, row: Row, texts: tuple[str, ...], columns: Columns) -> tuple[str, ...]:
        if len(columns.labels) > 1:
            return tuple(name for name in columns.labels if _is_set(row[name], name))
        value = row[columns.labels[0]]
        if value is None:
            raise InvalidRow("no labels", "no-label")
        value = parse_list(value)
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(columns.separator or SEPARATORS[-1]) if name.strip())
        if isinstance(value, list) and all(isinstance(label, str | int) for label in value):
            if len(set(value)) < len(value):
                raise InvalidRow(f"{str(value)[:60]}: a label is repeated", "repeated-label")
            return tuple(name for label in value if (name := str(label)).strip())
        raise InvalidRow("labels must be a list, or names with a separator", "bad-label")

    def check_learnable(
        self, train: Sequence[Example], labels: Set[str], n_rows: int, *, place: str | None, max_rows: int | None
    ) -> None:
        if not labels:
            raise BadText(
                "no row has a label",
                place=place,
                remedy="is it the right column? name another with --label",
                code="no-labels",
            )


def _is_set(value: object, name: str) -> bool:
    text = str(value).strip().lower()
    if text in TRUE_VALUES:
        return True
    if text in (*FALSE_VALUES, ""):
        return False
    raise InvalidRow(f"{value!r} in column {name!r}; expected 0 or 1", "not-a-flag")


class Multilabel(SequenceTask[tuple[str, ...], MultilabelPrediction]):
    schema = MultilabelSchema()
    terms = {"multilabel": ("classes", "类别")}
    problem_type = "multi_label_classification"
    metrics = (metrics.F1, metrics.F1_MACRO, metrics.EXACT)
    confidence_of = (" in each class of a text", "（每篇文本的每个类别）")
    labels_whole_texts = compares_by_label = True
    abstained_help = "with classes below a confidence of {}: these are undecided"

    @classmethod
    def fits_problem_type(cls, problem_type: str | None, n_labels: int) -> bool:
        return n_labels > 1 and problem_type == "multi_label_classification"

    def target(self, example: Example) -> Array:
        return np.array([label in (example.answer or ()) for label in self.labels], np.float32)

    def counts(self, batch: TaskBatch) -> dict[str, int]:
        n = batch.targets.size
        return {"multilabel": n, "multilabel_accuracy": n}

    def loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        rows = self.mean_of_windows(logits, batch)
        targets = self.tensor(batch.targets)
        total = F.binary_cross_entropy_with_logits(rows, targets, reduction="sum")
        n_correct = ((rows.detach() > 0) == (targets > 0)).sum()
        return Term("multilabel", total), accuracy("multilabel", n_correct)

    def decode(self, outputs: Outputs, features: Features, example: Example) -> MultilabelPrediction:
        scores = dict(zip(self.labels, map(float, self.probabilities(outputs, features)[:, 1]), strict=True))
        return MultilabelPrediction([label for label, score in scores.items() if score > 0.5], scores)

    def class_logits(self, outputs: Outputs, features: Features) -> Array:
        """One row per class: logits of absent and present."""
        logits = self.example_logits(outputs, features)
        return np.stack([np.zeros_like(logits), logits], axis=1)

    def targets(self, features: Features) -> Numbers:
        return np.asarray(features.target).astype(np.int64)

    def baseline(self, train: Sequence[Example]) -> Callable[[Features], Outputs]:
        n_present = np.sum([self.target(example) for example in train], axis=0)
        return constant_outputs(np.log((n_present + 0.5) / (len(train) - n_present + 0.5)))

    def score(self, prediction: MultilabelPrediction, answer: tuple[str, ...], texts: tuple[str, ...]) -> Score:
        expected = {str(label) for label in answer}
        predicted = set(prediction.labels)
        errors = expected ^ predicted
        confidence = {label: max(score, 1 - score) for label, score in prediction.scores.items()}
        return Score(
            values=(
                *(float(label in expected) for label in self.labels),
                *(float(label in predicted) for label in self.labels),
            ),
            is_wrong=bool(errors),
            severity=max((confidence[label] for label in confidence if label in errors), default=0.0),
            expected=", ".join(sorted(expected)) or "–",
            predicted=", ".join(prediction.labels) or "–",
            confidences=tuple(
                (confidence[label], (score > 0.5) == (label in expected)) for label, score in prediction.scores.items()
            ),
            expected_items=frozenset((label, None) for label in expected),
            predicted_items=frozenset((label, None) for label in predicted),
        )

    def metric_values(self, scores: Floats) -> MetricValues:
        targets, predicted = np.split(scores > 0, 2, axis=1)
        return metrics.multilabel_metrics(targets, predicted)

    def resampled_metrics(self, scores: Floats) -> Callable[[Floats], MetricValues]:
        targets, predicted = np.split(scores > 0, 2, axis=1)
        absent_f1 = metrics.multilabel_f1_by_class(targets, predicted)

        def of_resample(rows: Floats) -> MetricValues:
            targets, predicted = np.split(rows > 0, 2, axis=1)
            return metrics.multilabel_metrics(targets, predicted, absent_f1)

        return of_resample
