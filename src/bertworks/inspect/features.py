"""What the heads of a layer do in a text, in numbers of each query: how much goes to targets and to decoys, to the
words at each offset, to special tokens, and to other pieces of a word.

    H  heads      T  pieces      U  units of a text      Q  queries
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bertworks.inspect.relations import InspectedText, PiecePairs, TextRelation
from bertworks.inspect.units import Bools, Floats, Numbers, Units

MAX_OFFSET = 10  # of distance profiles
PROFILE_OFFSETS = (*range(-MAX_OFFSET, 0), *range(1, MAX_OFFSET + 1))


class LayerAttention:
    """The attention of the heads of one layer over a text."""

    def __init__(self, pieces: Floats, text: InspectedText) -> None:
        """pieces: (H, T, T)."""
        self.pieces = pieces
        self.words = text.units.attention(pieces)  # (H, U, U)
        ordinary = text.ordinary
        to_ordinary = np.where(ordinary, self.words, 0)
        self.to_words = to_ordinary.sum(2)  # (H, U)
        self.strongest = np.where(ordinary, self.words, -1).argmax(2)  # (H, U)


TARGET, DECOY, MASS = range(3)  # features of a query that is compared
HIT, FIXED_HIT = range(2)  # features of a query with targets


def compared_features(layer_attention: LayerAttention, relation: TextRelation) -> Floats | None:
    """The mean on targets, the mean on decoys, and all that goes to targets: (C, H, 3)."""
    if relation.to_targets is None or relation.to_decoys is None or relation.to_all_targets is None:
        return None
    pairs = (relation.to_targets, relation.to_decoys, relation.to_all_targets)
    return np.stack([item.sums(layer_attention.words) for item in pairs], axis=2)


def hit_features(layer_attention: LayerAttention, relation: TextRelation) -> Floats:
    """Whether the strongest word is a target, and whether the one at the best fixed offset is: (Q, H, 2)."""
    strongest = layer_attention.strongest[:, relation.queries]  # (H, Q)
    features = np.zeros((len(relation.queries), len(strongest), 2))
    features[:, :, HIT] = relation.targets[np.arange(len(relation.queries)), strongest].T
    features[:, :, FIXED_HIT] = relation.fixed_hits[:, None]
    return features


OFFSETS = (-3, -2, -1, 1, 2, 3)
TO_WORD, TO_WORDS, IS_STRONGEST, IS_THERE = range(4)  # features of an offset
N_OFFSET_FEATURES = 4


def offset_features(layer_attention: LayerAttention, text: InspectedText) -> tuple[Numbers, Floats]:
    """The queries (Q,) that are words, and of each, for every offset, what goes to the word there, what goes to words
    at all, whether that word is the strongest, and 1; all of them 0 where there is no such word:
    (Q, H, offsets * 4)."""
    queries = np.flatnonzero(text.units.is_word & text.ordinary.any(1))
    features = np.zeros((len(queries), len(layer_attention.words), len(OFFSETS), N_OFFSET_FEATURES))
    to_words, strongest = layer_attention.to_words[:, queries], layer_attention.strongest[:, queries]
    for number, offset in enumerate(OFFSETS):
        is_there, keys = _keys_at(text, queries, offset)
        of_offset = features[:, :, number]
        of_offset[:, :, TO_WORD] = (layer_attention.words[:, queries, keys] * is_there).T
        of_offset[:, :, TO_WORDS] = (to_words * is_there).T
        of_offset[:, :, IS_STRONGEST] = ((strongest == keys) & is_there).T
        of_offset[:, :, IS_THERE] = is_there[:, None]
    return queries, features.reshape(len(queries), len(layer_attention.words), -1)


def profile(layer_attention: LayerAttention, text: InspectedText) -> tuple[Floats, Numbers]:
    """What goes to the words at each of `PROFILE_OFFSETS`, summed over queries, (H, offsets), and how many there
    are."""
    queries = np.flatnonzero(text.units.is_word)
    sums, counts = (
        np.zeros((len(layer_attention.words), len(PROFILE_OFFSETS))),
        np.zeros(len(PROFILE_OFFSETS), np.int64),
    )
    for number, offset in enumerate(PROFILE_OFFSETS):
        is_there, keys = _keys_at(text, queries, offset)
        sums[:, number] = layer_attention.words[:, queries[is_there], keys[is_there]].sum(1)
        counts[number] = is_there.sum()
    return sums, counts


def _keys_at(text: InspectedText, queries: Numbers, offset: int) -> tuple[Bools, Numbers]:
    """Whether a query sees a word of its own text there, and where it is."""
    keys = queries + offset
    is_there = (keys >= 0) & (keys < len(text.units))
    keys = np.where(is_there, keys, 0)
    is_there &= text.ordinary[queries, keys] & text.within[queries, keys]
    return is_there, keys


SINKS = ("cls", "sep", "first")
DESCRIPTIONS = ("self", "punctuation", "entropy", "rarest", "own_text")
TOKEN_FEATURES = (*SINKS, *(f"{name}_norm" for name in SINKS), *DESCRIPTIONS)


def token_features(
    layer_attention: LayerAttention, norms: Floats, text: InspectedText, sinks: Mapping[str, Bools]
) -> tuple[Numbers, Floats]:
    """The queries (Q,) that are words, and of each (Q, H, features): what goes to special tokens, by weights and by
    the lengths of what they bring; to itself and to signs; how even its attention is (1: all keys alike); whether the
    strongest word is the rarest; and, of what goes to words, how much stays in the own text. `norms` of pieces (H, T);
    `sinks`: the units of each, (U,)."""
    units = text.units
    queries = np.flatnonzero(units.is_word)
    rows = layer_attention.words[:, queries]  # (H, Q, U)
    masses = [rows @ sinks[name].astype(rows.dtype) for name in SINKS]
    n_seen = text.sees[queries].sum(1)
    entropy = -(rows * np.log(np.maximum(rows, 1e-30))).sum(2) / np.log(np.maximum(n_seen, 2))
    counts = np.where(text.ordinary[queries], text.log_counts, np.inf)
    is_rarest = np.isfinite(counts) & (counts == counts.min(1, keepdims=True))
    in_text = (rows * (text.ordinary & text.within)[queries]).sum(2)
    described = [
        rows[:, np.arange(len(queries)), queries],
        rows @ units.is_punctuation.astype(rows.dtype),
        entropy,
        is_rarest[np.arange(len(queries)), layer_attention.strongest[:, queries]],
        in_text / np.maximum(layer_attention.to_words[:, queries], 1e-30),
    ]
    features = [*masses, *_norm_shares(layer_attention, norms, units, sinks, queries), *described]
    return queries, np.stack(features, axis=2).transpose(1, 0, 2)


def _norm_shares(
    layer_attention: LayerAttention, norms: Floats, units: Units, sinks: Mapping[str, Bools], queries: Numbers
) -> list[Floats]:
    """Of what the values bring to a query, the part of each sink, (H, Q) each: by weights times lengths (Kobayashi et
    al. 2020)."""
    unit_of = np.repeat(np.arange(len(units)), units.n_pieces)
    parts = np.stack([norms, *(norms * sinks[name][unit_of] for name in SINKS)], axis=2)  # (H, T, 4)
    brought = np.add.reduceat(layer_attention.pieces @ parts, units.starts, axis=1)[:, queries]  # (H, Q, 4)
    return [brought[:, :, 1 + number] / np.maximum(brought[:, :, 0], 1e-30) for number in range(len(SINKS))]


def piece_features(pieces: Floats, piece_pairs: PiecePairs) -> Floats:
    """Of attention between pieces (H, T, T): what goes to the others of a word, on average; and what goes, in this
    text, as far into another word: (Q, H, 2)."""
    elsewhere = np.stack([pieces[:, rows, columns].mean(1) for rows, columns in piece_pairs.elsewhere], axis=1)
    return np.stack([piece_pairs.to_own.sums(pieces), (elsewhere @ piece_pairs.weights.T).T], axis=2)
