"""The loop. It is given steps of batches, something with `counts` and `forward`, a way to evaluate and a way to save the model.

What makes a stopped and resumed run end with the same bits as an undisturbed one: every batch is a function of its place, dropout is
seeded by (seed, step, portion, process), and a checkpoint holds weights, optimiser and place. What is only shown (speed, time left,
means over the last lines) may differ.
"""

from __future__ import annotations

import math
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.flop_counter import FlopCounterMode

from bertworks.config import OptimConfig, TrainConfig
from bertworks.errors import Diverged, SaveFailed
from bertworks.model.loss import Loss
from bertworks.train.checkpoint import Checkpoint, optimiser_tensors, prune_checkpoints, restore, write_checkpoint
from bertworks.train.clock import Clock
from bertworks.train.log import Event, Log
from bertworks.train.optim import make_optimiser, rate
from bertworks.train.ranks import Ranks
from bertworks.train.signals import Stop

TRIALS = 3  # steps to measure the machine with; their gradients are thrown away
END_SECONDS = 1.0  # for the report and the last messages, beside evaluation and saving, which are measured
Evaluate = Callable[[], dict[str, float]]


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
class State:
    """Where a training stands; with weights and optimiser, all that it needs to go on."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    progress: float = 0.0
    seconds: float = 0.0
    tokens: int = 0
    bad_in_a_row: int = 0
    best: float | None = None  # held-out loss
    best_step: int | None = None
    looked_at: int | None = None  # the step of the last look at held-out text


class Trainer:
    def __init__(
        self,
        module: nn.Module,
        steps: Callable[[tuple[int, int]], Iterator[Step]],
        optim: OptimConfig,
        config: TrainConfig,
        *,
        folder: Path,
        log: Log | None,
        ranks: Ranks,
        clock: Clock,
        stop: Stop,
        evaluate: Evaluate,
        save_model: Callable[[], None],
        machine: dict[str, Any],
        matrix_rate: float,
    ) -> None:
        self.module, self.steps, self.optim, self.config, self.folder, self.log = module, steps, optim, config, folder, log
        self.ranks, self.clock, self.stop, self.machine = ranks, clock, stop, machine
        self.evaluate, self.save_model = evaluate, save_model
        self.shared, self.optimiser, self.state = ranks.share(module), make_optimiser(module, optim), State()
        self.parameters = list(module.parameters())
        self.device = self.parameters[0].device
        self.matrix_rate, self.flops_per_token = matrix_rate, 0.0
        self.since_log = _Means()
        self.saved: State | None = None

    # ------------------------------------------------------------------ the run

    def resume(self, checkpoint: Checkpoint, place: str) -> None:
        restore(self.module, self.optimiser, checkpoint, place)
        known = {name: checkpoint.state[name] for name in asdict(State()) if name in checkpoint.state}
        self.state, self.clock.spent = State(**known), known["seconds"]
        self.saved = self.state

    def run(self) -> int:
        """Train to the end. Returns 0, or the number of the signal that asked to stop."""
        if self.saved is None:
            self._look()
            self._save()
        for step in self.steps((self.state.epoch, self.state.batch)):
            if not self.flops_per_token:
                self._measure(step)
            counts, middle, progress, over, asked = self._agree(step)
            if asked or over:
                return self._finish(asked)
            before = self.state
            self._take(step, counts, middle)
            self.state = self._after(step, progress)
            self.clock.tick()
            self.since_log.pause()
            self._report(before)
            self.since_log.go_on()
        raise AssertionError("steps never end")

    def _after(self, step: Step, progress: float) -> State:
        epoch, batch = step.following
        tokens, seconds = self.state.tokens + step.tokens, self.clock.elapsed
        return replace(self.state, step=self.state.step + 1, epoch=epoch, batch=batch, progress=progress, tokens=tokens, seconds=seconds)

    def _agree(self, step: Step) -> tuple[dict[str, int], float, float, bool, int]:
        """What all processes must see alike: the counts of the whole step, the progress, and whether it is time to stop."""
        counted: dict[str, int] = {}
        for portion in step.portions:
            for name, n in self.module.counts(portion.batch).items():  # type: ignore[operator]
                counted[name] = counted.get(name, 0) + n * portion.counted
        middle, progress, over = self._progress(step) if self.ranks.first else (0.0, 0.0, False)
        said = [*counted.values(), middle, progress, float(over), float(self.stop.signal)]
        heard = self.ranks.sum(torch.tensor(said, dtype=torch.float64, device=self.device))
        *totals, middle, progress, ended, asked = heard.tolist()
        counts = {name: int(total) for name, total in zip(counted, totals, strict=True)}
        return counts, middle, progress, bool(ended), self.stop.signal or (int(signal.SIGTERM) if asked else 0)

    def _progress(self, step: Step) -> tuple[float, float, bool]:
        """In the middle of the step, for the learning rate; after it; and whether the run ended before it."""
        if self.config.steps is not None:
            done, total = self.state.step, self.config.steps
            return (done + 0.5) / total, (done + 1) / total, done >= total
        if self.config.epochs is not None:
            before, after = (passes / self.config.epochs for passes in step.passes)
            return (before + after) / 2, after, step.place[0] >= self.config.epochs
        left = self.clock.steps_left()
        share = (1 - self.state.progress) / max(1, left)
        return self.state.progress + share / 2, self.state.progress + share, left == 0

    def _finish(self, asked: int) -> int:
        if not asked:
            self.state = replace(self.state, progress=1.0)
            if self.state.looked_at != self.state.step:
                self._look()
        if self.saved != self.state:
            self._save()
        return asked

    # ------------------------------------------------------------------ a step

    def _take(self, step: Step, counts: dict[str, int], progress: float) -> None:
        lr = rate(self.optim, progress)
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        value, loss = self._gradients(step, counts)
        norm = nn.utils.clip_grad_norm_(self.parameters, self.optim.clip, foreach=True)
        wrong = torch.tensor(float(not math.isfinite(value)), device=self.device)
        if math.isfinite(float(norm)) and not float(self.ranks.sum(wrong)):
            self.optimiser.step()
            self.state = replace(self.state, bad_in_a_row=0)
            self.since_log.add(loss, counts, {"lr": lr, "gradient": float(norm)})
        else:
            self._pass_over(step, value, float(norm))

    def _gradients(self, step: Step, counts: dict[str, int]) -> tuple[float, dict[str, float]]:
        """The weighted loss of this process, and the sum of each of its terms; the gradients are where they belong."""
        self.optimiser.zero_grad(set_to_none=True)
        value, sums = 0.0, dict.fromkeys(counts, 0.0)
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
            value += float(mean.detach()) / self.ranks.world
            for term in loss:
                sums[term.name] += float(term.total.detach()) * portion.counted
        return value, sums

    def _quiet(self, *, last: bool) -> AbstractContextManager[Any]:
        """Gradients travel between processes once in a step, with its last portion."""
        return nullcontext() if last or not isinstance(self.shared, DistributedDataParallel) else self.shared.no_sync()

    def _pass_over(self, step: Step, value: float, norm: float) -> None:
        """Numbers that are not finite must not reach the weights."""
        self.optimiser.zero_grad(set_to_none=True)
        bad = self.state.bad_in_a_row + 1
        self.state = replace(self.state, bad_in_a_row=bad)
        epoch, batch = step.place
        self.say({"kind": "bad", "loss": value, "gradient": norm, "epoch": epoch, "batch": batch, "examples": step.names})
        if bad >= self.config.bad_steps:
            cause = f"{bad} steps in a row gave numbers that are not finite, the last at epoch {epoch}, batch {batch}"
            remedy = "the last checkpoint is good; try a lower optim.lr, and see metrics.jsonl for the batches"
            raise Diverged(cause, place=str(self.folder), remedy=remedy)

    # ------------------------------------------------------------------ around the steps

    def _measure(self, step: Step) -> None:
        """What a step costs, in operations and seconds. Nothing of it stays."""
        counts, pace = self._agree(step)[0], math.inf
        with FlopCounterMode(display=False) as counter:
            self._gradients(step, counts)
        flops = self.ranks.sum(torch.tensor(float(counter.get_total_flops()), dtype=torch.float64, device=self.device))
        self.flops_per_token = float(flops) / max(1, step.tokens)
        for _ in range(TRIALS - 1):
            start = time.monotonic()
            self._gradients(step, counts)
            pace = min(pace, time.monotonic() - start)
        self.optimiser.zero_grad(set_to_none=True)
        self.clock.first_pace = pace
        self.since_log = _Means(tokens=self.state.tokens)
        self.clock.tick()

    def _report(self, before: State) -> None:
        state, config = self.state, self.config
        if (planned := self.clock.new_plan(state.step)) is not None:
            self.say({"kind": "plan", "steps": planned, "seconds_per_step": self.clock.pace})
        if state.step % config.log_every == 0:
            self._log_means()
        if math.floor(state.progress * config.evaluations) > math.floor(before.progress * config.evaluations):
            self._look()
        if state.step % config.checkpoint_every == 0:
            try:
                self._save()
            except SaveFailed as error:  # the disk may have room again at the next one; until then the last is the last
                self.say({"kind": "not saved", "reason": str(error)})

    def _log_means(self) -> None:
        means, seconds, steps = self.since_log.over(self.ranks, self.device), self.since_log.seconds, self.since_log.steps
        tokens = self.state.tokens - self.since_log.tokens
        speed = tokens / seconds if steps and seconds else 0.0
        weights = self.since_log.shown
        self.since_log = _Means(tokens=self.state.tokens)
        share = speed * self.flops_per_token / self.matrix_rate / self.ranks.world if self.matrix_rate else 0.0
        left = (1 - self.state.progress) / max(self.state.progress, 1e-9) * self.clock.elapsed
        if self.clock.budget is not None:
            left = max(0.0, self.clock.budget - self.clock.elapsed)
        shown = {"tokens_per_second": speed, "share": share, "seconds_left": left}
        self.say({"kind": "train", **means, **weights, **shown})

    def _look(self) -> None:
        """Held-out text. The model is saved if it was never as good."""
        self.state = replace(self.state, looked_at=self.state.step)
        if self.config.evaluations == 0:
            self.save_model()
            return
        start = time.monotonic()
        measures = self.evaluate()
        self.say({"kind": "held out", **measures})
        loss = measures.get("loss", math.inf)
        if self.state.best is None or not loss >= self.state.best:
            best = loss if math.isfinite(loss) else None
            self.state = replace(self.state, best=best, best_step=self.state.step)
            self.save_model()
        self.clock.reserve = max(self.clock.reserve, END_SECONDS + 1.5 * (time.monotonic() - start))

    def _save(self) -> None:
        self.saved = self.state
        if not self.ranks.first:
            return
        start, state = time.monotonic(), replace(self.state, seconds=self.clock.elapsed)
        weights = dict(self.module.named_parameters())
        memory = optimiser_tensors(self.module, self.optimiser)
        folder = self.folder / "checkpoints"
        place = write_checkpoint(folder, Checkpoint(state.step, weights, memory, {**asdict(state), "machine": self.machine}))  # type: ignore[arg-type]
        prune_checkpoints(folder, self.config.keep, state.best_step)
        self.say({"kind": "checkpoint", "path": place.name, "free_bytes": shutil.disk_usage(folder).free})
        self.clock.reserve = max(self.clock.reserve, END_SECONDS + 1.5 * (time.monotonic() - start))

    def say(self, event: Event) -> None:
        if self.log is not None:
            state = self.state
            about = {"step": state.step, "progress": state.progress, "tokens": state.tokens, "seconds": round(self.clock.elapsed, 3)}
            self.log.write({"kind": event.pop("kind"), **about, **event})


class _Means:
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
