"""When a head gets a name: thresholds on lower bounds, in one table, printed with every atlas.

A condition such as "lift at least 5" holds if the lower bound of `target - 5 * decoy` is above 0: so one bound, with
its uncertainty over word types and documents, serves differences and ratios alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bertworks.inspect.evidence import Evidence, Z
from bertworks.inspect.relations import (
    DECOY,
    HIT,
    IS_STRONGEST,
    IS_THERE,
    MASS,
    N_OFFSET_FEATURES,
    OFFSETS,
    TARGET,
    TO_WORD,
    TO_WORDS,
)
from bertworks.inspect.units import Bools, Floats

POSITIONAL = {"next": 1, "previous": -1, "next2": 2, "previous2": -2}


@dataclass(frozen=True)
class Thresholds:
    """Lower bounds that a name needs."""

    z: float = Z  # standard errors below the mean
    min_types: int = 50  # word types; fewer: not enough text
    min_documents: int = 50
    offset_share: float = 0.40  # of what goes to words, to the word at this offset
    offset_hit: float = 0.60  # how often that word is the strongest
    offset_ratio: float = 2.0  # times what goes to any other offset
    strong_mass: float = 0.50  # of all attention: then the name is a strong one
    same_lift: float = 5.0  # on the same word, times that on decoys
    same_mass: float = 0.05  # of all attention, to the same word
    related_lift: float = 3.0  # on related words, times that on decoys
    related_hit: float = 0.10  # by how much it finds them more often than the best fixed offset does
    across_ratio: float = 1.5  # times what goes to such words in the same text
    pieces_difference: float = 0.10  # more than as far into another word
    pieces_lift: float = 1.5
    min_piece_types: int = 30
    sink_mass: float = 0.50  # of all attention, on one special token


@dataclass(frozen=True)
class Verdict:
    """Whether heads have a name, (H,) each."""

    is_named: Bools
    is_strong: Bools
    numbers: Mapping[str, Floats]  # what was measured, means over types


def has_enough_text(evidence: Evidence, thresholds: Thresholds) -> bool:
    return len(evidence.types) >= thresholds.min_types and len(evidence.documents) >= thresholds.min_documents


def judge_offset(evidence: Evidence, offset: int, thresholds: Thresholds) -> Verdict:
    """Evidence of `offset_features`."""
    others = [other for other in OFFSETS if other != offset]

    def bound(weights: Mapping[tuple[int, int], float]) -> Floats:
        """By offset and feature."""
        row = np.zeros((len(OFFSETS), N_OFFSET_FEATURES))
        for (place, feature), weight in weights.items():
            row[OFFSETS.index(place), feature] = weight
        return evidence.lower_bound(row.reshape(-1), thresholds.z)

    conditions = [
        bound({(offset, TO_WORD): 1, (offset, TO_WORDS): -thresholds.offset_share}),
        bound({(offset, IS_STRONGEST): 1, (offset, IS_THERE): -thresholds.offset_hit}),
        *(bound({(offset, TO_WORD): 1, (other, TO_WORD): -thresholds.offset_ratio}) for other in others),
    ]
    strong = bound({(offset, TO_WORD): 1, (offset, IS_THERE): -thresholds.strong_mass})
    means = evidence.means.reshape(-1, len(OFFSETS), N_OFFSET_FEATURES)[:, OFFSETS.index(offset)]
    mass, to_words, hit, there = means.T
    is_named = np.min(conditions, axis=0) > 0
    there = np.maximum(there, 1e-30)  # from left to right, there is no next word
    numbers = {"share": mass / np.maximum(to_words, 1e-30), "mass": mass / there, "hit": hit / there}
    return Verdict(is_named, is_named & (strong > 0), numbers)


def judge_same(evidence: Evidence, thresholds: Thresholds) -> Verdict:
    """Evidence of `site_features`."""
    conditions = [
        evidence.lower_bound(_feature_weights({TARGET: 1, DECOY: -thresholds.same_lift}), thresholds.z),
        evidence.lower_bound(_feature_weights({MASS: 1}), thresholds.z) - thresholds.same_mass,
    ]
    strong = evidence.lower_bound(_feature_weights({MASS: 1}), thresholds.z) - thresholds.strong_mass
    target, decoy, mass, hit = np.moveaxis(evidence.means, -1, 0)
    is_named = np.min(conditions, axis=0) > 0
    numbers = {"target": target, "decoy": decoy, "lift": target / np.maximum(decoy, 1e-9), "mass": mass, "hit": hit}
    return Verdict(is_named, is_named & (strong > 0), numbers)


def _feature_weights(by_feature: Mapping[int, float]) -> Floats:
    weights = np.zeros(HIT + 1)
    for feature, weight in by_feature.items():
        weights[feature] = weight
    return weights


def judge_related(evidence: Evidence, best_offset_hit: float, thresholds: Thresholds) -> Verdict:
    """As the same word; and they have to be found more often than by always looking at one offset."""
    lift = evidence.lower_bound(_feature_weights({TARGET: 1, DECOY: -thresholds.related_lift}), thresholds.z)
    hits = evidence.lower_bound(_feature_weights({HIT: 1}), thresholds.z) - best_offset_hit - thresholds.related_hit
    target, decoy, mass, hit = np.moveaxis(evidence.means, -1, 0)
    is_named = np.minimum(lift, hits) > 0
    numbers = {"target": target, "decoy": decoy, "lift": target / np.maximum(decoy, 1e-9), "mass": mass, "hit": hit}
    return Verdict(is_named, is_named & (mass > thresholds.strong_mass), numbers)


def judge_across(across: Evidence, inside: Evidence | None, thresholds: Thresholds) -> Verdict:
    """The same word in the other text, more than in its own; `inside`: evidence of the latter, if there is enough."""
    same = judge_same(across, thresholds)
    own = np.zeros(len(same.is_named)) if inside is None else inside.means[:, TARGET]
    more = across.lower_bound(_feature_weights({TARGET: 1}), thresholds.z) > thresholds.across_ratio * own
    return Verdict(same.is_named & more, same.is_strong & more, {**same.numbers, "own text": own})


def judge_pieces(evidence: Evidence, thresholds: Thresholds) -> Verdict:
    """Evidence of `piece_features`."""
    conditions = [
        evidence.lower_bound(np.array([1.0, -1.0]), thresholds.z) - thresholds.pieces_difference,
        evidence.lower_bound(np.array([1.0, -thresholds.pieces_lift]), thresholds.z),
    ]
    own, other = np.moveaxis(evidence.means, -1, 0)
    is_named = np.min(conditions, axis=0) > 0
    return Verdict(is_named, is_named & (own > thresholds.strong_mass), {"target": own, "decoy": other})


def judge_sink(evidence: Evidence, feature: int, thresholds: Thresholds) -> Verdict:
    """Evidence of `sink_features`."""
    weights = np.zeros(evidence.means.shape[-1])
    weights[feature] = 1
    is_named = evidence.lower_bound(weights, thresholds.z) >= thresholds.sink_mass
    mass = evidence.means[:, feature]
    return Verdict(is_named, is_named & (mass > 0.9), {"mass": mass})
