"""What the choice among several evaluations costs: the best of ten on the same examples is better than the model is.

Cross-fitting: each half of the examples is scored by the model that is best on the other half, again and again with
other halves. No example has a part in choosing the model that it is scored by. Of two, five and ten parts, halves have
the smallest error: choosing by half of the examples is a little worse, but the estimate is far steadier.
`benchmarks/selection.py` shows it by simulation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertworks.measure.intervals import MetricFunction
from bertworks.measure.metrics import Floats, MetricValues, nan_to_zero

MIN_EXAMPLES = 20  # with fewer, choice and score work against each other: what one half gains, the other lacks
REPEATS = 50  # with other halves
MAX_SCORED_EXAMPLES = 50_000_000  # over all repeats: large sets get fewer


def cross_fitted(
    function: MetricFunction, metric: str, evaluations: Sequence[Floats], others: Floats | None = None
) -> MetricValues:
    """The metrics of choosing the best of these evaluations by `metric`. An evaluation has the scores of the same
    examples, one example per row; `others` are the chosen model's scores of examples that had no part in the choice.
    Empty where there are too few examples to tell."""
    n_examples = len(evaluations[0])
    if n_examples < MIN_EXAMPLES:
        return {}
    repeats = max(1, min(REPEATS, MAX_SCORED_EXAMPLES // (n_examples * len(evaluations))))
    generator = np.random.default_rng(0)
    values = []
    for _ in range(repeats):
        is_first = generator.permutation(n_examples) < n_examples // 2
        scores = np.empty_like(evaluations[0])
        for half in (is_first, ~is_first):
            values_of_others = [nan_to_zero(function(evaluation[~half]))[metric] for evaluation in evaluations]
            scores[half] = evaluations[best_of(values_of_others)][half]
        values.append(nan_to_zero(function(scores if others is None else np.concatenate([scores, others]))))
    return {name: float(np.mean([repeat[name] for repeat in values])) for name in values[0]}


def best_of(values: Sequence[float]) -> int:
    """Of equal ones the latest, which was trained longest."""
    return max(range(len(values)), key=lambda index: (values[index], index))
