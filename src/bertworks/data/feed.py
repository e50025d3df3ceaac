"""The loader's batches, cut for the processes and portions of a training step, and made ahead by workers.

A step is one batch of the loader, the same for any number of processes. Its examples, which are sorted by length, are cut into
(processes x portions) pieces of about as many tokens. Who makes a batch, and when, changes nothing about it.
"""

from __future__ import annotations

import ctypes
import math
import signal
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
from bertworks.data.loader import Epoch, Hide, Loader, Numbers
from bertworks.data.shards import Shards
from bertworks.errors import BadShards

PR_SET_PDEATHSIG = 1
AHEAD = 2  # steps per worker that are made before they are asked for
Place = tuple[int, int]


@dataclass(frozen=True)
class Portion:
    """What goes through the model at once. A process without examples of its own takes one that is not counted."""

    batch: Any
    counted: bool


class Pass(Protocol):
    """One pass over the examples, in batches."""

    number: int
    lengths: Numbers  # of all examples, in tokens

    def __len__(self) -> int: ...

    def members(self, batch: int) -> Numbers:
        """Which examples a batch is made of."""

    def gather(self, members: Numbers) -> Any:
        """A batch of any examples."""


class Passes(Protocol):
    def epoch(self, number: int) -> Pass: ...


@dataclass(frozen=True)
class Step:
    portions: tuple[Portion, ...]
    place: Place
    following: Place
    passes: tuple[float, float]
    tokens: int
    names: list[int]


@dataclass(frozen=True)
class Share:
    """Which of the pieces of a batch are ours."""

    rank: int = 0
    world: int = 1
    micro_tokens: int | None = None  # about so many in a portion; None: all at once

    def __call__(self, epoch: Pass, batch: int) -> tuple[Portion, ...]:
        members = epoch.members(batch)
        lengths = epoch.lengths[members]
        wanted = math.ceil(int(lengths.sum()) / self.world / self.micro_tokens) if self.micro_tokens else 1
        portions = max(1, min(wanted, len(members) // self.world))  # one that holds no example is work for nothing
        pieces = split(lengths, self.world * portions)
        mine = pieces[self.rank * portions : (self.rank + 1) * portions]
        return tuple(Portion(epoch.gather(members[begin:end] if end > begin else members[:1]), counted=end > begin) for begin, end in mine)


def split(lengths: Numbers, pieces: int) -> list[tuple[int, int]]:
    """Consecutive pieces with about as many tokens each, none empty while there are enough examples."""
    ends = np.cumsum(lengths)
    cuts = np.searchsorted(ends - lengths / 2, ends[-1] * np.arange(1, pieces) / pieces).tolist()
    edges = [0, *cuts, len(lengths)]
    if len(lengths) >= pieces:
        for at in range(1, pieces):  # leave at least one for each before and after
            edges[at] = min(max(edges[at], edges[at - 1] + 1), len(lengths) - pieces + at)
    return list(pairwise(edges))


class Feed:
    """Steps from any place on, without end. Workers make the batches of a loader; others are quick to make."""

    def __init__(self, source: Passes, share: Share, workers: int = 0) -> None:
        self.source, self.share, self.workers = source, share, workers

    def __call__(self, place: Place) -> Iterator[Step]:
        return self._ahead(place, self.source) if self.workers and isinstance(self.source, Loader) else self._now(place)

    def _now(self, place: Place) -> Iterator[Step]:
        for epoch, batch in self._places(place):
            yield _step(epoch, batch, self.share(epoch, batch))

    def _ahead(self, place: Place, loader: Loader) -> Iterator[Step]:
        waiting: deque[tuple[Pass, int, Future[tuple[Portion, ...]]]] = deque()
        setting = (loader.shards.folder, loader.config, loader.hide, loader.batch_tokens, loader.seed, loader.cache)
        with ProcessPoolExecutor(self.workers, get_context("spawn"), _open_loader, setting) as pool:
            for epoch, batch in self._places(place):
                waiting.append((epoch, batch, pool.submit(_make, self.share, epoch.number, batch)))
                if len(waiting) > AHEAD * self.workers:
                    first, number, made = waiting.popleft()
                    yield _step(first, number, made.result())

    def _places(self, place: Place) -> Iterator[tuple[Pass, int]]:
        number, batch = place
        while True:
            epoch = self.source.epoch(number)
            if not len(epoch):
                raise BadShards("no text to train on", remedy="prepare more text, or hold out less of it", code="no-text")
            for at in range(batch, len(epoch)):
                yield epoch, at
            number, batch = number + 1, 0


def _step(epoch: Pass, batch: int, portions: tuple[Portion, ...]) -> Step:
    number, last = epoch.number, len(epoch)
    members = epoch.members(batch)
    return Step(
        portions=portions,
        place=(number, batch),
        following=(number, batch + 1) if batch + 1 < last else (number + 1, 0),
        passes=(number + batch / last, number + (batch + 1) / last),
        tokens=int(epoch.lengths[members].sum()),
        names=members.tolist(),
    )


_loader: Loader
_epoch: Epoch | None = None


def _open_loader(folder: Path, config: DataConfig, hide: Hide, batch_tokens: int, seed: int, cache: Path | None) -> None:
    """What a worker begins with."""
    global _loader
    for number in (signal.SIGINT, signal.SIGTERM):  # these are for the process that trains, which then ends its workers
        signal.signal(number, signal.SIG_IGN)
    if hasattr(ctypes.CDLL(None), "prctl"):  # Linux: if that process is killed, so are its workers
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _loader = Loader(Shards(folder), config, hide=hide, batch_tokens=batch_tokens, seed=seed, cache=cache)


def _make(share: Share, number: int, batch: int) -> tuple[Portion, ...]:
    global _epoch
    if _epoch is None or _epoch.number != number:
        _epoch = _loader.epoch(number)
    return share(_epoch, batch)
