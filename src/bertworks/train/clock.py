"""Time budgets: the clock of a run, and how many steps it has left.

With a budget, a run ends at a deadline, not at a step. Every step advances the progress (0 to 1) by its share of the
rest, (1 - progress) / steps left, where the steps left follow from the time left and the recent pace; so the learning
rate reaches zero at the deadline, however fast the machine is. The clock is monotonic: setting the time or the time
zone changes nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from math import inf

MIN_PLAN_CHANGE = 0.05  # share of the planned steps: smaller changes are not logged
PACE_STEPS = 50  # over which the pace is averaged


class Clock:
    """Seconds of a run, summed over its processes, one after the other; `began`: when this process did."""

    def __init__(self, budget: float | None, *, began: float, now: Callable[[], float] = time.monotonic) -> None:
        self.budget = budget  # seconds
        self.began = began
        self.now = now
        self.seconds_before = 0.0  # of earlier processes of this run
        self.reserve = 0.0  # seconds for evaluation and saving after the last step
        self.planned_steps = 0  # total, as last logged
        self.first_pace = 0.0  # measured before the first step
        self.step_ends: deque[float] = deque(maxlen=PACE_STEPS + 1)

    @property
    def elapsed(self) -> float:
        return self.seconds_before + self.now() - self.began

    @property
    def pace(self) -> float:
        """Seconds per step, with what happens between steps."""
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
        """For steps, without the reserve."""
        return inf if self.budget is None else self.budget - self.elapsed - self.reserve

    def steps_left(self) -> int:
        if self.budget is None or not self.pace:
            return 1
        return max(0, round(self.seconds_left / self.pace))

    def new_plan(self, step: int) -> int | None:
        """The total number of steps, if it has changed enough to be logged."""
        total = step + self.steps_left()
        if self.budget is None or abs(total - self.planned_steps) <= max(2, MIN_PLAN_CHANGE * self.planned_steps):
            return None
        self.planned_steps = total
        return total
