"""How a model reads examples: windows of tokens, batches of windows, and the order in which examples are learned.

W  windows of a batch      M  tokens that heads read      B  examples
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertworks.data.rng import Stream, rng
from bertworks.text.ledger import Ledger

Numbers = NDArray[np.int64]
Array = NDArray[Any]
NONE: Numbers = np.empty(0, np.int64)


@dataclass(frozen=True)
class Window:
    """A part of an example that fits into the model, with its special tokens."""

    ids: Numbers
    segments: Numbers
    positions: Numbers  # that the head reads
    origins: Numbers = field(
        default_factory=lambda: NONE
    )  # of each position: its word (tag), its first and last character (span)
    targets: Numbers = field(
        default_factory=lambda: NONE
    )  # tag: the right tag of each; span: which are the answer's first and last
    choice: int = 0  # which of several texts to choose from this is


@dataclass(frozen=True)
class TokenCounts:
    """How many an example's texts have, special ones not counted."""

    total: int = 0
    lost: int = 0  # of these, in no window
    unknown: int = 0  # that stand for what has none of its own

    def __add__(self, other: TokenCounts) -> TokenCounts:
        return TokenCounts(self.total + other.total, self.lost + other.lost, self.unknown + other.unknown)


@dataclass(frozen=True)
class Features:
    """An example as the model reads it."""

    windows: tuple[Window, ...]
    tokens: TokenCounts
    capacity: int  # tokens of its texts that fit into one window
    target: Array | None = None  # the right answer, where the example has one and not each window; None: not known
    n_choices: int = 1

    @property
    def length(self) -> int:
        return sum(len(window.ids) for window in self.windows)

    def add_to_ledger(self, ledger: Ledger) -> None:
        ledger.limit = self.capacity
        is_windowed = len(self.windows) > self.n_choices
        ledger.count(self.tokens.total, windows=is_windowed, lost=self.tokens.lost, unknown=self.tokens.unknown)


@dataclass(frozen=True)
class TaskBatch:
    """Windows of some examples, flat and sorted by length."""

    ids: Numbers  # (N,)
    segments: Numbers  # (N,)
    lengths: Numbers  # (W,)
    positions: Numbers  # (M,) in ids: the tokens that heads read
    n_positions: Numbers  # (W,)
    owners: Numbers  # (W,) which example it is a window of, counted on through all choices
    n_owners: int
    targets: Array  # of windows or examples, as the shape has it
    order: Numbers  # (W,) place of each window among those of the examples as given
    examples: Numbers  # (B,)
    n_choices: Numbers  # (B,)


def token_ids(features: Sequence[Features]) -> Numbers:
    """Those that occur, each once."""
    return np.unique(np.concatenate([window.ids for one in features for window in one.windows]))


def collate(features: Sequence[Features], members: Numbers) -> TaskBatch:
    """A batch of the examples `members`."""
    chosen = [features[member] for member in members]
    n_choices = np.array([one.n_choices for one in chosen], np.int64)
    first = np.cumsum(n_choices) - n_choices
    owned = [(int(first[at]) + window.choice, window) for at, one in enumerate(chosen) for window in one.windows]
    order = np.argsort([len(window.ids) for _, window in owned], kind="stable")
    windows = [owned[at][1] for at in order]
    lengths = np.array([len(window.ids) for window in windows], np.int64)
    starts = np.cumsum(lengths) - lengths
    targets = [one.target for one in chosen if one.target is not None] or [window.targets for window in windows]
    return TaskBatch(
        ids=np.concatenate([window.ids for window in windows]),
        segments=np.concatenate([window.segments for window in windows]),
        lengths=lengths,
        positions=np.concatenate([window.positions + start for window, start in zip(windows, starts, strict=True)]),
        n_positions=np.array([len(window.positions) for window in windows], np.int64),
        owners=np.array([owned[at][0] for at in order], np.int64),
        n_owners=int(n_choices.sum()),
        targets=np.stack(targets) if chosen[0].target is not None else np.concatenate(targets),
        order=order,
        examples=members,
        n_choices=n_choices,
    )


class ShuffledExamples:
    """A `data.batches.EpochSource` of examples that are all in memory: another order in every epoch, a function of seed
    and epoch alone."""

    def __init__(self, features: Sequence[Features], batch_size: int, seed: int) -> None:
        self.features, self.batch_size, self.seed = features, batch_size, seed
        self.lengths = np.array([one.length for one in features], np.int64)

    def epoch(self, number: int) -> ShuffledEpoch:
        return ShuffledEpoch(self, number)


class ShuffledEpoch:
    def __init__(self, source: ShuffledExamples, number: int) -> None:
        self.source, self.number, self.lengths = source, number, source.lengths
        self.permutation = rng(source.seed, Stream.ORDER, number).permutation(len(source.features))

    def __len__(self) -> int:
        return -(-len(self.permutation) // self.source.batch_size)

    def examples_of(self, batch: int) -> Numbers:
        begin = batch * self.source.batch_size
        return self.permutation[begin : begin + self.source.batch_size]

    def gather(self, members: Numbers) -> TaskBatch:
        return collate(self.source.features, members)
