"""Means over a corpus with honest uncertainty: the unit of evidence is the word type, not the pair.

A frequent word gives many pairs that are not independent of each other; so values are averaged within a word type
first, and then over types. The standard error is the larger of that over types and that over documents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bertworks.inspect.units import Floats, Numbers

Z = 4.0  # of lower bounds: of 144 heads x 9 names, 0.04 would be named by chance
MAX_RATIO = 1e6  # to something that is 0
HALVINGS = 40  # to find a bound


@dataclass
class Groups:
    """Sums by group, (G, ...) with as many rows as there are groups so far. In single precision: there are thousands
    of word types for each head."""

    rows: dict[int, int] = field(default_factory=dict)
    sums: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))
    counts: Floats = field(default_factory=lambda: np.empty(0))

    def add(self, groups: Numbers, values: Floats) -> None:
        """values (Q, ...), of the groups (Q,)."""
        for group in groups.tolist():
            self.rows.setdefault(group, len(self.rows))
        if len(self.rows) > len(self.counts):
            size = max(len(self.counts) * 3 // 2, len(self.rows), 16)
            sums, counts = np.zeros((size, *values.shape[1:]), np.float32), np.zeros(size)
            if len(self.counts):
                sums[: len(self.counts)], counts[: len(self.counts)] = self.sums, self.counts
            self.sums, self.counts = sums, counts
        index = np.array([self.rows[group] for group in groups.tolist()], np.int64)
        order = np.argsort(index, kind="stable")
        present, starts = np.unique(index[order], return_index=True)
        self.sums[present] += np.add.reduceat(values[order], starts, axis=0) if len(index) else 0
        np.add.at(self.counts, index, 1)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def means(self) -> Floats:
        """(G, ...)."""
        n = len(self.rows)
        counts = self.counts[:n].reshape(n, *(1,) * (self.sums.ndim - 1))
        means: Floats = self.sums[:n] / counts
        return means


@dataclass(frozen=True)
class Estimate:
    """A number of each head, (H,), and its lower bound."""

    value: Floats
    lower: Floats


@dataclass
class Evidence:
    """Values of queries, gathered by word type and by document."""

    types: Groups = field(default_factory=Groups)
    documents: Groups = field(default_factory=Groups)

    def add(self, types: Numbers, document: int, values: Floats) -> None:
        """values (Q, ...), of queries of these types (Q,)."""
        self.types.add(types, values)
        self.documents.add(np.full(len(types), document), values)

    @property
    def means(self) -> Floats:
        """Over types."""
        means: Floats = self.types.means.mean(0)
        return means

    def difference(self, weights: Floats, z: float = Z) -> Estimate:
        """Of a weighted sum over the last axis of the values."""
        value, errors = self.moments(weights)
        return Estimate(value, value - z * errors)

    def moments(self, weights: Floats) -> tuple[Floats, Floats]:
        """The mean of a weighted sum over the last axis, and its standard error."""
        by_type, by_document = self.types.means @ weights, self.documents.means @ weights
        errors = [np.sqrt(_covariance(values, values)) for values in (by_type, by_document)]
        value: Floats = by_type.mean(0)
        return value, np.maximum(*errors)

    def ratio(self, top: Floats, bottom: Floats, z: float = Z) -> Estimate:
        """Of two weighted sums. It is at least r where `top - r * bottom` is certainly not below 0: the bound is the
        largest such r (Fieller 1954)."""
        means, variances = [], []
        for group in (self.types, self.documents):
            of_top, of_bottom = group.means @ top, group.means @ bottom
            means.append((of_top.mean(0), of_bottom.mean(0)))
            pairs = ((of_top, of_top), (of_top, of_bottom), (of_bottom, of_bottom))
            variances.append([_covariance(*pair) for pair in pairs])
        (of_top, of_bottom), _ = means

        def is_certain(ratio: Floats) -> NDArray[np.bool_]:
            squares = [own - 2 * ratio * shared + ratio**2 * other for own, shared, other in variances]
            certain: NDArray[np.bool_] = of_top - ratio * of_bottom > z * np.sqrt(np.maximum(0, np.maximum(*squares)))
            return certain

        return _largest_certain(of_top, of_bottom, is_certain)


def ratio_of_means(top: tuple[Floats, Floats], bottom: tuple[Floats, Floats], z: float = Z) -> Estimate:
    """Of two means that are independent of each other, each with its standard error."""

    def is_certain(ratio: Floats) -> NDArray[np.bool_]:
        certain: NDArray[np.bool_] = top[0] - ratio * bottom[0] > z * np.hypot(top[1], ratio * bottom[1])
        return certain

    return _largest_certain(top[0], bottom[0], is_certain)


def _largest_certain(top: Floats, bottom: Floats, is_certain: Callable[[Floats], NDArray[np.bool_]]) -> Estimate:
    value = np.clip(top / np.maximum(bottom, 1e-12), 0, MAX_RATIO)
    low, high = np.zeros_like(value), value.copy()
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        certain = is_certain(middle)
        low, high = np.where(certain, middle, low), np.where(certain, high, middle)
    return Estimate(value, low)


def _covariance(first: Floats, second: Floats) -> Floats:
    """Of the means of two columns over the first axis; infinite for a single value."""
    n = len(first)
    if n < 2:
        return np.full(first.shape[1:], np.inf)
    covariance: Floats = ((first - first.mean(0)) * (second - second.mean(0))).sum(0) / (n - 1) / n
    return covariance
