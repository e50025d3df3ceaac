"""The loader's batches, cut for the processes and portions of a training step, and made ahead by workers.

A step is one batch of the loader, the same for any number of processes. Its examples, which are sorted by length, are
cut into (processes x portions) pieces of about as many tokens. Who makes a batch, and when, changes nothing about it.
"""

from __future__ import annotations

import ctypes
import math
import signal
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bertworks.config import DataConfig
from bertworks.data.corruption import Corruption, Numbers
from bertworks.data.loader import Epoch, Loader
from bertworks.data.shards import Shards
from bertworks.errors import BadShards

PR_SET_PDEATHSIG = 1
PREFETCHED = 2  # steps per worker that are made before they are asked for
Cursor = tuple[int, int]


@dataclass(frozen=True)
class MicroBatch:
    """What goes through the model at once. A process without examples of its own takes one that is not counted."""

    batch: Any
    is_counted: bool


class EpochBatches(Protocol):
    """One pass over the examples, in batches."""

    number: int
    lengths: Numbers  # of all examples, in tokens

    def __len__(self) -> int: ...

    def examples_of(self, batch: int) -> Numbers:
        """Which examples a batch is made of."""

    def gather(self, members: Numbers) -> Any:
        """A batch of any examples."""


class EpochSource(Protocol):
    def epoch(self, number: int) -> EpochBatches: ...


@dataclass(frozen=True)
class Step:
    micro_batches: tuple[MicroBatch, ...]
    cursor: Cursor
    next_cursor: Cursor
    epochs_done: tuple[float, float]
    tokens: int
    example_ids: list[int]


@dataclass(frozen=True)
class RankShard:
    """Which of the pieces of a batch are ours."""

    rank: int = 0
    world_size: int = 1
    micro_tokens: int | None = None  # about so many in a portion; None: all at once

    def __call__(self, epoch: EpochBatches, batch: int) -> tuple[MicroBatch, ...]:
        members = epoch.examples_of(batch)
        lengths = epoch.lengths[members]
        wanted = math.ceil(int(lengths.sum()) / self.world_size / self.micro_tokens) if self.micro_tokens else 1
        n_micro_batches = max(
            1, min(wanted, len(members) // self.world_size)
        )  # one that holds no example is work for nothing
        pieces = split(lengths, self.world_size * n_micro_batches)
        mine = pieces[self.rank * n_micro_batches : (self.rank + 1) * n_micro_batches]
        return tuple(
            MicroBatch(epoch.gather(members[begin:end] if end > begin else members[:1]), is_counted=end > begin)
            for begin, end in mine
        )


def split(lengths: Numbers, pieces: int) -> list[tuple[int, int]]:
    """Consecutive pieces with about as many tokens each, none empty while there are enough examples."""
    ends = np.cumsum(lengths)
    cuts = np.searchsorted(ends - lengths / 2, ends[-1] * np.arange(1, pieces) / pieces).tolist()
    edges = [0, *cuts, len(lengths)]
    if len(lengths) >= pieces:
        for at in range(1, pieces):  # leave at least one for each before and after
            edges[at] = min(max(edges[at], edges[at - 1] + 1), len(lengths) - pieces + at)
    return list(pairwise(edges))


class BatchStream:
    """Steps from any place on, without end. Workers make the batches of a loader; others are quick to make."""

    def __init__(self, source: EpochSource, shard: RankShard, workers: int = 0) -> None:
        self.source, self.shard, self.workers = source, shard, workers

    def __call__(self, place: Cursor) -> Iterator[Step]:
        return (
            self._prefetched(place, self.source)
            if self.workers and isinstance(self.source, Loader)
            else self._inline(place)
        )

    def _inline(self, place: Cursor) -> Iterator[Step]:
        for epoch, batch in self._cursors(place):
            yield _step(epoch, batch, self.shard(epoch, batch))

    def _prefetched(self, place: Cursor, loader: Loader) -> Iterator[Step]:
        waiting: deque[tuple[EpochBatches, int, Future[tuple[MicroBatch, ...]]]] = deque()
        setting = (
            loader.shards.folder,
            loader.config,
            loader.corruption,
            loader.batch_tokens,
            loader.seed,
            loader.cache,
        )
        with ProcessPoolExecutor(self.workers, get_context("spawn"), _open_loader, setting) as pool:
            for epoch, batch in self._cursors(place):
                waiting.append((epoch, batch, pool.submit(_make, self.shard, epoch.number, batch)))
                if len(waiting) > PREFETCHED * self.workers:
                    first, number, made = waiting.popleft()
                    yield _step(first, number, made.result())

    def _cursors(self, place: Cursor) -> Iterator[tuple[EpochBatches, int]]:
        number, batch = place
        while True:
            epoch = self.source.epoch(number)
            if not len(epoch):
                raise BadShards(
                    "no text to train on", remedy="prepare more text, or hold out less of it", code="no-text"
                )
            for at in range(batch, len(epoch)):
                yield epoch, at
            number, batch = number + 1, 0


def _step(epoch: EpochBatches, batch: int, portions: tuple[MicroBatch, ...]) -> Step:
    number, last = epoch.number, len(epoch)
    members = epoch.examples_of(batch)
    return Step(
        micro_batches=portions,
        cursor=(number, batch),
        next_cursor=(number, batch + 1) if batch + 1 < last else (number + 1, 0),
        epochs_done=(number + batch / last, number + (batch + 1) / last),
        tokens=int(epoch.lengths[members].sum()),
        example_ids=members.tolist(),
    )


_loader: Loader
_epoch: Epoch | None = None


def _open_loader(
    folder: Path, config: DataConfig, corruption: Corruption, batch_tokens: int, seed: int, cache: Path | None
) -> None:
    """What a worker begins with."""
    global _loader
    for number in (signal.SIGINT, signal.SIGTERM):  # these are for the process that trains, which then ends its workers
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":  # if that process is killed, so are its workers
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _loader = Loader(Shards(folder), config, corruption=corruption, batch_tokens=batch_tokens, seed=seed, cache=cache)


def _make(share: RankShard, number: int, batch: int) -> tuple[MicroBatch, ...]:
    global _epoch
    if _epoch is None or _epoch.number != number:
        _epoch = _loader.epoch(number)
    return share(_epoch, batch)
