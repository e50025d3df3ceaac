"""What the heads of a model do over a corpus, and the names that follow from it.

The model runs once over the passages, in batches; of each batch one layer at a time is in memory. Then it runs on
some of them that were changed, to confirm the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bertworks.inspect.evidence import Evidence
from bertworks.inspect.interventions import Interventions, intervene
from bertworks.inspect.naming import (
    POSITIONAL,
    Thresholds,
    Verdict,
    has_enough_text,
    judge_across,
    judge_offset,
    judge_pieces,
    judge_related,
    judge_same,
    judge_sink,
)
from bertworks.inspect.passages import Passage
from bertworks.inspect.related import Relatedness
from bertworks.inspect.relations import (
    OFFSETS,
    SINK_FEATURES,
    SINKS,
    InspectedText,
    Sites,
    find_sites,
    offset_features,
    piece_features,
    same_word,
    sink_features,
    site_features,
    within,
)
from bertworks.inspect.running import Progress, run_passages
from bertworks.inspect.units import Bools, Floats, WordTypes
from bertworks.model.model import Model

NAMES = ("next", "previous", "next2", "previous2", "same", "related", "across", "pieces", *SINKS)
BY_SITES = ("same", "inside", "across", "related")  # relations with decoys


# ---------------------------------------------------------------------- evidence


@dataclass(frozen=True)
class PreparedText:
    """A passage with all that does not depend on a head."""

    text: InspectedText
    sites: Mapping[str, Sites | None]
    sinks: Mapping[str, Bools]  # (U,)

    @classmethod
    def of(
        cls,
        passage: Passage,
        words: WordTypes,
        special: Mapping[str, int],
        relatedness: Relatedness | None,
        causal: bool,
    ) -> PreparedText:
        """`special`: the ids of [CLS] and [SEP], by their names."""
        text = InspectedText.of(passage.units, words, passage.document, causal=causal)
        twins, own = same_word(text), within(text)
        targets = {"same": twins, "inside": twins & own, "across": twins & ~own}
        if relatedness is not None:
            targets["related"] = relatedness.pairs(text.types) & text.ordinary
        sites = {name: find_sites(text, pairs, twins) for name, pairs in targets.items()}
        ids = np.array(passage.tokens.ids)[passage.units.starts]
        sinks = {name: (ids == special.get(name, -1)) & ~passage.units.is_word for name in ("cls", "sep")}
        sinks["first"] = (np.arange(len(ids)) == 0) & passage.units.is_word
        return cls(text, sites, sinks)


@dataclass
class LayerEvidence:
    """What was gathered of the heads of one layer."""

    offsets: Evidence = field(default_factory=Evidence)
    sinks: Evidence = field(default_factory=Evidence)
    pieces: Evidence = field(default_factory=Evidence)
    by_sites: dict[str, Evidence] = field(default_factory=lambda: {name: Evidence() for name in BY_SITES})

    def add(self, attention: Floats, prepared: PreparedText) -> None:
        """Of attention (H, T, T) between the tokens of a text."""
        text = prepared.text
        of_pieces = piece_features(attention, text)
        if of_pieces is not None:
            self.pieces.add(text.types[of_pieces[0]], text.document, of_pieces[1])
        words = text.units.attention(attention)
        for evidence, (queries, features) in (
            (self.offsets, offset_features(words, text)),
            (self.sinks, sink_features(words, text, prepared.sinks)),
        ):
            evidence.add(text.types[queries], text.document, features)
        for name, sites in prepared.sites.items():
            if sites is not None:
                features = site_features(words, text, sites)
                self.by_sites[name].add(text.types[sites.queries], text.document, features)


def best_offset_hit(prepared: Sequence[PreparedText], name: str) -> float:
    """How often a relation's targets are found by always looking at one offset, the best one."""
    hits, n_queries = np.zeros(len(OFFSETS)), 0
    for item in prepared:
        sites = item.sites.get(name)
        if sites is None:
            continue
        n_queries += len(sites.queries)
        for number, offset in enumerate(OFFSETS):
            keys = sites.queries + offset
            is_there = (keys >= 0) & (keys < sites.targets.shape[1])
            hits[number] += sites.targets[np.flatnonzero(is_there), keys[is_there]].sum()
    return float(hits.max() / n_queries) if n_queries else 0.0


def judge_layer(evidence: LayerEvidence, related_baseline: float, thresholds: Thresholds) -> dict[str, Verdict | None]:
    """By name; None: there is not enough text to see it."""

    def enough(found: Evidence) -> bool:
        return has_enough_text(found, thresholds)

    same, inside, across, related = (evidence.by_sites[name] for name in BY_SITES)
    fewer = replace(thresholds, min_types=thresholds.min_piece_types)
    verdicts: dict[str, Verdict | None] = {
        name: judge_offset(evidence.offsets, offset, thresholds) if enough(evidence.offsets) else None
        for name, offset in POSITIONAL.items()
    }
    verdicts["same"] = judge_same(same, thresholds) if enough(same) else None
    verdicts["related"] = judge_related(related, related_baseline, thresholds) if enough(related) else None
    verdicts["across"] = (
        judge_across(across, inside if enough(inside) else None, thresholds) if enough(across) else None
    )
    verdicts["pieces"] = judge_pieces(evidence.pieces, thresholds) if has_enough_text(evidence.pieces, fewer) else None
    for number, name in enumerate(SINKS):
        verdicts[name] = judge_sink(evidence.sinks, number, thresholds) if enough(evidence.sinks) else None
    return verdicts


# ---------------------------------------------------------------------- names


@dataclass(frozen=True)
class NamedHead:
    name: str
    is_strong: bool
    is_confirmed: bool | None  # by an intervention; None: there is none for this name
    numbers: Mapping[str, float]


@dataclass(frozen=True)
class HeadEntry:
    layer: int
    head: int
    names: tuple[NamedHead, ...]
    description: Mapping[str, float]  # shares of attention, and how even it is; everything has these


@dataclass(frozen=True)
class Findings:
    """The heads of a model, with their names and the evidence for them."""

    heads: tuple[HeadEntry, ...]
    unseen: Mapping[str, str]  # names that this model or this text cannot show, and why
    thresholds: Thresholds

    def head(self, layer: int, head: int) -> HeadEntry:
        return next(entry for entry in self.heads if (entry.layer, entry.head) == (layer, head))


def find_names(
    model: Model,
    passages: Sequence[Passage],
    words: WordTypes,
    special: Mapping[str, int],
    *,
    relatedness: Relatedness | None = None,
    thresholds: Thresholds | None = None,
    n_intervened: int = 100,
    progress: Progress = lambda done, total: None,
) -> Findings:
    """`special`: the ids of [CLS] and [SEP]; `relatedness`: None, if there is too little text for it."""
    thresholds = thresholds or Thresholds()
    causal = bool(getattr(model.config.encoder, "causal", False))
    prepared = [PreparedText.of(passage, words, special, relatedness, causal) for passage in passages]
    layers: dict[int, LayerEvidence] = {}

    def on_text(layer: int, index: int, attention: Floats) -> None:
        layers.setdefault(layer, LayerEvidence()).add(attention, prepared[index])

    run_passages(model, passages, on_text, progress)
    texts = [item.text for item in prepared]
    interventions = intervene(model, passages, texts, n_intervened, progress)
    baseline = best_offset_hit(prepared, "related")
    verdicts = [judge_layer(layers[layer], baseline, thresholds) for layer in sorted(layers)]
    entries = list(_entries(layers, verdicts, interventions))
    unseen = _unseen(verdicts[0], passages, relatedness, causal)
    return Findings(tuple(entries), unseen, thresholds)


MIN_KEPT_SHARE = 0.8  # of a positional head's share, after words were shuffled
MIN_TWIN_RATIO = 5.0  # how much attention to a word grows when it becomes the query's twin


def _entries(
    layers: Mapping[int, LayerEvidence], verdicts: Sequence[Mapping[str, Verdict | None]], interventions: Interventions
) -> Iterator[HeadEntry]:
    for layer, by_name in enumerate(verdicts):
        descriptions = layers[layer].sinks.means  # (H, features)
        for head in range(len(descriptions)):
            names = []
            for name, verdict in by_name.items():
                if verdict is None or not verdict.is_named[head]:
                    continue
                numbers = {title: float(values[head]) for title, values in verdict.numbers.items()}
                confirmed: bool | None = None
                if name in POSITIONAL:
                    numbers["kept when shuffled"] = float(interventions.shuffled[name][layer, head])
                    confirmed = numbers["kept when shuffled"] >= MIN_KEPT_SHARE
                elif name in ("same", "across"):
                    before, after = interventions.twin_before[layer, head], interventions.twin_after[layer, head]
                    numbers["planted twin"] = float(after / max(before, 1e-9))
                    confirmed = numbers["planted twin"] >= MIN_TWIN_RATIO
                names.append(NamedHead(name, bool(verdict.is_strong[head]), confirmed, numbers))
            description = {title: float(descriptions[head, number]) for number, title in enumerate(SINK_FEATURES)}
            yield HeadEntry(layer, head, tuple(names), description)


def _unseen(
    verdicts: Mapping[str, Verdict | None], passages: Sequence[Passage], relatedness: Relatedness | None, causal: bool
) -> dict[str, str]:
    reasons = {name: "not enough text" for name, verdict in verdicts.items() if verdict is None}
    if relatedness is None:
        reasons["related"] = "not enough text to tell which words are related"
    if all(len(passage.texts) < 2 for passage in passages):
        reasons["across"] = "cannot be seen: this model reads no pairs"
    if causal:
        reasons |= dict.fromkeys(("next", "next2"), "cannot be seen: later words are hidden")
    return reasons
