"""Which words are related, by the company they keep in a corpus: no model has a say in it, so it serves to judge any.

Positive pointwise mutual information of words that occur near each other, in a hundred dimensions by a truncated
singular value decomposition (Levy, Goldberg & Dagan 2015). Where there is too little text for that, by the model's own
input embeddings, without their mean and their three strongest components, which they all share (Mu & Viswanath 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bertworks.inspect.units import Bools, Numbers

WINDOW = 10  # words to either side
MAX_WORDS = 20_000
DIMENSIONS = 100
MIN_CORPUS_WORDS = 200_000  # fewer do not tell which words are related
N_SHARED_COMPONENTS = 3  # of input embeddings
Vectors = NDArray[np.float32]


def pair_counts(documents: Sequence[Sequence[int]], n_words: int, window: int) -> tuple[Numbers, Numbers]:
    """How often one word stands before another, up to `window` words apart: pairs as `first * n_words + second`, in
    order, and their counts. Documents are numbers of words; those from `n_words` on are skipped."""
    kept = [numbers[numbers < n_words] for numbers in (np.asarray(document, np.int64) for document in documents)]
    numbers = np.concatenate([*kept, np.empty(0, np.int64)])
    owners = np.repeat(np.arange(len(kept)), [len(document) for document in kept])
    codes, counts = [], []
    for distance in range(1, min(window, len(numbers) - 1) + 1):
        is_inside = owners[:-distance] == owners[distance:]
        unique_codes = np.unique((numbers[:-distance] * n_words + numbers[distance:])[is_inside], return_counts=True)
        codes.append(unique_codes[0])
        counts.append(unique_codes[1])
    if not codes:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    unique, places = np.unique(np.concatenate(codes), return_inverse=True)
    return unique, np.bincount(places, np.concatenate(counts)).astype(np.int64)


def word_vectors(documents: Sequence[Sequence[int]], n_words: int, seed: int = 0) -> Vectors:
    """Unit vectors of the `n_words` commonest words, from documents of their numbers; rarer words are skipped."""
    n_words = min(n_words, MAX_WORDS)
    codes, counts = pair_counts(documents, n_words, WINDOW)
    first, second = codes // n_words, codes % n_words
    is_pair = first != second
    both_orders = np.minimum(first, second) * n_words + np.maximum(first, second)
    codes, places = np.unique(both_orders[is_pair], return_inverse=True)
    counts = np.bincount(places, counts[is_pair])
    first, second = codes // n_words, codes % n_words
    marginals = np.bincount(first, counts, n_words) + np.bincount(second, counts, n_words)
    information = np.log(counts * marginals.sum() / (marginals[first] * marginals[second])).astype(np.float32)
    kept = information > 0
    first, second, information = first[kept], second[kept], information[kept]
    indices = torch.from_numpy(np.stack([np.concatenate([first, second]), np.concatenate([second, first])]))
    of_pairs = torch.from_numpy(np.concatenate([information, information]))
    matrix = torch.sparse_coo_tensor(indices, of_pairs, (n_words, n_words), check_invariants=False).coalesce()
    size = min(DIMENSIONS, n_words - 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        left, values, _ = torch.svd_lowrank(matrix, q=size, niter=4)
    return _unit((left * values.sqrt()).numpy())


def own_vectors(table: Vectors, pieces: Sequence[Sequence[int]]) -> Vectors:
    """Unit vectors of words from input embeddings (V, E): the mean over the pieces of each; zero for a word without
    pieces."""
    centred = table - table.mean(0)
    _, directions = np.linalg.eigh((centred.T @ centred).astype(np.float64))
    shared = directions[:, -N_SHARED_COMPONENTS:].astype(np.float32)
    centred = centred - centred @ shared @ shared.T
    vectors = np.zeros((len(pieces), table.shape[1]), np.float32)
    for number, ids in enumerate(pieces):
        if len(ids):
            vectors[number] = centred[list(ids)].mean(0)
    return _unit(vectors)


def _unit(vectors: Vectors) -> Vectors:
    unit: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return unit


@dataclass
class Relatedness:
    """Which words of a text are among the nearest of others."""

    vectors: Vectors  # by the number of the word; zero: not known
    words: Sequence[str]
    by: str  # where they come from
    nearest: float = 0.01  # the share of words that count as related to a word
    n_sampled: int = 2000

    def __post_init__(self) -> None:
        self.known: Bools = np.abs(self.vectors).max(1) > 0
        numbers = np.random.default_rng(0).permutation(np.flatnonzero(self.known))[: self.n_sampled]
        self._sample = self.vectors[numbers]
        self._thresholds: dict[int, float] = {}

    def pairs(self, types: Numbers) -> Bools:
        """(U, U): whether the word of a column is related to that of a row, and not the same or one of its forms."""
        known = (types >= 0) & (types < len(self.vectors))
        known[known] = self.known[types[known]]
        vectors = np.where(known[:, None], self.vectors[np.where(known, types, 0)], 0.0)
        thresholds = np.full(len(types), np.inf)
        thresholds[known] = [self._threshold(number) for number in types[known].tolist()]
        related: Bools = vectors @ vectors.T >= thresholds[:, None]
        related &= known[:, None] & known[None] & (types[:, None] != types[None])
        for row, column in zip(*np.nonzero(related), strict=True):
            if share_stem(self.words[types[row]], self.words[types[column]]):
                related[row, column] = False
        return related

    def _threshold(self, number: int) -> float:
        if number not in self._thresholds:
            cosines = self._sample @ self.vectors[number]
            self._thresholds[number] = max(float(np.quantile(cosines, 1 - self.nearest)), 1e-6)
        return self._thresholds[number]


def share_stem(first: str, second: str) -> bool:
    """Whether two words may be forms of one: their beginnings are the same."""
    shorter = min(len(first), len(second))
    n_same = next((at for at in range(shorter) if first[at] != second[at]), shorter)
    return n_same >= max(3, 0.6 * shorter)
