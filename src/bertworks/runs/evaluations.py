"""The scores of the dev examples at every evaluation of a fine-tuning, and what the choice of the best one is worth.

RUN/evaluations/step-00000120.npy     an example per row
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bertworks.files import atomic_write, save_errors
from bertworks.measure.metrics import Floats, nan_to_zero
from bertworks.measure.selection import Choose, best, cross_fitted, latest_near_best
from bertworks.tasks.evaluation import Selection
from bertworks.tasks.inference import AnyTask
from bertworks.train.events import METRICS, candidates, read_events

EVALUATIONS = "evaluations"
NAME = re.compile(r"step-(\d{8,})\.npy")


def write_scores(run: Path, step: int, scores: Floats) -> None:
    with save_errors(run / EVALUATIONS):
        (run / EVALUATIONS).mkdir(exist_ok=True)
    with atomic_write(run / EVALUATIONS / f"step-{step:08}.npy") as file:
        np.save(file, scores)


def discard_later(run: Path, step: int) -> None:
    """Of an interrupted process: evaluations after the checkpoint at `step`, which will come again."""
    for later, path in _files(run).items():
        if later > step:
            path.unlink()


def read_scores(run: Path) -> dict[int, Floats]:
    """Of the evaluations that are kept, by step."""
    return {step: np.load(path, allow_pickle=False) for step, path in sorted(_files(run).items())}


def earlier_scores(run: Path, step: int) -> list[Floats]:
    """Of the evaluations before this step among which the model is chosen, as far as they are kept."""
    scores = read_scores(run)
    return [scores[earlier] for earlier in _candidate_steps(run) if earlier < step and earlier in scores]


def _candidate_steps(run: Path) -> list[int]:
    return sorted({event.step for event in candidates(read_events(run / METRICS))})


def choice_rule(*, reads_all: bool) -> Choose:
    """How a run chooses its model. Where evaluations read only a part of dev, the lead of the best may be luck."""
    return best if reads_all else latest_near_best


def _files(run: Path) -> dict[int, Path]:
    matches = ((NAME.fullmatch(path.name), path) for path in sorted((run / EVALUATIONS).glob("*.npy")))
    return {int(match[1]): path for match, path in matches if match is not None}


@dataclass(frozen=True)
class History:
    """The evaluations among which a run's model is chosen: the scores of the same dev examples at each of these
    steps."""

    steps: list[int]
    best_step: int
    scores: list[Floats] | None  # None: some are missing, as after a full disk, or of a run of an older version
    examples: Sequence[int]  # indices of the dev examples that they read

    @classmethod
    def read(cls, run: Path, best_step: int, examples: Sequence[int]) -> History:
        steps = _candidate_steps(run)
        scores = read_scores(run)
        is_complete = scores.keys() >= set(steps)
        return cls(steps, best_step, [scores[step] for step in steps] if is_complete else None, examples)

    def selection(self, task: AnyTask, metric: str, dev_scores: Floats) -> Selection:
        """`dev_scores`: of the chosen model, for all of dev."""
        reads_all = len(self.examples) == len(dev_scores)
        selection = Selection(
            self.best_step, len(self.steps), sampled_examples=None if reads_all else len(self.examples)
        )
        if self.scores is None:
            return selection
        unread = np.setdiff1d(np.arange(len(dev_scores)), self.examples)
        choose = choice_rule(reads_all=reads_all)
        return replace(
            selection,
            last=nan_to_zero(task.metric_values(self.scores[-1])),
            cross_fitted=cross_fitted(task.metric_values, metric, self.scores, dev_scores[unread], choose=choose),
        )
