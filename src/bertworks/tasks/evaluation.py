"""How good a task's predictions are: metrics with their intervals, calibration, errors, and what became of long
texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np

from bertworks.config import TaskArtifact
from bertworks.datasets.example import Example
from bertworks.measure.calibration import Bin, calibration_error, fit_temperature, reliability
from bertworks.measure.intervals import Interval, intervals
from bertworks.measure.metrics import (
    Bools,
    ClassCounts,
    Floats,
    Metric,
    MetricValues,
    confusion,
    count_classes,
    nan_to_zero,
)
from bertworks.tasks.features import Features
from bertworks.tasks.inference import AnyTask, Progress, evaluation_mode, no_progress, run_windows
from bertworks.tasks.task import Outputs, Score, score_table
from bertworks.text.ledger import Ledger

ERRORS_SHOWN = 20
FEW_CLASSES = 40  # each shown against each, and with a ledger of its own


@dataclass(frozen=True)
class Calibration:
    temperature: float
    error_before: float  # ECE
    error_after: float
    bins: list[Bin]


@dataclass(frozen=True)
class EvalResults:
    """On dev."""

    metrics: dict[str, float]
    intervals: dict[str, Interval]
    labels: tuple[str, ...] = ()
    classes: dict[str, ClassCounts] = field(default_factory=dict)
    confusion: list[list[int]] = field(default_factory=list)  # of few classes: right class, predicted class
    calibration: Calibration | None = None
    tuned: dict[str, float] = field(default_factory=dict)  # what else was chosen on dev
    errors: list[tuple[Example, Score]] = field(default_factory=list)
    example_scores: Floats = field(
        default_factory=lambda: np.empty((0, 0))
    )  # one row each, from which all metrics follow
    ledgers: dict[str, dict[str, Ledger]] = field(default_factory=dict)  # split, class
    extra_eval: dict[str, EvalResults] = field(default_factory=dict)  # on further examples

    def as_dict(self) -> dict[str, Any]:
        return {
            "metrics": self.metrics,
            "intervals": self.intervals,
            "labels": self.labels,
            "classes": {name: asdict(counts) for name, counts in self.classes.items()},
            "confusion": self.confusion,
            "calibration": None if self.calibration is None else asdict(self.calibration),
            "errors": [_error(*error) for error in self.errors],
            "example_scores": self.example_scores.tolist(),
            "extra_eval": {
                name: {"metrics": one.metrics, "intervals": one.intervals} for name, one in self.extra_eval.items()
            },
            "ledgers": {
                split: {name: vars(ledger) for name, ledger in ledgers.items()}
                for split, ledgers in self.ledgers.items()
            },
        }


def _error(example: Example, score: Score) -> dict[str, Any]:
    shown = {"severity": score.severity, "expected": score.expected, "predicted": score.predicted}
    return {"texts": example.texts, "place": example.place, **shown}


@dataclass(frozen=True)
class SeedSummary:
    """What several seeds came to. Those that were pruned are named, but not counted."""

    metrics: dict[int, dict[str, float]]  # of each seed
    pruned: dict[int, dict[str, float]]
    mean: dict[str, float]
    std: dict[str, float]
    intervals: dict[str, Interval]
    best: int
    extra_eval: dict[str, dict[int, dict[str, float]]] = field(
        default_factory=dict
    )  # on further examples: of each seed

    @property
    def extra_eval_means(self) -> dict[str, dict[str, float]]:
        return {
            split: {name: fmean(one[name] for one in each.values()) for name in self.mean}
            for split, each in self.extra_eval.items()
        }

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def evaluate_task(
    task: AnyTask, features: Sequence[Features], examples: Sequence[Example], progress: Progress = no_progress
) -> EvalResults:
    """A task as it is, on these examples."""
    with evaluation_mode(task):
        outputs = run_windows(task, features, progress)
    return score(task, task.decode_all(outputs, features, examples), examples)


def calibrate_and_score(
    task: AnyTask, features: Sequence[Features], examples: Sequence[Example], artifact: TaskArtifact
) -> tuple[EvalResults, TaskArtifact]:
    """The best model on dev, and what it should know about itself."""
    with evaluation_mode(task):
        outputs = run_windows(task, features)
    predictions, tuned = tuned_predictions(task, outputs, features, examples)
    calibration = None
    if task.has_confidence:
        task.temperature = fit_temperature(task.calibration_loss(outputs, predictions, features, examples))
        calibrated = task.decode_all(outputs, features, examples)
        calibration = _calibration(task, predictions, calibrated, examples)
        predictions = calibrated
    results = replace(score(task, predictions, examples), calibration=calibration, tuned=tuned)
    return results, artifact.model_copy(update={"temperature": task.temperature, **tuned})


def tuned_predictions(
    task: AnyTask, outputs: Sequence[Outputs], features: Sequence[Features], examples: Sequence[Example]
) -> tuple[list[Any], dict[str, float]]:
    """With what is best chosen on these examples, such as from where on a model that may be silent is silent."""
    tuned = task.tune(outputs, features, examples)
    return task.decode_all(outputs, features, examples), tuned


def metrics_of(task: AnyTask) -> dict[str, Metric]:
    return {metric.name: metric for metric in task.metrics}


def metric_values(task: AnyTask, predictions: Sequence[Any], examples: Sequence[Example]) -> MetricValues:
    """Without intervals, which take their time."""
    return nan_to_zero(task.metric_values(score_table(task.scores(predictions, examples))))


def score(task: AnyTask, predictions: Sequence[Any], examples: Sequence[Example]) -> EvalResults:
    """What predictions are worth."""
    scores = task.scores(predictions, examples)
    table = score_table(scores)
    order = sorted(range(len(scores)), key=lambda at: -scores[at].severity)
    errors = [(examples[at], scores[at]) for at in order if scores[at].is_wrong][:ERRORS_SHOWN]
    labels = task.confusion_labels
    return EvalResults(
        metrics=nan_to_zero(task.metric_values(table)),
        intervals=intervals(task.metric_values, metrics_of(task), [table]),
        labels=labels,
        classes=count_classes((one.expected_items, one.predicted_items) for one in scores),
        confusion=confusion(table[:, 0], table[:, 1], len(labels)).tolist() if 0 < len(labels) <= FEW_CLASSES else [],
        errors=errors,
        example_scores=table,
    )


def _calibration(
    task: AnyTask, before: Sequence[Any], after: Sequence[Any], examples: Sequence[Example]
) -> Calibration:
    (uncalibrated, _), (confidences, right) = (
        _confidences(task, predictions, examples) for predictions in (before, after)
    )
    errors = calibration_error(uncalibrated, right), calibration_error(confidences, right)
    return Calibration(task.temperature, *errors, reliability(confidences, right))


def _confidences(task: AnyTask, predictions: Sequence[Any], examples: Sequence[Example]) -> tuple[Floats, Bools]:
    pairs = np.array([pair for one in task.scores(predictions, examples) for pair in one.confidences])
    return pairs[:, 0], pairs[:, 1] > 0


def count_tokens(task: AnyTask, features: Sequence[Features], examples: Sequence[Example]) -> dict[str, Ledger]:
    """What became of long texts: of all, and of each class where there are few."""
    found: dict[str, Ledger] = {"": Ledger()}
    has_few = task.labels_whole_texts and len(task.labels) <= FEW_CLASSES
    for one, example in zip(features, examples, strict=True):
        for name in ("", *(example.labels if has_few else ())):
            one.add_to_ledger(found.setdefault(name, Ledger()))
    return found
