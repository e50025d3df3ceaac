"""Exact resume, verified with a run's own configuration: two real processes, one of which is killed and resumed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bertworks.errors import BertworksError, Unsupported
from bertworks.runs.finetune import stored_rows
from bertworks.runs.record import FINETUNE, PRETRAIN, RunRecord
from bertworks.train.checkpoint import CHECKPOINTS, OPTIMIZER, WEIGHTS, list_checkpoints

MAX_STEPS = 4096  # to which a trial grows, if fewer end before the process can be killed


@dataclass(frozen=True)
class ResumeProof:
    uninterrupted: str  # SHA-256 of weights and optimizer
    resumed: str
    steps: int
    killed_after: int

    @property
    def same(self) -> bool:
        return self.uninterrupted == self.resumed


def verify_resume(run: Path, steps: int, *, device: str | None = None, threads: int | None = None) -> ResumeProof:
    """Train `steps` steps twice, once uninterrupted and once killed in the middle and resumed; compare the hashes.
    `device`, `threads`: other than those of the run."""
    record = _with_absolute_paths(RunRecord.read(run, PRETRAIN, FINETUNE), run.resolve())
    options = {"--device": device, "--threads": threads}
    arguments = [str(part) for option, value in options.items() if value is not None for part in (option, value)]
    parent = run.resolve().parent  # on the same disk as the run
    while True:
        with tempfile.TemporaryDirectory(prefix=".verify-", dir=parent) as folder:
            try:
                return _trial(record, steps, Path(folder), arguments)
            except _EndedBeforeKill:
                steps *= 4
        if steps > MAX_STEPS:
            cause = "the steps of this run are too fast: it finishes before it can be killed"
            raise Unsupported(cause, place=str(run), remedy=f"more of them: --steps {steps}", code="steps-too-fast")


class _EndedBeforeKill(Exception):
    pass


def _with_absolute_paths(record: RunRecord, run: Path) -> RunRecord:
    """For a trial in another folder: examples that were given as rows are kept in the run."""
    rows = {split: str(file) for split, file in stored_rows(record, run).items()}
    return record.model_copy(update={"source": {**record.source, **rows}}) if record.source is not None else record


def _trial(record: RunRecord, steps: int, folder: Path, arguments: list[str]) -> ResumeProof:
    middle = steps // 2
    trial = record.with_loop(
        steps=steps, epochs=None, budget=None, checkpoint_every=middle, keep_checkpoints=3, evaluations=0
    )
    uninterrupted = folder / "uninterrupted"
    killed = folder / "killed"
    for run in (uninterrupted, killed):
        run.mkdir()
        trial.write(run)
    _wait(_resume(uninterrupted, arguments))
    checkpoints = killed / CHECKPOINTS
    process = _resume(killed, arguments)
    while process.poll() is None and not (checkpoints / f"step-{middle:08}").is_dir():
        time.sleep(0.002)
    process.kill()
    process.communicate()
    if (checkpoints / f"step-{steps:08}").is_dir():
        raise _EndedBeforeKill
    killed_after = max((step for step, _ in list_checkpoints(checkpoints)), default=0)
    _wait(_resume(killed, arguments))
    digests = [_digest(run / CHECKPOINTS / f"step-{steps:08}") for run in (uninterrupted, killed)]
    return ResumeProof(digests[0], digests[1], steps, killed_after)


def _resume(folder: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bertworks", "resume", str(folder), *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _wait(process: subprocess.Popen[bytes]) -> None:
    stderr = process.communicate()[1].decode(errors="replace")
    if process.returncode:
        raise BertworksError(f"a trial run ended with exit code {process.returncode}: {stderr[-2000:]}")


def _digest(checkpoint: Path) -> str:
    digests = []
    for name in (WEIGHTS, OPTIMIZER):
        with (checkpoint / name).open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").digest())
    return hashlib.sha256(b"".join(digests)).hexdigest()
