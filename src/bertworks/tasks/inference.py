"""Windows through a model: batches of about the same length, results in the order of the examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch

from bertworks.tasks.features import Array, Features, Numbers, collate
from bertworks.tasks.task import Outputs, Task

BATCH_TOKENS = 2048
Progress = Callable[[int, int], None]
"""(done, of how many)."""
AnyTask = Task[Any, Any]


def no_progress(done: int, total: int) -> None:
    """Nobody looks."""


@contextmanager
def evaluation_mode(task: AnyTask) -> Iterator[None]:
    """Without dropout; afterwards as it was."""
    training = task.training
    task.eval()
    try:
        yield
    finally:
        task.train(training)


@torch.inference_mode()
def run_windows(task: AnyTask, features: Sequence[Features], progress: Progress = no_progress) -> list[Outputs]:
    """The logits of each example, in their order. Windows go through the model by themselves, so a text may be of any
    length. Whether there is dropout is the caller's matter."""
    parts = [replace(one, windows=(window,)) for one in features for window in one.windows]
    owners = [at for at, one in enumerate(features) for _ in one.windows]
    n_left = [len(one.windows) for one in features]
    tables: list[Array] = [np.empty(0)] * len(parts)
    for members in token_batches([one.length for one in parts], BATCH_TOKENS):
        batch = collate(parts, members)
        split = np.split(task.logits(batch).float().cpu().numpy(), np.cumsum(batch.n_positions)[:-1])
        for place, table in zip(members[batch.order].tolist(), split, strict=True):
            tables[place] = table
            n_left[owners[place]] -= 1
        progress(n_left.count(0), len(features))
    rest = iter(tables)
    return [list(islice(rest, len(one.windows))) for one in features]


def token_batches(lengths: Sequence[int], budget: int) -> Iterator[Numbers]:
    """Sequences of about the same length together, as many as the budget of tokens takes, at least one."""
    order = np.argsort(lengths, kind="stable")
    batch: list[int] = []
    size = 0
    for at in order.tolist():
        if batch and size + lengths[at] > budget:
            yield np.array(batch, np.int64)
            batch, size = [], 0
        batch.append(at)
        size += lengths[at]
    if batch:
        yield np.array(batch, np.int64)
