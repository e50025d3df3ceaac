"""The words that mark the contexts of a group."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from bertworks.text.words import CJK

N_WORDS = 6
PRIOR_WORDS = 100.0
MIN_COUNTED = 10_000  # words, to tell which are common
COMMON_SHARE = 0.0005  # of all words
CHUNK = re.compile(rf"[{CJK}]+|[^\W{CJK}]+")
IS_CHINESE = re.compile(f"[{CJK}]")


def context_words(text: str) -> list[str]:
    """In lower case. Chinese has no spaces: there, all pairs of neighbouring characters."""
    words: list[str] = []
    for chunk in CHUNK.findall(text.lower()):
        is_chinese = IS_CHINESE.match(chunk) is not None
        words += [chunk[at : at + 2] for at in range(max(1, len(chunk) - 1))] if is_chinese else [chunk]
    return words


def common_words(counts: Counter[str]) -> frozenset[str]:
    """Words like "the", in any language: those that are frequent in the corpus; none, if too few were counted."""
    total = counts.total()
    if total < MIN_COUNTED:
        return frozenset()
    return frozenset(word for word, count in counts.items() if count > COMMON_SHARE * total)


def marking_words(
    contexts: Sequence[str], labels: NDArray[np.int64], word: str, common: Collection[str] = ()
) -> tuple[tuple[str, ...], ...]:
    """The words that set the contexts of each group apart from the others, by log-odds with a prior (Monroe et al.
    2008); common ones are left out, and the word itself. A single group has none."""
    n_groups = int(labels.max()) + 1
    if n_groups == 1:
        return ((),)
    left_out = {*context_words(word), *common}
    counts = [Counter[str]() for _ in range(n_groups)]
    for context, label in zip(contexts, labels.tolist(), strict=True):
        counts[label].update({*context_words(context)} - left_out)
    everything = sum(counts, Counter[str]())
    marked = []
    for own in counts:
        scores = {
            name: _log_odds(count, own.total(), everything[name], everything.total())
            for name, count in own.items()
            if count > 1 and (len(name) > 1 or not name.isascii())
        }
        best = sorted(scores, key=lambda name: (-scores[name], name))[:N_WORDS]
        marked.append(tuple(name for name in best if scores[name] > 0))
    return tuple(marked)


def _log_odds(count: int, n_own: int, count_all: int, total: int) -> float:
    """In standard deviations."""
    prior = count_all / total * PRIOR_WORDS
    others, n_others = count_all - count, total - n_own
    odds = np.log((count + prior) / (n_own + PRIOR_WORDS - count - prior))
    odds -= np.log((others + prior) / (n_others + PRIOR_WORDS - others - prior))
    return float(odds / np.sqrt(1 / (count + prior) + 1 / (others + prior)))
