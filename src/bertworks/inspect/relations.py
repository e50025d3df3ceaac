"""Where a relation between words can be seen in a text: the words that stand in it, and decoys to compare with.

A decoy of a target is another word that the same query sees, in the same text as the target, at a like distance, as
frequent, and a word or a sign as the target is, but not in the relation. What a head does for reasons of distance,
frequency or position it does to decoys, too. Everything here is found before a model runs.

    T  pieces      U  units of a text      Q  queries that have a target      P  pairs
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bertworks.inspect.units import SPECIAL, Bools, Floats, Numbers, Units, WordTypes

N_COMMON = 50  # the commonest words, which recur by chance
MIN_DISTANCE = 3  # of a word that recurs
EXACT_DISTANCE = 3  # up to it, decoys are at the same distance; beyond, within DISTANCE_TOLERANCE
DISTANCE_TOLERANCE = 0.2
FREQUENCY_TOLERANCE = 1.0  # log2
N_TRIED_OFFSETS = 40  # the commonest of a relation


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

    @cached_property
    def ordinary(self) -> Bools:
        """(U, U): keys that are words, not the query itself, and seen by it."""
        return self.sees & self.units.is_word[None] & ~np.eye(len(self.units), dtype=bool)

    @cached_property
    def is_content(self) -> Bools:
        """(U,): not a sign and not one of the commonest words, which recur by chance."""
        is_content: Bools = (self.types >= N_COMMON) & ~self.units.is_punctuation
        return is_content

    @cached_property
    def within(self) -> Bools:
        """(U, U): pairs inside one text."""
        same_text: Bools = self.units.texts[:, None] == self.units.texts[None]
        return same_text


def same_word(text: InspectedText) -> Bools:
    """The same word further away; signs and the commonest words recur by chance."""
    places = np.arange(len(text.units))
    is_far: Bools = np.abs(places[:, None] - places[None]) >= MIN_DISTANCE
    is_same: Bools = text.types[:, None] == text.types[None]
    return is_same & is_far & text.is_content[None] & text.ordinary


def at_offset(text: InspectedText, offset: int) -> Bools:
    """The word so many words further on, in the same text."""
    pairs = np.eye(len(text.units), k=offset, dtype=bool)
    return pairs & text.within & text.ordinary & text.units.is_word[:, None]


# ---------------------------------------------------------------------- decoys


class Pairs(NamedTuple):
    """Queries and keys with weights, in rows: sums over a row are means."""

    rows: Numbers  # (P,) in order, none is missing
    queries: Numbers
    keys: Numbers
    weights: Floats

    def sums(self, attention: Floats) -> Floats:
        """Of attention (H, U, U), by row: (R, H)."""
        values = attention[:, self.queries, self.keys] * self.weights
        starts = np.flatnonzero(np.diff(self.rows, prepend=-1))
        sums: Floats = np.add.reduceat(values, starts, axis=1).T
        return sums


@dataclass(frozen=True)
class TextRelation:
    """The queries of a text that have targets, and what those of them with decoys are compared by."""

    queries: Numbers  # (Q,)
    types: Numbers  # (Q,) the units of evidence
    targets: Bools  # (Q, U)
    compared: Numbers  # (C,) queries that have decoys, as indices of `queries`
    to_targets: Pairs | None  # a row for each of these: means over targets that have decoys
    to_decoys: Pairs | None
    to_all_targets: Pairs | None  # sums
    fixed_hits: Bools  # (Q,) whether the word at the best fixed offset is a target; see `with_best_offset`


FindDecoys = Callable[[InspectedText, Numbers, Numbers, Bools], tuple[Numbers, Numbers, Numbers]]
"""Of pairs of queries and targets, and all pairs (U, U) in the relation: which pair, the query and the key of each
decoy."""


def like_decoys(
    text: InspectedText, queries: Numbers, keys: Numbers, related: Bools
) -> tuple[Numbers, Numbers, Numbers]:
    """Other words that the same query sees, at a like distance."""
    candidates = np.arange(len(text.units))
    distance = (keys - queries)[:, None]
    is_far = np.abs(distance) > EXACT_DISTANCE
    tolerance = np.where(is_far, np.ceil(DISTANCE_TOLERANCE * np.abs(distance)), 0)
    offset = candidates[None] - queries[:, None]
    is_decoy: Bools = text.ordinary[queries] & ~related[queries]
    is_decoy &= (np.abs(offset - distance) <= tolerance) & (np.sign(offset) == np.sign(distance))
    is_decoy &= text.units.texts[None] == text.units.texts[keys][:, None]
    is_decoy &= _are_alike(text, keys[:, None], candidates[None])
    pairs, decoys = np.nonzero(is_decoy)
    return pairs, queries[pairs], decoys


def near_decoys(
    text: InspectedText, queries: Numbers, keys: Numbers, related: Bools
) -> tuple[Numbers, Numbers, Numbers]:
    """As `like_decoys`; and for targets so near that the same query has no other word there, words at the same offset
    from other queries."""
    far = like_decoys(text, queries, keys, related)
    distance = (keys - queries)[:, None]
    others = np.broadcast_to(np.arange(len(text.units)), (len(queries), len(text.units)))
    targets = others + distance
    is_there = (targets >= 0) & (targets < len(text.units))
    targets = np.where(is_there, targets, 0)
    is_decoy = is_there & (np.abs(distance) <= EXACT_DISTANCE) & (others != queries[:, None])
    is_decoy &= text.ordinary[others, targets] & ~related[others, targets] & text.units.is_word[others]
    is_decoy &= text.within[others, targets] == text.within[queries, keys][:, None]
    is_decoy &= _are_alike(text, keys[:, None], targets)
    pairs, columns = np.nonzero(is_decoy)
    near = pairs, columns, targets[pairs, columns]
    joined = [np.concatenate(both) for both in zip(far, near, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    return joined[0][order], joined[1][order], joined[2][order]


def _are_alike(text: InspectedText, keys: Numbers, others: Numbers) -> Bools:
    is_sign, log_counts = text.units.is_punctuation, text.log_counts
    like_sign: Bools = is_sign[keys] == is_sign[others]
    like_count: Bools = np.abs(log_counts[keys] - log_counts[others]) <= FREQUENCY_TOLERANCE
    return like_sign & like_count


def find_relation(
    text: InspectedText,
    targets: Bools,
    excluded: Bools | None = None,
    find_decoys: FindDecoys = like_decoys,
    *,
    by_pairs: bool = False,
) -> TextRelation | None:
    """The queries with targets (U, U); None, if there are none. `excluded`: pairs that are no decoys either;
    `by_pairs`: the unit of evidence is a pair of words, where few words are queries."""
    queries, keys = np.nonzero(targets)
    if not len(queries):
        return None
    unique = np.unique(queries)
    types = text.types[unique]
    if by_pairs:
        types = types * (1 << 32) + text.types[targets[unique].argmax(1)]
    no_numbers = np.empty(0, np.int64)
    relation = TextRelation(unique, types, targets[unique], no_numbers, None, None, None, np.zeros(len(unique), bool))
    related = targets if excluded is None else targets | excluded
    pairs, decoy_queries, decoy_keys = find_decoys(text, queries, keys, related)
    if not len(pairs):
        return relation
    with_decoys, owners, n_decoys = np.unique(pairs, return_inverse=True, return_counts=True)
    compared, rows, n_targets = np.unique(queries[with_decoys], return_inverse=True, return_counts=True)
    weights = 1 / n_targets[rows]
    all_rows, all_keys = np.nonzero(targets[compared])
    return replace(
        relation,
        compared=np.searchsorted(unique, compared),
        to_targets=Pairs(rows, queries[with_decoys], keys[with_decoys], weights),
        to_decoys=Pairs(rows[owners], decoy_queries, decoy_keys, (weights / n_decoys)[owners]),
        to_all_targets=Pairs(all_rows, compared[all_rows], all_keys, np.ones(len(all_rows))),
    )


def relabelled(
    text: InspectedText,
    targets: Bools,
    excluded: Bools | None,
    rng: np.random.Generator,
    find_decoys: FindDecoys = like_decoys,
) -> TextRelation | None:
    """As `find_relation`, with a decoy of each target in its place: nothing should be found there."""
    queries, keys = np.nonzero(targets)
    related = targets if excluded is None else targets | excluded
    pairs, decoy_queries, decoy_keys = find_decoys(text, queries, keys, related)
    if not len(pairs):
        return None
    order = rng.permutation(len(pairs))
    _, first = np.unique(pairs[order], return_index=True)
    chosen = order[first]
    false_targets = np.zeros_like(targets)
    false_targets[decoy_queries[chosen], decoy_keys[chosen]] = True
    return find_relation(text, false_targets, related, find_decoys)


def with_best_offset(relations: Sequence[TextRelation | None]) -> tuple[list[TextRelation | None], int, float]:
    """What a relation has to beat: the one offset at which most of its targets are found, and how often, as a mean
    over word types; and the relations with that."""
    present = [item for item in relations if item is not None]
    if not present:
        return list(relations), 0, 0.0
    _, groups = np.unique(np.concatenate([item.types for item in present]), return_inverse=True)
    sizes = np.bincount(groups)
    places = [(item.queries, *np.nonzero(item.targets)) for item in present]
    distances = [keys - queries[rows] for queries, rows, keys in places]
    offsets, counts = np.unique(np.concatenate(distances), return_counts=True)
    best_offset, best_share = 0, -1.0
    for offset in offsets[np.argsort(-counts, kind="stable")][:N_TRIED_OFFSETS].tolist():
        hits = np.concatenate([_fixed_hits(item, offset) for item in present])
        share = float((np.bincount(groups, hits) / sizes).mean())
        if share > best_share:
            best_offset, best_share = offset, share
    with_hits = [
        None if item is None else replace(item, fixed_hits=_fixed_hits(item, best_offset)) for item in relations
    ]
    return with_hits, best_offset, best_share


def _fixed_hits(relation: TextRelation, offset: int) -> Bools:
    keys = relation.queries + offset
    is_there = (keys >= 0) & (keys < relation.targets.shape[1])
    hits: Bools = is_there & relation.targets[np.arange(len(keys)), np.where(is_there, keys, 0)]
    return hits


# ---------------------------------------------------------------------- pieces of one word


@dataclass(frozen=True)
class PiecePairs:
    """Pieces that have others of the same word beside them, and pairs as far apart in different words."""

    types: Numbers  # (Q,) of their words
    to_own: Pairs  # a row for each query
    elsewhere: tuple[tuple[Numbers, Numbers], ...]  # by offset: queries and keys
    weights: Floats  # (Q, offsets)


def find_piece_pairs(text: InspectedText, owners: Numbers, types: Numbers) -> PiecePairs | None:
    """`owners`: the word of each piece, (T,), negative for special tokens; `types`: those of the words, (T,)."""
    units = text.units
    unit_of = np.repeat(np.arange(len(units)), units.n_pieces)
    texts = units.texts[unit_of]
    pairs = (owners >= 0)[:, None] & (owners >= 0)[None] & (texts[:, None] == texts[None])
    same = owners[:, None] == owners[None]
    places = np.arange(len(owners))
    offsets = places[None] - places[:, None]
    sees = text.sees[unit_of][:, unit_of]
    if not text.sees.all():
        sees = sees & (offsets <= 0)  # inside a word too
    own = pairs & same & (offsets != 0) & sees
    others = pairs & ~same & sees
    others_at: dict[int, tuple[Numbers, Numbers]] = {}
    for offset in np.unique(offsets[own]).tolist():
        from_, to = np.nonzero(others & (offsets == offset))
        if len(from_):
            others_at[offset] = from_, to
    own &= np.isin(offsets, list(others_at))
    queries, keys = np.nonzero(own)
    if not len(queries):
        return None
    unique, rows, counts = np.unique(queries, return_inverse=True, return_counts=True)
    numbers = {offset: number for number, offset in enumerate(others_at)}
    weights = np.zeros((len(unique), len(others_at)))
    columns = np.array([numbers[offset] for offset in (keys - queries).tolist()])
    np.add.at(weights, (rows, columns), 1 / counts[rows])
    to_own = Pairs(rows, queries, keys, 1 / counts[rows])
    return PiecePairs(types[unique], to_own, tuple(others_at.values()), weights)
