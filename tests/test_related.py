"""Vectors that say which words are related: against the judgements of people."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import bertworks
from bertworks.data.corpus import Corpus, ReadOptions
from bertworks.inspect.passages import MAX_COUNTED_CHARACTERS, WORD
from bertworks.inspect.related import Relatedness, Vectors, own_vectors, share_stem, word_vectors
from bertworks.inspect.units import WordTypes
from bertworks.model.weights import as_numpy


def test_related_words_are_near_and_no_forms_of_one() -> None:
    """Two groups of words that never meet."""
    rng = np.random.default_rng(0)
    documents = [(rng.permutation(20) + 20 * (number % 2)).tolist() for number in range(200)]
    vectors = word_vectors(documents, 40)
    cosines = vectors @ vectors.T
    assert cosines[:20, :20].mean() > 0.25 > 0.1 > np.abs(cosines[:20, 20:]).mean()
    words = [f"{number:02d}" * 3 for number in range(40)]
    pairs = Relatedness(vectors, words, "", nearest=0.5).pairs(np.array([0, 1, 2, 0, 25, -1]))
    assert not pairs[0, 3] and not pairs[0, 4] and not pairs[:, 5].any() and not pairs[5].any() and pairs[0, 1:3].any()
    assert share_stem("walking", "walked") and not share_stem("walk", "ward") and not share_stem("cat", "dog")


def test_own_vectors_lose_what_all_share() -> None:
    """A cone: every embedding has a large common part, in three directions."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(300, 16)).astype(np.float32)
    table[:, :3] *= 30
    table += 50
    vectors = own_vectors(table, [[0], [0, 0], [5, 6], []])
    assert np.allclose(vectors[0], vectors[1], atol=1e-5) and not vectors[3].any()
    assert np.abs(vectors[:3, :3]).max() < 0.1 and np.allclose(np.linalg.norm(vectors[:3], axis=1), 1)


def judgements(shared: Path) -> list[tuple[str, str, float]]:
    with (shared / "tasks" / "wordsim" / "wordsim353.tsv").open() as file:
        rows = [row for row in csv.reader(file, delimiter="\t") if len(row) >= 3 and not row[0].startswith("#")]
    return [(row[0].lower(), row[1].lower(), float(row[2])) for row in rows if row[2].replace(".", "").isdigit()]


def agreement(vectors: Vectors, words: WordTypes, shared: Path) -> tuple[float, int]:
    """Spearman's rank correlation with people, over the pairs that both know."""
    from scipy.stats import spearmanr

    known = [
        (words.index[first], words.index[second], score)
        for first, second, score in judgements(shared)
        if all(words.index.get(word, len(vectors)) < len(vectors) for word in (first, second))
    ]
    known = [row for row in known if vectors[row[0]].any() and vectors[row[1]].any()]
    cosines = [float(vectors[first] @ vectors[second]) for first, second, _ in known]
    return float(spearmanr(cosines, [score for *_, score in known]).statistic), len(known)


@pytest.mark.slow
def test_vectors_agree_with_people(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of a part of the book corpus, as an atlas makes them, and minilm's own."""
    texts, n_characters = [], 0
    for document in Corpus([str(shared / "corpora" / "en" / "books_en_00.txt")], ReadOptions()):
        texts.append(WORD.findall(document.lower()))
        n_characters += len(document)
        if n_characters > MAX_COUNTED_CHARACTERS:
            break
    words = WordTypes(Counter(word for text in texts for word in text))
    counted = agreement(word_vectors([[words.index[word] for word in text] for text in texts], 20_000), words, shared)
    model = bertworks.load("minilm")
    pieces = [ids.tolist() for ids in model.tokenizer.encode(words.words[:20_000])]
    own = agreement(own_vectors(as_numpy(model.model.encoder.token_table.detach()), pieces), words, shared)
    with capsys.disabled():
        print(
            f"\nWordSim-353: by the company they keep {counted[0]:.3f} ({counted[1]} pairs), own {own[0]:.3f} ({own[1]})"
        )
    assert counted[0] > 0.35 and own[0] > 0.35
