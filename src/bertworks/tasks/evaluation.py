"""Evaluation of a task: metrics with confidence intervals, calibration, errors, and ledgers of long texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np

from bertworks.config import TaskArtifact
from bertworks.datasets.example import Example
from bertworks.measure.calibration import Bin, CalibrationLoss, calibration_error, fit_temperature, reliability
from bertworks.measure.intervals import Interval, intervals, shifted_interval
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
from bertworks.tasks.features import Features, Numbers
from bertworks.tasks.head_inputs import HeadInputs
from bertworks.tasks.inference import AnyTask, Progress, evaluation_mode, no_progress, run_windows
from bertworks.tasks.task import Outputs, Score, score_table
from bertworks.text.ledger import Ledger

CALIBRATION_FOLDS = 5
MAX_ERRORS_SHOWN = 20
MAX_CLASSES_SHOWN = 40  # for a confusion matrix, and for a ledger of each class


@dataclass(frozen=True)
class Calibration:
    """`helps`: whether the fitted temperature is used. Cross-validation decides: each example is judged by a
    temperature that was fitted to others."""

    temperature: float  # fitted
    helps: bool
    error_before: float  # ECE with temperature 1
    error_after: float  # ECE with the fitted temperature, cross-validated
    bins: list[Bin]  # of the confidences that the model has


@dataclass(frozen=True)
class Selection:
    """How the model was chosen: as the best of several evaluations on dev, whose own score is therefore optimistic; or,
    where these read only a part of dev, as the latest that cannot be told from the best."""

    step: int  # of the chosen model
    n_evaluations: int
    sampled_examples: int | None = None  # of dev that the evaluations read, if not all of them
    last: dict[str, float] = field(default_factory=dict)  # metrics of the last evaluation
    cross_fitted: dict[str, float] = field(default_factory=dict)  # metrics corrected for that choice


@dataclass(frozen=True)
class EvalResults:
    """The evaluation of a model on dev."""

    metrics: dict[str, float]
    intervals: dict[str, Interval]
    labels: tuple[str, ...] = ()
    classes: dict[str, ClassCounts] = field(default_factory=dict)
    confusion: list[list[int]] = field(default_factory=list)  # target class, predicted class
    calibration: Calibration | None = None
    tuned: dict[str, float] = field(default_factory=dict)  # other parameters chosen on dev
    selection: Selection | None = None
    baseline: dict[str, float] = field(default_factory=dict)  # metrics without reading the texts
    errors: list[tuple[Example, Score]] = field(default_factory=list)
    # One row per example, from which all metrics are computed.
    example_scores: Floats = field(default_factory=lambda: np.empty((0, 0)))
    head_inputs: Floats | None = None  # of the examples in `scored`, for the report's map: (examples, hidden)
    scored: list[tuple[Example, Score]] = field(default_factory=list)
    ledgers: dict[str, dict[str, Ledger]] = field(default_factory=dict)  # by split and class
    extra_eval: dict[str, EvalResults] = field(default_factory=dict)  # on further splits

    def with_selection(self, selection: Selection, metrics: Mapping[str, Metric]) -> EvalResults:
        """Intervals are around the metrics that are corrected for the choice."""
        shifted = {
            name: shifted_interval(
                interval, selection.cross_fitted.get(name, self.metrics[name]) - self.metrics[name], metrics[name]
            )
            for name, interval in self.intervals.items()
        }
        return replace(self, selection=selection, intervals=shifted)

    def as_dict(self) -> dict[str, object]:
        return {
            "metrics": self.metrics,
            "intervals": self.intervals,
            "labels": self.labels,
            "classes": {name: asdict(counts) for name, counts in self.classes.items()},
            "confusion": self.confusion,
            "calibration": None if self.calibration is None else asdict(self.calibration),
            "selection": None if self.selection is None else asdict(self.selection),
            "baseline": self.baseline,
            "errors": [_error(*error) for error in self.errors],
            "example_scores": self.example_scores.tolist(),
            "extra_eval": {
                name: {"metrics": results.metrics, "intervals": results.intervals}
                for name, results in self.extra_eval.items()
            },
            "ledgers": {
                split: {name: vars(ledger) for name, ledger in ledgers.items()}
                for split, ledgers in self.ledgers.items()
            },
        }


def _error(example: Example, score: Score) -> dict[str, object]:
    return {
        "texts": example.texts,
        "place": example.place,
        "severity": score.severity,
        "expected": score.expected,
        "predicted": score.predicted,
    }


@dataclass(frozen=True)
class SeedSummary:
    """The results of several seeds. Pruned ones are listed, but not part of the means."""

    metrics: dict[int, dict[str, float]]  # of each seed
    pruned: dict[int, dict[str, float]]
    mean: dict[str, float]
    std: dict[str, float]
    intervals: dict[str, Interval]
    best: int
    cross_fitted: dict[str, float] = field(default_factory=dict)  # mean of the metrics corrected for the choice
    last: dict[str, float] = field(default_factory=dict)  # mean of the last evaluations
    extra_eval: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)  # by split and seed

    @property
    def extra_eval_means(self) -> dict[str, dict[str, float]]:
        return {
            split: {name: fmean(values[name] for values in by_seed.values()) for name in self.mean}
            for split, by_seed in self.extra_eval.items()
        }

    def as_dict(self) -> dict[str, object]:
        return dict(vars(self))


def evaluate_task(
    task: AnyTask, features: Sequence[Features], examples: Sequence[Example], progress: Progress = no_progress
) -> EvalResults:
    """Evaluate a task on these examples; nothing is tuned."""
    with evaluation_mode(task):
        outputs = run_windows(task, features, progress)
    return score(task, task.decode_all(outputs, features, examples), examples)


def calibrate_and_score(
    task: AnyTask, features: Sequence[Features], examples: Sequence[Example], artifact: TaskArtifact
) -> tuple[EvalResults, TaskArtifact]:
    """Tune and calibrate the best model on dev and evaluate it; the artifact gets the chosen parameters."""
    head_inputs = HeadInputs.of(task, len(examples))
    with evaluation_mode(task):
        outputs = run_windows(task, features, head_inputs=head_inputs)
    predictions, tuned = tuned_predictions(task, outputs, features, examples)
    calibration = None
    if task.has_confidence:
        calibration = calibrate(task, outputs, features, examples)
        task.temperature = calibration.temperature if calibration.helps else 1.0
        predictions = task.decode_all(outputs, features, examples)
        calibration = replace(calibration, bins=reliability(*_confidences(task, predictions, examples)))
    results = replace(score(task, predictions, examples), calibration=calibration, tuned=tuned)
    if head_inputs is not None:
        members = head_inputs.members.tolist()
        shown = [examples[i] for i in members]
        scores = task.scores([predictions[i] for i in members], shown)
        results = replace(results, head_inputs=head_inputs.vectors, scored=list(zip(shown, scores, strict=True)))
    update = {"temperature": task.temperature, "temperature_in_head": False, **tuned}
    return results, artifact.model_copy(update=update)


def calibrate(
    task: AnyTask, outputs: Sequence[Outputs], features: Sequence[Features], examples: Sequence[Example]
) -> Calibration:
    """A temperature for the task, whose own must be 1, and whether it helps on examples that it was not fitted to: the
    likelihood of the correct answers has to rise, and the calibration error to fall."""

    def subset(members: Numbers) -> tuple[list[Outputs], list[Features], list[Example]]:
        return [outputs[i] for i in members], [features[i] for i in members], [examples[i] for i in members]

    def loss_of(members: Numbers) -> CalibrationLoss:
        part_outputs, part_features, part_examples = subset(members)
        predictions = task.decode_all(part_outputs, part_features, part_examples)
        return task.calibration_loss(part_outputs, predictions, part_features, part_examples)

    all_members = np.arange(len(examples))
    before, is_correct = _confidences(task, task.decode_all(outputs, features, examples), examples)
    temperature = fit_temperature(loss_of(all_members))
    held_out: list[tuple[Floats, Bools]] = []
    gain = 0.0
    for members in folds(len(examples)):
        loss = loss_of(members)
        fitted = fit_temperature(loss_of(np.setdiff1d(all_members, members)))
        gain += loss(1.0) - loss(fitted)
        with temperature_of(task, fitted):
            predictions = task.decode_all(*subset(members))
        held_out.append(_confidences(task, predictions, [examples[i] for i in members]))
    after = calibration_error(*(np.concatenate(parts) for parts in zip(*held_out, strict=True))) if held_out else np.inf
    error_before = calibration_error(before, is_correct)
    return Calibration(temperature, bool(gain > 0 and after < error_before), error_before, float(after), [])


def folds(n_examples: int) -> list[Numbers]:
    """Examples of each fold of a cross-validation; none, if there are too few examples."""
    if n_examples < 2:
        return []
    fold_of = np.random.default_rng(0).permutation(n_examples) % min(CALIBRATION_FOLDS, n_examples)
    return [np.flatnonzero(fold_of == fold) for fold in range(int(fold_of.max()) + 1)]


@contextmanager
def temperature_of(task: AnyTask, temperature: float) -> Iterator[None]:
    before = task.temperature
    task.temperature = temperature
    try:
        yield
    finally:
        task.temperature = before


def baseline_metrics(
    task: AnyTask, train: Sequence[Example], features: Sequence[Features], examples: Sequence[Example]
) -> dict[str, float]:
    """The metrics of a model that does not read the texts; empty where a shape has no such prediction."""
    outputs_for = task.baseline(train)
    if outputs_for is None:
        return {}
    return metric_values(task, task.decode_all([outputs_for(item) for item in features], features, examples), examples)


def tuned_predictions(
    task: AnyTask, outputs: Sequence[Outputs], features: Sequence[Features], examples: Sequence[Example]
) -> tuple[list[Any], dict[str, float]]:
    """Predictions with parameters that are tuned on these examples, such as the threshold of "no answer"."""
    tuned = task.tune(outputs, features, examples)
    return task.decode_all(outputs, features, examples), tuned


def metrics_of(task: AnyTask) -> dict[str, Metric]:
    """By name."""
    return {metric.name: metric for metric in task.metrics}


def metric_values(task: AnyTask, predictions: Sequence[object], examples: Sequence[Example]) -> MetricValues:
    """Metrics without intervals, which are slow to compute."""
    return nan_to_zero(task.metric_values(score_table(task.scores(predictions, examples))))


def score(task: AnyTask, predictions: Sequence[object], examples: Sequence[Example]) -> EvalResults:
    """Metrics, intervals and errors of predictions."""
    scores = task.scores(predictions, examples)
    table = score_table(scores)
    by_severity = sorted(range(len(scores)), key=lambda i: -scores[i].severity)
    errors = [(examples[i], scores[i]) for i in by_severity if scores[i].is_wrong][:MAX_ERRORS_SHOWN]
    labels = task.confusion_labels
    return EvalResults(
        metrics=nan_to_zero(task.metric_values(table)),
        intervals=intervals(task.metric_values, metrics_of(task), [table], task.resampled_metrics),
        labels=labels,
        classes=count_classes((item.expected_items, item.predicted_items) for item in scores),
        confusion=confusion(table[:, 0], table[:, 1], len(labels)).tolist()
        if 0 < len(labels) <= MAX_CLASSES_SHOWN
        else [],
        errors=errors,
        example_scores=table,
    )


def _confidences(task: AnyTask, predictions: Sequence[object], examples: Sequence[Example]) -> tuple[Floats, Bools]:
    """All confidences, and whether each prediction is correct."""
    pairs = np.array([pair for item in task.scores(predictions, examples) for pair in item.confidences])
    return pairs[:, 0], pairs[:, 1] > 0


def count_tokens(task: AnyTask, features: Sequence[Features], examples: Sequence[Example]) -> dict[str, Ledger]:
    """Ledgers of long texts: of all examples (""), and of each class where there are few."""
    ledgers: dict[str, Ledger] = {"": Ledger()}
    by_class = task.labels_whole_texts and len(task.labels) <= MAX_CLASSES_SHOWN
    for item, example in zip(features, examples, strict=True):
        for name in ("", *(example.labels if by_class else ())):
            item.add_to_ledger(ledgers.setdefault(name, Ledger()))
    return ledgers
