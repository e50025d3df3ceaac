"""Which words predict others: hidden from models, and counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import bertworks
from bertworks.inspect.atlas import hiding_model
from bertworks.inspect.heads import LayerEvidence, judge_layer
from bertworks.inspect.naming import Thresholds
from bertworks.inspect.own_relations import OwnRelations
from bertworks.inspect.passages import Passage, read_passages
from bertworks.inspect.predicting import HiddenText, HidingModel, OrderedPMI, find_predictors, log_probabilities
from bertworks.inspect.preparing import Preparation
from bertworks.inspect.related import pair_counts
from bertworks.inspect.relations import InspectedText
from bertworks.inspect.units import Units, WordTypes
from test_atlas import make_tokenizer

SIZES: dict[str, Any] = {"hidden_size": 32, "n_heads": 2, "n_layers": 2, "ffn_size": 32}


def silent(done: int, total: int) -> None:
    """Reports nothing."""


@pytest.mark.parametrize("preset", ["bert-mini", "xlnet-mini", "gpt-mini"])
def test_what_is_hidden_has_no_effect(preset: str) -> None:
    """In a batch of several lengths; what is not hidden has one."""
    tokenizer = make_tokenizer()
    changes = {} if preset == "xlnet-mini" else {"n_positions": 32}
    model = bertworks.new(preset, tokenizer=tokenizer, heads=["lm"], **SIZES, **changes)
    hiding = hiding_model(model)
    assert hiding is not None
    with torch.no_grad():
        for parameter in model.model.encoder.parameters():  # else the effects would be tiny
            parameter.mul_(4)
    own = [] if hiding.is_causal else [4]

    def text(at_2: int, hidden: list[int]) -> HiddenText:
        return HiddenText([10, 11, at_2, 13, 14, 15], [0] * 6, [*own, *hidden], [4])

    longer = HiddenText([9, 8, 7, 6, 5, 10, 11, 12], [0] * 8, [6], [7])
    texts = [text(12, []), text(40, []), text(12, [2]), text(40, [2]), longer]
    shown, other, hidden, other_hidden, _ = log_probabilities(hiding, texts, silent)
    assert abs(shown - other) > 1e-4 and abs(shown - hidden) > 1e-4
    assert hidden == pytest.approx(other_hidden, abs=1e-6)
    assert abs(shown - log_probabilities(hiding, [text(12, [3])], silent)[0]) > 1e-4, "also the word before it"
    assert log_probabilities(hiding, [text(12, [])], silent)[0] == pytest.approx(shown, abs=1e-5)


class Bags:
    """An encoder: the state of each token says which tokens its text has."""

    device = torch.device("cpu")

    def __init__(self, n_words: int) -> None:
        self.n_words = n_words

    def __call__(self, tokens: Any) -> Any:
        lengths = [length for rows, length, _ in tokens.layout.shapes for _ in range(rows)]
        bags = []
        for ids in torch.split(tokens.ids, lengths):
            bag = torch.zeros(self.n_words).index_fill(0, ids, 1.0)
            bags += [bag] * len(ids)
        return SimpleNamespace(last=torch.stack(bags))


class PartnerModel:
    """Predicts a word where its partner is to be seen, and any word else: w0 and w1 are partners, w2 and w3, ..."""

    def __init__(self, n_words: int) -> None:
        self.config = SimpleNamespace(encoder=SimpleNamespace(has_two_streams=False, causal=False))
        self.n_words = n_words
        self.encoder = Bags(n_words)

    def read(self, head: str, states: torch.Tensor) -> torch.Tensor:
        first = 6  # of the words, after special tokens and the full stop
        partners = torch.arange(self.n_words)
        partners[first:-1] = first + ((partners[first:-1] - first) ^ 1)
        return 12 * states[:, partners]


def test_predictors_are_found_and_a_head_that_looks_at_them_is_named() -> None:
    """Sentences of different words with some pairs of partners, anywhere."""
    tokenizer = make_tokenizer()
    rng = np.random.default_rng(0)
    documents = []
    for _ in range(60):
        numbers = rng.permutation(np.arange(1, 700))[:14].tolist()
        words = [2 * number for number in numbers] + [2 * number + 1 for number in numbers[:6]]
        documents.append(" ".join(f"w{number}" for number in rng.permutation(words)).capitalize() + ".")
    read = read_passages(documents, tokenizer, n=60, pairs=False)
    assert len(read.sentences) == 60
    preparation = Preparation(read, False, frozenset())
    texts = preparation.inspected(read.sentences)
    model: Any = PartnerModel(tokenizer.vocab_size)
    hiding = HidingModel(model, tokenizer.id_of("mask"), "by hiding words")
    found = find_predictors(hiding, read.sentences, texts, 1e6, 0.1, np.random.default_rng(0), silent)
    n_found = 0
    for text, predictors in zip(texts, found, strict=True):
        for query, key in zip(*np.nonzero(predictors.pairs), strict=True):
            one, other = (int(text.units.words[at][1:]) for at in (query, key))
            assert one ^ 1 == other
            n_found += 1
    assert n_found > 100
    thresholds = Thresholds(min_types=40, min_documents=40)
    atlas_texts = preparation.prepare(None, None, found, OwnRelations(), thresholds)
    evidence = LayerEvidence()
    for item in atlas_texts.all_texts:
        size = len(item.text.units)
        noise = rng.dirichlet(np.full(size, 0.3), (2, size))
        if "predicts" in item.relations:
            relation = item.relations["predicts"]
            noise[0, relation.queries] = 0.6 * noise[0, relation.queries] + 0.4 * relation.targets
        evidence.add(noise.astype(np.float32), np.ones((2, size), np.float32), item)
    (judged,) = judge_layer(evidence, atlas_texts, thresholds)["predicts"]
    assert judged.verdict.is_named.tolist() == [True, False]


def test_words_that_go_together_are_counted() -> None:
    """In order: "b" comes after "a" more often than by chance, and "c" anywhere."""
    rng = np.random.default_rng(0)
    documents = [rng.permutation([0, 1] * 10 + list(range(4, 24))).tolist() for _ in range(200)]
    for document in documents:
        document += [2, 3] * 3
    codes, counts = pair_counts([[0, 1, 9, 0], [1, 0]], 3, 2)
    assert dict(zip(codes.tolist(), counts.tolist(), strict=True)) == {1: 1, 0: 1, 3: 2}  # 9 is skipped
    ordered_pmi = OrderedPMI(documents, 24)
    words = WordTypes.count(f"w{number:02d}" for number in range(24))  # equally frequent: in alphabetical order
    spelled = ("", "w07", "w02", "w08", "w03", "w09", "")
    units = Units(np.arange(7), spelled, np.array([-1, 0, 0, 0, 0, 0, -1]), 7)
    pairs = ordered_pmi.predictors(InspectedText.of(units, words, 0), 0.1)
    assert pairs[2, 4] and pairs[4, 2] and pairs.sum(1).max() == 1


def test_a_model_without_a_language_head_has_no_predictions() -> None:
    tokenizer = make_tokenizer()
    assert hiding_model(bertworks.new("bert-mini", tokenizer=tokenizer, n_positions=16, **SIZES)) is None
    model = bertworks.new("electra-mini", tokenizer=tokenizer, n_positions=16, **SIZES)
    assert hiding_model(model) is None
    model.generator = bertworks.new("bert-mini", tokenizer=tokenizer, heads=["lm"], n_positions=16, **SIZES)
    hiding = hiding_model(model)
    assert hiding is not None and hiding.by == "by its generator" and hiding.model is model.generator.model


def test_passages_that_share_a_sentence_are_dropped() -> None:
    tokenizer = make_tokenizer()
    sentence = " ".join(f"w{number}" for number in range(1, 20)) + "."
    other = " ".join(f"w{number}" for number in range(31, 50)).capitalize() + "."
    read = read_passages([f"{sentence} {sentence.upper()}", f"{sentence} {other}"], tokenizer, n=5, pairs=True)
    assert read.n_dropped == 1 and [passage.document for passage in read.passages] == [1]
    assert isinstance(read.passages[0], Passage) and read.passages[0].texts == (sentence, other)
