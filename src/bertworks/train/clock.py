"""How far a run has come, from 0 to 1: by steps, by passes over the text, or by the clock.

By the clock the end is a moment, not a step. Every step takes its share of what is left, (1 - progress) / steps left,
where the steps left follow from the time left and the pace so far; so the learning rate meets zero at the deadline,
whatever the machine does. The clock is monotonic: setting the time or the time zone changes nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from math import inf

PLAN_CHANGE = 0.05  # a change of the planned steps that is worth a line
PACE_STEPS = 50  # steps over which the pace is measured


class Clock:
    """Seconds of a run, over all its processes one after the other; `began` is when this one did."""

    def __init__(self, budget: float | None, *, began: float, now: Callable[[], float] = time.monotonic) -> None:
        self.budget, self.began, self.now = budget, began, now
        self.seconds_before = 0.0  # by earlier processes of this run
        self.reserve = 0.0  # seconds for what comes after the last step
        self.planned_steps = 0  # steps in all, as last said
        self.first_pace = 0.0
        self.step_ends: deque[float] = deque(maxlen=PACE_STEPS + 1)

    @property
    def elapsed(self) -> float:
        return self.seconds_before + self.now() - self.began

    @property
    def pace(self) -> float:
        """Seconds from the end of a step to the end of the next, with all that lies between."""
        return (
            (self.step_ends[-1] - self.step_ends[0]) / (len(self.step_ends) - 1)
            if len(self.step_ends) > 2
            else self.first_pace
        )

    def tick(self) -> None:
        """A step has ended."""
        self.step_ends.append(self.now())

    @property
    def seconds_left(self) -> float:
        """Seconds for steps."""
        return inf if self.budget is None else self.budget - self.elapsed - self.reserve

    def steps_left(self) -> int:
        if self.budget is None or not self.pace:
            return 1
        return max(0, round(self.seconds_left / self.pace))

    def new_plan(self, step: int) -> int | None:
        """The steps in all, if they are others than was said last."""
        left = self.steps_left()
        if self.budget is None or abs(step + left - self.planned_steps) <= max(2, PLAN_CHANGE * self.planned_steps):
            return None
        self.planned_steps = step + left
        return self.planned_steps
