"""Which tags follow each other, as the examples show it, and the likeliest tags of a sentence that keep to it.

Each word is judged by itself; so B-PER O E-PER may be the likeliest tag of each of three words, though nobody would write it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bertworks.tasks.example import Numbers
from bertworks.tasks.metrics import Floats, sign_and_name

Transition = tuple[str, str, bool]  # the signs of two tags, and whether they name the same kind
EDGE = "O"  # before the first word and behind the last there is nothing
SLIPS = 0.001  # of what follows a sign, and of what comes before the other: mistakes of those who tagged
LEAST = 1e-12  # probability
FORBIDDEN = -1e6  # far below any sum of logarithms, but if all ways are forbidden, there still is a best one


def usual_transitions(sentences: Iterable[Sequence[str]]) -> tuple[Transition, ...]:
    counts = Counter(_transition(*pair) for tags in sentences for pair in pairwise((EDGE, *tags, EDGE)))
    after: Counter[str] = Counter()
    before: Counter[str] = Counter()
    for (first, second, _), count in counts.items():
        after[first] += count
        before[second] += count
    return tuple(sorted(one for one, count in counts.items() if count >= SLIPS * min(after[one[0]], before[one[1]])))


def _transition(before: str, behind: str) -> Transition:
    (first, kind), (second, other) = sign_and_name(before), sign_and_name(behind)
    return first, second, kind == other


class Ways:
    """Through a sentence, from tag to tag."""

    def __init__(self, labels: Sequence[str], usual: Iterable[Transition]) -> None:
        known = set(usual)
        self.costs = np.array([[0.0 if _transition(a, b) in known else FORBIDDEN for b in (*labels, EDGE)] for a in (*labels, EDGE)])

    def best(self, scores: Floats) -> Numbers:
        """The tag of each word, from the probabilities of all, (words, tags); found as Viterbi does (1967)."""
        alone: Numbers = scores.argmax(1)
        if not self.costs[[-1, *alone], [*alone, -1]].any():  # as most are
            return alone
        chances = np.log(np.maximum(scores, LEAST))
        between, best, back = self.costs[:-1, :-1], self.costs[-1, :-1] + chances[0], []
        for row in chances[1:]:
            sums: NDArray[np.float64] = best[:, None] + between
            back.append(sums.argmax(0))
            best = sums.max(0) + row
        way = [int((best + self.costs[:-1, -1]).argmax())]
        for came_from in reversed(back):
            way.append(int(came_from[way[-1]]))
        return np.array(way[::-1], np.int64)
