"""Texts that were changed on purpose, what stays a name in them, and what is said beside one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from atlas_recall import judge_planted, make_atlas_texts, planted_attention

import bertworks
from bertworks.config import TransformerConfig
from bertworks.inspect.examples import Examples
from bertworks.inspect.features import LayerAttention, compared_features
from bertworks.inspect.heads import LayerEvidence, RelationVerdict, judge_layer, make_head_name
from bertworks.inspect.interventions import (
    Interventions,
    moved_separator,
    planted_twin,
    shuffled_units,
    shuffled_words,
)
from bertworks.inspect.naming import Thresholds
from bertworks.inspect.own_relations import OwnRelations
from bertworks.inspect.passages import piece_words, read_passages
from bertworks.inspect.preparing import AtlasTexts, Preparation
from bertworks.inspect.relations import find_relation, relabelled, same_word
from bertworks.model import attention
from bertworks.model.attention import AdditiveAttention
from bertworks.model.init import init_local_attention
from bertworks.text.backends import word_piece
from bertworks.text.tokenizer import Tokenizer
from texts import chinese_documents

ENOUGH = Thresholds(min_types=40, min_documents=40, min_piece_types=10)


@pytest.fixture(scope="module")
def atlas_texts() -> AtlasTexts:
    return make_atlas_texts(48, thresholds=ENOUGH)


def test_planted_patterns_are_named_and_nothing_else(atlas_texts: AtlasTexts) -> None:
    """A small part of benchmarks/atlas_recall.py."""
    patterns = ("next", "previous2", "same", "related", "across", "pieces", "predicts", "cls", "sep")
    heads = [(pattern, strength) for pattern in patterns for strength in (0.0, 0.6)]
    outcome = judge_planted(atlas_texts, heads, ENOUGH, sink=0.2)
    assert outcome.unseen == ["first"] and outcome.null_names == 0
    for (pattern, strength), names in zip(heads, outcome.names, strict=True):
        expected = {pattern, *({"same"} if pattern == "across" else ())} if strength else set()
        assert names == expected, (pattern, strength)


def test_what_is_said_beside_a_name(atlas_texts: AtlasTexts) -> None:
    """The same word, in the other text as in its own; a sink whose values are short is a no-op."""
    rng = np.random.default_rng(0)
    evidence = LayerEvidence()
    for item in atlas_texts.all_texts:
        rows = planted_attention(item, [("same", 0.6), ("across", 0.6), ("cls", 0.8), ("cls", 0.8)], rng)
        norms = np.ones(rows.shape[:2], np.float32)
        norms[2, 0] = 0.05
        evidence.add(rows, norms, item)
    judged = judge_layer(evidence, atlas_texts, ENOUGH)
    (same,) = judged["same"]
    assert same.verdict.is_named.tolist() == [True, True, False, False]
    assert same.verdict.notes["also across"].tolist() == [True, False, False, False]
    assert judged["across"][0].verdict.is_named.tolist() == [False, True, False, False]
    sink = judged["cls"][0].verdict
    assert sink.is_named.tolist() == [False, False, True, True]
    assert sink.notes["no-op"][2:].tolist() == [True, False]
    assert sink.numbers["norm share"][3] == pytest.approx(sink.numbers["mass"][3], abs=0.02)


def test_words_are_shuffled_with_their_pieces(atlas_texts: AtlasTexts) -> None:
    item = atlas_texts.passages[0]
    other = shuffled_units(item, np.random.default_rng(0))
    words = shuffled_words(item, np.random.default_rng(0))
    assert words.passage.tokens.ids == other.passage.tokens.ids, "the same, where no word has several units"
    old, new = item.text.units, other.text.units
    assert sorted(old.words) == sorted(new.words) and old.words != new.words and (old.texts == new.texts).all()
    assert sorted(item.passage.tokens.ids) == sorted(other.passage.tokens.ids)
    spelled = dict(zip(old.words, zip(old.starts, old.n_pieces, strict=True), strict=True))
    for word, start, n_pieces in zip(new.words, new.starts, new.n_pieces, strict=True):
        if word:
            at = spelled[word][0]
            assert (
                other.passage.tokens.ids[start : start + n_pieces] == item.passage.tokens.ids[at : at + n_pieces]
                or old.words.count(word) > 1
            )
    assert item.pieces is not None and other.pieces is not None
    moved = np.array(other.passage.tokens.ids)[other.pieces.to_own.queries]
    assert (moved == np.array(item.passage.tokens.ids)[item.pieces.to_own.queries]).all()


def chinese_atlas_texts() -> tuple[AtlasTexts, Tokenizer]:
    documents = chinese_documents()
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({*"".join(documents)})]
    backend = word_piece({piece: number for number, piece in enumerate(pieces)}, {})
    tokenizer = Tokenizer.from_json(json.loads(backend.to_str()), {})
    read = read_passages(documents, tokenizer, n=12, pairs=True)
    preparation = Preparation(read, False, frozenset(tokenizer.pair_template.parts[1][0].tolist()))
    return preparation.prepare(None, None, (), OwnRelations(), ENOUGH), tokenizer


def test_characters_of_a_chinese_word_stay_together() -> None:
    """What a head does to the other characters of a word is asked of words in another order: a head that looks at its
    neighbours keeps them there, while characters in another order have other neighbours."""
    pytest.importorskip("rjieba")
    chinese, tokenizer = chinese_atlas_texts()
    item = chinese.passages[0]
    owners, words = piece_words(item.passage)
    other = shuffled_words(item, np.random.default_rng(0))
    assert other.passage.tokens.ids != item.passage.tokens.ids
    spelled = {words[owner] for owner in owners[owners >= 0].tolist()}
    text = "".join(other.passage.tokens.pieces)
    assert max(map(len, spelled)) > 1 and all(word in text for word in spelled)
    assert item.pieces is not None and other.pieces is not None
    old, new = item.pieces.to_own, other.pieces.to_own
    assert (old.keys - old.queries == new.keys - new.queries).all()

    sizes = {"hidden_size": 128, "n_heads": 4, "n_layers": 1, "ffn_size": 64, "n_positions": 128}
    model = bertworks.new("bert-mini", tokenizer=tokenizer, **sizes)
    init_local_attention(model.model.encoder)
    interventions = Interventions(model.model, ENOUGH, 0, lambda done, total: None)
    interventions.run(chinese.passages, (), {"pieces", "next"}, Examples(chinese.passages, {}))
    own = max(range(4), key=lambda head: float(interventions.before.of("pieces", 0)[head]))
    confirmation = interventions.confirmation("pieces", 0, own)
    assert confirmation.is_confirmed and confirmation.numbers["kept when shuffled"] > 0.95
    assert interventions.shuffled.of("pieces", 0)[own] < 0.3 * interventions.before.of("pieces", 0)[own]


def test_twins_confirm_the_same_word_and_no_related_ones(atlas_texts: AtlasTexts) -> None:
    """A head that is named for related words of the other text is not confirmed by a twin there."""
    rng = np.random.default_rng(0)
    evidence = LayerEvidence()
    for item in atlas_texts.all_texts:
        rows = planted_attention(item, [("across", 0.6)], rng)
        evidence.add(rows, np.ones(rows.shape[:2], np.float32), item)
    verdict = judge_layer(evidence, atlas_texts, ENOUGH)["across"][0].verdict
    model: Any = None
    interventions = Interventions(model, ENOUGH, 0, lambda done, total: None)
    before, after = ([np.array([value])] * 10 for value in (0.01, 0.5))
    interventions.twins[True] = [{0: before}, {0: after}]
    confirmed = {
        relation: make_head_name(
            0, 0, "across", RelationVerdict(verdict, relation), atlas_texts, interventions, Examples((), {})
        ).is_confirmed
        for relation in ("across", "related across")
    }
    assert confirmed == {"across": True, "related across": None}


def test_words_that_predict_need_word_types_with_decoys(atlas_texts: AtlasTexts) -> None:
    """Hits of many words and decoys of few: that is not enough text."""
    verdicts = {}
    for n_compared in (3, 60):
        evidence = LayerEvidence()
        predicts = evidence.of("predicts")
        for word in range(60):
            predicts.hits.add(np.array([word]), word, np.array([[[1.0, 0.0]]]))
            if word < n_compared:
                predicts.compared.add(np.array([word]), word, np.array([[[0.5, 0.01, 0.5]]]))
        verdicts[n_compared] = judge_layer(evidence, atlas_texts, ENOUGH)["predicts"]
    assert verdicts[3] == [] and [found.verdict.n_types for found in verdicts[60]] == [60]


def test_the_separator_is_moved(atlas_texts: AtlasTexts) -> None:
    item = atlas_texts.passages[0]
    other = moved_separator(item, np.random.default_rng(0))
    assert other is not None and item.sinks is not None and other.sinks is not None
    ids, moved = item.passage.tokens.ids, other.passage.tokens.ids
    separator = ids[-1]
    assert sorted(ids) == sorted(moved) and ids.index(separator) > moved.index(separator)
    without = [[id for id in each if id != separator] for each in (ids, moved)]
    assert without[0] == without[1]  # the words stay in order
    starts = other.text.units.starts
    assert {moved[starts[unit]] for unit in np.flatnonzero(other.sinks["sep"])} == {separator}
    segments = other.passage.tokens.segments
    assert segments[: moved.index(separator) + 1] == [0] * (moved.index(separator) + 1)
    assert set(segments[moved.index(separator) + 1 :]) == {1}


@pytest.mark.parametrize("across", [False, True])
def test_a_twin_is_planted(across: bool, atlas_texts: AtlasTexts) -> None:
    item = atlas_texts.passages[0]
    twin = planted_twin(item, np.random.default_rng(0), across=across)
    assert twin is not None
    units, ids = item.text.units, twin.passage.tokens.ids
    assert ids[units.starts[twin.key]] == ids[units.starts[twin.query]]
    assert abs(twin.key - twin.query) >= 6 and (units.texts[twin.key] != units.texts[twin.query]) == across
    assert sum(one != other for one, other in zip(ids, item.passage.tokens.ids, strict=True)) == 1


def test_relabelled_decoys_are_not_targets(atlas_texts: AtlasTexts) -> None:
    """Where the pattern is strong, decoys taken for targets get nothing of it."""
    rng = np.random.default_rng(0)
    real, false = [], []
    for item in atlas_texts.passages:
        twins = same_word(item.text)
        layer_attention = LayerAttention(planted_attention(item, [("same", 0.9)], rng), item.text)
        for relation, values in (
            (find_relation(item.text, twins), real),
            (relabelled(item.text, twins, None, rng), false),
        ):
            features = None if relation is None else compared_features(layer_attention, relation)
            if features is not None:
                values.append(features.mean((0, 1)))
    assert np.mean(real, 0)[0] > 0.3 > 0.03 > np.mean(false, 0)[0]


def test_additive_attention_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    config = TransformerConfig(vocab_size=9, hidden_size=8, n_heads=2, n_layers=1, ffn_size=8, attention="additive")
    additive = AdditiveAttention(config)
    torch.nn.init.normal_(additive.compare)
    q, k = torch.randn(2, 3, 2, 11, 4)
    sizes: list[int] = []
    tanh = torch.tanh
    monkeypatch.setattr(attention.torch, "tanh", lambda x: (sizes.append(x.numel()), tanh(x))[1])
    whole = additive._compare(q, k)
    monkeypatch.setattr(attention, "MAX_COMPARED", 3 * k.numel())
    assert torch.allclose(additive._compare(q, k), whole, atol=1e-6)
    assert sizes[0] == 11 * k.numel() and max(sizes[1:]) == 3 * k.numel() and len(sizes) == 5
