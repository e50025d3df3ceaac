"""Examples as model inputs: windows of tokens, batches of windows, and shuffled epochs.

W  windows of a batch      M  tokens that heads read      B  examples
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertworks.data.rng import Stream, rng
from bertworks.text.ledger import Ledger

Numbers = NDArray[np.int64]
Array = NDArray[Any]
EMPTY_ARRAY: Numbers = np.empty(0, np.int64)


@dataclass(frozen=True)
class Window:
    """A part of an example that fits into the model, with its special tokens."""

    ids: Numbers
    segments: Numbers
    positions: Numbers  # that the head reads
    # Of each position: its word (tag), its first and last character (span).
    origins: Numbers = field(default_factory=lambda: EMPTY_ARRAY)
    # Tag: the correct tag of each position; span: the first and the last position of the answer.
    targets: Numbers = field(default_factory=lambda: EMPTY_ARRAY)
    choice: int = 0  # the choice that it is a window of


@dataclass(frozen=True)
class TokenCounts:
    """Tokens in the texts of an example, without special tokens."""

    total: int = 0
    lost: int = 0  # cut off: in no window
    unknown: int = 0  # [UNK]
    special: int = 0  # written in the text, as in "a [MASK] of tea"

    def __add__(self, other: TokenCounts) -> TokenCounts:
        return TokenCounts(
            self.total + other.total,
            self.lost + other.lost,
            self.unknown + other.unknown,
            self.special + other.special,
        )


@dataclass(frozen=True)
class Features:
    """An example as model input."""

    windows: tuple[Window, ...]
    tokens: TokenCounts
    capacity: int  # tokens of its texts that fit into one window
    target: Array | None = None  # the correct answer; None: the windows have `targets`, or the example is unlabelled
    n_choices: int = 1

    @property
    def length(self) -> int:
        return sum(len(window.ids) for window in self.windows)

    def add_to_ledger(self, ledger: Ledger) -> None:
        ledger.limit = self.capacity
        is_windowed = len(self.windows) > self.n_choices
        tokens = self.tokens
        ledger.count(
            tokens.total, windows=is_windowed, lost=tokens.lost, unknown=tokens.unknown, special=tokens.special
        )


@dataclass(frozen=True)
class TaskBatch:
    """Windows of some examples, flat and sorted by length."""

    ids: Numbers  # (N,)
    segments: Numbers  # (N,)
    lengths: Numbers  # (W,)
    positions: Numbers  # (M,) in ids: the tokens that heads read
    n_positions: Numbers  # (W,)
    owners: Numbers  # (W,) the text that each is a window of: number of the example or, with choices, of the choice
    n_owners: int
    targets: Array  # of windows or examples, depending on the shape
    order: Numbers  # (W,) index of each window before sorting
    examples: Numbers  # (B,) their indices
    n_choices: Numbers  # (B,)


def token_ids(features: Sequence[Features]) -> Numbers:
    """The distinct token ids."""
    return np.unique(np.concatenate([window.ids for item in features for window in item.windows]))


def collate(features: Sequence[Features] | Mapping[int, Features], members: Numbers) -> TaskBatch:
    """A batch of the examples with the indices `members`."""
    items = [features[member] for member in members.tolist()]
    n_choices = np.array([item.n_choices for item in items], np.int64)
    first_owner = np.cumsum(n_choices) - n_choices
    owned = [
        (int(first) + window.choice, window)
        for first, item in zip(first_owner, items, strict=True)
        for window in item.windows
    ]
    order = np.argsort([len(window.ids) for _, window in owned], kind="stable")
    windows = [owned[i][1] for i in order]
    lengths = np.array([len(window.ids) for window in windows], np.int64)
    starts = np.cumsum(lengths) - lengths
    targets = [item.target for item in items if item.target is not None] or [window.targets for window in windows]
    return TaskBatch(
        ids=np.concatenate([window.ids for window in windows]),
        segments=np.concatenate([window.segments for window in windows]),
        lengths=lengths,
        positions=np.concatenate([window.positions + start for window, start in zip(windows, starts, strict=True)]),
        n_positions=np.array([len(window.positions) for window in windows], np.int64),
        owners=np.array([owned[i][0] for i in order], np.int64),
        n_owners=int(n_choices.sum()),
        targets=np.stack(targets) if items[0].target is not None else np.concatenate(targets),
        order=order,
        examples=members,
        n_choices=n_choices,
    )


class ShuffledExamples:
    """A `data.batches.EpochSource` of examples in memory; the order of an epoch depends only on seed and epoch. Of a
    text with more than `max_windows` windows, each epoch reads others."""

    def __init__(
        self, features: Sequence[Features], batch_size: int, seed: int, max_windows: int | None = None
    ) -> None:
        self.features = features
        self.batch_size = batch_size
        self.seed = seed
        self.max_windows = max_windows
        # All windows of a long text are of about the same length.
        self.lengths = np.array(
            [sum(len(window.ids) for window in item.windows[:max_windows]) for item in features], np.int64
        )

    def epoch(self, number: int) -> ShuffledEpoch:
        return ShuffledEpoch(self, number)


class ShuffledEpoch:
    def __init__(self, source: ShuffledExamples, number: int) -> None:
        self.source = source
        self.number = number
        self.lengths = source.lengths
        self.permutation = rng(source.seed, Stream.ORDER, number).permutation(len(source.features))

    def __len__(self) -> int:
        return -(-len(self.permutation) // self.source.batch_size)

    def examples_of(self, batch: int) -> Numbers:
        begin = batch * self.source.batch_size
        return self.permutation[begin : begin + self.source.batch_size]

    def gather(self, members: Numbers) -> TaskBatch:
        if self.source.max_windows is None:
            return collate(self.source.features, members)
        sampled = {member: self._sample_windows(member) for member in members.tolist()}
        return collate(sampled, members)

    def _sample_windows(self, member: int) -> Features:
        item = self.source.features[member]
        size = self.source.max_windows
        if size is None or len(item.windows) <= size:
            return item
        generator = rng(self.source.seed, Stream.WINDOWS, self.number, member)
        chosen = np.sort(generator.permutation(len(item.windows))[:size])
        return replace(item, windows=tuple(item.windows[index] for index in chosen.tolist()))
