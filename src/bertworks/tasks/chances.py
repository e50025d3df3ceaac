"""How sure a measure is: intervals by drawing again (Efron 1979), and whether two models differ by more than chance.

Where there are several runs, which differ by their seeds, both are drawn again: the examples, the same for all, and the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bertworks.tasks.metrics import Floats

DRAWS = 1000
Measures = dict[str, float]
Measure = Callable[[Floats], Measures]
Interval = tuple[float, float]
Runs = Sequence[Floats]
"""The evidence of each run on the same examples, one in each row."""


def mean(measure: Measure, runs: Runs) -> Measures:
    found = [measure(rows) for rows in runs]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def intervals(measure: Measure, runs: Runs) -> dict[str, Interval]:
    """95 % of what the means of the measures are when all is drawn again."""
    drawn = [mean(measure, again) for (again,) in _draws(runs)]
    found = {name: _middle([one[name] for one in drawn]) for name in drawn[0]}
    # Where no error was seen there is none to draw; of n examples without one, 3 / n may still be wrong (Hanley and Lippman-Hand 1983).
    unseen = max(0.0, 1 - 3 / len(runs[0]))
    return {name: (unseen, 1.0) if edges == (1.0, 1.0) else edges for name, edges in found.items()}


def differences(measure: Measure, a: Runs, b: Runs) -> dict[str, Interval]:
    """Of how much b is better than a."""
    drawn = [(mean(measure, again_a), mean(measure, again_b)) for again_a, again_b in _draws(a, b)]
    return {name: _middle([better[name] - worse[name] for worse, better in drawn]) for name in drawn[0][0]}


def _draws(*sides: Runs) -> Iterator[tuple[list[Floats], ...]]:
    draw, n = np.random.default_rng(0), len(sides[0][0])
    for _ in range(DRAWS):
        examples = draw.integers(0, n, n)
        yield tuple([runs[one][examples] for one in draw.integers(0, len(runs), len(runs))] for runs in sides)


def _middle(values: list[float]) -> Interval:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
