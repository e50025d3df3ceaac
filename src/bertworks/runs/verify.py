"""The promise of equal bits, tried on a run's own configuration: real processes, one of them killed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertworks.errors import BertworksError, Unsupported
from bertworks.runs.record import FINETUNE, PRETRAIN, RunRecord
from bertworks.train.checkpoint import CHECKPOINTS, OPTIMIZER, WEIGHTS, list_checkpoints

LONGEST = 4096  # steps to try when steps are too quick to be interrupted


@dataclass(frozen=True)
class ResumeProof:
    undisturbed: str
    resumed: str
    steps: int
    killed_after: int

    @property
    def same(self) -> bool:
        return self.undisturbed == self.resumed


def verify_resume(run: Path, steps: int) -> ResumeProof:
    """Train `steps` steps twice, once undisturbed and once killed in the middle and resumed; hash what came of it."""
    record = RunRecord.read(run, PRETRAIN, FINETUNE)
    while steps <= LONGEST:
        with tempfile.TemporaryDirectory(
            prefix=".verify-", dir=run.resolve().parent
        ) as folder:  # on the disk of the run
            try:
                return _trial(record, steps, Path(folder))
            except _TooQuick:
                steps *= 4
    raise Unsupported("the steps of this run are too quick to be interrupted", place=str(run))


class _TooQuick(Exception):
    pass


def _trial(record: RunRecord, steps: int, folder: Path) -> ResumeProof:
    middle = steps // 2
    limits: dict[str, Any] = {
        "steps": steps,
        "epochs": None,
        "budget": None,
        "checkpoint_every": middle,
        "keep_checkpoints": 3,
        "evaluations": 0,
    }
    undisturbed, killed = folder / "undisturbed", folder / "killed"
    for run in (undisturbed, killed):
        run.mkdir()
        record.with_loop(**limits).write(run)
    _wait(_resume(undisturbed))
    victim, checkpoints = _resume(killed), killed / CHECKPOINTS
    while victim.poll() is None and not (checkpoints / f"step-{middle:08}").is_dir():
        time.sleep(0.002)
    victim.kill()
    victim.communicate()
    if (checkpoints / f"step-{steps:08}").is_dir():
        raise _TooQuick
    killed_after = max((step for step, _ in list_checkpoints(checkpoints)), default=0)
    _wait(_resume(killed))
    first, second = (_digest(run / CHECKPOINTS / f"step-{steps:08}") for run in (undisturbed, killed))
    return ResumeProof(first, second, steps, killed_after)


def _resume(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bertworks", "resume", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _wait(process: subprocess.Popen[bytes]) -> None:
    said = process.communicate()[1].decode(errors="replace")
    if process.returncode:
        raise BertworksError(f"a trial run ended with code {process.returncode}: {said[-2000:]}")


def _digest(checkpoint: Path) -> str:
    digests = []
    for name in (WEIGHTS, OPTIMIZER):
        with (checkpoint / name).open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").digest())
    return hashlib.sha256(b"".join(digests)).hexdigest()
