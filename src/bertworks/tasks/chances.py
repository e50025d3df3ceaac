"""How sure a measure is: intervals by drawing the examples again (Efron 1979), and whether two runs differ by more than chance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bertworks.tasks.metrics import Floats

DRAWS = 1000
Measure = Callable[[Floats], dict[str, float]]
Interval = tuple[float, float]


def _draws(n: int) -> np.ndarray:  # (DRAWS, n)
    return np.random.default_rng(0).integers(0, n, (DRAWS, n))


def intervals(measure: Measure, rows: Floats) -> dict[str, Interval]:
    """95 % of what the measures are over examples drawn again."""
    drawn = [measure(rows[chosen]) for chosen in _draws(len(rows))]
    return {name: _middle([one[name] for one in drawn]) for name in drawn[0]}


def difference(measure: Measure, name: str, a: Floats, b: Floats) -> tuple[float, Interval]:
    """By how much b is better than a on the same examples, and its interval."""
    drawn = [measure(b[chosen])[name] - measure(a[chosen])[name] for chosen in _draws(len(a))]
    return measure(b)[name] - measure(a)[name], _middle(drawn)


def _middle(values: list[float]) -> Interval:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
