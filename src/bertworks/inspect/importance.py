"""Which heads matter: what is lost without each, over documents, with intervals that hold for all heads together.

Of a hundred heads that do nothing, five would seem to matter by intervals of 95 % for each alone. So the critical value
is that of the largest |t| of all heads, resampled with random signs of the documents' residuals: heads that do alike
count as fewer tests than heads that do not (Westfall & Young 1993).

    D  documents      H  heads
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertworks.inspect.units import Floats

CONFIDENCE = 0.95
N_RESAMPLES = 2000
MIN_DOCUMENTS = 30  # fewer do not tell


@dataclass(frozen=True)
class JointIntervals:
    """Of means, (H,) each; all of them hold together with one confidence."""

    means: Floats
    low: Floats
    high: Floats
    critical: float  # how many standard errors to either side


def joint_intervals(
    values: Floats, *, confidence: float = CONFIDENCE, n_resamples: int = N_RESAMPLES, seed: int = 0
) -> JointIntervals:
    """Of the means of `values` (D, H) over documents, which are independent of each other."""
    n = len(values)
    means = values.mean(0)
    residuals = values - means
    variances = (residuals**2).mean(0)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (n_resamples, n))
    resampled = signs @ residuals / n
    errors = np.sqrt(np.maximum(variances - resampled**2, 0.0) / (n - 1))
    scores = np.divide(np.abs(resampled), errors, out=np.zeros_like(errors), where=errors > 0)
    critical = float(np.quantile(scores.max(1), confidence))
    width = critical * np.sqrt(variances / (n - 1))
    return JointIntervals(means, means - width, means + width, critical)


def document_means(values: Sequence[Floats], documents: Sequence[int]) -> Floats:
    """Of the values (H, rows) of each text, the mean over all rows of a document: (D, H)."""
    by_document: dict[int, list[Floats]] = {}
    for text, document in zip(values, documents, strict=True):
        by_document.setdefault(document, []).append(text)
    return np.stack([np.concatenate(texts, axis=1).mean(1) for texts in by_document.values()])


@dataclass(frozen=True)
class Importance:
    """What each head is worth, (L, H) each."""

    change: Floats  # of the loss, without the head; or how far a text's vector moves
    low: Floats
    high: Floats
    reference: float  # what a head has to differ from
    gradient: Floats | None  # E |Att . dL/dAtt| (Michel et al. 2019); None: the measure has no slope
    critical: float

    @property
    def verdicts(self) -> list[list[str]]:
        """Of each layer's heads: `worse` without it, `better` without it, or nothing."""
        return [
            ["worse" if low > self.reference else "better" if high < self.reference else "" for low, high in rows]
            for rows in np.stack([self.low, self.high], axis=-1)
        ]


def importance(
    changes: Floats, shape: tuple[int, int], *, is_distance: bool, gradient: Floats | None = None
) -> Importance:
    """`changes`: (D, L * H), by document. A distance is never 0, also without a head that does nothing of use: then
    heads are compared with the average head."""
    average = changes.mean(1, keepdims=True) if is_distance else np.zeros((len(changes), 1))
    intervals = joint_intervals(changes - average)
    reference = float(average.mean())
    change, low, high = (part.reshape(shape) + reference for part in (intervals.means, intervals.low, intervals.high))
    return Importance(change, low, high, reference, gradient, intervals.critical)
