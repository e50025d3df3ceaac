"""Shared by shapes with one answer for a text or pair (classify, regress, multilabel), and by choice, for each choice.

A text longer than the model is read in windows; the logits of its windows are averaged, in training and in prediction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bertworks.datasets.checks import TaskData
from bertworks.datasets.example import Example
from bertworks.errors import BadText
from bertworks.tasks.features import Array, Features, Numbers, TaskBatch, TokenCounts, Window
from bertworks.tasks.task import Answer, Outputs, PredictionT, Task
from bertworks.tasks.windows import SlidingWindows


class SequenceTask(Task[Answer, PredictionT]):
    """The head reads one token of each window; the logits of a text are the mean over its windows."""

    head = "sequence"
    reads_pairs = samples_windows = True

    @classmethod
    def describe(cls, data: TaskData, labels: tuple[str, ...]) -> dict[str, object]:
        return {"pairs": len(data.train[0].texts) == 2}

    def features(self, examples: Sequence[Example], windows: SlidingWindows) -> list[Features]:
        encoded = encode_texts(examples, windows)
        return [self._features(example, texts, windows) for example, texts in zip(examples, encoded, strict=True)]

    def _features(self, example: Example, texts: tuple[Numbers, ...], windows: SlidingWindows) -> Features:
        text_windows, counts = summary_windows(texts, example, windows, reads_first=self._reads_first)
        return Features(text_windows, sum(counts, TokenCounts()), windows.capacity(len(texts)), self.target(example))

    @property
    def _reads_first(self) -> bool:
        return self.model.config.heads.summary == "first"

    def target(self, example: Example) -> Array:
        """The correct answer as the loss takes it; any value for an unlabelled example."""
        raise NotImplementedError

    def mean_of_windows(self, logits: Tensor, batch: TaskBatch) -> Tensor:
        return mean_of_windows(logits, self.tensor(batch.owners), batch.n_owners)

    def class_logits(self, outputs: Outputs, features: Features) -> Array:
        return self.example_logits(outputs, features)[None]

    def example_logits(self, outputs: Outputs, features: Features) -> Array:
        """Of each class, (C,)."""
        mean: Array = np.concatenate(outputs).mean(0, dtype=np.float64)
        return mean


def encode_texts(examples: Sequence[Example], windows: SlidingWindows) -> list[tuple[Numbers, ...]]:
    """The tokens of each text of each example."""
    texts = [text for example in examples for text in example.texts]
    places = [example.place for example in examples for _ in example.texts]
    flat = iter(windows.tokenizer.encode(texts, places))
    encoded = [tuple(next(flat).astype(np.int64) for _ in example.texts) for example in examples]
    for example, ids in zip(examples, encoded, strict=True):
        if not all(map(len, ids)):
            raise BadText("the tokenizer finds no token in a text", place=example.place, code="no-tokens")
    return encoded


def summary_windows(
    texts: tuple[Numbers, ...], example: Example, windows: SlidingWindows, *, reads_first: bool, choice: int = 0
) -> tuple[tuple[Window, ...], list[TokenCounts]]:
    """Windows whose first or last token the head reads, and the token counts of each text."""
    ranges = windows.ranges(tuple(map(len, texts)), example.place)
    text_windows = []
    for window_range in ranges:
        ids, segments, _ = windows.with_special_tokens(texts, window_range)
        positions = np.array([0 if reads_first else len(ids) - 1])
        text_windows.append(Window(ids, segments, positions=positions, choice=choice))
    return tuple(text_windows), list(windows.count(texts, ranges))


def mean_of_windows(logits: Tensor, owners: Tensor, n_owners: int) -> Tensor:
    """The mean of each owner's windows, (W, C) -> (n_owners, C)."""
    counts = torch.bincount(owners, minlength=n_owners).to(logits.dtype)
    sums = logits.new_zeros(n_owners, logits.shape[1]).index_add(0, owners, logits)
    return sums / counts[:, None]
