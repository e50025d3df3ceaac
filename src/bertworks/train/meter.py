"""Averages over the steps since the last line of the log."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from bertworks.train.distributed import Distributed


class Meter:
    """Sums of the terms of the loss since the last line of the log, and the time of the steps, without evaluations and
    saves between them."""

    def __init__(self, tokens: int = 0) -> None:
        self.sums: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self.lr = 0.0  # of the last step, as is the gradient's norm
        self.gradient_norm = 0.0
        self.steps = 0
        self.tokens = tokens  # trained on before the first of these steps
        self.seconds = 0.0
        self.start = time.monotonic()

    def pause(self) -> None:
        self.seconds += time.monotonic() - self.start

    def resume(self) -> None:
        self.start = time.monotonic()

    def add(self, sums: dict[str, float], counts: dict[str, int], lr: float, gradient_norm: float) -> None:
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + counts[name]
        self.lr = lr
        self.gradient_norm = gradient_norm
        self.steps += 1

    def reduce(self, distributed: Distributed, device: torch.device) -> dict[str, float]:
        """The mean of each term, over all processes."""
        totals: Tensor = distributed.sum(torch.tensor(list(self.sums.values()), dtype=torch.float64, device=device))
        return {name: total / max(1, self.counts[name]) for name, total in zip(self.sums, totals.tolist(), strict=True)}
