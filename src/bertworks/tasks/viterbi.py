"""Which tags follow each other, as the examples show it, and the likeliest tags of a sentence that keep to it.

Each word is judged by itself; so B-PER O E-PER may be the likeliest tag of each of three words, though nobody would
write it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bertworks.measure.metrics import Floats, prefix_and_type
from bertworks.tasks.features import Numbers

T = TypeVar("T", bound=Hashable)
Transition = tuple[str, str, bool]  # the signs of two tags, and whether they name the same kind
EDGE = "O"  # before the first word and behind the last there is nothing
OPEN, INSIDE, CLOSING = (
    {"B", "I", "M"},
    {"I", "M", "E"},
    {"E", "S"},
)  # signs: more may or must come; goes on; the last one or the only
SLIPS = 0.001  # of what follows a sign, and of what comes before the other: mistakes of those who tagged
MISSED = 5.0  # of what would be expected so often by chance, and never occurs, that is no chance
FORBIDDEN = -1e6  # far below any sum of logits, but if all ways are forbidden, there still is a best one


def observed_transitions(sentences: Iterable[Sequence[str]]) -> tuple[Transition, ...]:
    """Those that occur, but for slips; and regular ones that do not, where examples are so few that it means
    nothing."""
    pairs = Counter(pair for tags in sentences for pair in pairwise((EDGE, *tags, EDGE)))
    counts = _count((_transition(*pair), count) for pair, count in pairs.items())
    after = _count((first, count) for (first, _, _), count in counts.items())
    before = _count((second, count) for (_, second, _), count in counts.items())
    usual = (one for one, count in counts.items() if count >= SLIPS * min(after[one[0]], before[one[1]]))
    closed = bool(CLOSING & after.keys())
    unknown = (
        one
        for one, count in _expected(pairs).items()
        if one not in counts and count < MISSED and _is_regular(one, closed=closed)
    )
    return tuple(sorted({*usual, *unknown}))


def _is_regular(transition: Transition, *, closed: bool) -> bool:
    """As BIO has it, or, if ends are marked, BIOES and BMES."""
    first, second, same = transition
    goes_on = second in INSIDE
    if closed:
        return (first in OPEN) == goes_on and (same or not goes_on)
    return not goes_on or (first in OPEN and same)


def _expected(pairs: Mapping[tuple[str, str], int]) -> Mapping[Transition, float]:
    """How often each transition would occur if tags did not care what comes before them."""
    firsts, seconds = (_count((pair[at], count) for pair, count in pairs.items()) for at in (0, 1))
    total = sum(pairs.values())
    return _count((_transition(a, b), firsts[a] * seconds[b] / total) for a in firsts for b in seconds)


def _count(weighted: Iterable[tuple[T, float]]) -> dict[T, float]:
    found: defaultdict[T, float] = defaultdict(float)
    for one, weight in weighted:
        found[one] += weight
    return found


def _transition(before: str, behind: str) -> Transition:
    (first, kind), (second, other) = prefix_and_type(before), prefix_and_type(behind)
    return first, second, kind == other


class ViterbiDecoder:
    """The best sequence of tags that keeps to the transitions that were observed."""

    def __init__(self, labels: Sequence[str], usual: Iterable[Transition]) -> None:
        known, named = set(usual), [prefix_and_type(tag) for tag in (*labels, EDGE)]
        self.costs = np.array(
            [
                [0.0 if (first, second, kind == other) in known else FORBIDDEN for second, other in named]
                for first, kind in named
            ]
        )

    def decode(self, logits: Floats) -> Numbers:
        """The tag of each word, from the logits of all, (words, tags); found as Viterbi does (1967)."""
        alone: Numbers = logits.argmax(1)
        if not self.costs[[-1, *alone], [*alone, -1]].any():  # as most are
            return alone
        between, best, back = self.costs[:-1, :-1], self.costs[-1, :-1] + logits[0], []
        for row in logits[1:]:
            sums: NDArray[np.float64] = best[:, None] + between
            back.append(sums.argmax(0))
            best = sums.max(0) + row
        way = [int((best + self.costs[:-1, -1]).argmax())]
        for came_from in reversed(back):
            way.append(int(came_from[way[-1]]))
        return np.array(way[::-1], np.int64)
