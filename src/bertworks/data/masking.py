"""Which positions are targets, and what replaces the tokens there: two independent functions.

Targets: single tokens (BERT), whole words, n-grams of one to three words with weights 1, 1/2, 1/3 (ALBERT, section
3.1), or spans of one to ten words of geometric length (SpanBERT, section 3.1). All four are spans of a number of units
(tokens or words), chosen in random order until the mask rate is reached. A span that would exceed the rate, or overlap
another one, loses units at its end; a single unit that would still exceed it is chosen with the probability that makes
the expected rate exact. In short sequences, long words are therefore masked less often than short ones: a word longer
than the number of tokens to mask has only that probability.

Replacement: the mask token, a random token or the token itself, 80/10/10 in BERT (section 3.1), drawn for each token;
SpanBERT draws once for each span.
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
    """The distribution of span lengths."""

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
    """The positions to predict, sorted. Only those that are `maskable` are chosen: special tokens are not."""
    span_lengths = SPAN_LENGTHS[unit]
    begins, ends, segment_ends = _units(maskable, word_starts if span_lengths.words else np.ones_like(maskable))
    order = rng.permutation(len(begins)).tolist()
    weights = np.cumsum(span_lengths.weights)
    lengths = (np.searchsorted(weights, rng.random(len(begins)) * weights[-1], side="right") + 1).tolist()
    last_draw = rng.random()  # whether a unit is chosen that exceeds the rate
    remaining = rate * float(maskable.sum())  # tokens still to be chosen
    is_target = np.zeros(len(maskable), dtype=np.bool_)
    is_used = [False] * len(begins)  # by unit
    for first, length in zip(order, lengths, strict=True):
        if is_used[first]:
            continue
        stop = min(first + length, segment_ends[first])
        stop = next((unit for unit in range(first + 1, stop) if is_used[unit]), stop)
        begin = begins[first]
        while stop > first + 1 and ends[stop - 1] - begin > remaining:
            stop -= 1
        end = ends[stop - 1]
        size = end - begin
        if size > remaining and last_draw >= remaining / size:
            break
        is_target[begin:end] = True
        is_used[first:stop] = [True] * (stop - first)
        remaining -= size
        if remaining <= 0:
            break
    return np.flatnonzero(is_target)


def _units(maskable: Flags, starts: Flags) -> tuple[list[int], list[int], list[int]]:
    """For each unit: where it begins and ends, and the first unit after it that a special token separates from it."""
    is_begin = maskable & (starts | ~np.concatenate([[False], maskable[:-1]]))
    begins = np.flatnonzero(is_begin)
    stops = np.flatnonzero(is_begin | ~maskable)
    ends = np.append(stops, len(maskable))[np.searchsorted(stops, begins, side="right")]
    gaps = np.flatnonzero(ends[:-1] != begins[1:]) + 1
    segment_ends = np.append(gaps, len(begins))[np.searchsorted(gaps, np.arange(len(begins)), side="right")]
    return begins.tolist(), ends.tolist(), segment_ends.tolist()


def mask_targets(
    rng: np.random.Generator,
    ids: NDArray[np.int64],
    targets: Positions,
    mask_id: int,
    ordinary_ids: NDArray[np.int64],
    mask_share: float,
    random_share: float,
) -> NDArray[np.int64]:
    """A copy of `ids` in which a share of the targets is masked and another share random, drawn from `ordinary_ids`."""
    uniforms = rng.random(len(targets))
    random_ids = ordinary_ids[rng.integers(len(ordinary_ids), size=len(targets))]
    is_masked = uniforms < mask_share
    is_random = uniforms < mask_share + random_share
    corrupted = ids.copy()
    corrupted[targets] = np.where(is_masked, mask_id, np.where(is_random, random_ids, ids[targets]))
    return corrupted


def prediction_order(rng: np.random.Generator, targets: Positions, length: int) -> NDArray[np.int64]:
    """XLNet's order of prediction: a random rank for each target; all other tokens have rank -1, visible to all."""
    ranks = np.full(length, -1, dtype=np.int64)
    ranks[targets] = rng.permutation(len(targets))
    return ranks
