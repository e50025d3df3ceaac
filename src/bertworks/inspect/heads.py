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
    Attended,
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
    SiteEvidence,
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
from bertworks.inspect.preparing import INSIDE, NULL, WITH_NULL, Material, PreparedText
from bertworks.inspect.running import Progress, run_passages
from bertworks.inspect.units import Floats
from bertworks.model.model import Model

NOT_ENOUGH = "not enough text"


# ---------------------------------------------------------------------- evidence


@dataclass
class LayerEvidence:
    """What was gathered of the heads of one layer."""

    offsets: Evidence = field(default_factory=Evidence)
    tokens: Evidence = field(default_factory=Evidence)
    pieces: Evidence = field(default_factory=Evidence)
    by_sites: dict[str, SiteEvidence] = field(default_factory=dict)
    profile_sums: Floats = field(default_factory=lambda: np.zeros((1, len(PROFILE_OFFSETS))))
    profile_counts: Floats = field(default_factory=lambda: np.zeros(len(PROFILE_OFFSETS)))

    def add(self, attention: Floats, norms: Floats, prepared: PreparedText) -> None:
        """Of attention (H, T, T) between the tokens of a text."""
        text = prepared.text
        attended = Attended(attention, text)
        for name, sites in prepared.sites.items():
            evidence = self.of(name)
            compared = compared_features(attended, sites)
            if compared is not None:
                evidence.compared.add(sites.types[sites.compared], text.document, compared)
            evidence.hits.add(sites.types, text.document, hit_features(attended, sites))
        if prepared.sinks is None:
            return
        for of_words, (queries, features) in (
            (self.offsets, offset_features(attended, text)),
            (self.tokens, token_features(attended, norms, text, prepared.sinks)),
        ):
            of_words.add(text.types[queries], text.document, features)
        if prepared.pieces is not None:
            self.pieces.add(prepared.pieces.types, text.document, piece_features(attention, prepared.pieces))
        sums, counts = profile(attended, text)
        self.profile_sums, self.profile_counts = self.profile_sums + sums, self.profile_counts + counts

    def of(self, relation: str) -> SiteEvidence:
        return self.by_sites.setdefault(relation, SiteEvidence.empty())

    @property
    def profile(self) -> Floats:
        """(H, offsets): what goes there, where there is a word."""
        mean: Floats = self.profile_sums / np.maximum(self.profile_counts, 1)
        return mean


def gather(model: Model, texts: Sequence[PreparedText], progress: Progress) -> list[LayerEvidence]:
    """Of each layer."""
    layers: dict[int, LayerEvidence] = {}

    def on_text(layer: int, index: int, attention: Floats, norms: Floats) -> None:
        layers.setdefault(layer, LayerEvidence()).add(attention, norms, texts[index])

    run_passages(model, [item.passage for item in texts], on_text, progress)
    return [layers[layer] for layer in sorted(layers)]


# ---------------------------------------------------------------------- verdicts


@dataclass(frozen=True)
class Judged:
    """A verdict, and the relation that it is on."""

    verdict: Verdict
    relation: str


def judge_layer(evidence: LayerEvidence, material: Material, thresholds: Thresholds) -> dict[str, list[Judged]]:
    """By name: what may give it, in order; empty, if there is not enough text to see it."""

    def enough(found: Evidence) -> bool:
        return has_enough_text(found, thresholds)

    verdicts: dict[str, list[Judged]] = {name: [] for name in (*NAMES, *material.own_names)}
    if enough(evidence.offsets):
        for name, offset in POSITIONAL.items():
            verdicts[name].append(Judged(judge_offset(evidence.offsets, offset, thresholds), name))
        for name in SINKS:
            verdict = judge_sink(evidence.tokens, name, material.uniform[name], thresholds)
            verdicts[name].append(Judged(verdict, name))
    verdicts |= _judge_words(evidence, thresholds)
    if has_enough_text(evidence.pieces, replace(thresholds, min_types=thresholds.min_piece_types)):
        verdicts["pieces"] = [Judged(judge_pieces(evidence.pieces, thresholds), "pieces")]
    predicts = evidence.of("predicts")
    if enough(predicts.hits) and enough(predicts.compared):
        verdicts["predicts"] = [Judged(judge_predicts(predicts, thresholds), "predicts")]
    for name in material.own_names:
        own = evidence.of(name)
        if enough(own.hits):
            verdicts[name] = [Judged(judge_own(own, thresholds), name)]
    for name in material.unseen:
        verdicts[name] = []
    return verdicts


def _judge_words(evidence: LayerEvidence, thresholds: Thresholds) -> dict[str, list[Judged]]:
    """The same word and related ones, here and across texts."""
    verdicts: dict[str, list[Judged]] = {"same": [], "related": [], "across": []}
    kinds = {"same": (judge_same, "across"), "related": (judge_related, "related across")}
    for kind, (judge, across) in kinds.items():
        anywhere, there, here = evidence.of(kind), evidence.of(across), evidence.of(INSIDE[across])
        if has_enough_text(anywhere.compared, thresholds):
            verdicts[kind].append(Judged(judge(anywhere, thresholds), kind))
        if has_enough_text(there.compared, thresholds) and has_enough_text(here.compared, thresholds):
            verdict = judge_across(judge(there, thresholds), there.compared, here.compared, thresholds)
            verdicts["across"].append(Judged(verdict, across))
    if verdicts["same"] and verdicts["across"] and verdicts["across"][0].relation == "across":
        across_verdict = verdicts["across"][0].verdict
        as_strong = np.logical_and.reduce([condition.holds for condition in across_verdict.conditions[:-1]])
        same = verdicts["same"][0].verdict
        notes = {**same.notes, "also across": as_strong & ~across_verdict.is_named}
        verdicts["same"] = [Judged(replace(same, notes=notes), "same")]
    return verdicts


def count_null(evidence: LayerEvidence, thresholds: Thresholds) -> tuple[int, int]:
    """Names where decoys were taken for targets, and how many tests there were."""
    judges = {"same": judge_same, "across": judge_same, "related": judge_related, "predicts": judge_predicts}
    n_names = n_tests = 0
    for name in WITH_NULL:
        found = evidence.of(NULL + name)
        if has_enough_text(found.compared, thresholds):
            is_named = judges[name](found, thresholds).is_named
            n_names += int(is_named.sum())
            n_tests += len(is_named)
    return n_names, n_tests


# ---------------------------------------------------------------------- names


@dataclass(frozen=True)
class NamedHead:
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
    names: tuple[NamedHead, ...]
    description: Mapping[str, float]  # shares of attention, and how even it is; everything has these
    descriptions: tuple[str, ...]  # what of it is worth a word
    profile: Mapping[int, float]  # by offset: what goes to the word there
    own: Mapping[str, float]  # by relation of the user: its hits


@dataclass(frozen=True)
class Findings:
    """The heads of a model, with their names and the evidence for them."""

    heads: tuple[HeadEntry, ...]
    unseen: Mapping[str, str]  # names that this model or this text cannot show, and why
    thresholds: Thresholds
    null_names: int = 0  # where decoys were taken for targets
    null_tests: int = 0
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # by relation: word types and documents

    def head(self, layer: int, head: int) -> HeadEntry:
        return next(entry for entry in self.heads if (entry.layer, entry.head) == (layer, head))


def find_names(
    model: Model, material: Material, *, thresholds: Thresholds, seed: int = 0, progress: Progress
) -> Findings:
    layers = gather(model, material.all_texts, progress)
    verdicts = [judge_layer(evidence, material, thresholds) for evidence in layers]
    named = [
        (layer, head, name, judged)
        for layer, by_name in enumerate(verdicts)
        for name, candidates in by_name.items()
        for head, judged in _named(candidates)
    ]
    shown = (*material.passages[:N_TEXTS], *material.sentences)
    examples = Examples(shown, wanted_examples((layer, head, name, by.relation) for layer, head, name, by in named))
    interventions = Interventions(model, thresholds, seed, progress)
    if named:
        interventions.run(shown, material.foreign, {name for _, _, name, _ in named}, examples)
    by_head: dict[tuple[int, int], list[NamedHead]] = {}
    for layer, head, name, judged in named:
        entry = named_head(layer, head, name, judged, material, interventions, examples)
        by_head.setdefault((layer, head), []).append(entry)
    nulls = [count_null(evidence, thresholds) for evidence in layers]
    return Findings(
        tuple(_entries(layers, by_head, material, thresholds)),
        _unseen(verdicts[0], material),
        thresholds,
        sum(n_names for n_names, _ in nulls),
        sum(n_tests for _, n_tests in nulls),
        {name: _sizes(found) for name, found in layers[0].by_sites.items() if not name.startswith(NULL)},
    )


def _sizes(found: SiteEvidence) -> tuple[int, int]:
    return len(found.hits.types), len(found.hits.documents)


def _named(candidates: Sequence[Judged]) -> Iterator[tuple[int, Judged]]:
    """Heads with the first verdict that names them."""
    done: set[int] = set()
    for judged in candidates:
        for head in np.flatnonzero(judged.verdict.is_named).tolist():
            if head not in done:
                done.add(head)
                yield head, judged


def named_head(
    layer: int,
    head: int,
    name: str,
    judged: Judged,
    material: Material,
    interventions: Interventions,
    examples: Examples,
) -> NamedHead:
    verdict = judged.verdict
    # Planted twins are of the same word: they say nothing of related ones.
    tried = judged.relation if judged.relation == "related across" else name
    confirmation = interventions.confirmation(tried, layer, head)
    by = material.by.get(judged.relation.split()[0])
    numbers = {title: float(values[head]) for title, values in verdict.numbers.items()}
    return NamedHead(
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
    by_head: Mapping[tuple[int, int], list[NamedHead]],
    material: Material,
    thresholds: Thresholds,
) -> Iterator[HeadEntry]:
    titles = [*SINKS, *DESCRIPTIONS]
    columns = [TOKEN_FEATURES.index(title) for title in titles]
    for layer, evidence in enumerate(layers):
        means, profiles = evidence.tokens.means, evidence.profile
        words = descriptions(means, thresholds, pairs=material.has_pairs)
        own = {
            name: evidence.of(name).hits.means[:, 0] for name in material.own_names if len(evidence.of(name).hits.types)
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


def _unseen(verdicts: Mapping[str, Sequence[Judged]], material: Material) -> dict[str, str]:
    reasons = {name: NOT_ENOUGH for name, candidates in verdicts.items() if not candidates}
    return {**reasons, **material.unseen}
