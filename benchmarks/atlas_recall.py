"""Which planted patterns of attention an atlas names: recall by strength, precision, and what is taken for what.

    python benchmarks/atlas_recall.py [PASSAGES]     120 pairs of passages, if not given

The words are as frequent as words are, and recur as they do in a text; every fifth has two pieces. Each head attends
at random (Dirichlet rows), rests on [CLS] with three tenths of its attention, and follows one pattern with the strength
of its column, wherever a query has a word in that relation.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertworks.inspect.heads import LayerEvidence, count_null, judge_layer
from bertworks.inspect.naming import POSITIONAL, Thresholds
from bertworks.inspect.own_relations import OwnRelations
from bertworks.inspect.passages import read_passages
from bertworks.inspect.preparing import AtlasTexts, Preparation, PreparedText
from bertworks.inspect.related import Relatedness
from bertworks.inspect.relations import InspectedText, at_offset, same_word
from bertworks.inspect.units import Bools, Floats, WordTypes
from bertworks.text.backends import word_piece
from bertworks.text.tokenizer import Tokenizer

STRENGTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
SINK = 0.3
N_WORDS = 1500
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PATTERNS = (*POSITIONAL, "same", "related", "across", "pieces", "predicts", "cls", "sep")
CAUSAL_PATTERNS = ("previous", "previous2", "same", "first")
IMPLIED = {"across": {"same"}}  # a twin in the other text is a twin
ONE_WAY, OTHER_WAY = 7919, 104729  # make pairs of words that predict each other, for no reason


def make_tokenizer() -> Tokenizer:
    pieces = [*SPECIAL, ".", *(f"w{number}" for number in range(N_WORDS)), "##q"]
    backend = word_piece({piece: number for number, piece in enumerate(pieces)}, {"do_lower_case": True})
    return Tokenizer.from_json(json.loads(backend.to_str()), {})


def make_documents(n: int, n_words: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    chances = 1 / (np.arange(N_WORDS) + 2.7)
    chances /= chances.sum()
    documents = []
    for _ in range(n):
        words: list[str] = []
        while len(words) < n_words:
            is_repeated = len(words) > 8 and rng.random() < 0.2
            number = int(rng.choice(N_WORDS, p=chances))
            new = f"w{number}" + "q" * (number % 5 == 0)
            words.append(words[-int(rng.integers(5, min(len(words), 60)))] if is_repeated else new)
        documents.append(" ".join(" ".join(words[at : at + 9]).capitalize() + "." for at in range(0, len(words), 9)))
    return documents


class ByChance:
    """Stands for the counts of a corpus: of each word one beside it, by nothing but their numbers."""

    def predictors(self, text: InspectedText, min_information: float) -> Bools:
        places = np.arange(len(text.units))
        near = np.abs(places[:, None] - places[None]) <= 5
        pairs = text.ordinary & text.within & near & ~text.units.is_punctuation[None] & text.units.is_word[:, None]
        scores = (text.types[:, None] * ONE_WAY + text.types[None] * OTHER_WAY) % 1009
        best = np.where(pairs, scores, -1).argmax(1)
        found = np.zeros_like(pairs)
        rows = np.flatnonzero(pairs.any(1))
        found[rows, best[rows]] = True
        return found


def related_words(words: WordTypes) -> Relatedness:
    """A hundred groups of words."""
    rng = np.random.default_rng(3)
    groups = rng.normal(size=(100, 50))
    vectors = groups[rng.integers(0, 100, len(words.words))] + 0.2 * rng.normal(size=(len(words.words), 50))
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    names = [f"{number:04d}" for number in range(len(words.words))]  # no two share a stem
    return Relatedness(unit, names, "planted", nearest=0.012)


def make_atlas_texts(n: int, *, causal: bool = False, max_tokens: int = 128, thresholds: Thresholds) -> AtlasTexts:
    tokenizer = make_tokenizer()
    documents = make_documents(n, max_tokens + 10)
    read = read_passages(documents, tokenizer, n=n, pairs=not causal, max_tokens=max_tokens)
    separators = frozenset(tokenizer.pair_template.parts[1][0].tolist())
    preparation = Preparation(read, causal, separators)
    ordered_pmi: Any = ByChance()
    return preparation.prepare(related_words(read.words), ordered_pmi, (), OwnRelations(), thresholds)


# ---------------------------------------------------------------------- planted attention


def planted_pairs(prepared: PreparedText, pattern: str) -> Bools:
    """Between pieces, (T, T)."""
    text, units = prepared.text, prepared.text.units
    if pattern == "pieces":
        pairs = np.zeros((units.n_tokens, units.n_tokens), bool)
        if prepared.pieces is not None:
            pairs[prepared.pieces.to_own.queries, prepared.pieces.to_own.keys] = True
        return pairs
    if pattern in POSITIONAL:
        of_units = at_offset(text, POSITIONAL[pattern])
    elif pattern in ("same", "across"):
        of_units = same_word(text) & (text.ordinary if pattern == "same" else ~text.within)
    elif prepared.sinks is not None and pattern in prepared.sinks:
        of_units = units.is_word[:, None] & prepared.sinks[pattern][None] & text.sees
    else:
        of_units = np.zeros(text.sees.shape, bool)
        if pattern in prepared.relations:
            of_units[prepared.relations[pattern].queries] = prepared.relations[pattern].targets
    unit_of = np.repeat(np.arange(len(units)), units.n_pieces)
    expanded: Bools = of_units[unit_of][:, unit_of]
    return expanded


def planted_attention(
    prepared: PreparedText, heads: Sequence[tuple[str, float]], rng: np.random.Generator, sink: float = SINK
) -> Floats:
    """(H, T, T): a head for each pattern and strength."""
    size = prepared.text.units.n_tokens
    unit_of = np.repeat(np.arange(len(prepared.text.units)), prepared.text.units.n_pieces)
    sees = prepared.text.sees[unit_of][:, unit_of] & (
        np.tri(size, dtype=bool) if not prepared.text.sees.all() else True
    )
    noise = rng.standard_gamma(0.3, (len(heads), size, size)) * sees
    rows = noise / np.maximum(noise.sum(2, keepdims=True), 1e-30)
    rows[~(noise.sum(2) > 0)] = np.eye(size)[np.nonzero(~(noise.sum(2) > 0))[1]]
    rows *= 1 - sink
    rows[:, :, 0] += sink
    for row, (pattern, strength) in zip(rows, heads, strict=True):
        pairs = planted_pairs(prepared, pattern) & sees
        counts = pairs.sum(1, keepdims=True)
        row[:] = np.where(counts > 0, (1 - strength) * row + strength * pairs / np.maximum(counts, 1), row)
    return rows.astype(np.float32)


@dataclass(frozen=True)
class Outcome:
    heads: list[tuple[str, float]]
    names: list[set[str]]
    null_names: int
    unseen: list[str]


def judge_planted(
    atlas_texts: AtlasTexts,
    heads: Sequence[tuple[str, float]],
    thresholds: Thresholds,
    seed: int = 1,
    sink: float = SINK,
) -> Outcome:
    rng = np.random.default_rng(seed)
    evidence = LayerEvidence()
    for prepared in atlas_texts.all_texts:
        attention = planted_attention(prepared, heads, rng, sink)
        norms = np.ones(attention.shape[:2], np.float32)
        evidence.add(attention, norms, prepared)
    judged = judge_layer(evidence, atlas_texts, thresholds)
    names: list[set[str]] = [set() for _ in heads]
    for name, candidates in judged.items():
        for candidate in candidates:
            for head in np.flatnonzero(candidate.verdict.is_named):
                names[head].add(name)
    unseen = [name for name, candidates in judged.items() if not candidates]
    return Outcome(list(heads), names, count_null(evidence, thresholds)[0], unseen)


def main(n: int = 120) -> None:
    thresholds = Thresholds()
    print(f"{n} passages of up to 128 tokens, a sink of {SINK}, two heads for each pattern and strength")
    print(f"{'':>14}" + "".join(f"{strength:>6}" for strength in STRENGTHS))
    n_right = n_named = n_null = 0
    confusions: list[str] = []
    for causal, patterns in ((False, PATTERNS), (True, CAUSAL_PATTERNS)):
        atlas_texts = make_atlas_texts(n, causal=causal, thresholds=thresholds)
        for pattern in patterns:
            heads = [(pattern, strength) for strength in STRENGTHS for _ in range(2)]
            outcome = judge_planted(atlas_texts, heads, thresholds)
            recall = [
                np.mean([pattern in names for (_, own), names in zip(heads, outcome.names, strict=True) if own == of])
                for of in STRENGTHS
            ]
            print(f"{pattern + (' (causal)' if causal else ''):>18}" + "".join(f"{value:>6.0%}" for value in recall))
            n_null += outcome.null_names
            for (_, strength), names in zip(heads, outcome.names, strict=True):
                wrong = names - {pattern} - IMPLIED.get(pattern, set())
                n_named += len(names)
                n_right += len(names) - len(wrong)
                confusions += [f"{pattern} at {strength} is named {name}" for name in sorted(wrong)]
    print(f"precision: {n_right} of {n_named} names are what was planted; with decoys for targets: {n_null} names")
    print("\n".join(confusions))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
