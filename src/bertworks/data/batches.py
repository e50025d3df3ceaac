"""The loader's batches, split over processes and micro-batches, and prefetched by workers.

A step is one batch of the loader, the same for any number of processes. Its examples, which are sorted by length, are
split into (processes x micro-batches) parts with about the same number of tokens. Which process builds a batch, and
when, changes nothing about it.
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

PR_SET_PDEATHSIG = 1  # of Linux's prctl: the signal sent to a process when its parent dies
PREFETCHED_PER_WORKER = 2  # steps that are built before they are needed
Cursor = tuple[int, int]  # (epoch, batch)


@dataclass(frozen=True)
class MicroBatch:
    """What goes through the model at once. A process without examples runs one that does not count in the loss, so that
    all processes take part in the step."""

    batch: Any
    is_counted: bool


class EpochBatches(Protocol):
    """The batches of one epoch, by number."""

    number: int
    lengths: Numbers  # of all examples, in tokens

    def __len__(self) -> int: ...

    def examples_of(self, batch: int) -> Numbers:
        """The numbers of the examples in a batch."""

    def gather(self, example_ids: Numbers) -> Any:
        """Collate any examples of the epoch into a batch."""


class EpochSource(Protocol):
    """Makes the epochs of a training: the pre-training loader, or the shuffled examples of a task."""

    def epoch(self, number: int) -> EpochBatches: ...


@dataclass(frozen=True)
class Step:
    """One training step: the micro-batches of this process, and what is the same in all processes."""

    micro_batches: tuple[MicroBatch, ...]
    cursor: Cursor
    next_cursor: Cursor
    epochs_done: tuple[float, float]  # before and after this step
    tokens: int  # of all processes
    example_ids: list[int]  # of all processes


@dataclass(frozen=True)
class RankShard:
    """The share of a process in every batch, as micro-batches."""

    rank: int = 0
    world_size: int = 1
    micro_tokens: int | None = None  # tokens in a micro-batch, about; None: one micro-batch

    def __call__(self, epoch: EpochBatches, batch: int) -> tuple[MicroBatch, ...]:
        example_ids = epoch.examples_of(batch)
        lengths = epoch.lengths[example_ids]
        needed = math.ceil(int(lengths.sum()) / self.world_size / self.micro_tokens) if self.micro_tokens else 1
        # No more than there are examples for, so that no micro-batch is empty.
        n_micro_batches = max(1, min(needed, len(example_ids) // self.world_size))
        ranges = split(lengths, self.world_size * n_micro_batches)
        own_ranges = ranges[self.rank * n_micro_batches : (self.rank + 1) * n_micro_batches]
        return tuple(
            MicroBatch(epoch.gather(example_ids[begin:end] if end > begin else example_ids[:1]), is_counted=end > begin)
            for begin, end in own_ranges
        )


def split(lengths: Numbers, n_parts: int) -> list[tuple[int, int]]:
    """Split examples into consecutive ranges with about the same number of tokens, none empty if there are enough
    examples."""
    ends = np.cumsum(lengths)
    cuts = np.searchsorted(ends - lengths / 2, ends[-1] * np.arange(1, n_parts) / n_parts).tolist()
    edges = [0, *cuts, len(lengths)]
    if len(lengths) >= n_parts:
        for i in range(1, n_parts):  # at least one example for every part before and after
            edges[i] = min(max(edges[i], edges[i - 1] + 1), len(lengths) - n_parts + i)
    return list(pairwise(edges))


class BatchStream:
    """An endless iterator over steps, from any cursor on. Only the batches of a `Loader` are built by workers; those of
    tasks are quick to build."""

    def __init__(self, source: EpochSource, shard: RankShard, workers: int = 0) -> None:
        self.source = source
        self.shard = shard
        self.workers = workers

    def __call__(self, start: Cursor) -> Iterator[Step]:
        if self.workers and isinstance(self.source, Loader):
            return self._prefetched(start, self.source)
        return self._inline(start)

    def _inline(self, start: Cursor) -> Iterator[Step]:
        for epoch, batch in self._batches(start):
            yield _step(epoch, batch, self.shard(epoch, batch))

    def _prefetched(self, start: Cursor, loader: Loader) -> Iterator[Step]:
        pending: deque[tuple[EpochBatches, int, Future[tuple[MicroBatch, ...]]]] = deque()
        loader_arguments = (
            loader.shards.folder,
            loader.config,
            loader.corruption,
            loader.batch_tokens,
            loader.seed,
            loader.cache,
        )
        with ProcessPoolExecutor(self.workers, get_context("spawn"), _open_loader, loader_arguments) as pool:
            for epoch, batch in self._batches(start):
                pending.append((epoch, batch, pool.submit(_build_batch, self.shard, epoch.number, batch)))
                if len(pending) > PREFETCHED_PER_WORKER * self.workers:
                    next_epoch, next_batch, future = pending.popleft()
                    yield _step(next_epoch, next_batch, future.result())

    def _batches(self, start: Cursor) -> Iterator[tuple[EpochBatches, int]]:
        number, first_batch = start
        while True:
            epoch = self.source.epoch(number)
            if not len(epoch):
                remedy = "prepare more text, or lower data.held_out"
                raise BadShards("no text to train on", remedy=remedy, code="no-text")
            for batch in range(first_batch, len(epoch)):
                yield epoch, batch
            number += 1
            first_batch = 0


def _step(epoch: EpochBatches, batch: int, micro_batches: tuple[MicroBatch, ...]) -> Step:
    number = epoch.number
    n_batches = len(epoch)
    example_ids = epoch.examples_of(batch)
    return Step(
        micro_batches=micro_batches,
        cursor=(number, batch),
        next_cursor=(number, batch + 1) if batch + 1 < n_batches else (number + 1, 0),
        epochs_done=(number + batch / n_batches, number + (batch + 1) / n_batches),
        tokens=int(epoch.lengths[example_ids].sum()),
        example_ids=example_ids.tolist(),
    )


_loader: Loader  # of this worker process, set by _open_loader
_epoch: Epoch | None = None  # the last one used


def _open_loader(
    folder: Path, config: DataConfig, corruption: Corruption, batch_tokens: int, seed: int, cache: Path | None
) -> None:
    """Initialise a worker process."""
    global _loader
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # handled by the parent, which then ends its workers
        if hasattr(signal, name):  # Windows has no SIGHUP
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    if sys.platform == "linux":  # a killed parent takes its workers with it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _loader = Loader(Shards(folder), config, corruption=corruption, batch_tokens=batch_tokens, seed=seed, cache=cache)


def _build_batch(shard: RankShard, epoch_number: int, batch: int) -> tuple[MicroBatch, ...]:
    global _epoch
    if _epoch is None or _epoch.number != epoch_number:
        _epoch = _loader.epoch(epoch_number)
    return shard(_epoch, batch)
