"""Beside other busy processes: threads that sleep while they wait, load that is noticed, shares of a peak that is known."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bertworks.reports.pretrain import _mfu_figure
from bertworks.train import runtime
from bertworks.train import trainer as trainers
from bertworks.train.checkpoint import CHECKPOINTS
from bertworks.train.clock import Clock
from bertworks.train.events import Remarked
from bertworks.train.runtime import CpuTimes, PeakFlops, busy_machine, n_cores
from bertworks.train.trainer import Trainer
from commands import run
from test_trainer import small_trainer, trained_event
from training import digest, events, language_shards, train

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/stat, or what GNU's OpenMP prints")

# ---------------------------------------------------------------------- how threads wait


def spin_count(code: str, **variables: str) -> int:
    """How often a thread of torch's OpenMP looks whether it may go on, before it sleeps; as it says itself."""
    others = {n: value for n, value in os.environ.items() if n not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    environment = {**others, "OMP_DISPLAY_ENV": "verbose", **variables}
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    match = re.search(r"GOMP_SPINCOUNT = '(\d+)'", process.stderr)
    assert match is not None, process.stderr
    return int(match[1])


@LINUX
def test_threads_soon_sleep_while_they_wait() -> None:
    assert spin_count("import bertworks, torch") == 1000


@LINUX
def test_the_users_wait_policy_counts() -> None:
    assert spin_count("import bertworks, torch", OMP_WAIT_POLICY="active") > 1000
    assert spin_count("import bertworks, torch", OMP_WAIT_POLICY="passive") == 0
    assert spin_count("import bertworks, torch", GOMP_SPINCOUNT="7") == 7


@LINUX
def test_a_process_that_has_torch_is_left_as_it_is() -> None:
    """It is too late for its OpenMP, so its environment is not changed for nothing."""
    code = "import os, torch; before = dict(os.environ); import bertworks; assert dict(os.environ) == before"
    assert spin_count(code) > 1000


# ---------------------------------------------------------------------- threads


def test_resume_with_other_threads_says_that_bits_are_not_guaranteed(tmp_path: Path) -> None:
    shards = language_shards(tmp_path / "text", 20)
    train(shards, tmp_path / "run", "bert-mini", "train.evaluations=0", "train.checkpoint_every=2", steps=4)
    for name, arguments, differences in (
        ("same", (), []),
        ("other", ("--threads", "2"), ["threads: 1 then, 2 now"]),
    ):
        shutil.copytree(tmp_path / "run", tmp_path / name)
        shutil.rmtree(tmp_path / name / CHECKPOINTS / "step-00000004")
        run("resume", tmp_path / name, *arguments)
        assert events(tmp_path / name, "resume")[-1]["differences"] == differences


def test_the_tour_computes_with_the_threads_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from bertworks.cli.main import app

    before = torch.get_num_threads()
    used = []
    monkeypatch.setattr(
        "bertworks.cli.tour_stages.Tour.run", lambda *_, **__: used.append(torch.get_num_threads()) or 0
    )
    try:
        CliRunner().invoke(app, ["tour", "--threads", "3", "--out", str(tmp_path)], catch_exceptions=False)
    finally:
        torch.set_num_threads(before)
    assert used == [3]


# ---------------------------------------------------------------------- the load by others


@pytest.fixture
def busy_process() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield
    process.kill()
    process.wait()


@LINUX
def test_cores_that_others_keep_busy(busy_process: None) -> None:
    time.sleep(0.2)  # it starts
    before = CpuTimes.read()
    time.sleep(1.0)
    after = CpuTimes.read()
    assert before is not None and after is not None
    assert after.cores_of_others(before) > 0.3


def test_own_work_is_not_that_of_others() -> None:
    before = CpuTimes(cores=100.0, own=10.0, taken_at=50.0)
    assert CpuTimes(cores=120.0, own=30.0, taken_at=60.0).cores_of_others(before) == 0.0
    assert CpuTimes(cores=120.0, own=20.0, taken_at=60.0).cores_of_others(before) == 1.0


@pytest.mark.parametrize(
    ("threads", "cores_of_others", "is_said"), [(2, 1.0, True), (2, 0.3, False), (1, 1.0, False), (1, 1.9, True)]
)
def test_a_load_is_said_where_our_threads_have_no_room(
    threads: int, cores_of_others: float, is_said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    remark = busy_machine(cores_of_others)
    assert (remark is not None) == is_said
    assert remark is None or remark.code == "busy-machine"


def watching_trainer(folder: Path, monkeypatch: pytest.MonkeyPatch, own_share: float) -> tuple[Trainer, list[str]]:
    """Each reading is a minute after the one before; all cores were busy, `own_share` of it our own work."""
    minutes = iter(range(1, 100))
    cores = n_cores()

    def read() -> CpuTimes:
        seconds = 60.0 * next(minutes)
        return CpuTimes(cores * seconds, own_share * cores * seconds, seconds)

    monkeypatch.setattr(trainers.CpuTimes, "read", read)
    monkeypatch.setattr(torch, "get_num_threads", lambda: cores)
    trainer = small_trainer(folder, Clock(None, began=0.0))
    trainer.cpu_times = CpuTimes.read()
    codes: list[str] = []
    monkeypatch.setattr(trainer, "remark", lambda remark: codes.append(remark.code))
    return trainer, codes


def test_a_busy_machine_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, codes = watching_trainer(tmp_path, monkeypatch, own_share=0.4)
    for _ in range(3):
        trainer._watch_other_processes()
    assert codes == ["busy-machine"]


def test_an_idle_machine_is_not_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, codes = watching_trainer(tmp_path, monkeypatch, own_share=0.95)
    for _ in range(3):
        trainer._watch_other_processes()
    assert not codes


@LINUX
def test_a_training_beside_a_busy_process_says_so(
    tmp_path: Path, busy_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainers, "BUSY_SECONDS", 0.5)
    monkeypatch.setattr(runtime, "MIN_BUSY_CORES", 0.2)  # on a single core, two processes have half of it each
    monkeypatch.setattr(torch, "get_num_threads", n_cores)
    shards = language_shards(tmp_path / "text", 20)
    train(shards, tmp_path / "run", "bert-mini", "train.evaluations=0", "train.log_every=1", budget=4.0)
    codes = [event["code"] for event in events(tmp_path / "run", Remarked.kind)]
    assert codes.count("busy-machine") == 1


# ---------------------------------------------------------------------- shares of the peak


def test_the_peak_is_measured_again_if_a_training_is_faster() -> None:
    measured = iter((10.0, 40.0))
    peak = PeakFlops(lambda: next(measured))
    assert peak.mfu(5.0) == 0.5
    assert peak.mfu(20.0) == 0.5, "20 is more than the 10 measured at first"
    assert peak.mfu(5.0) == 0.125, "the better measurement is kept"
    assert peak.mfu(50.0) is None, "it is not measured a third time"
    assert peak.mfu(20.0) == 0.5


def test_a_worse_second_measurement_changes_nothing() -> None:
    measured = iter((10.0, 4.0))
    peak = PeakFlops(lambda: next(measured))
    assert peak.mfu(11.0) is None
    assert peak.mfu(5.0) == 0.5


def test_a_peak_measured_again_leaves_the_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a report says that it is not known, where it is below what the training has reached."""
    shards = language_shards(tmp_path / "text", 20)
    settings = ("train.evaluations=1", "train.log_every=1")
    train(shards, tmp_path / "first", "bert-mini", *settings, steps=4)
    calls = []

    def too_low(*_: object) -> float:
        calls.append(torch.randn(5))
        return 1.0

    monkeypatch.setattr("bertworks.runs.context.measure_peak_flops", too_low)
    train(shards, tmp_path / "second", "bert-mini", *settings, steps=4)
    assert len(calls) == 2
    assert digest(tmp_path / "first") == digest(tmp_path / "second")
    assert {event["mfu"] for event in events(tmp_path / "second", "train")} == {None}
    assert "peak FLOP/s could not be measured" in (tmp_path / "second/report.html").read_text()
    assert "(MFU)" in (tmp_path / "first/report.html").read_text()


def test_no_report_shows_more_than_the_peak() -> None:
    trained = [replace(trained_event(step), mfu=mfu) for step, mfu in enumerate((1.74, 0.5, None, 0.6, 0.7))]
    assert _mfu_figure(trained)[0] == "60%"
    assert _mfu_figure(trained[:1])[0] == "–"
