"""What came of a fine-tuning: the best model looked at once more on dev, its confidence put right, and all of it written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from bertworks.config import LearnedConfig
from bertworks.errors import Remark
from bertworks.model.locate import RUN
from bertworks.tasks.calibration import Bin, calibration_error, fit_temperature, reliability
from bertworks.tasks.chances import Interval, intervals
from bertworks.tasks.example import Example, Features
from bertworks.tasks.metrics import Counts, Flags, Floats, confusion, settled
from bertworks.tasks.sequence import Classify, Multilabel
from bertworks.tasks.span import Answered, SpanTask
from bertworks.tasks.task import Outputs, Task, Verdict
from bertworks.tasks.windows import Reader
from bertworks.text.ledger import Ledger
from bertworks.train.log import METRICS, read_events

RESULTS = "results.json"
SHOWN = 20  # errors
FEW_CLASSES = 40  # each shown against each, and with a ledger of its own


def unfinished(run: Path) -> list[Remark]:
    """What is to be said of answers, if a run has not come to its end."""
    if not (run / RUN).is_file() or (run / RESULTS).is_file():
        return []
    looked = any(event["kind"] == "held out" and event["step"] for event in read_events(run / METRICS))
    said = "these are answers of its best look so far" if looked else "and has not been looked at yet: its model may know nothing"
    text = f"this run has not come to its end, {said}; `bertworks resume {run}` goes on with it"
    return [Remark("unfinished-run" if looked else "unfinished-run-not-evaluated", text)]


@dataclass(frozen=True)
class Calibration:
    temperature: float
    error_before: float  # ECE
    error_after: float
    bins: list[Bin]


@dataclass(frozen=True)
class Results:
    """On dev."""

    measures: dict[str, float]
    intervals: dict[str, Interval]
    labels: tuple[str, ...] = ()
    classes: dict[str, Counts] = field(default_factory=dict)
    confusion: list[list[int]] = field(default_factory=list)  # of few classes: right class, class said
    calibration: Calibration | None = None
    no_answer: float | None = None  # span: the threshold that was found
    errors: list[tuple[Example, Verdict]] = field(default_factory=list)
    evidence: Floats = field(default_factory=lambda: np.empty((0, 0)))  # of each example, from which all measures follow
    ledgers: dict[str, dict[str, Ledger]] = field(default_factory=dict)  # split, class
    others: dict[str, Results] = field(default_factory=dict)  # on further examples

    def as_dict(self) -> dict[str, Any]:
        calibration = self.calibration
        return {
            "measures": self.measures,
            "intervals": self.intervals,
            "labels": self.labels,
            "classes": {name: vars(counts) for name, counts in self.classes.items()},
            "confusion": self.confusion,
            "calibration": None if calibration is None else {**vars(calibration), "bins": [vars(one) for one in calibration.bins]},
            "errors": [{"texts": example.texts, "place": example.place, **vars(verdict)} for example, verdict in self.errors],
            "evidence": self.evidence.tolist(),
            "others": {name: {"measures": other.measures, "intervals": other.intervals} for name, other in self.others.items()},
            "ledgers": {split: {name: vars(ledger) for name, ledger in ledgers.items()} for split, ledgers in self.ledgers.items()},
        }


@dataclass(frozen=True)
class OverSeeds:
    """What several seeds came to. Those that were given up early are named, but not counted."""

    measures: dict[int, dict[str, float]]  # of each seed
    given_up: dict[int, dict[str, float]]
    mean: dict[str, float]
    deviation: dict[str, float]
    intervals: dict[str, Interval]
    best: int
    others: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)  # on further examples: of each seed

    @property
    def other_means(self) -> dict[str, dict[str, float]]:
        return {split: {name: fmean(one[name] for one in each.values()) for name in self.mean} for split, each in self.others.items()}

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def judge(task: Task, features: list[Features], examples: list[Example]) -> tuple[Results, LearnedChanges]:
    """The best model on dev, and what it should know about itself."""
    outputs = task.outputs(features)
    predictions, no_answer = answers(task, outputs, features, examples)
    calibration = None
    if task.confident:
        task.temperature = fit_temperature(task.cost(outputs, predictions, features, examples))
        calmed = task.decode_all(outputs, features, examples)
        calibration = _calibration(task, predictions, calmed, examples)
        predictions = calmed
    changes = LearnedChanges(task.temperature, no_answer)
    return replace(look(task, predictions, examples), calibration=calibration, no_answer=no_answer), changes


def answers(
    task: Task, outputs: Sequence[Outputs], features: Sequence[Features], examples: Sequence[Example]
) -> tuple[list[Any], float | None]:
    """What a model says; if it may be silent, from where on it is best silent, which it keeps to."""
    predictions = task.decode_all(outputs, features, examples)
    if not isinstance(task, SpanTask) or task.no_answer == float("inf"):
        return predictions, None
    task.no_answer = best_threshold(task, predictions, examples)
    return task.decode_all(outputs, features, examples), task.no_answer


def look(task: Task, predictions: list[Any], examples: list[Example]) -> Results:
    """What answers are worth."""
    rows = task.rows(predictions, examples)
    verdicts = sorted(
        ((task.verdict(said, example), at) for at, (said, example) in enumerate(zip(predictions, examples, strict=True))),
        key=lambda pair: -pair[0].sure,
    )
    errors = [(examples[at], verdict) for verdict, at in verdicts if verdict.wrong][:SHOWN]
    labels: tuple[str, ...] = task.labels if isinstance(task, Classify) else ()
    table = confusion(rows[:, 0], rows[:, 1], len(labels)).tolist() if 0 < len(labels) <= FEW_CLASSES else []
    classes = task.by_class(predictions, examples)
    return Results(settled(task.measure(rows)), intervals(task.measure, [rows]), labels, classes, table, errors=errors, evidence=rows)


@dataclass(frozen=True)
class LearnedChanges:
    temperature: float
    no_answer: float | None

    def apply(self, learned: LearnedConfig) -> LearnedConfig:
        return learned.model_copy(update={name: value for name, value in vars(self).items() if value is not None})


def _calibration(task: Task, before: list[Any], after: list[Any], examples: list[Example]) -> Calibration:
    (boasted, _), (sure, right) = (_sureness(task, predictions, examples) for predictions in (before, after))
    return Calibration(task.temperature, calibration_error(boasted, right), calibration_error(sure, right), reliability(sure, right))


def _sureness(task: Task, predictions: list[Any], examples: list[Example]) -> tuple[Floats, Flags]:
    said = np.array([one for pair in zip(predictions, examples, strict=True) for one in task.sureness(*pair)])
    return said[:, 0], said[:, 1] > 0


def best_threshold(task: SpanTask, predictions: Sequence[Answered], examples: Sequence[Example]) -> float:
    """How much better "not here" must be for most F1: tried between any two margins that occur."""
    given = [replace(one, answer=one.best) for one in predictions]
    answered = task.rows(given, examples)[:, 0]
    silent = np.array([float(not example.answer) for example in examples])
    margins = np.array([one.margin for one in predictions])
    order = np.argsort(margins)
    # The first k by margin are answered, the others are silent.
    totals = np.concatenate([[0.0], np.cumsum(answered[order])]) + np.concatenate([np.cumsum(silent[order][::-1])[::-1], [0.0]])
    best = int(totals.argmax())
    edges = np.concatenate([[margins[order[0]] - 1], (margins[order][1:] + margins[order][:-1]) / 2, [margins[order[-1]] + 1]])
    return float(edges[best])


def count_tokens(task: Task, features: list[Features], examples: list[Example], reader: Reader) -> dict[str, Ledger]:
    """What became of long texts: of all, and of each class where there are few."""
    found: dict[str, Ledger] = {"": Ledger()}
    few = isinstance(task, Classify | Multilabel) and len(task.labels) <= FEW_CLASSES
    for one, example in zip(features, examples, strict=True):
        for name in ("", *(example.labels if few else ())):
            one.count_in(found.setdefault(name, Ledger()), task.room(example, reader))
    return found
