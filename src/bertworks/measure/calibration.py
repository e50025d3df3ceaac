"""Calibration: of the predictions made with 80 % confidence, 80 % are right (Guo et al. 2017)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bertworks.measure.metrics import Counts, Flags, Floats

BINS = 10
LOWEST, HIGHEST = 0.05, 20.0  # temperatures
PRIOR_STD = 0.5  # of their logarithms around 0
LEAST_PROBABILITY = 1e-30
Cost = Callable[[float], float]  # of a temperature


def with_temperature(scores: Floats, temperature: float) -> Floats:
    """Probabilities (B, C) as another temperature would have given them."""
    with np.errstate(divide="ignore"):  # what is impossible stays so
        logits = np.log(scores) / temperature
    raised = np.exp(logits - logits.max(1, keepdims=True))
    scaled: Floats = raised / raised.sum(1, keepdims=True)
    return scaled


def fit_temperature(cost: Cost) -> float:
    """The one of least cost, found by golden-section search. Without any examples it is 1, and only many take it far
    from there."""

    def total_cost(log_temperature: float) -> float:
        return float((log_temperature / PRIOR_STD) ** 2 / 2 + cost(float(np.exp(log_temperature))))

    low, high, ratio = np.log(LOWEST), np.log(HIGHEST), (np.sqrt(5) - 1) / 2
    for _ in range(40):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, b) if total_cost(a) < total_cost(b) else (a, high)
    return float(np.exp((low + high) / 2))


def class_cost(scores: Floats, truth: Counts) -> Cost:
    """How unlikely the right classes (B,) are by these probabilities (B, C). One error more than was seen is assumed:
    no model is sure of everything because a few examples held no error."""
    right, others = np.eye(scores.shape[1])[truth], scores > 0
    others &= right == 0
    doubt = 1 / (len(truth) + 2)
    shares = (1 - doubt) * right + doubt * others / np.maximum(others.sum(1, keepdims=True), 1)
    return lambda temperature: (
        -float((shares * np.log(np.maximum(with_temperature(scores, temperature), LEAST_PROBABILITY))).sum())
    )


def answer_cost(parts: Sequence[tuple[Floats, Counts]], right: Flags) -> Cost:
    """How unlikely it is that just these answers are right (B,). Each consists of parts with probabilities of their
    own: (B, C), and which of them is predicted (B,)."""
    doubt = 1 / (len(right) + 2)
    shares, rows = np.where(right, 1 - doubt, doubt), np.arange(len(right))

    def cost(temperature: float) -> float:
        confidence = np.prod([with_temperature(scores, temperature)[rows, predicted] for scores, predicted in parts], 0)
        return -float(
            (
                shares * np.log(np.maximum(confidence, LEAST_PROBABILITY))
                + (1 - shares) * np.log(np.maximum(1 - confidence, LEAST_PROBABILITY))
            ).sum()
        )

    return cost


@dataclass(frozen=True)
class Bin:
    """Predictions of about the same confidence."""

    confidence: float
    accuracy: float
    count: int


def reliability(confidences: Floats, right: Flags) -> list[Bin]:
    """By confidence, in steps of a tenth; empty ones are left out."""
    which = np.minimum((confidences * BINS).astype(int), BINS - 1)
    groups = [which == at for at in range(BINS)]
    return [
        Bin(float(confidences[one].mean()), float(right[one].mean()), int(one.sum())) for one in groups if one.any()
    ]


def calibration_error(confidences: Floats, right: Flags) -> float:
    """ECE: how far confidence and accuracy are apart, on average over the predictions."""
    bins = reliability(confidences, right)
    return sum(one.count * abs(one.confidence - one.accuracy) for one in bins) / max(1, len(right))
