"""How sure a metric is: intervals by drawing examples again (bootstrap: Efron 1979), and whether two models differ
significantly.

Where there are several runs, which differ by their seeds, the noise of the seed is added. Three runs are too few to be
drawn again: how far they are apart says how far others may be, with the tails that few numbers have (Student 1908).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bertworks.measure.metrics import Floats, Metric, MetricValues, nan_to_zero

RESAMPLES, FEWEST_RESAMPLES = 1000, 200
MAX_RESAMPLED = 50_000_000  # examples in all resamples: of many, whose intervals are narrow anyway, there are fewer
ZERO_WIDTH = 1e-9  # the width of an interval that has none, but for rounding
MetricFunction = Callable[[Floats], MetricValues]
Interval = tuple[float, float]
SeedScores = Sequence[Floats]
"""For each seed, the scores of the same examples, one in each row."""


def seed_mean(function: MetricFunction, seeds: SeedScores) -> MetricValues:
    values = [nan_to_zero(function(scores)) for scores in seeds]
    return {name: float(np.mean([one[name] for one in values])) for name in values[0]}


def seed_std(function: MetricFunction, seeds: SeedScores) -> MetricValues:
    """From seed to seed; of a single one, nothing is known."""
    values = [nan_to_zero(function(scores)) for scores in seeds]
    return {
        name: float(np.std([one[name] for one in values], ddof=1)) if len(values) > 1 else 0.0 for name in values[0]
    }


def intervals(function: MetricFunction, metrics: Mapping[str, Metric], seeds: SeedScores) -> dict[str, Interval]:
    """Where the mean over seeds would lie with other examples and other seeds, in 95 of 100 cases."""
    (resampled,), noise = _bootstrap(function, seeds), _seed_noise(function, seeds)
    found = {}
    for name, values in resampled.items():
        metric = metrics[name]
        low, high = _widened(_percentiles(values + noise[name]), metric, seeds)
        found[name] = max(low, metric.lowest), min(high, metric.highest)
    return found


def difference_intervals(
    function: MetricFunction, metrics: Mapping[str, Metric], a: SeedScores, b: SeedScores
) -> dict[str, Interval]:
    """Of how much b is better than a."""
    (of_a, of_b), noise = _bootstrap(function, a, b), _seed_noise(function, a, b)
    found = {}
    for name in of_a:
        metric = metrics[name]
        low, high = _widened(_percentiles(of_b[name] - of_a[name] + noise[name]), metric, a)
        found[name] = max(low, metric.lowest - metric.highest), min(high, metric.highest - metric.lowest)
    return found


def _widened(interval: Interval, metric: Metric, seeds: SeedScores) -> Interval:
    """Where nothing else was seen there is nothing else to draw; of n examples, 3 / n may still be otherwise (the rule
    of three: Hanley and Lippman-Hand 1983)."""
    low, high = interval
    if high - low >= ZERO_WIDTH or metric.highest == np.inf:
        return interval
    unseen = 3 / len(seeds[0])
    return low - unseen, high + unseen


def _bootstrap(function: MetricFunction, *sides: SeedScores) -> list[dict[str, Floats]]:
    """Means of each side, with examples drawn again, the same for all."""
    n, found = len(sides[0][0]), []
    for seeds in sides:
        draw = np.random.default_rng(0)
        chosen = (draw.integers(0, n, n) for _ in range(_n_resamples(sides[0])))
        drawn = [[function(scores[examples]) for scores in seeds] for examples in chosen]
        found.append({name: np.array([np.mean([one[name] for one in each]) for each in drawn]) for name in drawn[0][0]})
    return found


def _n_resamples(seeds: SeedScores) -> int:
    return min(RESAMPLES, max(FEWEST_RESAMPLES, MAX_RESAMPLED // len(seeds[0])))


def _seed_noise(function: MetricFunction, *sides: SeedScores) -> dict[str, Floats]:
    """By how much the seeds may have moved a mean, or the difference of two; degrees of freedom as Welch (1947) counts
    them."""
    draw, found = np.random.default_rng(1), {}
    stds = [seed_std(function, seeds) for seeds in sides]
    for name in stds[0]:
        parts = [
            (one[name] ** 2 / len(seeds), len(seeds) - 1) for one, seeds in zip(stds, sides, strict=True) if one[name]
        ]
        variance = sum(part for part, _ in parts)
        freedom = variance**2 / sum(part**2 / free for part, free in parts) if parts else 1.0
        found[name] = np.sqrt(variance) * draw.standard_t(freedom, _n_resamples(sides[0]))
    return found


def _percentiles(values: Floats) -> Interval:
    """Without draws in which the metric cannot be told."""
    known = values[~np.isnan(values)]
    low, high = np.percentile(known, [2.5, 97.5]) if len(known) else (0.0, 0.0)
    return float(low), float(high)
