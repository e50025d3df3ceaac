"""Means over a corpus with honest uncertainty: the unit of evidence is the word type, not the pair.

A frequent word gives many pairs that are not independent of each other; so values are averaged within a word type
first, and then over types. The standard error is the larger of that over types and that over documents.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bertworks.inspect.units import Floats, Numbers

Z = 4.0  # of lower bounds: of 144 heads x 9 names, 0.04 would be named by chance


@dataclass
class Groups:
    """Sums by group, (G, ...) with as many rows as there are groups so far."""

    rows: dict[int, int] = field(default_factory=dict)
    sums: Floats = field(default_factory=lambda: np.empty(0))
    counts: Floats = field(default_factory=lambda: np.empty(0))

    def add(self, groups: Numbers, values: Floats) -> None:
        """values (Q, ...), of the groups (Q,)."""
        for group in groups.tolist():
            self.rows.setdefault(group, len(self.rows))
        if len(self.rows) > len(self.counts):
            size = max(2 * len(self.counts), len(self.rows), 16)
            sums, counts = np.zeros((size, *values.shape[1:])), np.zeros(size)
            if len(self.counts):
                sums[: len(self.counts)], counts[: len(self.counts)] = self.sums, self.counts
            self.sums, self.counts = sums, counts
        index = [self.rows[group] for group in groups.tolist()]
        np.add.at(self.sums, index, values)
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

    def lower_bound(self, weights: Floats, z: float = Z) -> Floats:
        """Of a weighted sum over the last axis of the values: its mean less `z` standard errors."""
        by_type, by_document = self.types.means @ weights, self.documents.means @ weights
        bound: Floats = by_type.mean(0) - z * np.maximum(_standard_error(by_type), _standard_error(by_document))
        return bound


def _standard_error(values: Floats) -> Floats:
    """Of the mean over the first axis; infinite for a single value."""
    if len(values) < 2:
        return np.full(values.shape[1:], np.inf)
    error: Floats = values.std(0, ddof=1) / np.sqrt(len(values))
    return error
