"""Which positions are predicted, and what stands there instead: two functions, freely combined.

Where: single tokens (BERT), whole words, n-grams of one to three words with weights 1, 1/2, 1/3 (ALBERT, section 3.1),
or spans of one to ten words of geometric length (SpanBERT, section 3.1). All four are one thing, stretches of so many
units, taken in random order until the share is reached. A stretch that would go beyond it, or into another one, loses
units at its end; a single unit that still would go beyond is taken with the probability that makes the expected share
exact. Short sequences mask long words less often than short ones for it: a word longer than the whole share has only
that chance.

What: the mask token, a random token or the token itself, 80/10/10 in BERT (section 3.1), drawn for each token; SpanBERT
draws once for each span.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertworks.config import MaskUnit

Positions = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class SpanLengths:
    words: bool  # units are words, not tokens
    weights: tuple[float, ...]  # of lengths 1, 2, 3, ... in units


SPAN_LENGTHS: dict[MaskUnit, SpanLengths] = {
    "token": SpanLengths(words=False, weights=(1.0,)),
    "word": SpanLengths(words=True, weights=(1.0,)),
    "ngram": SpanLengths(words=True, weights=(1.0, 1 / 2, 1 / 3)),
    "span": SpanLengths(words=True, weights=tuple(0.2 * 0.8**length for length in range(10))),
}


def choose_targets(
    rng: np.random.Generator, unit: MaskUnit, rate: float, maskable: Flags, word_starts: Flags
) -> Positions:
    """The positions to predict, in order. `free` are those that may be; special tokens are not."""
    kind = SPAN_LENGTHS[unit]
    begins, ends, after = _units(maskable, word_starts if kind.words else np.ones_like(maskable))
    order = rng.permutation(len(begins)).tolist()
    weights = np.cumsum(kind.weights)
    lengths = (np.searchsorted(weights, rng.random(len(begins)) * weights[-1], side="right") + 1).tolist()
    last_chance = rng.random()
    left = rate * float(maskable.sum())
    chosen, taken = np.zeros(len(maskable), dtype=np.bool_), [False] * len(begins)
    for first, length in zip(order, lengths, strict=True):
        if taken[first]:
            continue
        last = min(first + length, after[first])
        last = next((unit for unit in range(first + 1, last) if taken[unit]), last)
        begin = begins[first]
        while last > first + 1 and ends[last - 1] - begin > left:
            last -= 1
        end = ends[last - 1]
        size = end - begin
        if size > left and last_chance >= left / size:
            break
        chosen[begin:end] = True
        taken[first:last] = [True] * (last - first)
        left -= size
        if left <= 0:
            break
    return np.flatnonzero(chosen)


def _units(maskable: Flags, starts: Flags) -> tuple[list[int], list[int], list[int]]:
    """Where each unit begins and ends, and the unit up to which the text goes on without a special token."""
    opens = maskable & (starts | ~np.concatenate([[False], maskable[:-1]]))
    begins = np.flatnonzero(opens)
    stops = np.flatnonzero(opens | ~maskable)
    ends = np.append(stops, len(maskable))[np.searchsorted(stops, begins, side="right")]
    gaps = np.flatnonzero(ends[:-1] != begins[1:]) + 1
    after = np.append(gaps, len(begins))[np.searchsorted(gaps, np.arange(len(begins)), side="right")]
    return begins.tolist(), ends.tolist(), after.tolist()


def mask_targets(
    rng: np.random.Generator,
    ids: NDArray[np.int64],
    targets: Positions,
    mask: int,
    ordinary: NDArray[np.int64],
    mask_share: float,
    random_share: float,
) -> NDArray[np.int64]:
    """The ids with some of the targets hidden. Random tokens are drawn from the `ordinary`, which are not special."""
    draw = rng.random(len(targets))
    strangers = ordinary[rng.integers(len(ordinary), size=len(targets))]
    new = ids.copy()
    new[targets] = np.where(
        draw < mask_share, mask, np.where(draw < mask_share + random_share, strangers, ids[targets])
    )
    return new


def prediction_order(rng: np.random.Generator, targets: Positions, length: int) -> NDArray[np.int64]:
    """XLNet's order of prediction: a random rank for each target; all other tokens, at -1, are given to everyone."""
    ranks = np.full(length, -1, dtype=np.int64)
    ranks[targets] = rng.permutation(len(targets))
    return ranks
