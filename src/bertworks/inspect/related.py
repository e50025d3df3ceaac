"""Which words are related, by the company they keep in a corpus: no model has a say in it, so it serves to judge any.

Positive pointwise mutual information of words that occur near each other, in a hundred dimensions by a truncated
singular value decomposition (Levy, Goldberg & Dagan 2015).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

WINDOW = 10  # words to either side
MAX_WORDS = 20_000
DIMENSIONS = 100
MIN_CORPUS_WORDS = 200_000  # fewer do not tell which words are related
Vectors = NDArray[np.float32]


def word_vectors(documents: Iterable[Sequence[int]], n_words: int, seed: int = 0) -> Vectors:
    """Unit vectors of the `n_words` commonest words, from documents of their numbers; rarer words are skipped."""
    n_words = min(n_words, MAX_WORDS)
    counts: Counter[int] = Counter()
    for document in documents:
        numbers = np.array([number for number in document if number < n_words], np.int64)
        for distance in range(1, min(WINDOW, len(numbers) - 1) + 1):
            pairs, n_pairs = np.unique(numbers[:-distance] * n_words + numbers[distance:], return_counts=True)
            counts.update(dict(zip(pairs.tolist(), n_pairs.tolist(), strict=True)))
    codes = np.fromiter(counts.keys(), np.int64, len(counts))
    weights = np.fromiter(counts.values(), np.float64, len(counts))
    rows, columns = (
        np.concatenate([codes // n_words, codes % n_words]),
        np.concatenate([codes % n_words, codes // n_words]),
    )
    both = np.concatenate([weights, weights])
    marginals = np.bincount(rows, both, n_words)
    total = both.sum()
    ppmi = np.maximum(0.0, np.log(both * total / (marginals[rows] * marginals[columns])))
    kept = ppmi > 0
    places = torch.from_numpy(np.stack([rows[kept], columns[kept]]))
    matrix = torch.sparse_coo_tensor(
        places, torch.from_numpy(ppmi[kept]).float(), (n_words, n_words), check_invariants=False
    ).coalesce()
    size = min(DIMENSIONS, n_words - 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        left, values, _ = torch.svd_lowrank(matrix, q=size, niter=4)
    vectors: Vectors = (left * values.sqrt()).numpy()
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return vectors


class Relatedness:
    """Which words of a text are among the nearest of others."""

    def __init__(self, vectors: Vectors, words: Sequence[str], nearest: float = 0.01, n_sampled: int = 2000) -> None:
        """`nearest`: the share of words that count as related to a word."""
        self.vectors = vectors
        self.words = words
        sample = np.random.default_rng(0).permutation(len(vectors))[:n_sampled]
        self._sample = vectors[sample]
        self._nearest = nearest
        self._thresholds: dict[int, float] = {}

    def pairs(self, types: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(U, U): whether the word of a column is related to that of a row, and not the same or one of its forms."""
        known = (types >= 0) & (types < len(self.vectors))
        vectors = np.where(known[:, None], self.vectors[np.where(known, types, 0)], 0.0)
        thresholds = np.full(len(types), np.inf)
        thresholds[known] = [self._threshold(number) for number in types[known].tolist()]
        related: NDArray[np.bool_] = vectors @ vectors.T >= thresholds[:, None]
        related &= known[:, None] & known[None]
        for row, column in zip(*np.nonzero(related), strict=True):
            if share_stem(self.words[types[row]], self.words[types[column]]):
                related[row, column] = False
        return related

    def _threshold(self, number: int) -> float:
        if number not in self._thresholds:
            cosines = self._sample @ self.vectors[number]
            self._thresholds[number] = max(float(np.quantile(cosines, 1 - self._nearest)), 1e-6)
        return self._thresholds[number]


def share_stem(first: str, second: str) -> bool:
    """Whether two words may be forms of one: their beginnings are the same."""
    shorter = min(len(first), len(second))
    n_same = next((at for at in range(shorter) if first[at] != second[at]), shorter)
    return n_same >= max(3, 0.6 * shorter)
