"""Groups of vectors, where there are any: stable under resampling, and more than a single cloud of the same shape has.

C  vectors      D  dimensions
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_CLUSTERS = 6
MIN_VECTORS = 20  # fewer are one group
MIN_STABILITY = 0.8  # of prediction strength (Tibshirani & Walther 2005)
MIN_EXCESS = 0.03  # of the silhouette over the null: words with one sense are no perfect Gaussian clouds
N_NULLS = 20
N_SPLITS = 10  # in halves, for the stability
N_AXES = 50  # principal ones, in which vectors are grouped
Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Division:
    """Vectors in k groups, and how good these are."""

    k: int
    silhouette: float  # in all dimensions
    stability: float  # prediction strength: of two vectors in a group of one half, how often the other half agrees
    null: float | None  # the largest silhouette of as many groups in a Gaussian cloud; None: not stable, not asked

    @property
    def excess(self) -> float:
        """Over the null; 0 if it was not asked."""
        return 0.0 if self.null is None else self.silhouette - self.null

    @property
    def is_real(self) -> bool:
        return self.excess >= MIN_EXCESS


@dataclass(frozen=True)
class Clusters:
    """Groups of vectors; a single one, if no division is real."""

    labels: Numbers  # (C,) the largest group is 0
    divisions: tuple[Division, ...] = ()  # for every number of groups that was tried

    @property
    def n(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def sizes(self) -> list[int]:
        return list(map(int, np.bincount(self.labels, minlength=self.n)))

    @property
    def division(self) -> Division | None:
        """The one that is shown; of a single group, the most stable that was tried."""
        if self.n > 1:
            return next(division for division in self.divisions if division.k == self.n)
        return max(self.divisions, key=lambda tried: tried.stability, default=None)


def find_clusters(vectors: NDArray[np.floating], seed: int = 0) -> Clusters:
    """The division that is furthest above its null; one group, if none is real. Vectors are compared by their
    directions.

    The null is one Gaussian cloud with the covariance of the vectors (Liu et al. 2008, SigClust): vectors of any word
    are stretched, by the length of sentences, the place of the word in them, or their topic, and the middle of a
    stretched cloud can be cut, too. Shuffled dimensions have no such directions: against them almost every word has
    groups. A cloud that is strongly skewed can still pass for two."""
    labels = np.zeros(len(vectors), np.int64)
    divisions: list[Division] = []
    if len(vectors) < MIN_VECTORS:
        return Clusters(labels)
    data = principal(unit(vectors.astype(np.float64)))
    distances = pairwise_distances(data)
    for k in range(2, MAX_CLUSTERS + 1):
        groups = by_size(k_means(data[:, :N_AXES], k, np.random.default_rng(seed)))
        value = silhouette(distances, groups)
        stability = prediction_strength(data[:, :N_AXES], k, np.random.default_rng(seed + 1))
        is_stable = stability >= MIN_STABILITY
        null = null_silhouette(data, k, np.random.default_rng(seed + 2), value - MIN_EXCESS) if is_stable else None
        division = Division(k, value, stability, null)
        if division.is_real and division.excess > max((tried.excess for tried in divisions), default=0.0):
            labels = groups
        divisions.append(division)
    return Clusters(labels, tuple(divisions))


def unit(vectors: Floats) -> Floats:
    directions: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return directions


def principal(data: Floats) -> Floats:
    """The same vectors in the axes of their principal components: distances are the same."""
    left, singular, _ = np.linalg.svd(data - data.mean(0), full_matrices=False)
    rotated: Floats = left * singular
    return rotated


def null_silhouette(data: Floats, k: int, rng: np.random.Generator, enough: float) -> float:
    """The largest silhouette of k groups in Gaussian clouds with the variances of the data, whose axes are its
    principal ones; once it is `enough`, no more are drawn."""
    spread = data.std(0)
    largest = 0.0
    for _ in range(N_NULLS):
        cloud = rng.normal(size=data.shape) * spread
        largest = max(largest, silhouette(pairwise_distances(cloud), k_means(cloud[:, :N_AXES], k, rng)))
        if largest > enough:
            break
    return largest


def prediction_strength(data: Floats, k: int, rng: np.random.Generator) -> float:
    """One half is grouped, and the other by the centres of the first: of the pairs in a group of the second half, the
    share that the first half has together, too; the worst group, the mean over several splits. It ends where the mean
    cannot become large enough any more."""
    strengths: list[float] = []
    while len(strengths) < N_SPLITS and N_SPLITS - len(strengths) + sum(strengths) >= MIN_STABILITY * N_SPLITS:
        order = rng.permutation(len(data))
        first, second = data[order[: len(data) // 2]], data[order[len(data) // 2 :]]
        labels = k_means(first, k, rng)
        centres = np.stack([first[labels == group].mean(0) for group in np.unique(labels)])
        predicted = squared_distances(second, centres).argmin(1)
        own = k_means(second, k, rng)
        worst = 1.0
        for group in np.unique(own):
            counts = np.bincount(predicted[own == group])
            n = counts.sum()
            worst = min(worst, float((counts * (counts - 1)).sum() / (n * (n - 1)))) if n > 1 else 0.0
        strengths.append(worst)
    return float(np.mean(strengths))


def k_means(data: Floats, k: int, rng: np.random.Generator, n_starts: int = 4, n_rounds: int = 50) -> Numbers:
    """Lloyd's algorithm from k-means++ starts (Arthur & Vassilvitskii 2007); the best of several."""
    best, best_cost = np.zeros(len(data), np.int64), np.inf
    for _ in range(n_starts):
        centres = data[[rng.integers(len(data))]]
        while len(centres) < k:
            nearest = squared_distances(data, centres).min(1)
            total = nearest.sum()
            chances = nearest / total if total > 0 else np.full(len(data), 1 / len(data))
            centres = np.concatenate([centres, data[[rng.choice(len(data), p=chances)]]])
        labels = np.full(len(data), -1, np.int64)
        for _ in range(n_rounds):
            new = ((centres**2).sum(1) - 2 * data @ centres.T).argmin(1)
            if (new == labels).all():
                break
            labels = new
            sizes = np.bincount(labels, minlength=k)[:, None]
            centres = np.where(sizes > 0, np.eye(k)[labels].T @ data / np.maximum(sizes, 1), centres)
        cost = float(squared_distances(data, centres)[np.arange(len(data)), labels].sum())
        if cost < best_cost:
            best, best_cost = labels, cost
    return best


def by_size(labels: Numbers) -> Numbers:
    """The largest group first."""
    groups, counts = np.unique(labels, return_counts=True)
    ranks = np.empty(groups.max() + 1, np.int64)
    ranks[groups[np.lexsort((groups, -counts))]] = np.arange(len(groups))
    ordered: Numbers = ranks[labels]
    return ordered


def squared_distances(rows: Floats, centres: Floats) -> Floats:
    squares: Floats = (rows**2).sum(1)[:, None] + (centres**2).sum(1)[None] - 2 * rows @ centres.T
    return np.maximum(squares, 0.0)


def pairwise_distances(rows: Floats) -> Floats:
    return np.sqrt(squared_distances(rows, rows))


def silhouette(distances: Floats, labels: Numbers) -> float:
    """The mean of (b - a) / max(a, b): a is the mean distance to one's own group, b to the nearest other one (Rousseeuw
    1987)."""
    groups, own = np.unique(labels, return_inverse=True)
    if len(groups) < 2:
        return 0.0
    sums = distances @ np.eye(len(groups))[own]
    sizes = np.bincount(own)
    rows = np.arange(len(labels))
    inside = sums[rows, own] / np.maximum(sizes[own] - 1, 1)
    means = sums / sizes
    means[rows, own] = np.inf
    outside = means.min(1)
    values = np.where(sizes[own] > 1, (outside - inside) / np.maximum(np.maximum(inside, outside), 1e-12), 0.0)
    return float(values.mean())
