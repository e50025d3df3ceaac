"""Any number of classes for a text, or for two that are read together; each class is decided for itself."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

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
from bertworks.tasks.task import Outputs, Prediction, Score

SET, UNSET = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")  # in a column for one class
SEPARATORS = "|;,"  # between the classes of a cell; the first of these that is no slip: commas are in names, too
STRAY = 0.1  # as often as the usual one: less is a slip


@dataclass(frozen=True)
class MultilabelPrediction(Prediction):
    labels: list[str]
    scores: dict[str, float]
    undecided: list[str] = field(default_factory=list)  # not confident enough whether they belong there or not

    @property
    def abstained(self) -> bool:
        return bool(self.undecided)

    def abstain_below(self, confidence: float) -> MultilabelPrediction:
        undecided = [label for label, score in self.scores.items() if max(score, 1 - score) < confidence]
        return replace(self, labels=[label for label in self.labels if label not in undecided], undecided=undecided)

    def cells(self) -> dict[str, Any]:
        return {"labels": ", ".join(self.labels), "undecided": ", ".join(self.undecided)}


class MultilabelSchema(Schema):
    shape = "multilabel"
    takes_several_labels = True
    label_names = ("labels", "tags")
    table_help = (
        ("multilabel", "text, labels; or a column of 0 and 1 for each class", "the bill is wrong, money|complaint"),
    )

    def legacy_named_columns(self, text: str | None, pair: Sequence[str], label: str | None) -> NamedColumns:
        """Columns of several classes were one string."""
        return (
            super()
            .legacy_named_columns(text, pair, None)
            .model_copy(update={"label": tuple(label.split(",")) if label else ()})
        )

    def label_columns(self, table: TableSample) -> tuple[str, ...]:
        named = table.find((*self.label_names, *LABEL_NAMES))
        return (named,) if named is not None else self._flags(table) or super().label_columns(table)

    def _flags(self, table: TableSample) -> tuple[str, ...]:
        """Columns with nothing but 0 and 1 in them, or the like, if there are several: one for each class."""
        flags = [
            name
            for name in table.columns
            if {str(row.get(name)).strip().lower() for row in table.rows} <= {*SET, *UNSET}
        ]
        return tuple(flags) if len(flags) > 1 else ()

    def label_format(self, rows: Sequence[Row], columns: Columns) -> Columns:
        """What separates the classes of a cell; nothing, where each class has a column, or cells hold lists or one
        class."""
        if len(columns.labels) > 1:
            return columns
        values = (row.get(columns.labels[0]) for row in rows)
        cells = [value for value in values if isinstance(value, str) and isinstance(parse_list(value), str)]
        counts = {separator: sum(separator in cell for cell in cells) for separator in SEPARATORS}
        most = max(counts.values())
        return replace(
            columns, separator=next((one for one, count in counts.items() if count and count >= STRAY * most), None)
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
        if isinstance(value, list) and all(isinstance(one, str | int) for one in value):
            if len(set(value)) < len(value):
                raise InvalidRow(
                    f"{str(value)[:60]}: the names of its classes are expected, each once", "repeated-label"
                )
            return tuple(name for one in value if (name := str(one)).strip())
        raise InvalidRow("labels that are neither a list nor names with a separator", "bad-label")

    def check_learnable(
        self, train: Sequence[Example], labels: Set[str], n_rows: int, *, place: str | None, first: int | None
    ) -> None:
        if not labels:
            raise BadText(
                "no row has a label",
                place=place,
                remedy="is it the right column? --label names another",
                code="no-labels",
            )


def _is_set(value: Any, name: str) -> bool:
    written = str(value).strip().lower()
    if written in SET:
        return True
    if written in (*UNSET, ""):
        return False
    raise InvalidRow(f"{value!r} in column {name!r}, where 0 or 1 is expected", "not-a-flag")


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
        rows, targets = self.mean_of_windows(logits, batch), self.tensor(batch.targets)
        total = F.binary_cross_entropy_with_logits(rows, targets, reduction="sum")
        n_right = ((rows.detach() > 0) == (targets > 0)).sum()
        return Term("multilabel", total), accuracy("multilabel", n_right)

    def decode(self, outputs: Outputs, features: Features, example: Example) -> MultilabelPrediction:
        scores = dict(zip(self.labels, map(float, self.probabilities(outputs, features)[:, 1]), strict=True))
        return MultilabelPrediction([label for label, score in scores.items() if score > 0.5], scores)

    def class_logits(self, outputs: Outputs, features: Features) -> Array:
        """Of each class whether it does not belong there, or does."""
        (logits,) = super().class_logits(outputs, features)
        return np.stack([np.zeros_like(logits), logits], axis=1)

    def targets(self, features: Features) -> Numbers:
        return np.asarray(features.target).astype(np.int64)

    def score(self, prediction: MultilabelPrediction, answer: tuple[str, ...], texts: tuple[str, ...]) -> Score:
        right, predicted = {str(label) for label in answer}, set(prediction.labels)
        wrong = right ^ predicted
        confidence = {label: max(score, 1 - score) for label, score in prediction.scores.items()}
        return Score(
            values=(
                *(float(label in right) for label in self.labels),
                *(float(label in predicted) for label in self.labels),
            ),
            is_wrong=bool(wrong),
            severity=max((confidence[label] for label in confidence if label in wrong), default=0.0),
            expected=", ".join(sorted(right)) or "–",
            predicted=", ".join(prediction.labels) or "–",
            confidences=tuple(
                (confidence[label], (score > 0.5) == (label in right)) for label, score in prediction.scores.items()
            ),
            expected_items=frozenset((label, None) for label in right),
            predicted_items=frozenset((label, None) for label in predicted),
        )

    def metric_values(self, scores: Floats) -> MetricValues:
        truth, predicted = np.split(scores > 0, 2, axis=1)
        return metrics.multilabel_metrics(truth, predicted)
