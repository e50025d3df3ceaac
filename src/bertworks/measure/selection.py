"""What the choice among several evaluations costs: the best of ten on the same examples is better than the model is.

Cross-fitting: each half of the examples is scored by the model that is best on the other half, again and again with
other halves. No example has a part in choosing the model that it is scored by. Of two, five and ten parts, halves have
the smallest error: choosing by half of the examples is a little worse, but the estimate is far steadier.
`benchmarks/selection.py` shows it by simulation.

Where evaluations read a small part of dev only, the best of them is mostly the luckiest: an early model whose lead is
noise. Then the latest that cannot be told from the best is chosen, since longer training is mostly better: the
one-standard-error rule (Breiman et al. 1984), with models in the place of trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bertworks.measure.intervals import MetricFunction
from bertworks.measure.metrics import Floats, MetricValues, nan_to_zero

MIN_EXAMPLES = 20  # with fewer, choice and score work against each other: what one half gains, the other lacks
REPEATS = 50  # with other halves
MAX_SCORED_EXAMPLES = 50_000_000  # over all repeats: large sets get fewer
JACKKNIFE_GROUPS = 20

Criterion = Callable[[Floats], float]
"""Of the scores of an evaluation, one example per row; higher is better."""
Choose = Callable[[Criterion, Sequence[Floats]], int]
"""Which of these evaluations is chosen; all have the scores of the same examples."""


def best(criterion: Criterion, evaluations: Sequence[Floats]) -> int:
    """Of equal ones the latest, which was trained longest."""
    values = [criterion(scores) for scores in evaluations]
    return max(range(len(values)), key=lambda index: (values[index], index))


def latest_near_best(criterion: Criterion, evaluations: Sequence[Floats]) -> int:
    """The latest that is worse than the best by at most one standard error of their difference."""
    chosen = best(criterion, evaluations)
    highest = evaluations[chosen]
    for index in range(len(evaluations) - 1, chosen, -1):
        scores = evaluations[index]
        if criterion(highest) - criterion(scores) <= standard_error(criterion, highest, scores):
            return index
    return chosen


def value_in_choice(criterion: Criterion, earlier: Sequence[Floats], scores: Floats) -> float:
    """By which a run compares its latest evaluation with earlier ones, and keeps the later of equal ones: that of the
    best, if they cannot be told apart."""
    evaluations = [*earlier, scores]
    is_chosen = latest_near_best(criterion, evaluations) == len(earlier)
    return max(map(criterion, evaluations)) if is_chosen else criterion(scores)


def standard_error(criterion: Criterion, first: Floats, second: Floats) -> float:
    """Of the difference of two models on the same examples: a jackknife that leaves out one group of them at a time."""
    n_groups = min(JACKKNIFE_GROUPS, len(first))
    if n_groups < 2:
        return float("inf")
    group_of = np.arange(len(first)) % n_groups
    kept = [group_of != group for group in range(n_groups)]
    differences = np.array([criterion(first[rows]) - criterion(second[rows]) for rows in kept])
    return float(np.sqrt((n_groups - 1) * differences.var()))


def cross_fitted(
    function: MetricFunction,
    metric: str,
    evaluations: Sequence[Floats],
    others: Floats | None = None,
    *,
    choose: Choose = best,
) -> MetricValues:
    """The metrics of choosing one of these evaluations by `metric`. An evaluation has the scores of the same
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
            chosen = choose(by_metric(function, metric), [evaluation[~half] for evaluation in evaluations])
            scores[half] = evaluations[chosen][half]
        values.append(nan_to_zero(function(scores if others is None else np.concatenate([scores, others]))))
    return {name: float(np.mean([repeat[name] for repeat in values])) for name in values[0]}


def by_metric(function: MetricFunction, metric: str) -> Criterion:
    return lambda scores: nan_to_zero(function(scores))[metric]
