"""Running a model on windows, in batches of similar length; results are in the order of the examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch

from bertworks.tasks.features import Array, Features, Numbers, collate
from bertworks.tasks.head_inputs import HeadInputs
from bertworks.tasks.task import Outputs, Task

BATCH_TOKENS = 2048
Progress = Callable[[int, int], None]
"""Called with (examples done, all examples)."""
AnyTask = Task[Any, Any]


def no_progress(done: int, total: int) -> None:
    """Reports nothing."""


@contextmanager
def evaluation_mode(task: AnyTask) -> Iterator[None]:
    """Without dropout; the task's mode is restored afterwards."""
    training = task.training
    task.eval()
    try:
        yield
    finally:
        task.train(training)


@torch.inference_mode()
def run_windows(
    task: AnyTask,
    features: Sequence[Features],
    progress: Progress = no_progress,
    head_inputs: HeadInputs | None = None,
) -> list[Outputs]:
    """The logits of each example. Windows are batched independently of their examples, so a text may be of any length.
    The caller sets evaluation mode. `head_inputs`: records what the head reads."""
    with nullcontext() if head_inputs is None else head_inputs.recording(task):
        return _run_windows(task, features, progress, head_inputs)


def _run_windows(
    task: AnyTask, features: Sequence[Features], progress: Progress, head_inputs: HeadInputs | None
) -> list[Outputs]:
    single_windows = [replace(item, windows=(window,)) for item in features for window in item.windows]
    owners = [i for i, item in enumerate(features) for _ in item.windows]
    n_pending = [len(item.windows) for item in features]
    logits: list[Array] = [np.empty(0)] * len(single_windows)
    for members in token_batches([item.length for item in single_windows], BATCH_TOKENS):
        batch = collate(single_windows, members)
        by_window = np.split(task.logits(batch).float().cpu().numpy(), np.cumsum(batch.n_positions)[:-1])
        if head_inputs is not None:
            head_inputs.add([owners[i] for i in members[batch.order].tolist()])
        for i, window_logits in zip(members[batch.order].tolist(), by_window, strict=True):
            logits[i] = window_logits
            n_pending[owners[i]] -= 1
        progress(n_pending.count(0), len(features))
    iterator = iter(logits)
    return [list(islice(iterator, len(item.windows))) for item in features]


def token_batches(lengths: Sequence[int], budget: int) -> Iterator[Numbers]:
    """Indices of sequences, batched by similar length; a batch has at most `budget` tokens, or a single sequence."""
    order = np.argsort(lengths, kind="stable")
    batch: list[int] = []
    n_tokens = 0
    for i in order.tolist():
        if batch and n_tokens + lengths[i] > budget:
            yield np.array(batch, np.int64)
            batch, n_tokens = [], 0
        batch.append(i)
        n_tokens += lengths[i]
    if batch:
        yield np.array(batch, np.int64)
