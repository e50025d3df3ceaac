"""What the heads of a model do over a corpus, and the names that follow from it.

The model runs once over the passages, in batches; of each batch one layer at a time is in memory. Then it runs on
some of them that were changed, to confirm the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bertworks.inspect.evidence import Evidence
from bertworks.inspect.examples import Example, Examples, wanted_examples
from bertworks.inspect.features import (
    DESCRIPTIONS,
    PROFILE_OFFSETS,
    SINKS,
    TOKEN_FEATURES,
    LayerAttention,
    compared_features,
    hit_features,
    offset_features,
    piece_features,
    profile,
    token_features,
)
from bertworks.inspect.interventions import N_TEXTS, Interventions
from bertworks.inspect.naming import (
    NAMES,
    POSITIONAL,
    RelationEvidence,
    Thresholds,
    Verdict,
    descriptions,
    has_enough_text,
    judge_across,
    judge_offset,
    judge_own,
    judge_pieces,
    judge_predicts,
    judge_related,
    judge_same,
    judge_sink,
)
from bertworks.inspect.preparing import INSIDE, NULL, WITH_NULL, AtlasTexts, PreparedText
from bertworks.inspect.running import run_passages
from bertworks.inspect.units import Floats
from bertworks.model.model import Model
from bertworks.tasks.inference import Progress

NOT_ENOUGH = "not enough text"


# ---------------------------------------------------------------------- evidence


@dataclass
class LayerEvidence:
    """What was gathered of the heads of one layer."""

    offsets: Evidence = field(default_factory=Evidence)
    tokens: Evidence = field(default_factory=Evidence)
    pieces: Evidence = field(default_factory=Evidence)
    by_relation: dict[str, RelationEvidence] = field(default_factory=dict)
    profile_sums: Floats = field(default_factory=lambda: np.zeros((1, len(PROFILE_OFFSETS))))
    profile_counts: Floats = field(default_factory=lambda: np.zeros(len(PROFILE_OFFSETS)))

    def add(self, attention: Floats, norms: Floats, prepared: PreparedText) -> None:
        """Of attention (H, T, T) between the tokens of a text."""
        text = prepared.text
        layer_attention = LayerAttention(attention, text)
        for name, relation in prepared.relations.items():
            evidence = self.of(name)
            compared = compared_features(layer_attention, relation)
            if compared is not None:
                evidence.compared.add(relation.types[relation.compared], text.document, compared)
            evidence.hits.add(relation.types, text.document, hit_features(layer_attention, relation))
        if prepared.sinks is None:
            return
        for of_words, (queries, features) in (
            (self.offsets, offset_features(layer_attention, text)),
            (self.tokens, token_features(layer_attention, norms, text, prepared.sinks)),
        ):
            of_words.add(text.types[queries], text.document, features)
        if prepared.pieces is not None:
            self.pieces.add(prepared.pieces.types, text.document, piece_features(attention, prepared.pieces))
        sums, counts = profile(layer_attention, text)
        self.profile_sums, self.profile_counts = self.profile_sums + sums, self.profile_counts + counts

    def of(self, relation: str) -> RelationEvidence:
        return self.by_relation.setdefault(relation, RelationEvidence.empty())

    @property
    def profile(self) -> Floats:
        """(H, offsets): what goes there, where there is a word."""
        mean: Floats = self.profile_sums / np.maximum(self.profile_counts, 1)
        return mean


def gather_evidence(model: Model, texts: Sequence[PreparedText], progress: Progress) -> list[LayerEvidence]:
    """Of each layer."""
    layers: dict[int, LayerEvidence] = {}

    def on_text(layer: int, index: int, attention: Floats, norms: Floats) -> None:
        layers.setdefault(layer, LayerEvidence()).add(attention, norms, texts[index])

    run_passages(model, [item.passage for item in texts], on_text, progress)
    return [layers[layer] for layer in sorted(layers)]


# ---------------------------------------------------------------------- verdicts


@dataclass(frozen=True)
class RelationVerdict:
    """A verdict, and the relation that it is on."""

    verdict: Verdict
    relation: str


def judge_layer(
    evidence: LayerEvidence, atlas_texts: AtlasTexts, thresholds: Thresholds
) -> dict[str, list[RelationVerdict]]:
    """By name: what may give it, in order; empty, if there is not enough text to see it."""

    def enough(of_relation: Evidence) -> bool:
        return has_enough_text(of_relation, thresholds)

    verdicts: dict[str, list[RelationVerdict]] = {name: [] for name in (*NAMES, *atlas_texts.own_names)}
    if enough(evidence.offsets):
        for name, offset in POSITIONAL.items():
            verdicts[name].append(RelationVerdict(judge_offset(evidence.offsets, offset, thresholds), name))
        for name in SINKS:
            verdict = judge_sink(evidence.tokens, name, atlas_texts.uniform[name], thresholds)
            verdicts[name].append(RelationVerdict(verdict, name))
    verdicts |= _judge_words(evidence, thresholds)
    if has_enough_text(evidence.pieces, replace(thresholds, min_types=thresholds.min_piece_types)):
        verdicts["pieces"] = [RelationVerdict(judge_pieces(evidence.pieces, thresholds), "pieces")]
    predicts = evidence.of("predicts")
    if enough(predicts.hits) and enough(predicts.compared):
        verdicts["predicts"] = [RelationVerdict(judge_predicts(predicts, thresholds), "predicts")]
    for name in atlas_texts.own_names:
        own = evidence.of(name)
        if enough(own.hits):
            verdicts[name] = [RelationVerdict(judge_own(own, thresholds), name)]
    for name in atlas_texts.unseen:
        verdicts[name] = []
    return verdicts


def _judge_words(evidence: LayerEvidence, thresholds: Thresholds) -> dict[str, list[RelationVerdict]]:
    """The same word and related ones, here and across texts."""
    verdicts: dict[str, list[RelationVerdict]] = {"same": [], "related": [], "across": []}
    kinds = {"same": (judge_same, "across"), "related": (judge_related, "related across")}
    for kind, (judge, across) in kinds.items():
        anywhere, in_other_text, in_own_text = evidence.of(kind), evidence.of(across), evidence.of(INSIDE[across])
        if has_enough_text(anywhere.compared, thresholds):
            verdicts[kind].append(RelationVerdict(judge(anywhere, thresholds), kind))
        if has_enough_text(in_other_text.compared, thresholds) and has_enough_text(in_own_text.compared, thresholds):
            verdict = judge_across(
                judge(in_other_text, thresholds), in_other_text.compared, in_own_text.compared, thresholds
            )
            verdicts["across"].append(RelationVerdict(verdict, across))
    if verdicts["same"] and verdicts["across"] and verdicts["across"][0].relation == "across":
        across_verdict = verdicts["across"][0].verdict
        as_strong = np.logical_and.reduce([condition.holds for condition in across_verdict.conditions[:-1]])
        same = verdicts["same"][0].verdict
        notes = {**same.notes, "also across": as_strong & ~across_verdict.is_named}
        verdicts["same"] = [RelationVerdict(replace(same, notes=notes), "same")]
    return verdicts


def count_null(evidence: LayerEvidence, thresholds: Thresholds) -> tuple[int, int]:
    """Names where decoys were taken for targets, and how many tests there were."""
    judges = {"same": judge_same, "across": judge_same, "related": judge_related, "predicts": judge_predicts}
    n_names = n_tests = 0
    for name in WITH_NULL:
        null_evidence = evidence.of(NULL + name)
        if has_enough_text(null_evidence.compared, thresholds):
            is_named = judges[name](null_evidence, thresholds).is_named
            n_names += int(is_named.sum())
            n_tests += len(is_named)
    return n_names, n_tests


# ---------------------------------------------------------------------- names


@dataclass(frozen=True)
class HeadName:
    name: str
    is_strong: bool
    is_confirmed: bool | None  # by an intervention; None: there is none for this name, or too little text
    numbers: Mapping[str, float]
    conditions: tuple[tuple[str, float, float, float], ...]  # what, its value, lower bound, and what is needed
    null: Mapping[str, float]
    n_types: int
    n_documents: int
    by: str | None  # what tells which words are in the relation
    notes: tuple[str, ...]
    examples: tuple[Example, ...]


@dataclass(frozen=True)
class HeadEntry:
    layer: int
    head: int
    names: tuple[HeadName, ...]
    description: Mapping[str, float]  # shares of attention, and how even it is; everything has these
    descriptions: tuple[str, ...]  # what of it is worth a word
    profile: Mapping[int, float]  # by offset: what goes to the word there
    own: Mapping[str, float]  # by relation of the user: its hits


@dataclass(frozen=True)
class NamingResult:
    """The heads of a model, with their names and the evidence for them."""

    heads: tuple[HeadEntry, ...]
    unseen: Mapping[str, str]  # names that this model or this text cannot show, and why
    thresholds: Thresholds
    null_names: int = 0  # where decoys were taken for targets
    null_tests: int = 0
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # by relation: word types and documents

    def head(self, layer: int, head: int) -> HeadEntry:
        return next(entry for entry in self.heads if (entry.layer, entry.head) == (layer, head))


def name_heads(
    model: Model, atlas_texts: AtlasTexts, *, thresholds: Thresholds, seed: int = 0, progress: Progress
) -> NamingResult:
    layers = gather_evidence(model, atlas_texts.all_texts, progress)
    verdicts = [judge_layer(evidence, atlas_texts, thresholds) for evidence in layers]
    passed = [
        (layer, head, name, relation_verdict)
        for layer, by_name in enumerate(verdicts)
        for name, candidates in by_name.items()
        for head, relation_verdict in _first_verdicts(candidates)
    ]
    shown = (*atlas_texts.passages[:N_TEXTS], *atlas_texts.sentences)
    examples = Examples(shown, wanted_examples((layer, head, name, by.relation) for layer, head, name, by in passed))
    interventions = Interventions(model, thresholds, seed, progress)
    if passed:
        interventions.run(shown, atlas_texts.foreign, {name for _, _, name, _ in passed}, examples)
    by_head: dict[tuple[int, int], list[HeadName]] = {}
    for layer, head, name, relation_verdict in passed:
        entry = make_head_name(layer, head, name, relation_verdict, atlas_texts, interventions, examples)
        by_head.setdefault((layer, head), []).append(entry)
    nulls = [count_null(evidence, thresholds) for evidence in layers]
    return NamingResult(
        tuple(_entries(layers, by_head, atlas_texts, thresholds)),
        _unseen(verdicts[0], atlas_texts),
        thresholds,
        sum(n_names for n_names, _ in nulls),
        sum(n_tests for _, n_tests in nulls),
        {name: _sizes(evidence) for name, evidence in layers[0].by_relation.items() if not name.startswith(NULL)},
    )


def _sizes(evidence: RelationEvidence) -> tuple[int, int]:
    return len(evidence.hits.types), len(evidence.hits.documents)


def _first_verdicts(candidates: Sequence[RelationVerdict]) -> Iterator[tuple[int, RelationVerdict]]:
    """Heads with the first verdict that names them."""
    named_heads: set[int] = set()
    for candidate in candidates:
        for head in np.flatnonzero(candidate.verdict.is_named).tolist():
            if head not in named_heads:
                named_heads.add(head)
                yield head, candidate


def make_head_name(
    layer: int,
    head: int,
    name: str,
    relation_verdict: RelationVerdict,
    atlas_texts: AtlasTexts,
    interventions: Interventions,
    examples: Examples,
) -> HeadName:
    verdict = relation_verdict.verdict
    # Planted twins are of the same word: they say nothing of related ones.
    intervention = relation_verdict.relation if relation_verdict.relation == "related across" else name
    confirmation = interventions.confirmation(intervention, layer, head)
    by = atlas_texts.by.get(relation_verdict.relation.split()[0])
    numbers = {title: float(values[head]) for title, values in verdict.numbers.items()}
    return HeadName(
        name,
        bool(verdict.is_strong[head]),
        confirmation.is_confirmed,
        {**numbers, **confirmation.numbers},
        tuple(
            (item.what, float(item.estimate.value[head]), float(item.estimate.lower[head]), item.needs)
            for item in verdict.conditions
        ),
        {title: float(values[head]) for title, values in verdict.null.items()},
        verdict.n_types,
        verdict.n_documents,
        by,
        tuple(note for note, holds in verdict.notes.items() if holds[head]),
        tuple(examples.of(layer, head, name)),
    )


def _entries(
    layers: Sequence[LayerEvidence],
    by_head: Mapping[tuple[int, int], list[HeadName]],
    atlas_texts: AtlasTexts,
    thresholds: Thresholds,
) -> Iterator[HeadEntry]:
    titles = [*SINKS, *DESCRIPTIONS]
    columns = [TOKEN_FEATURES.index(title) for title in titles]
    for layer, evidence in enumerate(layers):
        means, profiles = evidence.tokens.means, evidence.profile
        words = descriptions(means, thresholds, pairs=atlas_texts.has_pairs)
        own = {
            name: evidence.of(name).hits.means[:, 0]
            for name in atlas_texts.own_names
            if len(evidence.of(name).hits.types)
        }
        for head in range(len(means)):
            yield HeadEntry(
                layer,
                head,
                tuple(by_head.get((layer, head), ())),
                {title: float(means[head, column]) for title, column in zip(titles, columns, strict=True)},
                tuple(words[head]),
                {offset: float(value) for offset, value in zip(PROFILE_OFFSETS, profiles[head], strict=True)},
                {name: float(hits[head]) for name, hits in own.items()},
            )


def _unseen(verdicts: Mapping[str, Sequence[RelationVerdict]], atlas_texts: AtlasTexts) -> dict[str, str]:
    reasons = {name: NOT_ENOUGH for name, candidates in verdicts.items() if not candidates}
    return {**reasons, **atlas_texts.unseen}
