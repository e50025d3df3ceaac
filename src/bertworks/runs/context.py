"""A run's folder while a process trains in it:

RUN/run.json        the record: what is trained, on what, where; written before the first step
    checkpoints/    from which it can be resumed
    metrics.jsonl   its events
    model/          the best so far, as a Hugging Face folder
    report.html     curves and results
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from bertworks.config import FinetuneConfig, LoopConfig, PretrainConfig, renamed_keys
from bertworks.errors import BadCheckpoint, BadConfig, BertworksError, Remark, SaveFailed, Unsupported
from bertworks.files import JsonObject, atomic_write, locked, new_folder, read_json
from bertworks.model.locate import MODEL, RUN
from bertworks.runs.record import RunRecord
from bertworks.train.checkpoint import (
    CHECKPOINTS,
    Checkpoint,
    newest_checkpoint,
    read_checkpoint,
    restore,
    tidy_checkpoints,
)
from bertworks.train.clock import Clock
from bertworks.train.distributed import Distributed, process_group
from bertworks.train.events import METRICS, EventHandler, Log, Resumed, ignore, read_events
from bertworks.train.runtime import (
    PeakFlops,
    Runtime,
    check_precision,
    choose_device,
    environment,
    keep_freed_memory,
    measure_peak_flops,
    preserved_rng,
    set_threads,
)
from bertworks.train.trainer import TrainContext, Trainer
from bertworks.workbench import Workbench, load

DATA = "data"  # folder of the examples that were given as rows, kept for a resumed run
# Fields of the machine that must stay the same for a resumed run to end with the same bits.
BITWISE_FIELDS = ("bertworks", "torch", "numpy", "processor", "device", "threads", "world_size")


@dataclass(frozen=True)
class ProcessContext:
    """The process that a training runs in, its group of processes, and its event handler."""

    runtime: Runtime
    distributed: Distributed = field(default_factory=Distributed)
    on_event: EventHandler = ignore
    device: str | None = None  # other than that of the run's config
    threads: int | None = None  # likewise

    @classmethod
    def library(cls, on_event: EventHandler = ignore, device: str | None = None) -> ProcessContext:
        """A call in somebody else's process."""
        return cls(Runtime(), on_event=on_event, device=device)


@dataclass(frozen=True)
class Outcome:
    """`signal`: 0, or the signal that stopped the run; `requested_signal`: the same, or one that came too late."""

    folder: Path
    signal: int = 0
    requested_signal: int = 0

    @property
    def exit_code(self) -> int:
        return 128 + self.signal if self.signal else 0


def resolve_name(model: str | None) -> str | None:
    """A model's name for the record: a folder's as an absolute path, valid from any working directory."""
    return str(Path(model).resolve()) if model is not None and Path(model).exists() else model


@dataclass
class RunContext:
    """A run's folder while this process, or its group of processes, has it open."""

    folder: Path
    record: RunRecord
    process: ProcessContext
    device: torch.device
    machine: JsonObject
    checkpoint: Checkpoint | None  # to resume from
    damaged_checkpoints: list[Remark]  # newer ones that could not be read, and why
    start: Workbench | None = None  # the model to start from, if it is loaded already
    rows: Mapping[str, Path] = field(default_factory=dict)  # examples that were given as rows, to be kept in the folder
    log: Log | None = None  # of the main process, once it has begun

    @property
    def is_main(self) -> bool:
        return self.process.distributed.is_main

    def begin(self, config: PretrainConfig | FinetuneConfig, batch_tokens: int) -> TrainContext:
        """Write the record of a new run, and open its log. `batch_tokens`: of a step, about."""
        peak_flops = self._peak_flops(config, batch_tokens)
        if self.is_main and self.checkpoint is None:
            keep_rows(self.rows, self.folder)
            self.record.model_copy(update={"environment": self.machine}).write(self.folder)
            if not (self.folder / CHECKPOINTS).is_dir():
                with new_folder(self.folder / CHECKPOINTS):
                    pass
        since = self.checkpoint.state.step if self.checkpoint else -1
        self.log = Log(self.folder, self.process.on_event, since=since) if self.is_main else None
        return TrainContext(
            folder=self.folder,
            identity=self.record.identity,
            machine=self.machine,
            clock=Clock(config.train.budget, began=self.process.runtime.began),
            runtime=self.process.runtime,
            distributed=self.process.distributed,
            log=self.log,
            peak_flops=peak_flops,
        )

    def _peak_flops(self, config: PretrainConfig | FinetuneConfig, batch_tokens: int) -> PeakFlops:
        """Measured on matrix products as large as those of the feed-forward layers."""
        encoder = config.model.encoder
        dtype = torch.bfloat16 if config.train.precision == "bfloat16" else torch.get_default_dtype()
        shape = (max(1, min(batch_tokens, 4096)), encoder.hidden_size, encoder.widest_layer)
        return PeakFlops(partial(measure_peak_flops, *shape, self.device, dtype))

    def initial_model(self) -> Workbench | None:
        """The model that a new run starts from. Of a resumed one its own model: the weights come from the checkpoint,
        the other files of the folder from there."""
        if self.checkpoint is not None and (self.folder / MODEL).exists():
            try:
                own = load(self.folder / MODEL)
                own.lineage.pop()  # `load` added an entry
                return own
            except BertworksError as error:
                if isinstance(error, Unsupported) or error.code == "unreadable":
                    raise  # the model may well be intact
                # It is damaged, and will be written anew from a checkpoint.
                shutil.rmtree(self.folder / f"damaged-{MODEL}", ignore_errors=True)
                with suppress(OSError):  # another process may have been faster
                    (self.folder / MODEL).rename(self.folder / f"damaged-{MODEL}")
        if self.start is not None:
            return self.start
        return load(self.record.init) if self.record.init is not None else None

    def lineage(self, start: Workbench | None, step: str) -> list[str]:
        """How the run's model came to be; the run itself is the last step. A resumed run's own model has it already,
        maybe in the words of an earlier version; a loaded one ends with "loaded"."""
        before = start.lineage if start is not None else [f"new {self.record.preset}"]
        return before if before[-1].startswith(f"{self.record.kind} ") else [*before, step]

    def restore(self, trainer: Trainer, *, rewrite_model: bool = False) -> None:
        """Restore the trainer from the checkpoint, if there is one, with remarks on what changed since.
        `rewrite_model`: write it as it was trained, if its checkpoint is still there."""
        if self.checkpoint is not None:
            best_step = self.checkpoint.state.best_step
            has_model = (self.folder / MODEL).is_dir()
            if rewrite_model or not has_model:
                has_model = self._write_best_model(trainer, best_step) or has_model
            trainer.resume(self.checkpoint, str(self.folder / CHECKPOINTS))
            if not trainer.has_ended:
                trainer.emit(Resumed(differences=self._differences(self.checkpoint.machine)))
            self.checkpoint = None  # frees its tensors
            # All processes agree: one may see the model that another is writing already.
            if self.process.distributed.sum(torch.tensor(float(not has_model), device=self.device)):
                if best_step is not None:
                    trainer.forget_best()
                trainer.policy.save_model()
        keys = [f"{section}.{name}" for section, values in self.record.config.items() for name in values]
        for remark in renamed_keys(keys):
            trainer.remark(remark)
        for reason in self.damaged_checkpoints:
            trainer.remark(Remark(reason.code, f"skipped a damaged checkpoint: {reason}"))

    def _write_best_model(self, trainer: Trainer, step: int | None) -> bool:
        """From the checkpoint of this step. Returns whether it is there."""
        if step is None:
            return False
        place = self.folder / CHECKPOINTS / f"step-{step:08}"
        try:
            best = read_checkpoint(place, self.record.identity)
        except BertworksError:
            return False
        restore(trainer.module, trainer.optimizer, best, str(place))
        trainer.policy.save_model()
        return True

    def _differences(self, before: JsonObject) -> list[str]:
        """What has changed since the checkpoint was written, so that equal bits are not guaranteed."""
        machine = self.machine
        changed = [name for name in BITWISE_FIELDS if before.get(name) != machine[name]]
        return [f"{name}: {before.get(name)} then, {machine[name]} now" for name in changed]


@contextmanager
def open_run(
    record: RunRecord,
    config: LoopConfig,
    folder: Path,
    process: ProcessContext,
    *,
    new: bool,
    start: Workbench | None = None,
    rows: Mapping[str, Path] | None = None,
) -> Iterator[RunContext]:
    """The folder of a run, locked, with its newest intact checkpoint. Threads are set on the command line only."""
    distributed = process.distributed
    owns_process = process.runtime.owns_process
    device = choose_device(process.device or config.device, distributed.local_rank)
    check_precision(config, device)
    if new and config.threads is not None and not owns_process:
        cause = "train.threads is for the command line"
        remedy = "torch.set_num_threads(n) before the call"
        raise BadConfig(cause, remedy=remedy, code="no-effect", fields=["train.threads"])
    lock = locked(folder) if distributed.is_main else nullcontext()  # only the main process writes to the folder
    with preserved_rng(process.runtime, device), process_group(distributed, device), lock:
        if new and distributed.is_main:
            check_new(folder, record, restarted=distributed.restarts > 0)
        checkpoint, damaged = _checkpoint_to_resume(folder, record.identity, distributed, device)
        if not new and checkpoint is None and any(event.step for event in read_events(folder / METRICS)):
            cause = "the checkpoints of this run are gone"
            remedy = "start a new run; RUN/model can be its initial model"
            raise BadCheckpoint(cause, place=str(folder), remedy=remedy, code="checkpoints-lost")
        if owns_process:
            threads = checkpoint.machine["threads"] if checkpoint else config.threads
            set_threads(process.threads or threads, distributed.local_world_size)
        machine = environment(device, distributed.world_size)
        machine["keeps_freed_memory"] = owns_process and keep_freed_memory()
        run = RunContext(folder, record, process, device, machine, checkpoint, damaged, start, rows or {})
        try:
            yield run
        finally:
            if run.log is not None:
                run.log.close()


def keep_rows(rows: Mapping[str, Path], folder: Path) -> None:
    """Copy examples that were given as rows into a new run, so that it can be resumed."""
    for split, file in rows.items():
        (folder / DATA).mkdir(exist_ok=True)
        with file.open("rb") as source, atomic_write(folder / DATA / f"{split}.jsonl") as target:
            shutil.copyfileobj(source, target)


def check_new(folder: Path, record: RunRecord, *, restarted: bool) -> None:
    """The folder of a new run must be empty; after a restart by torchrun, it may hold this very run."""
    if (folder / RUN).is_file():
        if restarted and RunRecord.model_validate(read_json(folder / RUN)).identity == record.identity:
            return
        remedy = f"`bertworks resume {folder}` continues it; or name another"
        raise SaveFailed("there is a run here already", place=str(folder), remedy=remedy, code="run-exists")
    if any(path.name != ".lock" for path in folder.iterdir()):
        raise SaveFailed("this folder is not empty", place=str(folder), remedy="name a new one", code="not-empty")


def _checkpoint_to_resume(
    folder: Path, identity: str, distributed: Distributed, device: torch.device
) -> tuple[Checkpoint | None, list[Remark]]:
    """The newest intact checkpoint, the same for every process, and why newer ones could not be read."""
    checkpoint, damaged = newest_checkpoint(folder / CHECKPOINTS, identity)
    if checkpoint is None and damaged:
        cause = "no checkpoint of this run is intact:\n  " + "\n  ".join(map(str, damaged.values()))
        raise BadCheckpoint(cause, place=str(folder))
    step = checkpoint.state.step if checkpoint else -1
    if int(distributed.sum(torch.tensor(step, device=device))) != step * distributed.world_size:
        remedy = "they need the same folder, on a shared disk"
        raise BadCheckpoint("the processes see different checkpoints", place=str(folder), remedy=remedy)
    if distributed.is_main and (folder / CHECKPOINTS).is_dir():
        tidy_checkpoints(folder / CHECKPOINTS, damaged)
    return checkpoint, list(damaged.values())
