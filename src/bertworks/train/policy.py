"""When to evaluate, which model is the best so far, and when to stop: early stopping and pruning."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bertworks.errors import Remark, counted
from bertworks.train.checkpoint import State
from bertworks.train.clock import Clock

EVALUATION_SHARE = 0.3  # of a time budget that evaluations during training may take
EVALUATION_SPEED = 3  # how many tokens are evaluated in the time of training on one
Evaluate = Callable[[int], dict[str, float]]
"""Called with the step; returns metrics. A signal may interrupt it, unless several processes evaluate; a resumed run
repeats it."""
Pruner = Callable[[float, float], bool]
"""(progress, best value of the monitored metric so far): whether to stop the run."""


def never_prune(progress: float, best: float) -> bool:
    return False


@dataclass(frozen=True)
class EvaluationPolicy:
    evaluate: Evaluate
    save_model: Callable[[], None]  # called when it is the best so far
    monitor: str = "loss"  # the metric by which models are compared; lower is better
    at_start: bool = True  # evaluate before the first step, too
    patience: int | None = None  # early stopping: after so many evaluations without improvement
    pruner: Pruner = never_prune

    def has_time(self, state: State, clock: Clock) -> bool:
        """With a budget, an evaluation may take only a share of the time since the last one, and of the time left."""
        return state.evaluation_seconds <= EVALUATION_SHARE * min(
            clock.elapsed - state.evaluated_at, clock.seconds_left
        )

    def update(self, state: State, metrics: Mapping[str, float]) -> State:
        """The state after an evaluation."""
        value = metrics[self.monitor]
        finite = math.isfinite(value)
        improved = state.best_step is None or (finite and (state.best is None or value < state.best))
        if improved or (finite and value == state.best):  # of equal ones the latest, which was trained longest
            state = replace(state, best=value if finite else None, best_step=state.step)
        n_without = 0 if improved else state.evaluations_without_improvement + 1
        state = replace(state, evaluations_without_improvement=n_without)
        if state.progress >= 1:
            return state
        return replace(state, pruned=state.best is not None and self.pruner(state.progress, state.best))

    def stop_reason(self, state: State) -> Remark | None:
        """None: continue training."""
        if self.patience is not None and state.evaluations_without_improvement >= self.patience:
            text = f"early stopping: no improvement in {counted(state.evaluations_without_improvement, 'evaluation')}"
            return Remark("early-stopping", text)
        return Remark("pruned", "pruned: far behind other seeds") if state.pruned else None
