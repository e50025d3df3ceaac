"""How sure a measure is: intervals by drawing examples again (Efron 1979), and whether two models differ by more than chance.

Where there are several runs, which differ by their seeds, their luck is added. Three runs are too few to be drawn again: how far they are
apart says how far others may be, with the tails that few numbers have (Student 1908).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bertworks.tasks.metrics import CORRELATIONS, DISTANCES, Floats, Measures, settled

DRAWS, FEWEST_DRAWS = 1000, 200
DRAWN = 50_000_000  # examples in all draws: of many, whose intervals are narrow anyway, there are fewer
NOTHING = 1e-9  # the width of an interval that has none, but for rounding
Measure = Callable[[Floats], Measures]
Interval = tuple[float, float]
Runs = Sequence[Floats]
"""The evidence of each run on the same examples, one in each row."""


def mean(measure: Measure, runs: Runs) -> Measures:
    found = [settled(measure(rows)) for rows in runs]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def deviation(measure: Measure, runs: Runs) -> Measures:
    """From seed to seed; of a single one, nothing is known."""
    found = [settled(measure(rows)) for rows in runs]
    return {name: float(np.std([one[name] for one in found], ddof=1)) if len(found) > 1 else 0.0 for name in found[0]}


def intervals(measure: Measure, runs: Runs) -> dict[str, Interval]:
    """Where the mean over seeds would lie with other examples and other seeds, in 95 of 100 cases."""
    (drawn,), luck, unseen = _draws(measure, runs), _luck(measure, runs), _unseen(runs)
    found = {}
    for name, values in drawn.items():
        least, most = _range(name)
        low, high = _middle(values + luck[name])
        if high - low < NOTHING and name not in DISTANCES:
            low, high = low - unseen, high + unseen
        found[name] = max(low, least), min(high, most)
    return found


def differences(measure: Measure, a: Runs, b: Runs) -> dict[str, Interval]:
    """Of how much b is better than a."""
    (of_a, of_b), luck, unseen = _draws(measure, a, b), _luck(measure, a, b), _unseen(a)
    found = {}
    for name in of_a:
        least, most = _range(name)
        low, high = _middle(of_b[name] - of_a[name] + luck[name])
        if high - low < NOTHING and name not in DISTANCES:
            low, high = low - unseen, high + unseen
        found[name] = max(low, least - most), min(high, most - least)
    return found


def _draws(measure: Measure, *sides: Runs) -> list[dict[str, Floats]]:
    """Means of each side, with examples drawn again, the same for all."""
    n, found = len(sides[0][0]), []
    for runs in sides:
        draw = np.random.default_rng(0)
        chosen = (draw.integers(0, n, n) for _ in range(_n_draws(sides[0])))
        drawn = [[measure(rows[examples]) for rows in runs] for examples in chosen]
        found.append({name: np.array([np.mean([one[name] for one in each]) for each in drawn]) for name in drawn[0][0]})
    return found


def _n_draws(runs: Runs) -> int:
    return min(DRAWS, max(FEWEST_DRAWS, DRAWN // len(runs[0])))


def _luck(measure: Measure, *sides: Runs) -> dict[str, Floats]:
    """By how much the seeds may have moved a mean, or the difference of two; degrees of freedom as Welch (1947) counts them."""
    draw, found = np.random.default_rng(1), {}
    apart = [deviation(measure, runs) for runs in sides]
    for name in apart[0]:
        parts = [(one[name] ** 2 / len(runs), len(runs) - 1) for one, runs in zip(apart, sides, strict=True) if one[name]]
        variance = sum(part for part, _ in parts)
        freedom = variance**2 / sum(part**2 / free for part, free in parts) if parts else 1.0
        found[name] = np.sqrt(variance) * draw.standard_t(freedom, _n_draws(sides[0]))
    return found


def _unseen(runs: Runs) -> float:
    """Where nothing else was seen there is nothing else to draw; of n examples, 3 / n may still be otherwise (Hanley and Lippman-Hand
    1983)."""
    return 3 / len(runs[0])


def _range(name: str) -> Interval:
    return -1.0 if name in CORRELATIONS else 0.0, np.inf if name in DISTANCES else 1.0


def _middle(values: Floats) -> Interval:
    """Without draws in which the measure cannot be told."""
    known = values[~np.isnan(values)]
    low, high = np.percentile(known, [2.5, 97.5]) if len(known) else (0.0, 0.0)
    return float(low), float(high)
