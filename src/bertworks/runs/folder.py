"""A run is a folder, whatever is trained in it:

RUN/run.json        what is trained, on what, where; written before the first step
    checkpoints/    where it can go on
    metrics.jsonl   what happened
    model/          the best so far, as a Hugging Face folder
    report.html     what came of it
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bertworks import __version__
from bertworks.config import LoopConfig
from bertworks.errors import BadCheckpoint, BadConfig, BertworksError, NotFound, Remark, SaveFailed
from bertworks.files import locked, new_folder, read_json, write_json
from bertworks.model.locate import MODEL, RUN
from bertworks.train.checkpoint import Checkpoint, newest_checkpoint, tidy_checkpoints
from bertworks.train.log import METRICS, Log, Watch, read_events
from bertworks.train.machine import check_precision, choose_device, environment, keep_freed_memory, set_threads
from bertworks.train.ranks import Ranks, together
from bertworks.train.signals import Stop, listening
from bertworks.train.trainer import Trainer
from bertworks.workbench import Workbench, load

CHECKPOINTS = "checkpoints"
FORMAT = 1
BITS = ("bertworks", "torch", "numpy", "processor", "device", "threads", "world_size")  # what the promise of equal bits depends on
Record = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """0, or the signal that stopped it; `asked`: the same, or one that came too late to."""

    signal: int
    folder: Path
    asked: int = 0

    @property
    def exit_code(self) -> int:
        return 128 + self.signal if self.signal else 0


def new_record(kind: str, config: Any, **about: Any) -> Record:
    return {
        "format": FORMAT,
        "written_by": f"bertworks {__version__}",
        "kind": kind,
        **about,
        "config": config.model_dump(mode="json"),
    }


def named(model: str | None) -> str | None:
    """A model's name for the record: a folder's from the root, so that it is found again from anywhere."""
    return str(Path(model).resolve()) if model is not None and Path(model).exists() else model


def read_run(out: Path, *kinds: str) -> Record:
    """The record of a run; of one of these kinds, if any are named."""
    if not (out / RUN).is_file():
        remedy = "`bertworks pretrain` and `bertworks finetune` make them"
        raise NotFound("no run in this folder", place=str(out), remedy=remedy, code="not-a-run")
    record = read_json(out / RUN)
    missing = {"format", "kind", "data", "config", "init"} - record.keys()
    if missing or record["format"] != FORMAT or not isinstance(record["kind"], str):
        raise BadConfig("not the record of a run that this version knows", place=str(out / RUN))
    if kinds and record["kind"] not in kinds:
        raise BadConfig(f"this is a run of {record['kind']}, not of {' or '.join(kinds)}", place=str(out))
    return record


def identity(record: Record) -> str:
    """By which a run knows its own checkpoints: what it learns, from what, and how."""
    config = {**record["config"], "train": {name: value for name, value in record["config"]["train"].items() if name != "workers"}}
    return hashlib.sha256(json.dumps([config, record["data"], record.get("preset")], sort_keys=True).encode()).hexdigest()


@dataclass
class Opened:
    """A run's folder while this process has it, alone or with those that it trains together with."""

    out: Path
    record: Record
    ranks: Ranks
    device: torch.device
    stop: Stop
    machine: dict[str, Any]
    checkpoint: Checkpoint | None  # to go on from
    passed_over: list[Remark]  # what was wrong with newer ones
    watch: Watch

    def begin(self) -> Log | None:
        """Write the record of a new run, and open its log."""
        if self.ranks.first and self.checkpoint is None:
            write_json(self.out / RUN, {**self.record, "environment": self.machine})
            if not (self.out / CHECKPOINTS).is_dir():
                with new_folder(self.out / CHECKPOINTS):
                    pass
        since = self.checkpoint.state.step if self.checkpoint else -1
        return Log(self.out, self.watch, since=since) if self.ranks.first else None

    def origin(self) -> Workbench | None:
        """The model that a run began with, for its weights; later its own, for what stands beside the weights in a folder."""
        if self.checkpoint is not None and (self.out / MODEL).exists():
            try:
                own = load(self.out / MODEL)
                own.lineage.pop()  # that it was loaded: it goes on
                return own
            except BertworksError:  # the checkpoint has all the weights; a new one will be written
                shutil.rmtree(self.out / f"damaged-{MODEL}", ignore_errors=True)
                with suppress(OSError):  # another process may have been faster
                    (self.out / MODEL).rename(self.out / f"damaged-{MODEL}")
        return load(self.record["init"]) if self.record["init"] is not None else None

    def lineage(self, start: Workbench | None, step: str) -> list[str]:
        """How the run's model came to be; the run itself is the last step."""
        before = start.lineage if start is not None else [f"new {self.record['preset']}"]
        return [*before, step] if before[-1] != step else before

    def go_on(self, trainer: Trainer) -> None:
        """Put the trainer where the run stood, and say so."""
        if self.checkpoint is not None:
            trainer.resume(self.checkpoint, str(self.out / CHECKPOINTS))
            trainer.say({"kind": "resumed", "differences": self._differences(self.checkpoint)})
            self.checkpoint = None  # its tensors
            if not (self.out / MODEL).is_dir():
                trainer.save_model()
        for reason in self.passed_over:
            text = f"passed over a damaged checkpoint: {reason}"
            trainer.say({"kind": "remark", "code": "checkpoint-passed-over", "reason": reason.code, "text": text})

    def _differences(self, checkpoint: Checkpoint) -> list[str]:
        """What is other than when the checkpoint was written, so that equal bits are not promised."""
        before, now = checkpoint.machine, self.machine
        return [f"{name}: {before.get(name)} then, {now[name]} now" for name in BITS if before.get(name) != now[name]]


@contextmanager
def opened(record: Record, config: LoopConfig, out: Path, ranks: Ranks, watch: Watch, *, new: bool) -> Iterator[Opened]:
    """The folder of a run, locked, with its newest whole checkpoint; threads and signals are set."""
    device = choose_device(config, ranks.local_rank)
    check_precision(config, device)
    with together(ranks, device), listening() as stop, _owned(out, ranks):
        if new and ranks.first:
            check_new(out, record, restarted=ranks.restarts > 0)
        checkpoint, passed_over = _newest(out, identity(record), ranks, device)
        if not new and checkpoint is None and any(event["step"] for event in read_events(out / METRICS)):
            remedy = "begin a new one; RUN/model can be its start"
            raise BadCheckpoint("this run has no checkpoint any more", place=str(out), remedy=remedy, code="checkpoints-lost")
        set_threads(checkpoint.machine["threads"] if checkpoint else config.threads, ranks.local_world)
        machine = {**environment(device, ranks.world), "keeps_freed_memory": keep_freed_memory()}
        yield Opened(out, record, ranks, device, stop, machine, checkpoint, passed_over, watch)


def _owned(out: Path, ranks: Ranks) -> AbstractContextManager[None]:
    """One process writes to the folder; the others of the same training follow it."""
    return locked(out) if ranks.first else nullcontext()


def check_new(out: Path, record: Record, *, restarted: bool) -> None:
    """Nothing of others is in the folder. What a process of this very run wrote before torchrun started it again may be."""
    if (out / RUN).is_file():
        there = {name: value for name, value in read_json(out / RUN).items() if name != "environment"}
        if restarted and there == record:
            return
        remedy = f"`bertworks resume {out}` goes on with it; or name another"
        raise SaveFailed("there is a run here already", place=str(out), remedy=remedy, code="run-exists")
    if any(path.name != ".lock" for path in out.iterdir()):
        raise SaveFailed("this folder is not empty", place=str(out), remedy="name a new one", code="not-empty")


def _newest(out: Path, run: str, ranks: Ranks, device: torch.device) -> tuple[Checkpoint | None, list[Remark]]:
    """The checkpoint to go on from, the same for every process, and what was wrong with newer ones."""
    checkpoint, broken = newest_checkpoint(out / CHECKPOINTS, run)
    if checkpoint is None and broken:
        raise BadCheckpoint("no checkpoint of this run is whole:\n  " + "\n  ".join(map(str, broken.values())), place=str(out))
    step = checkpoint.state.step if checkpoint else -1
    if int(ranks.sum(torch.tensor(step, device=device))) != step * ranks.world:
        raise BadCheckpoint("the processes see different checkpoints", place=str(out), remedy="they need the same folder, on a shared disk")
    if ranks.first and (out / CHECKPOINTS).is_dir():
        tidy_checkpoints(out / CHECKPOINTS, broken)
    return checkpoint, list(broken.values())
