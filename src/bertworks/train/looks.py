"""Looks at held-out text: which was the best, and whether it is worth going on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bertworks.errors import Remark
from bertworks.train.checkpoint import State

LOOKING = 0.3  # of the time of learning may go into looks on the way
Hopeless = Callable[[float, float], bool]
"""(progress, the smallest error so far): whether a run is not worth its time."""


def never(progress: float, best: float) -> bool:
    return False


@dataclass(frozen=True)
class Looks:
    judge: str = "loss"  # the measure by which they are compared, the lower the better
    first: bool = True  # also one before the first step
    patience: int | None = None  # the run ends after so many without a better one,
    hopeless: Hopeless = never  # or if its best, so far in the run, is that
    after: float = 0.0  # further ones that the end takes time for, in looks like these

    def weigh(self, state: State, measures: Mapping[str, float]) -> State:
        """What a look changes."""
        value = measures[self.judge]
        finite = math.isfinite(value)
        better = state.best_step is None or (finite and (state.best is None or value < state.best))
        if better or (finite and value == state.best):  # of equal ones the last has learned most
            state = replace(state, best=value if finite else None, best_step=state.step)
        state = replace(state, in_vain=0 if better else state.in_vain + 1)
        if state.progress >= 1:
            return state
        return replace(state, hopeless=state.best is not None and self.hopeless(state.progress, state.best))

    def why_stop(self, state: State) -> Remark | None:
        """None: it is worth going on."""
        if self.patience is not None and state.in_vain >= self.patience:
            return Remark("early-stopping", f"no better for {state.in_vain} looks")
        return Remark("far-behind", "far behind other seeds") if state.hopeless else None
