"""Statistics of heads on attention that was made for the purpose: a pattern of known strength in noise with a sink."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from bertworks.inspect.evidence import Evidence
from bertworks.inspect.features import OFFSETS, LayerAttention, compared_features, hit_features, offset_features
from bertworks.inspect.naming import POSITIONAL, RelationEvidence, Thresholds, has_enough_text, judge_offset, judge_same
from bertworks.inspect.relations import InspectedText, at_offset, find_relation, same_word
from bertworks.inspect.units import SPECIAL, Units, WordTypes
from texts import tiny_tokenizer

Attention = Any
STRENGTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
N_TYPES = 2000


def zipf_texts(n: int, seed: int = 0) -> list[Units]:
    """Pairs of texts, [CLS] a [SEP] b [SEP], of words as frequent as words are; words recur as they do in a text."""
    rng = np.random.default_rng(seed)
    chances = 1 / (np.arange(N_TYPES) + 2.7)
    chances /= chances.sum()
    texts = []
    for _ in range(n):
        words: list[str] = []
        for _ in range(60):
            is_repeated = len(words) > 8 and rng.random() < 0.15
            words.append(rng.choice(words) if is_repeated else f"w{rng.choice(N_TYPES, p=chances)}")
        owners = [SPECIAL, *[0] * 30, SPECIAL, *[1] * 30, SPECIAL]
        spelled = ("", *words[:30], "", *words[30:], "")
        texts.append(Units(np.arange(len(owners)), spelled, np.array(owners), len(owners)))
    return texts


@pytest.fixture(scope="module")
def corpus() -> list[InspectedText]:
    units = zipf_texts(150)
    words = WordTypes.count(word for text in units for word in text.words if word)
    return [InspectedText.of(text, words, document) for document, text in enumerate(units)]


def noise(rng: np.random.Generator, n_heads: int, text: InspectedText, sink: float) -> Attention:
    """Dirichlet rows of which a part goes to the first token."""
    size = len(text.units)
    rows = rng.dirichlet(np.full(size, 0.3), (n_heads, size))
    rows *= 1 - sink
    rows[:, :, 0] += sink
    return rows


def planted(rows: Attention, pairs: Any, strength: float) -> Attention:
    """A part of the attention goes to the pairs, where a query has some."""
    counts = pairs.sum(1, keepdims=True)
    pattern = pairs / np.maximum(counts, 1)
    return np.where(counts > 0, (1 - strength) * rows + strength * pattern, rows)


def gather(corpus: list[InspectedText], make: Any, n_heads: int) -> tuple[Evidence, RelationEvidence]:
    """Of offsets and of the same word."""
    offsets, same = Evidence(), RelationEvidence.empty()
    rng = np.random.default_rng(1)
    for text in corpus:
        attention = make(rng, text)
        assert attention.shape[0] == n_heads and np.allclose(attention.sum(2), 1)
        layer_attention = LayerAttention(attention, text)
        queries, features = offset_features(layer_attention, text)
        offsets.add(text.types[queries], text.document, features)
        relation = find_relation(text, same_word(text))
        compared = None if relation is None else compared_features(layer_attention, relation)
        if relation is not None and compared is not None:
            same.compared.add(relation.types[relation.compared], text.document, compared)
            same.hits.add(relation.types, text.document, hit_features(layer_attention, relation))
    return offsets, same


@pytest.mark.parametrize("sink", [0.0, 0.6])
def test_planted_offsets_are_named_and_nothing_else_is(corpus: list[InspectedText], sink: float) -> None:
    """A head per strength and offset; shares are of what goes to words, so that a sink hides nothing."""
    kinds = [(name, strength) for name in POSITIONAL for strength in STRENGTHS]

    def make(rng: np.random.Generator, text: InspectedText) -> Attention:
        heads = []
        for name, strength in kinds:
            rows = planted(noise(rng, 1, text, 0.0)[0], at_offset(text, POSITIONAL[name]), strength) * (1 - sink)
            rows[:, 0] += sink
            heads.append(rows)
        return np.stack(heads)

    offsets, same = gather(corpus, make, len(kinds))
    assert has_enough_text(offsets, Thresholds())
    verdicts = {name: judge_offset(offsets, offset, Thresholds()) for name, offset in POSITIONAL.items()}
    for head, (planted_name, strength) in enumerate(kinds):
        names = [name for name, verdict in verdicts.items() if verdict.is_named[head]]
        assert names == ([planted_name] if strength >= 0.5 else []), (planted_name, strength)
        if strength != 0.5:  # at the threshold
            is_strong = verdicts[planted_name].is_named[head] and verdicts[planted_name].is_strong[head]
            assert is_strong == (strength > 0.5 and sink == 0.0)
    assert not judge_same(same, Thresholds()).is_named.any()


def test_planted_twins_are_named_by_strength(corpus: list[InspectedText]) -> None:
    def make(rng: np.random.Generator, text: InspectedText) -> Attention:
        twins = same_word(text)
        return np.stack([planted(noise(rng, 1, text, 0.3)[0], twins, strength) for strength in STRENGTHS])

    offsets, same = gather(corpus, make, len(STRENGTHS))
    verdict = judge_same(same, Thresholds())
    assert verdict.is_named.tolist() == [True, True, True, True, True]
    assert (np.diff(verdict.numbers["mass"]) > 0).all()
    for offset in POSITIONAL.values():
        assert not judge_offset(offsets, offset, Thresholds()).is_named.any()


def test_peaked_random_heads_get_no_names(corpus: list[InspectedText]) -> None:
    """A hundred heads that look at few words for no reason, by the words' own numbers: what is frequent recurs."""

    def make(rng: np.random.Generator, text: InspectedText) -> Attention:
        vectors = np.random.default_rng(7).normal(size=(100, 2, N_TYPES + 1, 4))
        queries, keys = vectors[:, 0, text.types], vectors[:, 1, text.types]  # (heads, units, 4)
        scores = 3 * np.einsum("hqd,hkd->hqk", queries, keys)
        weights = np.exp(scores - scores.max(2, keepdims=True))
        return weights / weights.sum(2, keepdims=True)

    offsets, same = gather(corpus[:120], make, 100)
    assert not judge_same(same, Thresholds()).is_named.any()
    for offset in POSITIONAL.values():
        assert not judge_offset(offsets, offset, Thresholds()).is_named.any()


def test_decoys_are_alike_but_not_related(corpus: list[InspectedText]) -> None:
    """Checked pair by pair, without the vectorised rule."""
    n_sites = 0
    for text in corpus[:20]:
        targets = same_word(text)
        relation = find_relation(text, targets)
        if relation is None or relation.to_targets is None or relation.to_decoys is None:
            continue
        for pairs in (relation.to_targets, relation.to_decoys):
            assert np.allclose(np.bincount(pairs.rows, pairs.weights), 1)
        for row, place in enumerate(relation.compared):
            query = relation.queries[place]
            used = relation.to_targets.keys[relation.to_targets.rows == row]
            assert all(text.types[key] == text.types[query] and abs(key - query) >= 3 for key in used)
            of_row = relation.to_decoys.rows == row
            assert (relation.to_decoys.queries[of_row] == query).all()
            for decoy in relation.to_decoys.keys[of_row]:
                n_sites += 1
                assert text.types[decoy] != text.types[query] and text.units.texts[decoy] != SPECIAL
                assert any(
                    text.units.texts[decoy] == text.units.texts[key]
                    and abs((decoy - query) - (key - query)) <= np.ceil(0.2 * abs(key - query))
                    and abs(text.log_counts[decoy] - text.log_counts[key]) <= 1
                    for key in used
                )
    assert n_sites > 50


def test_words_of_a_pair_and_their_attention() -> None:
    """A word is attended to as its pieces together, and attends as they do on average."""
    tokenizer = tiny_tokenizer()
    first, second = "ba defi ku.", "Go ba!"
    pieces = tokenizer.pieces(first, second)
    units = Units.of(pieces, (first, second))
    assert [word for word in units.words if word] == ["ba", "defi", "ku", ".", "go", "ba", "!"]
    assert units.is_punctuation.sum() == 2 and (units.texts == SPECIAL).sum() == sum(pieces.special)
    assert units.n_pieces.sum() == len(pieces.ids) and units.n_pieces.max() > 1
    rng = np.random.default_rng(0)
    attention = rng.dirichlet(np.ones(len(pieces.ids)), (3, len(pieces.ids)))
    words = units.attention(attention)
    assert words.shape == (3, len(units), len(units)) and np.allclose(words.sum(2), 1)
    split = int(units.n_pieces.argmax())
    members = range(units.starts[split], units.starts[split] + units.n_pieces[split])
    expected = np.mean([attention[1, member, 0] for member in members])
    assert np.isclose(words[1, split, 0], expected)
    assert np.isclose(words[1, 0, split], sum(attention[1, 0, member] for member in members))


def test_word_types_are_numbered_by_frequency() -> None:
    words = WordTypes(Counter({"b": 2, "a": 2, "c": 8}))
    assert words.words == ["c", "a", "b"] and words.log_counts.tolist() == [3, 1, 1]


def test_offsets_do_not_leave_a_text(corpus: list[InspectedText]) -> None:
    text = corpus[0]
    for offset in OFFSETS:
        queries, keys = np.nonzero(at_offset(text, offset))
        assert (keys - queries == offset).all() and (text.units.texts[queries] == text.units.texts[keys]).all()
        assert len(queries) == 2 * (30 - abs(offset))
