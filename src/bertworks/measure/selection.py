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
    near_best = _near(criterion, evaluations[chosen])
    return next((index for index in range(len(evaluations) - 1, chosen, -1) if near_best(evaluations[index])), chosen)


def value_in_choice(criterion: Criterion, earlier: Sequence[Floats], scores: Floats) -> float:
    """By which a run compares its latest evaluation with earlier ones, and keeps the later of equal ones: that of the
    best, if they cannot be told apart."""
    evaluations = [*earlier, scores]
    highest = evaluations[best(criterion, evaluations)]
    return criterion(highest if _near(criterion, highest)(scores) else scores)


def _near(criterion: Criterion, highest: Floats) -> Callable[[Floats], bool]:
    """Whether scores are worse than the highest ones by at most one standard error of the difference."""
    value = criterion(highest)
    without_groups = jackknife(criterion, highest)

    def is_near(scores: Floats) -> bool:
        difference = value - criterion(scores)
        return difference <= 0 or difference <= standard_error(without_groups - jackknife(criterion, scores))

    return is_near


def jackknife(criterion: Criterion, scores: Floats) -> Floats:
    """Its values without one group of the examples at a time; none for a single example."""
    n_groups = min(JACKKNIFE_GROUPS, len(scores)) if len(scores) > 1 else 0
    group_of = np.arange(len(scores)) % max(1, n_groups)
    return np.array([criterion(scores[group_of != group]) for group in range(n_groups)])


def standard_error(jackknife_values: Floats) -> float:
    """Of the criterion, or of a difference of two, on the same examples."""
    n_groups = len(jackknife_values)
    return float(np.sqrt((n_groups - 1) * jackknife_values.var())) if n_groups else float("inf")


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
