"""The promise of equal bits, tried on a run's own configuration: real processes, one of them killed."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertworks.errors import BertworksError, Unsupported
from bertworks.files import write_json
from bertworks.runs.pretrain import CHECKPOINTS, RUN, read_run
from bertworks.train.checkpoint import OPTIMISER, WEIGHTS, list_checkpoints

LONGEST = 4096  # steps to try when steps are too quick to be interrupted


@dataclass(frozen=True)
class Proof:
    undisturbed: str
    resumed: str
    steps: int
    killed_after: int

    @property
    def same(self) -> bool:
        return self.undisturbed == self.resumed


def verify_resume(run: Path, steps: int) -> Proof:
    """Train `steps` steps twice, once undisturbed and once killed in the middle and resumed; hash what came of it."""
    record = read_run(run)
    while steps <= LONGEST:
        with tempfile.TemporaryDirectory(prefix="bertworks-verify-") as folder:
            try:
                return _try(record, steps, Path(folder))
            except _TooQuick:
                steps *= 4
    raise Unsupported("the steps of this run are too quick to be interrupted", place=str(run))


class _TooQuick(Exception):
    pass


def _try(record: dict[str, Any], steps: int, folder: Path) -> Proof:
    config, middle = record["config"], steps // 2
    limits = {"steps": steps, "epochs": None, "budget": None, "checkpoint_every": middle, "keep": 3, "evaluations": 0}
    for name in ("undisturbed", "killed"):
        write_json(_made(folder / name) / RUN, {**record, "config": {**config, "train": {**config["train"], **limits}}})
    _resume(folder / "undisturbed").wait_for_end()
    victim, checkpoints = _resume(folder / "killed"), folder / "killed" / CHECKPOINTS
    while victim.running() and not (checkpoints / f"step-{middle:08}").is_dir():
        time.sleep(0.002)
    victim.kill()
    if (checkpoints / f"step-{steps:08}").is_dir():
        raise _TooQuick
    killed_after = max((step for step, _ in list_checkpoints(checkpoints)), default=0)
    _resume(folder / "killed").wait_for_end()
    undisturbed, resumed = (_digest(folder / name / CHECKPOINTS / f"step-{steps:08}") for name in ("undisturbed", "killed"))
    return Proof(undisturbed, resumed, steps, killed_after)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@dataclass(frozen=True)
class _Process:
    process: subprocess.Popen[bytes]

    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        if self.running():
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_for_end(self) -> None:
        _, said = self.process.communicate()
        if self.process.returncode:
            raise BertworksError(f"a trial run ended with code {self.process.returncode}: {said.decode(errors='replace')[-2000:]}")


def _resume(folder: Path) -> _Process:
    command = [sys.executable, "-m", "bertworks", "resume", str(folder)]
    return _Process(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))


def _digest(checkpoint: Path) -> str:
    return hashlib.sha256(b"".join((checkpoint / name).read_bytes() for name in (WEIGHTS, OPTIMISER))).hexdigest()
