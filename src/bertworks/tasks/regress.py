"""A number for a text, or for two that are read together."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertworks.config import TaskConfig
from bertworks.data.tables import Row
from bertworks.datasets.checks import TaskData
from bertworks.datasets.columns import LABEL_NAMES, Columns, TableSample
from bertworks.datasets.example import Example, InvalidRow
from bertworks.datasets.schema import NOTHING_TO_LEARN, Schema
from bertworks.errors import BadText
from bertworks.measure import metrics
from bertworks.measure.metrics import Floats, MetricValues
from bertworks.model.heads import ClassHead
from bertworks.model.loss import Loss, Term
from bertworks.model.model import Model
from bertworks.tasks.features import Array, Features, TaskBatch
from bertworks.tasks.sequence import SequenceTask
from bertworks.tasks.task import ErrorTableFormat, Outputs, Prediction, Score, constant_outputs

MAX_NUMBER = 1e30  # models compute in float32, whose largest number is 3e38
MIN_SPREAD = 1e-30


@dataclass(frozen=True)
class ValuePrediction(Prediction):
    value: float


class RegressSchema(Schema):
    shape = "regress"
    synonyms = ("regression", "similarity")
    label_names = ("score", "rating")
    table_help = (("regress", "text, score", "I loved it, 4.5"),)
    min_dev = 5  # fewer say nothing about a correlation

    def label_columns(self, table: TableSample) -> tuple[str, ...]:
        """A column of numbers, if there is one: a column that is called label may hold words."""
        numeric = table.numeric()
        column = numeric.find((*self.label_names, *LABEL_NAMES)) or numeric.fewest_values_column()
        column = column or next(iter(numeric.columns), None)
        return (column,) if column is not None else super().label_columns(table)

    def answer(self, row: Row, texts: tuple[str, ...], columns: Columns) -> float:
        value: Any = row[columns.labels[0]]
        try:
            number = float(value)
        except (TypeError, ValueError):
            if isinstance(value, str) and "," in value:
                raise InvalidRow(f"{value!r} is not a number; a decimal comma?", "decimal-comma") from None
            raise InvalidRow(f"{value!r} is not a number", "not-a-number") from None
        if not math.isfinite(number):
            raise InvalidRow(f"{value!r} is not a finite number", "not-finite")
        if abs(number) > MAX_NUMBER:
            cause = f"{value!r} is more than {MAX_NUMBER:g}, too much for a model; in a larger unit?"
            raise InvalidRow(cause, "number-too-large")
        return number

    def check_learnable(
        self, train: Sequence[Example], labels: Set[str], n_rows: int, *, place: str | None, max_rows: int | None
    ) -> None:
        numbers = {example.answer for example in train}
        if len(numbers) == 1:
            remedy = f"{NOTHING_TO_LEARN}; is it the right column?"
            raise BadText("all rows have the same number", place=place, remedy=remedy, code="one-number")
        if max(numbers) - min(numbers) < MIN_SPREAD:
            cause = f"the numbers differ by less than {MIN_SPREAD:g}, too little for a model"
            raise BadText(cause, place=place, remedy="use a larger unit for them", code="numbers-too-close")


class Regress(SequenceTask[float, ValuePrediction]):
    """Targets are standardised: (value - `shift`) / `scale`, with the mean and the standard deviation of train."""

    schema = RegressSchema()
    terms = {"square": ("squared error", "平方误差")}
    problem_type = "regression"
    metrics = (metrics.PEARSON_SPEARMAN, metrics.PEARSON, metrics.SPEARMAN, metrics.MAE)
    has_confidence = False
    keeps_head = False  # an earlier head has another shift and scale
    errors = ErrorTableFormat(("The largest errors", "最大的误差"), ("absolute error", "绝对误差"), ".4g")

    def __init__(self, model: Model, config: TaskConfig) -> None:
        super().__init__(model, config)
        self.shift = config.shift
        self.scale = config.scale

    @classmethod
    def describe(cls, data: TaskData, labels: tuple[str, ...]) -> dict[str, object]:
        values = np.array([float(example.answer) for example in data.train])
        return {**super().describe(data, labels), "shift": float(values.mean()), "scale": float(values.std()) or 1.0}

    @classmethod
    def fits_problem_type(cls, problem_type: str | None, n_labels: int) -> bool:
        return n_labels == 1 or problem_type == "regression"

    @classmethod
    def head_labels(cls, config: TaskConfig) -> tuple[str, ...]:
        return ("value",)

    def target(self, example: Example) -> Array:
        value = np.nan if example.answer is None else (float(example.answer) - self.shift) / self.scale
        return np.array(value, np.float32)

    def counts(self, batch: TaskBatch) -> dict[str, int]:
        return {"square": len(batch.targets)}

    def loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        errors = self.mean_of_windows(logits, batch)[:, 0] - self.tensor(batch.targets)
        return (Term("square", errors.square().sum()),)

    def decode(self, outputs: Outputs, features: Features, example: Example) -> ValuePrediction:
        return ValuePrediction(self.class_logits(outputs, features).item() * self.scale + self.shift)

    def baseline(self, train: Sequence[Example]) -> Callable[[Features], Outputs]:
        return constant_outputs(np.array([np.mean([self.target(example) for example in train])]))

    def score(self, prediction: ValuePrediction, answer: float, texts: tuple[str, ...]) -> Score:
        return Score(
            values=(float(answer), prediction.value),
            is_wrong=True,
            severity=abs(prediction.value - answer),
            expected=f"{answer:.4g}",
            predicted=f"{prediction.value:.4g}",
        )

    def metric_values(self, scores: Floats) -> MetricValues:
        return metrics.regression_metrics(scores[:, 0], scores[:, 1])

    @torch.no_grad()
    def exported(self, config: TaskConfig) -> tuple[Model, TaskConfig]:
        model = copy.deepcopy(self.model)
        head = model.heads[self.head]
        assert isinstance(head, ClassHead)
        head.out.weight.mul_(self.scale)
        if head.out.bias is None:  # as in GPT-2: the shift is added to the logits when predicting
            return model, config.model_copy(update={"scale": 1.0})
        head.out.bias.mul_(self.scale).add_(self.shift)
        return model, config.model_copy(update={"scale": 1.0, "shift": 0.0})
