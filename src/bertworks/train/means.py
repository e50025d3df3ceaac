"""What the steps since the last line of the log came to."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from bertworks.train.ranks import Ranks


class Means:
    """The terms of the loss since the last line of the log, and the time that the steps took, without what lies between them."""

    def __init__(self, tokens: int = 0) -> None:
        self.sums: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self.shown: dict[str, float] = {}
        self.steps, self.tokens = 0, tokens
        self.seconds, self.start = 0.0, time.monotonic()

    def pause(self) -> None:
        self.seconds += time.monotonic() - self.start

    def go_on(self) -> None:
        self.start = time.monotonic()

    def add(self, sums: dict[str, float], counts: dict[str, int], shown: dict[str, float]) -> None:
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + counts[name]
        self.shown, self.steps = shown, self.steps + 1

    def over(self, ranks: Ranks, device: torch.device) -> dict[str, float]:
        totals: Tensor = ranks.sum(torch.tensor(list(self.sums.values()), dtype=torch.float64, device=device))
        return {name: total / max(1, self.counts[name]) for name, total in zip(self.sums, totals.tolist(), strict=True)}
