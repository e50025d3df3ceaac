"""Calibration by temperature scaling (Guo et al. 2017): of the predictions with 80 % confidence, 80 % are correct."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bertworks.measure.metrics import Bools, Floats, Ints

BINS = 10
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
PRIOR_STD = 0.5  # of the log temperature, around 0
MIN_PROBABILITY = 1e-30
SEARCH_STEPS = 40
CalibrationLoss = Callable[[float], float]
"""The negative log-likelihood of a temperature."""


def with_temperature(scores: Floats, temperature: float) -> Floats:
    """Probabilities (B, C) of a softmax, as another temperature would have given them."""
    with np.errstate(divide="ignore"):  # a probability of 0 stays 0
        logits = np.log(scores) / temperature
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    probabilities: Floats = exponentials / exponentials.sum(1, keepdims=True)
    return probabilities


def fit_temperature(loss: CalibrationLoss) -> float:
    """The temperature of least loss, by golden-section search over its logarithm. A prior keeps it near 1 where there
    are few examples."""

    def penalised(log_temperature: float) -> float:
        return float((log_temperature / PRIOR_STD) ** 2 / 2 + loss(float(np.exp(log_temperature))))

    ratio = (np.sqrt(5) - 1) / 2
    low, high = np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE)
    for _ in range(SEARCH_STEPS):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, b) if penalised(a) < penalised(b) else (a, high)
    return float(np.exp((low + high) / 2))


def class_calibration_loss(scores: Floats, targets: Ints) -> CalibrationLoss:
    """Cross-entropy of the classes `targets` (B,) by the probabilities `scores` (B, C). Targets are smoothed as if one
    more error had been seen: a small dev set without errors does not make a model 100 % confident."""
    is_target = np.eye(scores.shape[1])[targets]
    is_other = (scores > 0) & (is_target == 0)
    smoothing = 1 / (len(targets) + 2)
    distribution = (1 - smoothing) * is_target + smoothing * is_other / np.maximum(is_other.sum(1, keepdims=True), 1)
    return lambda temperature: (
        -float((distribution * np.log(np.maximum(with_temperature(scores, temperature), MIN_PROBABILITY))).sum())
    )


def answer_calibration_loss(parts: Sequence[tuple[Floats, Ints]], is_correct: Bools) -> CalibrationLoss:
    """Binary cross-entropy of whether answers are correct (B,), smoothed in the same way. The confidence in an answer
    is the product over its parts, each with its probabilities (B, C) and the predicted class (B,)."""
    smoothing = 1 / (len(is_correct) + 2)
    targets = np.where(is_correct, 1 - smoothing, smoothing)
    rows = np.arange(len(is_correct))

    def loss(temperature: float) -> float:
        confidence = np.prod([with_temperature(scores, temperature)[rows, predicted] for scores, predicted in parts], 0)
        return -float(
            (
                targets * np.log(np.maximum(confidence, MIN_PROBABILITY))
                + (1 - targets) * np.log(np.maximum(1 - confidence, MIN_PROBABILITY))
            ).sum()
        )

    return loss


@dataclass(frozen=True)
class Bin:
    """Predictions of about the same confidence."""

    confidence: float
    accuracy: float
    count: int


def reliability(confidences: Floats, is_correct: Bools) -> list[Bin]:
    """A reliability diagram: bins of equal width, without empty ones."""
    bin_of = np.minimum((confidences * BINS).astype(int), BINS - 1)
    members = [bin_of == i for i in range(BINS)]
    return [
        Bin(float(confidences[inside].mean()), float(is_correct[inside].mean()), int(inside.sum()))
        for inside in members
        if inside.any()
    ]


def calibration_error(confidences: Floats, is_correct: Bools) -> float:
    """Expected calibration error (ECE): the mean distance between confidence and accuracy, over bins."""
    bins = reliability(confidences, is_correct)
    return sum(b.count * abs(b.confidence - b.accuracy) for b in bins) / max(1, len(is_correct))
