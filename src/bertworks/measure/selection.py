"""What the choice among several evaluations costs: the best of ten on the same examples is better than the model is.

Cross-fitting: the examples are split into folds, and each fold is scored by the model that is best on the other folds.
No example has a part in choosing the model that it is scored by, so the estimate is unbiased for a choice among models
by nine tenths of the examples. `benchmarks/selection.py` shows it by simulation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertworks.measure.intervals import MetricFunction
from bertworks.measure.metrics import Floats, Ints, MetricValues, nan_to_zero

FOLDS = 10
REPEATS = 20  # with other folds
MAX_SCORED_EXAMPLES = 50_000_000  # over all repeats: large sets get fewer


def cross_fitted(
    function: MetricFunction, metric: str, evaluations: Sequence[Floats], others: Floats | None = None
) -> MetricValues:
    """The metrics of choosing the best of these evaluations by `metric`. An evaluation has the scores of the same
    examples, one example per row; `others` are the chosen model's scores of examples that had no part in the choice."""
    n_examples = len(evaluations[0])
    if n_examples == 1:
        return nan_to_zero(function(evaluations[-1] if others is None else np.concatenate([evaluations[-1], others])))
    repeats = max(1, min(REPEATS, MAX_SCORED_EXAMPLES // (n_examples * len(evaluations) * FOLDS)))
    generator = np.random.default_rng(0)
    values = []
    for _ in range(repeats):
        fold_of = generator.permutation(n_examples) % min(FOLDS, n_examples)
        scores = _scores_by_others(function, metric, evaluations, fold_of)
        values.append(nan_to_zero(function(scores if others is None else np.concatenate([scores, others]))))
    return {name: float(np.mean([repeat[name] for repeat in values])) for name in values[0]}


def _scores_by_others(function: MetricFunction, metric: str, evaluations: Sequence[Floats], fold_of: Ints) -> Floats:
    """The scores of each example in the evaluation that is best on the folds without it."""
    scores = np.empty_like(evaluations[0])
    for fold in range(int(fold_of.max()) + 1):
        inside = fold_of == fold
        values = [nan_to_zero(function(evaluation[~inside]))[metric] for evaluation in evaluations]
        scores[inside] = evaluations[best_of(values)][inside]
    return scores


def best_of(values: Sequence[float]) -> int:
    """Of equal ones the latest, which was trained longest."""
    return max(range(len(values)), key=lambda index: (values[index], index))
