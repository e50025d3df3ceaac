"""When a head gets a name: thresholds on lower bounds, in one table, printed with every atlas.

A name has conditions, each with the number that was measured, its lower bound (with the uncertainty over word types and
documents), what the number has to be at least, and what it is without the pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from bertworks.errors import BadConfig, nearest
from bertworks.inspect.evidence import Estimate, Evidence, Z, ratio_of_means
from bertworks.inspect.features import (
    DECOY,
    FIXED_HIT,
    HIT,
    IS_STRONGEST,
    IS_THERE,
    MASS,
    N_OFFSET_FEATURES,
    OFFSETS,
    SINKS,
    TARGET,
    TO_WORD,
    TO_WORDS,
    TOKEN_FEATURES,
)
from bertworks.inspect.units import Bools, Floats

POSITIONAL = {"next": 1, "previous": -1, "next2": 2, "previous2": -2}
NAMES = (*POSITIONAL, "same", "related", "across", "pieces", "predicts", *SINKS)


@dataclass(frozen=True)
class Thresholds:
    """Lower bounds that a name needs; then what a description needs, and what confirms a name."""

    z: float = Z  # standard errors below the mean
    min_types: int = 50  # word types; fewer: not enough text
    min_documents: int = 50
    min_piece_types: int = 30
    offset_share: float = 0.40  # of what goes to words, to the word at this offset
    offset_hit: float = 0.60  # how often that word is the strongest
    offset_ratio: float = 2.0  # times what goes to any other offset
    strong_mass: float = 0.50  # of all attention: then the name is a strong one
    same_lift: float = 5.0  # on the same word, times that on decoys
    same_mass: float = 0.05  # of all attention, to the same word
    related_lift: float = 3.0  # on related words, times that on decoys
    related_hit: float = 0.10  # by how much it finds them more often than the best fixed offset does
    across_ratio: float = 1.5  # times what goes to such words in the same text, at a like distance
    pieces_difference: float = 0.10  # more than as far into another word
    pieces_lift: float = 1.5
    predicts_lift: float = 2.0  # on the word that predicts it, times that on decoys
    predicts_hit: float = 0.10  # as related_hit
    predicts_effect: float = 0.10  # what that word tells, nats
    own_hit: float = 0.10  # as related_hit, for relations of yours
    sink_mass: float = 0.50  # of all attention, on one special token
    strong_sink_mass: float = 0.90
    no_op: float = 0.50  # of that mass: what brings less than so much does next to nothing
    broad: float = 0.90  # how even attention is
    self: float = 0.30
    punctuation: float = 0.40
    rarest: float = 0.50  # how often the strongest word is the rarest
    own_text: float = 0.90  # of what goes to words
    kept_share: float = 0.80  # of what a head does, after words were shuffled or [SEP] was moved
    twin_ratio: float = 5.0  # how much attention to a word grows when it becomes the query's twin

    def changed(self, settings: Iterable[str]) -> Thresholds:
        """By settings as `name=value`."""
        known = {field.name: field for field in fields(self)}
        changes: dict[str, float] = {}
        for setting in settings:
            name, _, value = (part.strip() for part in setting.partition("="))
            if name not in known:
                cause = f"no such threshold: {name!r}"
                raise BadConfig(cause, remedy=nearest(name, known), code="unknown-key", fields=[name])
            try:
                changes[name] = (int if name.startswith("min_") else float)(value)
            except ValueError:
                remedy = "write name=value, with a number"
                raise BadConfig(f"not a number: {value!r}", place=setting, remedy=remedy, fields=[name]) from None
        return replace(self, **changes)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- verdicts


@dataclass(frozen=True)
class Condition:
    """Something that a name needs: a number, (H,), with its lower bound."""

    what: str
    estimate: Estimate
    needs: float

    @property
    def holds(self) -> Bools:
        holds: Bools = self.estimate.lower >= self.needs
        return holds


@dataclass(frozen=True)
class Verdict:
    """Whether heads have a name, (H,) each."""

    conditions: tuple[Condition, ...]
    is_strong: Bools  # if it is named
    numbers: Mapping[str, Floats]  # what was measured, means over types
    null: Mapping[str, Floats]  # the same without the pattern
    n_types: int
    n_documents: int
    notes: Mapping[str, Bools]  # worth saying

    @property
    def is_named(self) -> Bools:
        is_named: Bools = np.logical_and.reduce([condition.holds for condition in self.conditions])
        return is_named


def _verdict(
    evidence: Evidence,
    conditions: Iterable[Condition],
    is_strong: Bools,
    numbers: Mapping[str, Floats],
    null: Mapping[str, Floats],
    notes: Mapping[str, Bools] | None = None,
) -> Verdict:
    sizes = len(evidence.types), len(evidence.documents)
    return Verdict(tuple(conditions), is_strong, numbers, null, *sizes, notes or {})


def has_enough_text(evidence: Evidence, thresholds: Thresholds) -> bool:
    return len(evidence.types) >= thresholds.min_types and len(evidence.documents) >= thresholds.min_documents


def judge_offset(evidence: Evidence, offset: int, thresholds: Thresholds) -> Verdict:
    """Evidence of `offset_features`."""

    def at(place: int, feature: int) -> Floats:
        row = np.zeros((len(OFFSETS), N_OFFSET_FEATURES))
        row[OFFSETS.index(place), feature] = 1
        return row.reshape(-1)

    def ratio(top: Floats, bottom: Floats) -> Estimate:
        return evidence.ratio(top, bottom, thresholds.z)

    others = [other for other in OFFSETS if other != offset]
    to_word, is_there = at(offset, TO_WORD), at(offset, IS_THERE)
    share = ratio(to_word, at(offset, TO_WORDS))
    hit, mass = ratio(at(offset, IS_STRONGEST), is_there), ratio(to_word, is_there)
    to_others = [ratio(to_word, at(other, TO_WORD)) for other in others]
    by_value = np.stack([estimate.value for estimate in to_others])
    nearest_other = Estimate(by_value.min(0), np.min([estimate.lower for estimate in to_others], axis=0))
    conditions = [
        Condition("share", share, thresholds.offset_share),
        Condition("hit", hit, thresholds.offset_hit),
        Condition("times any other offset", nearest_other, thresholds.offset_ratio),
    ]
    numbers = {"share": share.value, "mass": mass.value, "hit": hit.value}
    to_other = mass.value / np.maximum(by_value.min(0), 1e-9)
    null = {"other offset": np.array(others, float)[by_value.argmin(0)], "mass there": to_other}
    return _verdict(evidence, conditions, mass.lower > thresholds.strong_mass, numbers, null)


@dataclass
class RelationEvidence:
    """Of a relation: of queries whose targets have decoys, and of all that have targets."""

    compared: Evidence
    hits: Evidence

    @classmethod
    def empty(cls) -> RelationEvidence:
        return cls(Evidence(), Evidence())

    def lift(self, thresholds: Thresholds, needs: float) -> Condition:
        return Condition("lift", self.compared.ratio(_one(TARGET, 3), _one(DECOY, 3), thresholds.z), needs)

    def more_hits(self, thresholds: Thresholds, needs: float) -> Condition:
        paired = _one(HIT, 2) - _one(FIXED_HIT, 2)
        return Condition("hits above the best offset", self.hits.difference(paired, thresholds.z), needs)

    def numbers(self) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """What was measured, and the same without the pattern."""
        target, decoy, mass = np.moveaxis(self.compared.means, -1, 0)
        hit, fixed_hit = np.moveaxis(self.hits.means, -1, 0)
        numbers = {"target": target, "decoy": decoy, "lift": target / np.maximum(decoy, 1e-9), "mass": mass}
        return {**numbers, "hit": hit}, {"decoy": decoy, "best offset's hit": fixed_hit}


def _one(feature: int, size: int) -> Floats:
    weights = np.zeros(size)
    weights[feature] = 1
    return weights


def judge_same(evidence: RelationEvidence, thresholds: Thresholds) -> Verdict:
    mass = evidence.compared.difference(_one(MASS, 3), thresholds.z)
    conditions = [evidence.lift(thresholds, thresholds.same_lift), Condition("mass", mass, thresholds.same_mass)]
    return _verdict(evidence.compared, conditions, mass.lower > thresholds.strong_mass, *evidence.numbers())


def judge_related(evidence: RelationEvidence, thresholds: Thresholds) -> Verdict:
    """They have to be found more often than by always looking at one offset."""
    conditions = [
        evidence.lift(thresholds, thresholds.related_lift),
        evidence.more_hits(thresholds, thresholds.related_hit),
    ]
    return _verdict(evidence.compared, conditions, _is_massive(evidence, thresholds), *evidence.numbers())


def judge_predicts(evidence: RelationEvidence, thresholds: Thresholds) -> Verdict:
    conditions = [
        evidence.lift(thresholds, thresholds.predicts_lift),
        evidence.more_hits(thresholds, thresholds.predicts_hit),
    ]
    return _verdict(evidence.hits, conditions, _is_massive(evidence, thresholds), *evidence.numbers())


def _is_massive(evidence: RelationEvidence, thresholds: Thresholds) -> Bools:
    massive: Bools = evidence.compared.difference(_one(MASS, 3), thresholds.z).lower > thresholds.strong_mass
    return massive


def judge_own(evidence: RelationEvidence, thresholds: Thresholds) -> Verdict:
    """A relation of the user: found more often than by the best fixed offset (Clark et al. 2019, Voita et al. 2019)."""
    conditions = [evidence.more_hits(thresholds, thresholds.own_hit)]
    hit, fixed_hit = np.moveaxis(evidence.hits.means, -1, 0)
    numbers, null = {"hit": hit}, {"best offset's hit": fixed_hit}
    if len(evidence.compared.types):
        of_decoys, of_null = evidence.numbers()
        numbers, null = {**of_decoys, **numbers}, {**of_null, **null}
    return _verdict(evidence.hits, conditions, hit > 0.9, numbers, null)


def judge_across(across: Verdict, in_other_text: Evidence, in_own_text: Evidence, thresholds: Thresholds) -> Verdict:
    """What is found of a relation in the other text, if it is more than in the own one. `across`: the verdict on it
    there; evidence of its targets, and of as distant ones in the own text."""
    own = in_own_text.moments(_one(TARGET, 3))
    times = ratio_of_means(in_other_text.moments(_one(TARGET, 3)), own, thresholds.z)
    more = Condition("times its own text", times, thresholds.across_ratio)
    return replace(across, conditions=(*across.conditions, more), null={**across.null, "own text": own[0]})


def judge_pieces(evidence: Evidence, thresholds: Thresholds) -> Verdict:
    """Evidence of `piece_features`."""
    own, other = _one(0, 2), _one(1, 2)
    conditions = [
        Condition("difference", evidence.difference(own - other, thresholds.z), thresholds.pieces_difference),
        Condition("lift", evidence.ratio(own, other, thresholds.z), thresholds.pieces_lift),
    ]
    to_own, to_other = np.moveaxis(evidence.means, -1, 0)
    is_strong = evidence.difference(own, thresholds.z).lower > thresholds.strong_mass
    return _verdict(evidence, conditions, is_strong, {"target": to_own, "decoy": to_other}, {"decoy": to_other})


def judge_sink(evidence: Evidence, name: str, uniform: float, thresholds: Thresholds) -> Verdict:
    """Evidence of `token_features`; `uniform`: the part of this token among all that are seen."""
    mass = evidence.difference(_one(TOKEN_FEATURES.index(name), len(TOKEN_FEATURES)), thresholds.z)
    by_norm = evidence.means[:, TOKEN_FEATURES.index(f"{name}_norm")]
    numbers = {"mass": mass.value, "norm share": by_norm}
    is_no_op: Bools = by_norm < thresholds.no_op * mass.value
    return _verdict(
        evidence,
        [Condition("mass", mass, thresholds.sink_mass)],
        mass.lower > thresholds.strong_sink_mass,
        numbers,
        {"uniform": np.full(len(by_norm), uniform)},
        {"no-op": is_no_op},
    )


def descriptions(means: Floats, thresholds: Thresholds, *, pairs: bool) -> list[list[str]]:
    """What can be said of every head, from means (H, features) of `token_features`. None of it is a name: every head
    of an untrained model is broad. `pairs`: whether a text had another beside it."""
    needs = {
        "broad": ("entropy", thresholds.broad),
        "self": ("self", thresholds.self),
        "punctuation": ("punctuation", thresholds.punctuation),
        "rarest word": ("rarest", thresholds.rarest),
    }
    if pairs:
        needs["own sentence"] = ("own_text", thresholds.own_text)
    return [
        [word for word, (feature, least) in needs.items() if row[TOKEN_FEATURES.index(feature)] >= least]
        for row in means
    ]
