"""The loop. It is given steps of batches, something with `counts` and `forward`, a way to evaluate and a way to save the model.

What makes a stopped and resumed run end with the same bits as an undisturbed one: every batch is a function of its place, dropout is
seeded by (seed, step, portion, process), and a checkpoint holds weights, optimiser and place. What is only shown (speed, time left,
means over the last lines) may differ.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bertworks.config import LoopConfig, OptimConfig
from bertworks.errors import BertworksError, Diverged
from bertworks.model.loss import Loss, Trainable
from bertworks.train.checkpoint import Checkpoint, State, optimiser_tensors, prune_checkpoints, restore, write_checkpoint
from bertworks.train.clock import Clock
from bertworks.train.log import Event, Log
from bertworks.train.looks import LOOKING, Looks
from bertworks.train.machine import counting_flops, give_back_memory
from bertworks.train.means import Means
from bertworks.train.optim import make_optimiser, rate, set_rate
from bertworks.train.ranks import Ranks
from bertworks.train.signals import BrokenOff, Stop

TRIALS = 3  # steps to measure the machine with, for a budget; their gradients are thrown away
LOG_SECONDS = 20.0  # of steps so slow that lines every so many of them would leave people waiting
TRIM_SECONDS = 10.0  # between moments when memory is given back, which takes a few hundredths of that to be had again
END_SECONDS = 1.0  # for the report and the last messages, beside evaluation and saving, which are measured
Evaluate = Callable[[], dict[str, float]]
"""Measures of held-out text. It may be `BrokenOff`, unless several processes look together; a resumed run does it again."""


class Portion(Protocol):
    """What goes through the model at once."""

    @property
    def batch(self) -> Any: ...

    @property
    def counted(self) -> bool:
        """Or only there because every process must take part in every step."""


class Step(Protocol):
    """A step's batches for this process, and where the training stands before and after it."""

    @property
    def portions(self) -> Sequence[Portion]: ...

    @property
    def place(self) -> tuple[int, int]:
        """(epoch, batch)."""

    @property
    def following(self) -> tuple[int, int]: ...

    @property
    def passes(self) -> tuple[float, float]:
        """Passes over the text, before and after."""

    @property
    def tokens(self) -> int:
        """Of all processes."""

    @property
    def names(self) -> list[int]:
        """Which examples these are, to find them again."""


@dataclass(frozen=True)
class Agreed:
    """What all processes must see alike before a step."""

    counts: dict[str, int]  # of the whole step
    middle: float  # progress in the middle of the step, for its learning rate
    after: float
    over: bool  # the run has ended before it
    asked: int  # the signal that asked to stop, or 0


class Trainer:
    def __init__(
        self,
        module: Trainable,
        steps: Callable[[tuple[int, int]], Iterator[Step]],
        optim: OptimConfig,
        config: LoopConfig,
        *,
        folder: Path,
        log: Log | None,
        ranks: Ranks,
        clock: Clock,
        stop: Stop,
        evaluate: Evaluate,
        save_model: Callable[[], None],
        identity: str,
        machine: dict[str, Any],
        matrix_rate: float,
        looks: Looks,
    ) -> None:
        self.module, self.steps, self.optim, self.config, self.folder, self.log = module, steps, optim, config, folder, log
        self.ranks, self.clock, self.stop, self.machine = ranks, clock, stop, machine
        self.evaluate, self.save_model, self.identity = evaluate, save_model, identity
        self.shared, self.optimiser, self.state = ranks.share(module), make_optimiser(module, optim), State()
        self.parameters = list(module.parameters())
        self.device = self.parameters[0].device
        self.matrix_rate, self.flops_per_token = matrix_rate, 0.0
        self.since_log = Means()
        self.looks = looks
        self.saved: State | None = None
        self.trimmed = time.monotonic()
        self.ending = False
        self.failure: BertworksError | None = None

    # ------------------------------------------------------------------ the run

    def resume(self, checkpoint: Checkpoint, place: str) -> None:
        restore(self.module, self.optimiser, checkpoint, place)
        self.saved = self.state = checkpoint.state
        self.clock.spent = self.state.seconds

    def run(self) -> int:
        """Train to the end. Returns 0, or the number of the signal that asked to stop."""
        self._reserve()
        if self.state.progress >= 1 and not self.state.owes_look:
            self.say({"kind": "remark", "code": "already-ended", "text": "this run had come to its end"})
        elif self.state.progress < 1 and (self.state.owes_look or (self.saved is None and self.looks.first)):
            self._look()
            self._save()
        elif self.saved is None:
            self._carefully(self.save_model)
            self._save()
        measured = False
        steps = self.steps((self.state.epoch, self.state.batch)) if not self._is_over() else iter(())
        for step in steps:
            if not measured:
                self._measure(step)
                measured = True
            agreed = self._agree(step)
            if agreed.asked or agreed.over:
                return self._finish(agreed.asked)
            before = self.state
            self._take(step, agreed)
            self.state = self._after(step, agreed.after)
            self.clock.tick()
            self.since_log.pause()
            if self.state.progress < 1:
                self._between(before)
            if self._is_over():
                break
            self.since_log.go_on()
        return self._finish(0)

    def _is_over(self) -> bool:
        return self.state.progress >= 1 or self.looks.why_stop(self.state) is not None

    def _after(self, step: Step, progress: float) -> State:
        epoch, batch = step.following
        tokens, seconds = self.state.tokens + step.tokens, self.clock.elapsed
        return replace(self.state, step=self.state.step + 1, epoch=epoch, batch=batch, progress=progress, tokens=tokens, seconds=seconds)

    def _agree(self, step: Step) -> Agreed:
        counted: dict[str, int] = {}
        for portion in step.portions:
            for name, n in self.module.counts(portion.batch).items():
                counted[name] = counted.get(name, 0) + n * portion.counted
        middle, after, over = self._progress(step) if self.ranks.first else (0.0, 0.0, False)
        mine = self.stop.signal  # now; one that comes while the processes talk is for the next step
        said = [*counted.values(), middle, after, float(over), float(mine)]
        heard = self.ranks.sum(torch.tensor(said, dtype=torch.float64, device=self.device))
        *totals, middle, after, ended, asked = heard.tolist()
        counts = {name: int(total) for name, total in zip(counted, totals, strict=True)}
        return Agreed(counts, middle, after, bool(ended), mine or (int(signal.SIGTERM) if asked else 0))

    def _progress(self, step: Step) -> tuple[float, float, bool]:
        """In the middle of the step; after it; and whether the run ended before it."""
        if self.config.steps is not None:
            done, total = self.state.step, self.config.steps
            return (done + 0.5) / total, (done + 1) / total, False
        if self.config.epochs is not None:
            before, after = (passes / self.config.epochs for passes in step.passes)
            return (before + after) / 2, after, False
        left = self.clock.steps_left()
        share = (1 - self.state.progress) / max(1, left)
        return self.state.progress + share / 2, self.state.progress + share, left == 0

    def _finish(self, asked: int) -> int:
        self.ending = True
        if not asked:
            self._log_means()
            self.state = replace(self.state, progress=1.0)
            if self.state.looked_at != self.state.step:
                self._look()
                asked = self.stop.signal if self.state.owes_look else 0
        if not self.state.step:
            self.say({"kind": "remark", "code": "no-step-taken", "text": "no step was taken: the model knows nothing yet"})
        if self.saved != self.state:
            self._save()
        if self.failure is not None:
            raise self.failure
        return asked

    # ------------------------------------------------------------------ a step

    def _take(self, step: Step, agreed: Agreed) -> None:
        lr = rate(self.optim, agreed.middle)
        set_rate(self.optimiser, lr)
        value, sums = self._gradients(step, agreed.counts)
        norm = self._clip()
        wrong = torch.tensor(float(not (math.isfinite(value) and math.isfinite(norm))), device=self.device)
        if float(self.ranks.sum(wrong)):
            self._pass_over(step, value, norm)
            return
        self.optimiser.step()
        self.state = replace(self.state, bad_in_a_row=0)
        self.since_log.add(sums, agreed.counts, {"lr": lr, "gradient": norm})

    def _clip(self) -> float:
        """Shorten the gradient if it is too long; its length before."""
        norm = nn.utils.get_total_norm([one.grad for one in self.parameters if one.grad is not None], foreach=True)
        if norm > self.optim.clip:
            nn.utils.clip_grads_with_norm_(self.parameters, self.optim.clip, norm, foreach=True)
        return float(norm)

    def _gradients(self, step: Step, counts: dict[str, int]) -> tuple[float, dict[str, float]]:
        """The weighted loss of this process, and the sum of each of its terms; the gradients are where they belong."""
        self.optimiser.zero_grad(set_to_none=True)
        values, totals = [], [torch.zeros(len(counts), dtype=torch.float64, device=self.device)]
        for index, portion in enumerate(step.portions):
            entropy = (self.config.seed, self.state.step, index, self.ranks.rank)
            torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1))
            with self._quiet(last=index == len(step.portions) - 1):
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bfloat16"):
                    loss: Loss = self.shared(portion.batch)
                terms = [term.total * (term.weight / max(1, counts[term.name])) for term in loss if term.weight]
                # Gradients are averaged over the processes, but each term is divided by the count of all of them.
                mean = torch.stack(terms).sum() * (float(portion.counted) * self.ranks.world)
                mean.backward()  # type: ignore[no-untyped-call]
            values.append(mean.detach() / self.ranks.world)
            if portion.counted:
                named = {term.name: term.total.detach().double() for term in loss}
                totals.append(torch.stack([named[name] for name in counts]))
        return float(torch.stack(values).sum()), dict(zip(counts, torch.stack(totals).sum(0).tolist(), strict=True))

    def _quiet(self, *, last: bool) -> AbstractContextManager[Any]:
        """Gradients travel between processes once in a step, with its last portion."""
        return nullcontext() if last or not isinstance(self.shared, DistributedDataParallel) else self.shared.no_sync()

    def _pass_over(self, step: Step, value: float, norm: float) -> None:
        """Numbers that are not finite must not reach the weights."""
        self.optimiser.zero_grad(set_to_none=True)
        bad = self.state.bad_in_a_row + 1
        self.state = replace(self.state, bad_in_a_row=bad)
        epoch, batch = step.place
        about = {"step": self.state.step + 1, "epoch": epoch, "batch": batch, "examples": step.names}
        self.say({"kind": "bad", "loss": value, "gradient": norm, **about})
        if bad >= self.config.bad_steps:
            cause = f"{bad} steps in a row gave numbers that are not finite, the last at epoch {epoch}, batch {batch}"
            remedy = "the last checkpoint is good; try a lower optim.lr, and see metrics.jsonl for the batches"
            raise Diverged(cause, place=str(self.folder), remedy=remedy)

    # ------------------------------------------------------------------ around the steps

    def _measure(self, step: Step) -> None:
        """What a step costs, in operations and, where they are counted, seconds. Nothing of it stays."""
        agreed = self._agree(step)
        if agreed.asked:
            return
        counts, pace = agreed.counts, math.inf
        with counting_flops() as counter:
            self._gradients(step, counts)
        flops = self.ranks.sum(torch.tensor(float(counter.get_total_flops()), dtype=torch.float64, device=self.device))
        self.flops_per_token = float(flops) / max(1, step.tokens)
        if self.clock.budget is not None:
            for _ in range(TRIALS - 1):
                start = time.monotonic()
                self._gradients(step, counts)
                pace = min(pace, time.monotonic() - start)
            self.clock.first_pace = pace
        self.optimiser.zero_grad(set_to_none=True)
        self.since_log = Means(tokens=self.state.tokens)
        self.clock.tick()

    def _between(self, before: State) -> None:
        """What is due between two steps."""
        state, config = self.state, self.config
        if (planned := self.clock.new_plan(state.step)) is not None:
            self.say({"kind": "plan", "steps": planned, "seconds_per_step": self.clock.pace})
        slow = self.since_log.seconds > LOG_SECONDS and self.ranks.world == 1  # others would not agree on the moment
        if state.step % config.log_every == 0 or slow:
            self._log_means()
        if time.monotonic() > self.trimmed + TRIM_SECONDS:
            give_back_memory()
            self.trimmed = time.monotonic()
        if math.floor(state.progress * config.evaluations) > math.floor(before.progress * config.evaluations) and self._can_look():
            self._look()
        # In a streak of steps that were not taken the last checkpoint is the good one.
        due = state.step % config.checkpoint_every == 0 or self.state.best_step == state.step
        if due and not state.bad_in_a_row:
            self._save()

    def _log_means(self) -> None:
        recent = self.since_log
        if not recent.steps:
            return
        means, tokens = recent.over(self.ranks, self.device), self.state.tokens - recent.tokens
        self.since_log = Means(tokens=self.state.tokens)
        speed = tokens / max(recent.seconds, 1e-9)
        left = (1 - self.state.progress) / max(self.state.progress, 1e-9) * self.clock.elapsed
        if self.clock.budget is not None:
            left = max(0.0, self.clock.budget - self.clock.elapsed)
        share = speed * self.flops_per_token / self.matrix_rate / self.ranks.world if self.matrix_rate else 0.0
        self.say({"kind": "train", **means, **recent.shown, "tokens_per_second": speed, "share": share, "seconds_left": left})

    def _can_look(self) -> bool:
        """By the clock, looks must not take the time of learning: neither much of that since the last one, nor of what is left."""
        if self.clock.budget is None:
            return True
        now = self.clock.elapsed
        worth = self.state.look_seconds <= LOOKING * min(now - self.state.looked_seconds, self.clock.left)
        return bool(self.ranks.sum(torch.tensor(float(worth and self.ranks.first), device=self.device)))

    def _look(self) -> None:
        """Held-out text. The model is saved if it was never as good; without such text, whenever this is called."""
        start = time.monotonic()
        try:
            measures = self.evaluate() if self.config.evaluations else None
        except BrokenOff:
            self.state = replace(self.state, owes_look=True)
            return
        before, self.state = self.state, replace(self.state, looked_at=self.state.step, owes_look=False)
        if measures is not None:
            self.say({"kind": "held out", **measures})
            self.state = self.looks.weigh(self.state, measures)
            if self.state.progress < 1 and (reason := self.looks.why_stop(self.state)) is not None:
                self.say({"kind": "remark", "code": reason.code, "text": f"stopped early: {reason}"})
        if measures is None or self.state.best_step == self.state.step:
            self._save_best(before)
        self.state = replace(self.state, look_seconds=time.monotonic() - start, looked_seconds=self.clock.elapsed)
        self._reserve()

    def _save_best(self, before: State) -> None:
        """The best is one that is there: if it cannot be saved, all processes forget it. The last one is made up for by a resumed run."""
        failed = float(not self._carefully(self.save_model))
        if self.ranks.sum(torch.tensor(failed, device=self.device)):
            self.state = replace(self.state, best=before.best, best_step=before.best_step)
            if self.ending:
                self.state = replace(self.state, looked_at=before.looked_at, owes_look=True)

    def _save(self) -> None:
        if self.ranks.first:
            self._carefully(self._write_checkpoint)
        else:
            self.saved = self.state

    def _write_checkpoint(self) -> None:
        start, state = time.monotonic(), replace(self.state, seconds=self.clock.elapsed)
        weights: dict[str, Tensor] = dict(self.module.named_parameters())
        memory, folder = optimiser_tensors(self.module, self.optimiser), self.folder / "checkpoints"
        place = write_checkpoint(folder, Checkpoint(state, self.identity, self.machine, weights, memory))
        self.state = replace(self.state, save_seconds=time.monotonic() - start)
        self.saved = self.state
        prune_checkpoints(folder, self.config.keep, state.best_step)
        self.say({"kind": "checkpoint", "path": place.name})
        self._reserve()

    def _carefully(self, save: Callable[[], None]) -> bool:
        """Whether it is saved. A disk that is full now may have room at the next save; only the last one must succeed, and the first."""
        try:
            save()
            return True
        except BertworksError as error:
            if self.saved is None:
                raise
            self.say({"kind": "not saved", "reason": str(error)})
            self.failure = error if self.ending else None
            return False

    def _reserve(self) -> None:
        """The end needs the time of a look, a save and a report, and of looks that come after."""
        self.clock.reserve = END_SECONDS + 1.1 * ((1 + self.looks.after) * self.state.look_seconds + self.state.save_seconds)

    def say(self, event: Event) -> None:
        if self.log is not None:
            state = self.state
            about = {"step": state.step, "progress": state.progress, "tokens": state.tokens, "seconds": round(self.clock.elapsed, 3)}
            self.log.write({"kind": event.pop("kind"), **about, **event})
