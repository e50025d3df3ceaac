"""95 % confidence intervals of metrics, by bootstrap over examples (Efron 1979), and of differences between two models.

Where there are runs with several seeds, the noise of the seed is added. Three runs are too few to resample: that noise
is drawn from a t-distribution with the standard deviation between runs (Student 1908).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bertworks.measure.metrics import Floats, Metric, MetricValues, nan_to_zero

MAX_RESAMPLES = 1000
MIN_RESAMPLES = 200
MAX_RESAMPLED_EXAMPLES = 50_000_000  # over all resamples: large sets, whose intervals are narrow anyway, get fewer
ZERO_WIDTH = 1e-9  # narrower intervals are points, but for rounding
PERCENTILES = [2.5, 97.5]  # of a 95 % interval
MetricFunction = Callable[[Floats], MetricValues]
ResampledMetrics = Callable[[Floats], MetricFunction]
"""From the scores of all examples to the function for resamples of them, where it is not the same as for all."""
Interval = tuple[float, float]
SeedScores = Sequence[Floats]
"""For each seed the scores of the same examples, one example per row."""


def seed_mean(function: MetricFunction, seeds: SeedScores) -> MetricValues:
    """The mean of each metric over seeds."""
    per_seed = [nan_to_zero(function(scores)) for scores in seeds]
    return {name: float(np.mean([values[name] for values in per_seed])) for name in per_seed[0]}


def seed_std(function: MetricFunction, seeds: SeedScores) -> MetricValues:
    """The standard deviation of each metric over seeds; 0 for a single seed."""
    per_seed = [nan_to_zero(function(scores)) for scores in seeds]
    return {
        name: float(np.std([values[name] for values in per_seed], ddof=1)) if len(per_seed) > 1 else 0.0
        for name in per_seed[0]
    }


def intervals(
    function: MetricFunction,
    metrics: Mapping[str, Metric],
    seeds: SeedScores,
    resampled_metrics: ResampledMetrics | None = None,
) -> dict[str, Interval]:
    """95 % confidence intervals of the means over seeds, with respect to examples and seeds."""
    (resampled,) = _bootstrap(resampled_metrics or (lambda _: function), seeds)
    noise = _seed_noise(function, seeds)
    by_metric = {}
    for name, values in resampled.items():
        metric = metrics[name]
        low, high = _rule_of_three(_percentiles(values + noise[name]), metric, seeds)
        by_metric[name] = max(low, metric.lowest), min(high, metric.highest)
    return by_metric


def shifted_interval(interval: Interval, shift: float, metric: Metric) -> Interval:
    """The same width around another value, within the range of the metric."""
    low, high = interval
    return max(low + shift, metric.lowest), min(high + shift, metric.highest)


def difference_intervals(
    function: MetricFunction,
    metrics: Mapping[str, Metric],
    a: SeedScores,
    b: SeedScores,
    resampled_metrics: ResampledMetrics | None = None,
) -> dict[str, Interval]:
    """95 % confidence intervals of metric(b) - metric(a), by paired bootstrap."""
    resampled_a, resampled_b = _bootstrap(resampled_metrics or (lambda _: function), a, b)
    noise = _seed_noise(function, a, b)
    by_metric = {}
    for name in resampled_a:
        metric = metrics[name]
        low, high = _rule_of_three(_percentiles(resampled_b[name] - resampled_a[name] + noise[name]), metric, a)
        by_metric[name] = max(low, metric.lowest - metric.highest), min(high, metric.highest - metric.lowest)
    return by_metric


def _rule_of_three(interval: Interval, metric: Metric, seeds: SeedScores) -> Interval:
    """Widens an interval of width 0. If all n examples agree, so do all resamples; still, up to 3 / n of other examples
    may differ (rule of three: Hanley and Lippman-Hand 1983)."""
    low, high = interval
    if high - low >= ZERO_WIDTH or metric.highest == np.inf:
        return interval
    unseen = 3 / len(seeds[0])
    return low - unseen, high + unseen


def _bootstrap(resampled_metrics: ResampledMetrics, *models: SeedScores) -> list[dict[str, Floats]]:
    """For each model the mean over seeds in each resample; the resamples are the same for all models."""
    n_examples = len(models[0][0])
    by_model = []
    for seeds in models:
        generator = np.random.default_rng(0)
        resamples = (generator.integers(0, n_examples, n_examples) for _ in range(_n_resamples(models[0])))
        functions = [(resampled_metrics(scores), scores) for scores in seeds]
        values = [[function(scores[examples]) for function, scores in functions] for examples in resamples]
        by_model.append(
            {
                name: np.array([np.mean([seed_values[name] for seed_values in per_seed]) for per_seed in values])
                for name in values[0][0]
            }
        )
    return by_model


def _n_resamples(seeds: SeedScores) -> int:
    return min(MAX_RESAMPLES, max(MIN_RESAMPLES, MAX_RESAMPLED_EXAMPLES // len(seeds[0])))


def _seed_noise(function: MetricFunction, *models: SeedScores) -> dict[str, Floats]:
    """Random errors of the mean over seeds, or of the difference of two means; degrees of freedom by Welch (1947)."""
    generator = np.random.default_rng(1)
    noise = {}
    stds = [seed_std(function, seeds) for seeds in models]
    for name in stds[0]:
        # Of each model: the variance of its mean, and the degrees of freedom.
        parts = [
            (std[name] ** 2 / len(seeds), len(seeds) - 1) for std, seeds in zip(stds, models, strict=True) if std[name]
        ]
        variance = sum(part for part, _ in parts)
        freedom = variance**2 / sum(part**2 / part_freedom for part, part_freedom in parts) if parts else 1.0
        noise[name] = np.sqrt(variance) * generator.standard_t(freedom, _n_resamples(models[0]))
    return noise


def _percentiles(values: Floats) -> Interval:
    """Over the resamples in which the metric is defined."""
    defined = values[~np.isnan(values)]
    low, high = np.percentile(defined, PERCENTILES) if len(defined) else (0.0, 0.0)
    return float(low), float(high)
