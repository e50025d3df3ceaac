"""When to evaluate, which model was the best, and whether it is worth going on: early stopping and pruning."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bertworks.errors import Remark
from bertworks.train.checkpoint import State
from bertworks.train.clock import Clock

EVALUATION_SHARE = 0.3  # of the time of training may go into evaluations on the way
Evaluate = Callable[[], dict[str, float]]
"""Metrics. It may be `Interrupted`, unless several processes evaluate together; a resumed run does it again."""
Pruner = Callable[[float, float], bool]
"""(progress, the smallest error so far): whether a run is not worth its time."""


def never_prune(progress: float, best: float) -> bool:
    return False


@dataclass(frozen=True)
class EvaluationPolicy:
    evaluate: Evaluate
    save_model: Callable[[], None]  # when it is the best so far
    monitor: str = "loss"  # the metric by which models are compared, the lower the better
    at_start: bool = True  # also before the first step
    patience: int | None = None  # early stopping: after so many evaluations without improvement,
    pruner: Pruner = never_prune  # or if its best, so far in the run, is not worth more time
    extra_evaluations: float = 0.0  # further ones that the end takes time for, in units of these

    def has_time(self, state: State, clock: Clock) -> bool:
        """With a budget, evaluation must not take the time of training: neither much of that since the last one, nor of
        what is left."""
        return state.evaluation_seconds <= EVALUATION_SHARE * min(
            clock.elapsed - state.evaluated_at, clock.seconds_left
        )

    def update(self, state: State, metrics: Mapping[str, float]) -> State:
        """What an evaluation changes."""
        value = metrics[self.monitor]
        finite = math.isfinite(value)
        better = state.best_step is None or (finite and (state.best is None or value < state.best))
        if better or (finite and value == state.best):  # of equal ones the last has learned most
            state = replace(state, best=value if finite else None, best_step=state.step)
        state = replace(
            state, evaluations_without_improvement=0 if better else state.evaluations_without_improvement + 1
        )
        if state.progress >= 1:
            return state
        return replace(state, pruned=state.best is not None and self.pruner(state.progress, state.best))

    def stop_reason(self, state: State) -> Remark | None:
        """None: it is worth going on."""
        if self.patience is not None and state.evaluations_without_improvement >= self.patience:
            text = f"early stopping: no improvement in {state.evaluations_without_improvement} evaluations"
            return Remark("early-stopping", text)
        return Remark("pruned", "pruned: far behind other seeds") if state.pruned else None
