"""What a task's head reads of some examples: their vectors, recorded while they are evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertworks.tasks.features import Numbers
from bertworks.tasks.task import Task

MAX_EXAMPLES = 1000
HEAD = "sequence"  # which reads one vector of each window


class HeadInputs:
    """Of up to a thousand examples, always the same ones; the mean over an example's windows."""

    def __init__(self, n_examples: int) -> None:
        drawn = np.random.default_rng(0).permutation(n_examples)[:MAX_EXAMPLES]
        self.members: Numbers = np.sort(drawn)
        self._rows = {int(example): row for row, example in enumerate(self.members)}
        self._sums: NDArray[np.float64] | None = None
        self._n_windows = np.zeros(len(self.members), np.int64)
        self._batch: torch.Tensor | None = None

    @classmethod
    def of(cls, task: Task[Any, Any], n_examples: int) -> HeadInputs | None:
        """None for tasks with more than one answer for a text, whose heads read other things."""
        return cls(n_examples) if task.head == HEAD and n_examples > 1 else None

    @contextmanager
    def recording(self, task: Task[Any, Any]) -> Iterator[None]:
        """The head's input of each batch is kept, until `add` is told whose it is."""

        def keep(head: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            self._batch = inputs[0]

        handle = task.model.heads[task.head].register_forward_pre_hook(keep)
        try:
            yield
        finally:
            handle.remove()
            self._batch = None

    def add(self, owners: Sequence[int]) -> None:
        """`owners`: the example of each window of the batch."""
        assert self._batch is not None  # the head has run
        if self._sums is None:
            self._sums = np.zeros((len(self.members), self._batch.shape[1]))
        for owner, vector in zip(owners, self._batch.float().cpu().numpy(), strict=True):
            row = self._rows.get(owner)
            if row is not None:
                self._sums[row] += vector
                self._n_windows[row] += 1

    @property
    def vectors(self) -> NDArray[np.float64]:
        """(members, hidden)"""
        assert self._sums is not None
        means: NDArray[np.float64] = self._sums / np.maximum(self._n_windows, 1)[:, None]
        return means
