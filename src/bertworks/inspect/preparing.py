"""Everything about the texts of an atlas that does not depend on a head: which words stand in which relation, what
they are compared with, and which names cannot be seen in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bertworks.inspect.features import SINKS
from bertworks.inspect.naming import NAMES, Thresholds
from bertworks.inspect.own_relations import OwnRelations, matrix
from bertworks.inspect.passages import Passage, Passages, can_segment_chinese, piece_words
from bertworks.inspect.predicting import OrderedPMI, Predictors
from bertworks.inspect.related import Relatedness
from bertworks.inspect.relations import (
    FindDecoys,
    InspectedText,
    PiecePairs,
    TextRelation,
    find_piece_pairs,
    find_relation,
    like_decoys,
    near_decoys,
    relabelled,
    same_word,
    with_best_offset,
)
from bertworks.inspect.units import Bools, Numbers
from bertworks.text.cached_encoder import HAN

NULL = "null: "  # before the name of a relation whose decoys were taken for targets
INSIDE = {"across": "inside", "related across": "related inside"}
WITH_NULL = ("same", "across", "related", "predicts")


@dataclass(frozen=True)
class PreparedText:
    passage: Passage
    text: InspectedText
    relations: dict[str, TextRelation]
    pieces: PiecePairs | None = None
    sinks: Mapping[str, Bools] | None = None  # (U,) each; None: a sentence in which only relations are looked at


@dataclass(frozen=True)
class AtlasTexts:
    """The texts of an atlas."""

    passages: tuple[PreparedText, ...]  # of the corpus
    foreign: tuple[PreparedText, ...]  # pairs whose texts have nothing to do with each other
    sentences: tuple[PreparedText, ...]  # single ones, for relations that need them
    own_names: tuple[str, ...]
    best_offsets: Mapping[str, tuple[int, float]]  # by relation: the offset that it has to beat, and its hits
    by: Mapping[str, str]  # by relation: what tells it
    unseen: Mapping[str, str]  # names that cannot be seen, and why
    uniform: Mapping[str, float]  # by sink: its part of all that is seen

    @property
    def all_texts(self) -> tuple[PreparedText, ...]:
        """Those by which heads are judged."""
        return (*self.passages, *self.sentences)

    @property
    def has_pairs(self) -> bool:
        return any(len(item.passage.texts) > 1 for item in self.passages)


@dataclass
class Preparation:
    """The texts of an atlas in the making."""

    read: Passages
    causal: bool
    separators: frozenset[int]  # ids of the special tokens between two texts
    seed: int = 0
    best_offsets: dict[str, tuple[int, float]] = field(default_factory=dict)
    by: dict[str, str] = field(default_factory=dict)
    unseen: dict[str, str] = field(default_factory=dict)

    def inspected(self, passages: Iterable[Passage]) -> list[InspectedText]:
        words = self.read.words
        return [InspectedText.of(item.units, words, item.document, causal=self.causal) for item in passages]

    def prepare(
        self,
        relatedness: Relatedness | None,
        ordered_pmi: OrderedPMI | None,
        predictors: Sequence[Predictors],
        own: OwnRelations,
        thresholds: Thresholds,
    ) -> AtlasTexts:
        """`predictors` of the sentences that were read, or `ordered_pmi` in their place; neither: they cannot be
        seen."""
        texts = self.inspected(self.read.passages)
        relations: list[dict[str, TextRelation]] = [{} for _ in texts]
        self._words(texts, relations, relatedness)
        if ordered_pmi is not None:
            targets = [ordered_pmi.predictors(text, thresholds.predicts_effect) for text in texts]
            self._relation("predicts", texts, relations, targets, find_decoys=near_decoys)
        for name, find in own.functions.items():
            targets = [matrix(text.units, find(text.units), name) & text.ordinary for text in texts]
            self._relation(name, texts, relations, targets, by_pairs=True)
        numbers: dict[str, int] = {}
        prepared = [
            PreparedText(passage, text, of_text, self._pieces(passage, text, numbers), self.sinks(passage))
            for passage, text, of_text in zip(self.read.passages, texts, relations, strict=True)
        ]
        self._cannot_be_seen(prepared)
        uniform = {
            name: float(np.mean([(item.sinks or {})[name].sum() / item.text.sees.sum(1).mean() for item in prepared]))
            for name in SINKS
        }
        return AtlasTexts(
            tuple(prepared),
            tuple(self._foreign()),
            (*self._predicting_sentences(predictors), *self._treebank(own)),
            own.names,
            self.best_offsets,
            self.by,
            self.unseen,
            uniform,
        )

    # ------------------------------------------------------------------ relations

    def _words(
        self, texts: Sequence[InspectedText], relations: list[dict[str, TextRelation]], relatedness: Relatedness | None
    ) -> None:
        """The same word and related ones, anywhere, in the other text, and as far away in the own one."""
        twins = [same_word(text) for text in texts]
        of_kind = {"same": twins}
        if relatedness is not None:
            self.by["related"] = relatedness.by
            of_kind["related"] = [
                relatedness.pairs(text.types) & text.ordinary & text.is_content[:, None] & text.is_content[None]
                for text in texts
            ]
        for kind, pairs in of_kind.items():
            self._relation(kind, texts, relations, pairs, twins)
            across = "across" if kind == "same" else f"{kind} across"
            in_other_text = [item & ~text.within for item, text in zip(pairs, texts, strict=True)]
            in_own_text = [item & text.within for item, text in zip(pairs, texts, strict=True)]
            self._relation(across, texts, relations, in_other_text, twins)
            self._relation(INSIDE[across], texts, relations, _as_far(in_own_text, in_other_text, self.seed), twins)

    def _relation(
        self,
        name: str,
        texts: Sequence[InspectedText],
        relations: Sequence[dict[str, TextRelation]],
        targets: Sequence[Bools],
        excluded: Sequence[Bools] | None = None,
        *,
        find_decoys: FindDecoys = like_decoys,
        by_pairs: bool = False,
    ) -> None:
        """Adds a relation to each text; and its null, for the relations of ours."""
        others: Sequence[Bools | None] = excluded or [None] * len(texts)
        triples = list(zip(texts, targets, others, strict=True))
        by_name = {name: [find_relation(*triple, find_decoys, by_pairs=by_pairs) for triple in triples]}
        if name in WITH_NULL:
            rng = np.random.default_rng([self.seed, *name.encode()])
            by_name[NULL + name] = [relabelled(*triple, rng, find_decoys) for triple in triples]
        for own_name, of_texts in by_name.items():
            with_hits, offset, hit = with_best_offset(of_texts)
            self.best_offsets[own_name] = offset, hit
            for of_text, relation in zip(relations, with_hits, strict=True):
                if relation is not None:
                    of_text[own_name] = relation

    # ------------------------------------------------------------------ other texts

    def _foreign(self) -> list[PreparedText]:
        texts = self.inspected(self.read.foreign)
        relations: list[dict[str, TextRelation]] = [{} for _ in texts]
        for text, of_text in zip(texts, relations, strict=True):
            twins = same_word(text)
            across = find_relation(text, twins & ~text.within, twins)
            if across is not None:
                of_text["across"] = across
        return [PreparedText(*item) for item in zip(self.read.foreign, texts, relations, strict=True)]

    def _predicting_sentences(self, predictors: Sequence[Predictors]) -> list[PreparedText]:
        passages = self.read.sentences[: len(predictors)]
        texts = self.inspected(passages)
        relations: list[dict[str, TextRelation]] = [{} for _ in texts]
        if predictors:
            pairs = [of_sentence.pairs for of_sentence in predictors]
            self._relation("predicts", texts, relations, pairs, find_decoys=near_decoys)
        return [PreparedText(*item) for item in zip(passages, texts, relations, strict=True)]

    def _treebank(self, own: OwnRelations) -> list[PreparedText]:
        passages = [parsed.passage for parsed in own.treebank]
        texts = self.inspected(passages)
        relations: list[dict[str, TextRelation]] = [{} for _ in texts]
        for name in own.treebank_names:
            targets = [
                matrix(text.units, parsed.pairs(name), name) & text.ordinary
                for text, parsed in zip(texts, own.treebank, strict=True)
            ]
            self._relation(name, texts, relations, targets, by_pairs=True)
        return [PreparedText(*item) for item in zip(passages, texts, relations, strict=True)]

    # ------------------------------------------------------------------ pieces, special tokens

    def _pieces(self, passage: Passage, text: InspectedText, numbers: dict[str, int]) -> PiecePairs | None:
        owners, words = piece_words(passage)
        types: Numbers = np.array([numbers.setdefault(word, len(numbers)) for word in words])
        return find_piece_pairs(text, owners, types[owners])

    def sinks(self, passage: Passage) -> dict[str, Bools]:
        """Which units are [CLS], [SEP] or the first token, by their place around the texts: what stands between two
        texts is [SEP], wherever it stands; what is left is [CLS]. From left to right, the first token sees nothing
        but itself, whatever it is."""
        units = passage.units
        ids = np.array(passage.tokens.ids)[units.starts]
        is_separator = ~units.is_word & np.isin(ids, sorted(self.separators))
        is_first = np.arange(len(units)) == 0
        none = np.zeros(len(units), bool)
        if self.causal:
            return {"cls": none, "sep": is_separator & ~is_first, "first": is_first}
        return {"cls": ~units.is_word & ~is_separator, "sep": is_separator, "first": none}

    def _cannot_be_seen(self, prepared: Sequence[PreparedText]) -> None:
        reasons = self.unseen
        if not any(len(item.passage.texts) > 1 for item in prepared):
            reasons["across"] = "cannot be seen: these are no pairs of texts"
        if self.causal:
            reasons |= dict.fromkeys(("next", "next2"), "cannot be seen: later words are hidden")
            reasons["cls"] = "cannot be seen: from left to right, the first token is named first, whatever it is"
        else:
            reasons["first"] = "cannot be seen: only from left to right the first token is a place to rest"
        for name in ("cls", "sep"):
            if not any((item.sinks or {})[name].any() for item in prepared):
                reasons.setdefault(name, "cannot be seen: there is no such token around the texts")
        if not any(item.pieces is not None for item in prepared):
            is_chinese = any(HAN.search(text) for item in prepared for text in item.passage.texts)
            reasons["pieces"] = (
                "cannot be seen: characters of Chinese words need the package rjieba"
                if is_chinese and not can_segment_chinese()
                else "cannot be seen: no word has several pieces"
            )
        assert reasons.keys() <= set(NAMES)


def _as_far(in_own_text: Sequence[Bools], in_other_text: Sequence[Bools], seed: int) -> list[Bools]:
    """Some of the pairs in one text, half of them at least, such that they are about as far apart as those across
    texts are."""

    def bins(pairs: Bools) -> Numbers:
        queries, keys = np.nonzero(pairs)
        log_distances: Numbers = np.log2(np.maximum(np.abs(queries - keys), 1)).astype(np.int64)
        return log_distances

    counts = [
        np.bincount(np.concatenate([*map(bins, pairs), np.empty(0, np.int64)]), minlength=16)
        for pairs in (in_own_text, in_other_text)
    ]
    chances = counts[1] / np.maximum(counts[0], 1)
    order = np.argsort(chances)
    middle = order[np.searchsorted(counts[0][order].cumsum(), counts[0].sum() / 2)] if counts[0].any() else 0
    chances = np.minimum(1.0, chances / max(chances[middle], 1e-12))
    rng = np.random.default_rng([seed, 1])
    kept = []
    for pairs in in_own_text:
        chosen = rng.random(pairs.sum()) < chances[bins(pairs)]
        queries, keys = np.nonzero(pairs)
        sampled = np.zeros_like(pairs)
        sampled[queries[chosen], keys[chosen]] = True
        kept.append(sampled)
    return kept
