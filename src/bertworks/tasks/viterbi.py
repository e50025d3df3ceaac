"""Viterbi decoding of tags, with the transitions that are allowed by the training examples.

The model tags each word independently, so the most probable tags of three words may be B-PER O E-PER, which is not a
valid sequence.
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
Transition = tuple[str, str, bool]  # the prefixes of two successive tags, and whether their entity type is the same
BOUNDARY = "O"  # stands for the tag before the first word and after the last
OPEN_PREFIXES = {"B", "I", "M"}  # the entity may or must continue
CONTINUING_PREFIXES = {"I", "M", "E"}  # the entity began at an earlier word
CLOSING_PREFIXES = {"E", "S"}  # the last word of an entity, or its only one
MIN_TRANSITION_SHARE = 0.001  # of the transitions from a prefix or to one: rarer ones are annotation errors
MIN_EXPECTED_COUNT = 5.0  # a transition that is expected so often by chance, but never occurs, is not allowed
FORBIDDEN = -1e6  # far below any sum of logits, but finite: if all paths are forbidden, there is still a best one
FORBIDDEN_WEIGHT = 1e-100  # the same for products of probabilities


def observed_transitions(sentences: Iterable[Sequence[str]]) -> tuple[Transition, ...]:
    """The transitions that occur, without annotation errors; and valid ones that do not occur, where there are too few
    examples to conclude anything from that."""
    tag_pairs = Counter(pair for tags in sentences for pair in pairwise((BOUNDARY, *tags, BOUNDARY)))
    counts = _sum_weights((_transition(*pair), count) for pair, count in tag_pairs.items())
    from_prefix = _sum_weights((first, count) for (first, _, _), count in counts.items())
    to_prefix = _sum_weights((second, count) for (_, second, _), count in counts.items())
    observed = (
        transition
        for transition, count in counts.items()
        if count >= MIN_TRANSITION_SHARE * min(from_prefix[transition[0]], to_prefix[transition[1]])
    )
    marks_ends = bool(CLOSING_PREFIXES & from_prefix.keys())
    unobserved = (
        transition
        for transition, expected_count in _expected_counts(tag_pairs).items()
        if transition not in counts
        and expected_count < MIN_EXPECTED_COUNT
        and _is_valid(transition, marks_ends=marks_ends)
    )
    return tuple(sorted({*observed, *unobserved}))


def _is_valid(transition: Transition, *, marks_ends: bool) -> bool:
    """By the rules of BIO or, if `marks_ends`, of BIOES and BMES."""
    first, second, same_type = transition
    continues = second in CONTINUING_PREFIXES
    if marks_ends:
        return (first in OPEN_PREFIXES) == continues and (same_type or not continues)
    return not continues or (first in OPEN_PREFIXES and same_type)


def _expected_counts(tag_pairs: Mapping[tuple[str, str], int]) -> Mapping[Transition, float]:
    """How often each transition would occur if tags were independent of the one before."""
    firsts, seconds = (_sum_weights((pair[i], count) for pair, count in tag_pairs.items()) for i in (0, 1))
    total = sum(tag_pairs.values())
    return _sum_weights((_transition(a, b), firsts[a] * seconds[b] / total) for a in firsts for b in seconds)


def _sum_weights(weighted: Iterable[tuple[T, float]]) -> dict[T, float]:
    sums: defaultdict[T, float] = defaultdict(float)
    for key, weight in weighted:
        sums[key] += weight
    return sums


def _transition(first_tag: str, second_tag: str) -> Transition:
    first, first_type = prefix_and_type(first_tag)
    second, second_type = prefix_and_type(second_tag)
    return first, second, first_type == second_type


class ViterbiDecoder:
    """The best sequence of tags with allowed transitions only, and how probable its tags are among such sequences."""

    def __init__(self, labels: Sequence[str], allowed: Iterable[Transition]) -> None:
        allowed = set(allowed)
        tags = [prefix_and_type(tag) for tag in (*labels, BOUNDARY)]
        self.scores = np.array(
            [
                [
                    0.0 if (first, second, first_type == second_type) in allowed else FORBIDDEN
                    for second, second_type in tags
                ]
                for first, first_type in tags
            ]
        )

    def decode(self, logits: Floats) -> Numbers:
        """The tag of each word, from the logits (words, tags), by the Viterbi algorithm (1967)."""
        independent: Numbers = logits.argmax(1)
        if not self.scores[[-1, *independent], [*independent, -1]].any():  # the common case: all are allowed
            return independent
        transitions = self.scores[:-1, :-1]
        best = self.scores[-1, :-1] + logits[0]  # of the paths that end in each tag
        backpointers = []
        for row in logits[1:]:
            sums: NDArray[np.float64] = best[:, None] + transitions
            backpointers.append(sums.argmax(0))
            best = sums.max(0) + row
        path = [int((best + self.scores[:-1, -1]).argmax())]
        for pointers in reversed(backpointers):
            path.append(int(pointers[path[-1]]))
        return np.array(path[::-1], np.int64)

    def marginals(self, probabilities: Floats) -> Floats:
        """The probability of each tag of each word (words, tags), given that the sequence is an allowed one: by the
        forward-backward algorithm. A word's own probabilities do not know that, and may be low for the only tag that
        fits between its neighbours."""
        allowed = np.where(self.scores == 0, 1.0, FORBIDDEN_WEIGHT)
        forward = _passed_on(probabilities, allowed[-1, :-1], allowed[:-1, :-1])
        backward = _passed_on(probabilities[::-1], allowed[:-1, -1], allowed[:-1, :-1].T)[::-1]
        joint = forward * backward * probabilities
        marginals: Floats = joint / joint.sum(1, keepdims=True)
        return marginals


def _passed_on(probabilities: Floats, first: Floats, transitions: Floats) -> Floats:
    """What the words before each word say about its tag, (words, tags), up to a factor."""
    messages = np.empty_like(probabilities)
    message = first
    for word, row in enumerate(probabilities):
        messages[word] = message
        weights = message * row
        message = (weights / weights.sum()) @ transitions
    return messages
