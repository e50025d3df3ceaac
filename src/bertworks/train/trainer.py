"""The training loop. It gets batches, a module with `counts` and `forward`, and a policy that evaluates and saves.

A stopped and resumed run ends with the same bits as an uninterrupted one, because every batch is a function of its
cursor, dropout is seeded by (seed, step, micro-batch, process), and a checkpoint holds weights, optimizer and cursor.
What is only logged (speed, time left, means since the last line) may differ.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bertworks.config import LoopConfig, OptimConfig
from bertworks.data.batches import Cursor, Step
from bertworks.errors import BertworksError, Diverged, Remark
from bertworks.files import JsonObject
from bertworks.model.loss import Loss, Trainable
from bertworks.train.checkpoint import (
    CHECKPOINTS,
    Checkpoint,
    State,
    optimizer_tensors,
    prune_checkpoints,
    restore,
    write_checkpoint,
)
from bertworks.train.clock import Clock
from bertworks.train.distributed import Distributed
from bertworks.train.events import (
    BEST_MODEL_LOST,
    Evaluated,
    Event,
    Log,
    NotSaved,
    Planned,
    Remarked,
    Saved,
    Skipped,
    Trained,
)
from bertworks.train.meter import Meter
from bertworks.train.optim import learning_rate, make_optimizer, set_learning_rate
from bertworks.train.policy import EvaluationPolicy
from bertworks.train.runtime import (
    CpuTimes,
    Interrupted,
    PeakFlops,
    Runtime,
    busy_machine,
    flop_counter,
    release_memory,
)

PROFILED_STEPS = 3  # to measure the pace with, for a budget; their gradients are discarded
LOG_SECONDS = 20.0  # longest time between two lines of the log, where steps are slow
RELEASE_SECONDS = 10.0  # between returns of free memory to the system; getting it again costs a few percent of that
BUSY_SECONDS = 10.0  # over which the load by other processes is averaged
END_SECONDS = 1.0  # reserved for the report and the last messages, beside evaluation and saving, which are measured


@dataclass(frozen=True)
class TrainContext:
    """Folder, machine, clock and log of a training."""

    folder: Path
    identity: str  # of the run, stored in its checkpoints
    machine: JsonObject  # as `environment` describes it
    clock: Clock
    runtime: Runtime = field(default_factory=Runtime)
    distributed: Distributed = field(default_factory=Distributed)
    log: Log | None = None
    peak_flops: PeakFlops = field(default_factory=lambda: PeakFlops(lambda: 0.0))  # of the machine; 0: not measured


@dataclass(frozen=True)
class StepSync:
    """What all processes must agree on before a step."""

    counts: dict[str, int]  # of each term of the loss, over all processes
    mid_progress: float  # in the middle of the step, for its learning rate
    progress: float  # after the step
    is_over: bool  # the budget ends before this step
    stop_signal: int  # that requested a stop, or 0


class Trainer:
    """`batches(cursor)` yields the steps from a cursor on; `policy` evaluates, saves the best model and may stop the
    run early."""

    def __init__(
        self,
        module: Trainable,
        batches: Callable[[Cursor], Iterator[Step]],
        optim: OptimConfig,
        loop: LoopConfig,
        context: TrainContext,
        policy: EvaluationPolicy,
    ) -> None:
        self.module = module
        self.batches = batches
        self.optim = optim
        self.config = loop
        self.context = context
        self.policy = policy
        self.distributed = context.distributed
        self.clock = context.clock
        self.ddp_module = self.distributed.wrap(module)
        self.optimizer = make_optimizer(module, optim)
        self.state = State()
        self.parameters = list(module.parameters())
        self.device = self.parameters[0].device
        self.flops_per_token = 0.0
        self.meter = Meter()
        self.saved_state: State | None = None  # of the last checkpoint
        self.memory_released_at = time.monotonic()
        self.cpu_times: CpuTimes | None = None  # since when other processes are watched; none: they are not
        self.finishing = False
        self.failure: BertworksError | None = None  # of the last save

    # ------------------------------------------------------------------ the run

    def resume(self, checkpoint: Checkpoint, place: str) -> None:
        restore(self.module, self.optimizer, checkpoint, place)
        self.saved_state = self.state = checkpoint.state
        self.clock.seconds_before = self.state.seconds

    def forget_best(self) -> None:
        """The best model so far is lost; the checkpoint says so, too, lest a resumed run takes another one for it."""
        text = f"the best model, of step {self.state.best_step}, is lost: the run's model is the last one for now"
        self.state = replace(self.state, best=None, best_step=None)
        self._save_checkpoint()
        self.remark(Remark(BEST_MODEL_LOST, text))

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing left to train."""
        return self.state.progress >= 1 and not self.state.evaluation_pending

    def run(self) -> int:
        """Train to the end. Returns 0, or the number of the signal that requested a stop."""
        self._reserve_time()
        if self.has_ended:
            self.remark(already_ended(self.context.folder))
        elif self.state.progress < 1 and (
            self.state.evaluation_pending or (self.saved_state is None and self.policy.at_start)
        ):
            self._evaluate()
            self._save_checkpoint()
        elif self.saved_state is None:
            self._try_save(self.policy.save_model)
            self._save_checkpoint()
        profiled = False
        steps = self.batches((self.state.epoch, self.state.batch)) if not self._is_over() else iter(())
        for step in steps:
            if not profiled:
                self._profile_step(step)
                profiled = True
            sync = self._sync_step(step)
            if sync.stop_signal or sync.is_over:
                return self._finish(sync.stop_signal)
            before = self.state
            self._train_step(step, sync)
            self.state = self._advanced(step, sync.progress)
            self.clock.tick()
            self.meter.pause()
            if self.state.progress < 1:
                self._after_step(before)
            if self._is_over():
                break
            self.meter.resume()
        return self._finish(0)

    def _is_over(self) -> bool:
        return self.state.progress >= 1 or self.policy.stop_reason(self.state) is not None

    def _advanced(self, step: Step, progress: float) -> State:
        epoch, batch = step.next_cursor
        return replace(
            self.state,
            step=self.state.step + 1,
            epoch=epoch,
            batch=batch,
            progress=progress,
            tokens=self.state.tokens + step.tokens,
            seconds=self.clock.elapsed,
        )

    def _sync_step(self, step: Step) -> StepSync:
        counts: dict[str, int] = {}
        for micro_batch in step.micro_batches:
            for name, n in self.module.counts(micro_batch.batch).items():
                counts[name] = counts.get(name, 0) + n * micro_batch.is_counted
        middle, after, is_over = self._progress(step) if self.distributed.is_main else (0.0, 0.0, False)
        own_signal = self.context.runtime.stop.signal  # read once: one that comes later is for the next step
        values = [*counts.values(), middle, after, float(is_over), float(own_signal)]
        sums = self.distributed.sum(torch.tensor(values, dtype=torch.float64, device=self.device))
        *totals, middle, after, over_sum, signal_sum = sums.tolist()
        counts = {name: int(total) for name, total in zip(counts, totals, strict=True)}
        stop_signal = own_signal or (int(signal.SIGTERM) if signal_sum else 0)
        return StepSync(counts, middle, after, bool(over_sum), stop_signal)

    def _progress(self, step: Step) -> tuple[float, float, bool]:
        """In the middle of the step, after it, and whether the budget ends before it."""
        if self.config.steps is not None:
            n_done = self.state.step
            total = self.config.steps
            return (n_done + 0.5) / total, (n_done + 1) / total, False
        if self.config.epochs is not None:
            before, after = (epochs / self.config.epochs for epochs in step.epochs_done)
            return (before + after) / 2, after, False
        steps_left = self.clock.steps_left()
        share = (1 - self.state.progress) / max(1, steps_left)
        is_over = steps_left == 0 and self.state.step > 0  # one step is trained in any case: a run is for training
        return self.state.progress + share / 2, self.state.progress + share, is_over

    def _finish(self, stop_signal: int) -> int:
        """The last evaluation, unless a signal requested the stop, and the last checkpoint."""
        self.finishing = True
        if not stop_signal:
            self._log_train()
            self.state = replace(self.state, progress=1.0)
            if self.state.evaluated_step != self.state.step:
                self._evaluate()
                stop_signal = self.context.runtime.stop.signal if self.state.evaluation_pending else 0
        if not self.state.step:
            self.remark(Remark("no-step-taken", "no step was trained: the model has its initial weights"))
        if self.saved_state != self.state:
            self._save_checkpoint()
        if self.failure is not None:
            raise self.failure
        return stop_signal

    # ------------------------------------------------------------------ a step

    def _train_step(self, step: Step, sync: StepSync) -> None:
        lr = learning_rate(self.optim, sync.mid_progress)
        set_learning_rate(self.optimizer, lr)
        value, sums = self._forward_backward(step, sync.counts)
        norm = self._clip_gradients()
        is_nonfinite = float(not (math.isfinite(value) and math.isfinite(norm)))
        if float(self.distributed.sum(torch.tensor(is_nonfinite, device=self.device))):
            self._skip_step(step, value, norm)
            return
        self.optimizer.step()
        self.state = replace(self.state, nonfinite_steps=0)
        self.meter.add(sums, sync.counts, lr, norm)

    def _clip_gradients(self) -> float:
        """Clip the gradient to `max_grad_norm`; returns its norm before that."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = nn.utils.get_total_norm(gradients, foreach=True)
        if norm > self.optim.max_grad_norm:
            nn.utils.clip_grads_with_norm_(self.parameters, self.optim.max_grad_norm, norm, foreach=True)
        return float(norm)

    def _forward_backward(self, step: Step, counts: dict[str, int]) -> tuple[float, dict[str, float]]:
        """Accumulate the gradients. Returns the weighted loss of this process, and the sum of each of its terms."""
        self.optimizer.zero_grad(set_to_none=True)
        values = []
        totals = [torch.zeros(len(counts), dtype=torch.float64, device=self.device)]
        for index, micro_batch in enumerate(step.micro_batches):
            entropy = (self.config.seed, self.state.step, index, self.distributed.rank)
            torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1))
            with self._maybe_no_sync(last=index == len(step.micro_batches) - 1):
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bfloat16"):
                    loss: Loss = self.ddp_module(micro_batch.batch)
                terms = [term.total * (term.weight / max(1, counts[term.name])) for term in loss if term.weight]
                # DDP averages the gradients over the processes, but each term is already divided by the global count.
                mean = torch.stack(terms).sum() * (float(micro_batch.is_counted) * self.distributed.world_size)
                mean.backward()  # type: ignore[no-untyped-call]
            values.append(mean.detach() / self.distributed.world_size)
            if micro_batch.is_counted:
                sums = {term.name: term.total.detach().double() for term in loss}
                totals.append(torch.stack([sums[name] for name in counts]))
        return float(torch.stack(values).sum()), dict(zip(counts, torch.stack(totals).sum(0).tolist(), strict=True))

    def _maybe_no_sync(self, *, last: bool) -> AbstractContextManager[object]:
        """Gradients are synchronised once per step, with its last micro-batch."""
        if last or not isinstance(self.ddp_module, DistributedDataParallel):
            return nullcontext()
        return self.ddp_module.no_sync()

    def _skip_step(self, step: Step, value: float, norm: float) -> None:
        """A loss or gradient that is not finite must not reach the weights."""
        self.optimizer.zero_grad(set_to_none=True)
        n_skipped = self.state.nonfinite_steps + 1
        self.state = replace(self.state, nonfinite_steps=n_skipped)
        epoch, batch = step.cursor
        self.emit(
            Skipped(loss=value, gradient_norm=norm, epoch=epoch, batch=batch, examples=step.example_ids),
            step=self.state.step + 1,
        )
        if n_skipped >= self.config.bad_steps:
            cause = (
                f"loss or gradient not finite in {n_skipped} consecutive steps, the last at epoch {epoch}, "
                f"batch {batch}"
            )
            remedy = "the last checkpoint is intact; try a lower optim.lr; metrics.jsonl names the skipped batches"
            raise Diverged(cause, place=str(self.context.folder), remedy=remedy)

    # ------------------------------------------------------------------ between the steps

    def _profile_step(self, step: Step) -> None:
        """Measure the FLOPs of a step and, with a budget, its seconds. The gradients are discarded."""
        sync = self._sync_step(step)
        if sync.stop_signal:
            return
        with flop_counter() as counter:
            self._forward_backward(step, sync.counts)
        own_flops = torch.tensor(float(counter.get_total_flops()), dtype=torch.float64, device=self.device)
        self.flops_per_token = float(self.distributed.sum(own_flops)) / max(1, step.tokens)
        if self.clock.budget is not None:
            pace = math.inf
            for _ in range(PROFILED_STEPS - 1):
                start = time.monotonic()
                self._forward_backward(step, sync.counts)
                pace = min(pace, time.monotonic() - start)
            self.clock.first_pace = pace
        self.optimizer.zero_grad(set_to_none=True)
        self.meter = Meter(tokens=self.state.tokens)
        if self.device.type == "cpu" and self.distributed.local_world_size == 1:  # those of one group are not others
            self.cpu_times = CpuTimes.read()
        self.clock.tick()

    def _after_step(self, before: State) -> None:
        """Log, evaluate and save, if it is time to."""
        state = self.state
        config = self.config
        if (planned := self.clock.new_plan(state.step)) is not None:
            self.emit(Planned(steps=planned, seconds_per_step=self.clock.pace))
        # Only with one process: several would not agree on when.
        is_slow = self.meter.seconds > LOG_SECONDS and self.distributed.world_size == 1
        if state.step % config.log_every == 0 or is_slow:
            self._log_train()
        if self.context.runtime.owns_process and time.monotonic() > self.memory_released_at + RELEASE_SECONDS:
            release_memory()
            self.memory_released_at = time.monotonic()
        n_due = math.floor(state.progress * config.evaluations)
        if n_due > math.floor(before.progress * config.evaluations) and self._can_evaluate():
            self._evaluate()
        # Among skipped steps nothing is saved: the last checkpoint is the good one.
        is_due = state.step % config.checkpoint_every == 0 or self.state.best_step == state.step
        if is_due and not state.nonfinite_steps:
            self._save_checkpoint()

    def _log_train(self) -> None:
        meter = self.meter
        if not meter.steps:
            return
        means = meter.reduce(self.distributed, self.device)
        self.meter = Meter(tokens=self.state.tokens)
        tokens_per_second = (self.state.tokens - meter.tokens) / max(meter.seconds, 1e-9)
        seconds_left = (1 - self.state.progress) / max(self.state.progress, 1e-9) * self.clock.elapsed
        if self.clock.budget is not None:
            seconds_left = max(0.0, self.clock.budget - self.clock.elapsed)
        flops = tokens_per_second * self.flops_per_token / self.distributed.world_size
        self.emit(
            Trained(
                terms=means,
                lr=meter.lr,
                gradient_norm=meter.gradient_norm,
                tokens_per_second=tokens_per_second,
                mfu=self.context.peak_flops.mfu(flops),
                seconds_left=seconds_left,
            )
        )
        self._watch_other_processes()

    def _watch_other_processes(self) -> None:
        """Remark, once, that they have been busy for a while."""
        before = self.cpu_times
        now = CpuTimes.read()
        if before is None or now is None or now.taken_at - before.taken_at < BUSY_SECONDS:
            return
        self.cpu_times = now
        if (remark := busy_machine(now.cores_of_others(before))) is not None:
            self.remark(remark)
            self.cpu_times = None

    def _can_evaluate(self) -> bool:
        """The same for all processes: the main one's clock decides."""
        if self.clock.budget is None:
            return True
        has_time = self.policy.has_time(self.state, self.clock) and self.distributed.is_main
        return bool(self.distributed.sum(torch.tensor(float(has_time), device=self.device)))

    def _evaluate(self) -> None:
        """Saves the model if it is the best so far; with no evaluations, whenever this is called."""
        start = time.monotonic()
        try:
            metrics = self.policy.evaluate(self.state.step) if self.config.evaluations else None
        except Interrupted:
            self.state = replace(self.state, evaluation_pending=True)
            return
        before = self.state
        self.state = replace(self.state, evaluated_step=self.state.step, evaluation_pending=False)
        if metrics is not None:
            self.emit(Evaluated(metrics=metrics))
            self.state = self.policy.update(self.state, metrics)
            if self.state.progress < 1 and (reason := self.policy.stop_reason(self.state)) is not None:
                self.remark(reason)
        if metrics is None or self.state.best_step == self.state.step:
            self._save_best(before)
        self.state = replace(self.state, evaluation_seconds=time.monotonic() - start, evaluated_at=self.clock.elapsed)
        self._reserve_time()

    def _save_best(self, before: State) -> None:
        """If the model cannot be saved, all processes reset the best to that of `before`. At the end of a run, the
        evaluation is left to a resumed run."""
        failed = float(not self._try_save(self.policy.save_model))
        if self.distributed.sum(torch.tensor(failed, device=self.device)):
            self.state = replace(self.state, best=before.best, best_step=before.best_step)
            if self.finishing:
                self.state = replace(self.state, evaluated_step=before.evaluated_step, evaluation_pending=True)

    def _save_checkpoint(self) -> None:
        if self.distributed.is_main:
            self._try_save(self._write_checkpoint)
        else:
            self.saved_state = self.state

    def _write_checkpoint(self) -> None:
        start = time.monotonic()
        state = replace(self.state, seconds=self.clock.elapsed)
        weights: dict[str, Tensor] = dict(self.module.named_parameters())
        optimizer = optimizer_tensors(self.module, self.optimizer)
        checkpoint = Checkpoint(state, self.context.identity, self.context.machine, weights, optimizer)
        folder = self.context.folder / CHECKPOINTS
        place = write_checkpoint(folder, checkpoint)
        self.state = replace(self.state, save_seconds=time.monotonic() - start)
        self.saved_state = self.state
        prune_checkpoints(folder, self.config.keep_checkpoints, state.best_step)
        self.emit(Saved(path=place.name))
        self._reserve_time()

    def _try_save(self, save: Callable[[], None]) -> bool:
        """Whether it was saved. A disk that is full now may have space at the next save; only the first save and the
        last must succeed."""
        try:
            save()
            return True
        except BertworksError as error:
            if self.saved_state is None:
                raise
            self.emit(NotSaved(reason=str(error)))
            self.failure = error if self.finishing else None
            return False

    def _reserve_time(self) -> None:
        """For the end of the run: the last evaluation, a save and the report."""
        self.clock.reserve = END_SECONDS + 1.1 * (self.state.evaluation_seconds + self.state.save_seconds)

    def emit(self, event: Event, *, step: int | None = None) -> None:
        """Log an event with step, progress, tokens and seconds of the run. `step`: if not the last one."""
        if self.context.log is None:
            return
        event = replace(
            event,
            step=self.state.step if step is None else step,
            progress=self.state.progress,
            tokens=self.state.tokens,
            seconds=round(self.clock.elapsed, 3),
        )
        self.context.log.write(event)

    def remark(self, remark: Remark) -> None:
        self.emit(Remarked(code=remark.code, text=remark.text))


def already_ended(run: Path) -> Remark:
    text = f"this run has already finished; to train further, start a new run from its model: --model {run}"
    return Remark("already-ended", text)
