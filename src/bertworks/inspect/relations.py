"""Where a relation between words can be seen in a text: the words that stand in it, and decoys to compare with.

A decoy of a target is another word that the same query sees, in the same text as the target, at a like distance, as
frequent, and a word or a sign as the target is, but not in the relation. What a head does for reasons of distance,
frequency or position it does to decoys, too.

    U  units of a text      Q  queries that have a target      H  heads
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bertworks.inspect.units import SPECIAL, Bools, Floats, Numbers, Units, WordTypes

N_COMMON = 50  # the commonest words, which recur by chance
MIN_DISTANCE = 3  # of a word that recurs
EXACT_DISTANCE = 3  # up to it, decoys are at the same distance; beyond, within DISTANCE_TOLERANCE
DISTANCE_TOLERANCE = 0.2
FREQUENCY_TOLERANCE = 1.0  # log2
OFFSETS = (-3, -2, -1, 1, 2, 3)


@dataclass(frozen=True)
class InspectedText:
    """A text or a pair of the corpus."""

    units: Units
    types: Numbers  # (U,) numbers of the words
    log_counts: Floats  # (U,) frequencies in the corpus, log2
    document: int
    sees: Bools  # (U, U) which unit sees which

    @classmethod
    def of(cls, units: Units, words: WordTypes, document: int, *, causal: bool = False) -> InspectedText:
        types = words.of(units)
        log_counts = np.where(types == SPECIAL, 0.0, words.log_counts[np.maximum(types, 0)])
        sees = np.tril(np.ones((len(units), len(units)), bool)) if causal else np.ones((len(units), len(units)), bool)
        return cls(units, types, log_counts, document, sees)

    @property
    def ordinary(self) -> Bools:
        """(U, U): keys that are words, not the query itself, and seen by it."""
        return self.sees & self.units.is_word[None] & ~np.eye(len(self.units), dtype=bool)


@dataclass(frozen=True)
class Sites:
    """The queries of a text that have targets. Weights are such that a sum over keys is a mean."""

    queries: Numbers  # (Q,)
    targets: Bools  # (Q, U)
    target_weights: Floats  # (Q, U) over targets with decoys
    decoy_weights: Floats  # (Q, U)


def same_word(text: InspectedText) -> Bools:
    """The same word further away; signs and the commonest words recur by chance."""
    return _recurs(text) & (_distances(len(text.units)) >= MIN_DISTANCE)


def within(text: InspectedText) -> Bools:
    """Pairs inside one text."""
    same_text: Bools = text.units.texts[:, None] == text.units.texts[None]
    return same_text


def _recurs(text: InspectedText) -> Bools:
    is_content: Bools = (text.types >= N_COMMON) & ~text.units.is_punctuation
    is_same: Bools = text.types[:, None] == text.types[None]
    return is_same & is_content[None] & text.ordinary


def at_offset(text: InspectedText, offset: int) -> Bools:
    """The word so many words further on, in the same text."""
    pairs = np.eye(len(text.units), k=offset, dtype=bool)
    return pairs & within(text) & text.ordinary & text.units.is_word[:, None]


def _distances(n: int) -> Numbers:
    distances: Numbers = np.abs(np.arange(n)[:, None] - np.arange(n)[None])
    return distances


def find_sites(text: InspectedText, targets: Bools, excluded: Bools | None = None) -> Sites | None:
    """The queries with targets (U, U) that have decoys; None, if there are none. `excluded`: pairs that are no
    decoys either."""
    queries, keys = np.nonzero(targets)
    if not len(queries):
        return None
    is_decoy = _decoys(text, queries, keys, targets if excluded is None else targets | excluded)
    n_decoys = is_decoy.sum(1)
    has_decoys = n_decoys > 0
    if not has_decoys.any():
        return None
    queries, keys = queries[has_decoys], keys[has_decoys]
    decoy_shares = is_decoy[has_decoys] / n_decoys[has_decoys, None]
    unique, owners, n_pairs = np.unique(queries, return_inverse=True, return_counts=True)
    shape = (len(unique), len(text.units))
    target_weights, decoy_weights = np.zeros(shape), np.zeros(shape)
    target_weights[owners, keys] = 1 / n_pairs[owners]
    np.add.at(decoy_weights, owners, decoy_shares / n_pairs[owners, None])
    return Sites(unique, targets[unique], target_weights, decoy_weights)


def _decoys(text: InspectedText, queries: Numbers, keys: Numbers, related: Bools) -> Bools:
    """Of each pair of a query and a target, (P, U)."""
    units = text.units
    candidates = np.arange(len(units))
    distance = (keys - queries)[:, None]
    is_far = np.abs(distance) > EXACT_DISTANCE
    tolerance = np.where(is_far, np.ceil(DISTANCE_TOLERANCE * np.abs(distance)), 0)
    offset = candidates[None] - queries[:, None]
    is_decoy: Bools = text.ordinary[queries] & ~related[queries]
    is_decoy &= (np.abs(offset - distance) <= tolerance) & (np.sign(offset) == np.sign(distance))
    is_decoy &= units.texts[None] == units.texts[keys][:, None]
    is_decoy &= units.is_punctuation[None] == units.is_punctuation[keys][:, None]
    is_decoy &= np.abs(text.log_counts[None] - text.log_counts[keys][:, None]) <= FREQUENCY_TOLERANCE
    return is_decoy


# ---------------------------------------------------------------------- what heads do there

TARGET, DECOY, MASS, HIT = range(4)  # features of a site


def site_features(attention: Floats, text: InspectedText, sites: Sites) -> Floats:
    """Of attention (H, U, U): the mean on targets, the mean on decoys, all that goes to targets, and whether the
    strongest word is a target: (Q, H, 4)."""
    rows = attention[:, sites.queries]  # (H, Q, U)
    strongest = np.where(text.ordinary[sites.queries], rows, -1.0).argmax(2)  # (H, Q)
    features = np.stack(
        [
            (rows * sites.target_weights).sum(2),
            (rows * sites.decoy_weights).sum(2),
            (rows * sites.targets).sum(2),
            np.take_along_axis(sites.targets[None], strongest[:, :, None], 2)[:, :, 0],
        ],
        axis=2,
    )
    return features.transpose(1, 0, 2)


TO_WORD, TO_WORDS, IS_STRONGEST, IS_THERE = range(4)  # features of an offset
N_OFFSET_FEATURES = 4


def offset_features(attention: Floats, text: InspectedText) -> tuple[Numbers, Floats]:
    """The queries (Q,) that are words, and of each, for every offset, what goes to the word there, what goes to words
    at all, whether that word is the strongest, and 1; all of them 0 where there is no such word:
    (Q, H, offsets * 4)."""
    ordinary = text.ordinary
    queries = np.flatnonzero(text.units.is_word & ordinary.any(1))
    rows = attention[:, queries]  # (H, Q, U)
    to_words = (rows * ordinary[queries]).sum(2)  # (H, Q)
    strongest = np.where(ordinary[queries], rows, -1.0).argmax(2)
    features = np.zeros((len(queries), len(attention), len(OFFSETS), N_OFFSET_FEATURES))
    for number, offset in enumerate(OFFSETS):
        is_there = np.asarray(at_offset(text, offset)[queries].any(1))
        keys = np.where(is_there, queries + offset, 0)
        of_offset = features[:, :, number]
        of_offset[:, :, TO_WORD] = (rows[:, np.arange(len(queries)), keys] * is_there).T
        of_offset[:, :, TO_WORDS] = (to_words * is_there).T
        of_offset[:, :, IS_STRONGEST] = ((strongest == keys) & is_there).T
        of_offset[:, :, IS_THERE] = is_there[:, None]
    return queries, features.reshape(len(queries), len(attention), -1)


# ---------------------------------------------------------------------- special tokens, and pieces of one word

SINKS = ("cls", "sep", "first")
SINK_FEATURES = (*SINKS, "self", "punctuation", "entropy")


def sink_features(attention: Floats, text: InspectedText, sinks: Mapping[str, Bools]) -> tuple[Numbers, Floats]:
    """The queries (Q,) that are words, and of each what goes to special tokens, to itself and to signs, and how even
    its attention is (1: all keys alike): (Q, H, features). `sinks`: the units of each, (U,)."""
    queries = np.flatnonzero(text.units.is_word)
    rows = attention[:, queries]  # (H, Q, U)
    n_seen = text.sees[queries].sum(1)
    entropy = -(rows * np.log(np.maximum(rows, 1e-30))).sum(2) / np.log(np.maximum(n_seen, 2))
    features = [(rows * sinks[name]).sum(2) for name in SINKS]
    features += [rows[:, np.arange(len(queries)), queries], (rows * text.units.is_punctuation).sum(2), entropy]
    return queries, np.stack(features, axis=2).transpose(1, 0, 2)


def piece_features(attention: Floats, text: InspectedText) -> tuple[Numbers, Floats] | None:
    """Of attention between pieces (H, T, T): the words (Q,) of several pieces, one for each of their pieces, and what
    goes from it to the others, on average; and what goes, in this text, as far into another word: (Q, H, 2)."""
    units = text.units
    owners = np.repeat(np.arange(len(units)), units.n_pieces)
    is_word = units.is_word[owners]
    pairs = is_word[:, None] & is_word[None] & (units.texts[owners][:, None] == units.texts[owners][None])
    same = owners[:, None] == owners[None]
    own = pairs & same & ~np.eye(len(owners), dtype=bool) & text.sees[owners][:, owners]
    queries = np.flatnonzero(own.any(1))
    if not len(queries):
        return None
    offsets = np.arange(len(owners))[None] - np.arange(len(owners))[:, None]
    elsewhere: dict[int, Floats] = {}  # the mean of what goes so far into another word, (H,)
    for offset in np.unique(offsets[own]).tolist():
        rows, columns = np.nonzero(pairs & ~same & (offsets == offset))
        elsewhere[offset] = attention[:, rows, columns].mean(1) if len(rows) else np.full(len(attention), np.nan)
    values = []
    for query in queries:
        keys = np.flatnonzero(own[query])
        decoys = np.mean([elsewhere[int(key - query)] for key in keys], axis=0)
        values.append(np.stack([attention[:, query, keys].mean(1), decoys], axis=1))
    features = np.stack(values)
    known = np.isfinite(features).all((1, 2))
    return (owners[queries[known]], features[known]) if known.any() else None
