"""The layout of a batch. It is flat: the tokens of all sequences in one row, one after the other, without padding.

    N  all tokens of the batch      B  sequences      R  rows of a run      Tq, Tk  queries and keys of a row

`Tokens` are ids and their layout. Everything in the model works on (N, ...); only attention works on rows, run by run:
a *run* is a stretch of consecutive sequences of equal length, so its rows are a view of the flat batch. Nothing is
padded, copied or masked for the sake of unequal lengths. Batches sorted by length have few runs.

Visibility is one number per token, its *rank*: a query sees the keys whose rank is not above its own. All ranks equal
is BERT, rank = position is left-to-right, a shuffled rank is XLNet's factorisation order, padding has a rank above all
others.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor

PADDING_RANK = 2**30


@dataclass(frozen=True)
class Side:
    """Positions, segments and ranks of the queries, or of the keys: (N,) each, or (R, T) each inside a run."""

    positions: Tensor  # place in the sequence, from 0
    segments: Tensor  # sentence A, B, ...
    ranks: Tensor | None = None  # None: all equal

    def split(self, shapes: Sequence[tuple[int, int]]) -> list[Side]:
        """Flat to rows, run by run."""
        sizes = [rows * length for rows, length in shapes]
        positions, segments = torch.split(self.positions, sizes), torch.split(self.segments, sizes)
        ranks = [None] * len(sizes) if self.ranks is None else torch.split(self.ranks, sizes)
        return [
            Side(p.view(shape), s.view(shape), None if r is None else r.view(shape))
            for shape, p, s, r in zip(shapes, positions, segments, ranks, strict=True)
        ]


@dataclass(frozen=True)
class Run:
    """R rows of queries, each attending to its own row of keys."""

    queries: Side  # (R, Tq)
    keys: Side  # (R, Tk)

    def sees(self, causal: bool, reach: int | None = None) -> Tensor | None:
        """(R, 1, Tq, Tk), true where a query sees a key; None where all see all. `reach`: tokens to either side."""
        q, k = self.queries, self.keys
        conditions = []
        if q.ranks is not None and k.ranks is not None:
            conditions.append(k.ranks[:, None, None, :] <= q.ranks[:, None, :, None])
        if causal:
            conditions.append(k.positions[:, None, None, :] <= q.positions[:, None, :, None])
        if reach is not None:
            conditions.append((k.positions[:, None, None, :] - q.positions[:, None, :, None]).abs() <= reach)
        return functools.reduce(torch.Tensor.logical_and, conditions) if conditions else None


@dataclass(frozen=True)
class Layout:
    """Flat queries and the flat keys that they attend to; in self-attention the two sides are one."""

    shapes: tuple[tuple[int, int, int], ...]  # (R, Tq, Tk) of each run
    queries: Side
    keys: Side
    starts: Tensor  # (B,) index of the first token of each sequence
    lasts: Tensor  # (B,) index of its last token that is not padding

    @functools.cached_property
    def runs(self) -> list[Run]:
        queries = self.queries.split([(rows, n_queries) for rows, n_queries, _ in self.shapes])
        keys = self.keys.split([(rows, n_keys) for rows, _, n_keys in self.shapes])
        return [Run(*sides) for sides in zip(queries, keys, strict=True)]

    @classmethod
    def ragged(
        cls, lengths: Sequence[int], segments: Tensor | None = None, device: torch.device | None = None
    ) -> Layout:
        """Sequences of any lengths, flat."""
        counts = torch.as_tensor(lengths, dtype=torch.long)
        ends = counts.cumsum(0)
        starts = ends - counts
        positions = (torch.arange(int(ends[-1])) - starts.repeat_interleave(counts)).to(device)
        side = Side(positions, torch.zeros_like(positions) if segments is None else segments)
        shapes = tuple((len(list(same)), length, length) for length, same in groupby(lengths))
        return cls(shapes, side, side, starts.to(device), (ends - 1).to(device))

    @classmethod
    def rectangular(cls, mask: Tensor, segments: Tensor | None = None) -> Layout:
        """Rows padded on the right, mask (B, T) true for real tokens: for export, where no shape may depend on data."""
        rows, length = mask.shape
        positions = torch.arange(length, device=mask.device).expand(rows, length).reshape(-1)
        segments = torch.zeros_like(positions) if segments is None else segments.reshape(-1)
        ranks = torch.where(mask.bool(), 0, PADDING_RANK).reshape(-1)
        starts = torch.arange(rows, device=mask.device) * length
        side = Side(positions, segments, ranks)
        return cls(((rows, length, length),), side, side, starts, starts + mask.long().sum(1) - 1)

    def ranked(self, ranks: Tensor) -> Layout:
        """The same tokens, seen in the order of `ranks` (N,)."""
        side = replace(self.queries, ranks=ranks)
        return replace(self, queries=side, keys=side)

    def select(self, chosen: Tensor, n_chosen: Sequence[int]) -> Layout:
        """Queries of the tokens `chosen` (M,) alone, in order, `n_chosen` of each sequence; the keys stay."""
        lengths = [n_keys for rows, _, n_keys in self.shapes for _ in range(rows)]
        shapes = tuple((len(list(same)), *shape) for shape, same in groupby(zip(n_chosen, lengths, strict=True)))
        positions, segments = (t.index_select(0, chosen) for t in (self.keys.positions, self.keys.segments))
        ranks = None if self.keys.ranks is None else self.keys.ranks.index_select(0, chosen)
        return replace(self, shapes=shapes, queries=Side(positions, segments, ranks))

    def targets(self, targets: Tensor, n_targets: Sequence[int]) -> Layout:
        """Queries at the positions of `targets` (M,), `n_targets` of each sequence, which do not see their own
        token."""
        if self.keys.ranks is None:
            raise ValueError("targets need ranks: the order in which they are predicted")
        chosen = self.select(targets, n_targets)
        assert chosen.queries.ranks is not None
        return replace(chosen, queries=replace(chosen.queries, ranks=chosen.queries.ranks - 1))


@dataclass(frozen=True)
class Tokens:
    """A batch: token ids and their layout."""

    ids: Tensor  # (N,)
    layout: Layout

    @classmethod
    def ragged(cls, ids: Tensor, lengths: Sequence[int], segments: Tensor | None = None) -> Tokens:
        """ids, segments: (N,)."""
        return cls(ids, Layout.ragged(lengths, segments, ids.device))

    @classmethod
    def single(cls, ids: Sequence[int], segments: Sequence[int], device: torch.device) -> Tokens:
        """A batch of one text."""
        flat_ids, flat_segments = torch.tensor([ids, segments], device=device)
        return cls.ragged(flat_ids, [len(ids)], flat_segments)

    @classmethod
    def rectangular(cls, ids: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tokens:
        """ids, mask, segments: (B, T)."""
        return cls(ids.reshape(-1), Layout.rectangular(mask, segments))
