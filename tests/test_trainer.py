"""The loop: exact sums, exact resume, learning rates, the clock, signals, and numbers that are not finite."""

from __future__ import annotations

import json
import math
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import bertworks
from bertworks.config import DataConfig, LoopConfig, OptimConfig
from bertworks.data.batches import BatchStream, RankShard, Step, split
from bertworks.data.loader import Loader, PretrainBatch
from bertworks.data.shards import Shards
from bertworks.errors import BadCheckpoint, BadShards, Diverged, SaveFailed
from bertworks.files import locked
from bertworks.model.locate import RUN
from bertworks.model.loss import Loss, Trainable
from bertworks.model.partial_embedding import PartialEmbedding
from bertworks.objectives.masked import Masked
from bertworks.objectives.table import OBJECTIVES
from bertworks.runs import pretrain as runs
from bertworks.runs.pretrain import best_metrics
from bertworks.train.checkpoint import CHECKPOINTS, WEIGHTS, State, list_checkpoints
from bertworks.train.clock import Clock
from bertworks.train.distributed import Distributed
from bertworks.train.events import BEST_MODEL_LOST, Evaluated, Event, Log, Remarked, Trained, ignore, read_events
from bertworks.train.optim import learning_rate, make_optimizer
from bertworks.train.policy import EvaluationPolicy
from bertworks.train.runtime import Runtime, StopRequest, own_process, set_threads
from bertworks.train.trainer import TrainContext, Trainer
from commands import forked, ranks
from in_float64 import use_float64
from refusals import refused
from texts import make_shards
from training import TINY, digest, events, language_shards, language_tokenizer, overridden, resume_run, train

BERTWORKS = str(Path(sys.executable).parent / "bertworks")
PRESETS = {
    "mlm+nsp": "bert-mini",
    "rtd": "electra-mini",
    "plm": "xlnet-mini",
    "ltr": "gpt-mini",
    "mlm+sop": "albert-mini",
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return language_shards(tmp_path_factory.mktemp("language"), 40)


def weights(out: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(out / CHECKPOINTS / f"step-{step:08}" / WEIGHTS)


# ---------------------------------------------------------------------- learning rate and optimiser


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("linear", {0.0: 0.0, 0.05: 0.5, 0.1: 1.0, 0.55: 0.5, 1.0: 0.0}),
        ("cosine", {0.0: 0.0, 0.05: 0.5, 0.1: 1.0, 0.55: 0.5, 0.325: 0.853553, 1.0: 0.0}),
        ("constant", {0.0: 0.0, 0.05: 0.5, 0.1: 1.0, 0.7: 1.0, 0.8: 1.0, 0.9: 0.5, 1.0: 0.0}),
    ],
)
def test_learning_rate_schedules(schedule: Any, expected: dict[float, float]) -> None:
    config = OptimConfig(lr=2e-3, warmup=0.1, cooldown=0.2, schedule=schedule)
    for progress, fraction in expected.items():
        assert learning_rate(config, progress) == pytest.approx(2e-3 * fraction, abs=1e-9), progress


def test_weight_decay_is_for_matrices_only() -> None:
    module = nn.ModuleDict({"linear": nn.Linear(3, 2), "norm": nn.LayerNorm(2), "table": nn.Embedding(5, 2)})
    module.register_parameter("content_bias", nn.Parameter(torch.zeros(2, 2)))
    optimiser = make_optimizer(module, OptimConfig(weight_decay=0.3))
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    decays = {names[id(p)]: group["weight_decay"] for group in optimiser.param_groups for p in group["params"]}
    assert {name for name, decay in decays.items() if decay} == {"linear.weight", "table.weight"}
    assert len(decays) == 6


def test_adamw_by_hand() -> None:
    """Two steps of Loshchilov and Hutter's algorithm 2, in float64."""
    parameter = nn.Parameter(torch.tensor([[1.0, -2.0]], dtype=torch.float64))
    module = nn.Module()
    module.register_parameter("weight", parameter)
    config = OptimConfig(lr=0.1, beta1=0.9, beta2=0.98, eps=1e-6, weight_decay=0.05)
    optimiser = make_optimizer(module, config)
    x = np.array([1.0, -2.0])
    m = np.zeros(2)
    v = np.zeros(2)
    for step, gradient in enumerate(([0.3, -0.1], [0.2, 0.4]), start=1):
        parameter.grad = torch.tensor([gradient], dtype=torch.float64)
        optimiser.step()
        g = np.array(gradient)
        m = 0.9 * m + 0.1 * g
        v = 0.98 * v + 0.02 * g * g
        x = x - 0.1 * 0.05 * x - 0.1 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.98**step)) + 1e-6)
    assert np.allclose(parameter.detach().numpy()[0], x, rtol=1e-12)


# ---------------------------------------------------------------------- the clock


class Machine:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def drive(clock: Clock, machine: Machine, pace: Any, max_steps: int = 100_000) -> tuple[int, float]:
    step, progress = 0, 0.0
    clock.first_pace = pace(0.0)
    clock.tick()
    while (left := clock.steps_left()) and step < max_steps:
        progress += (1 - progress) / left
        machine.time += pace(progress)
        clock.tick()
        clock.new_plan(step)
        step += 1
    return step, progress


PACES = {
    "steady": lambda p: 0.5,
    "slower later": lambda p: 0.5 if p < 0.5 else 1.0,
    "a pause": lambda p: 2.0 if 0.3 < p < 0.35 else 0.2,
    "ever slower": lambda p: 0.05 + p,
}


@pytest.mark.parametrize("pace", PACES)
def test_a_time_budget_is_kept(pace: str) -> None:
    machine = Machine()
    clock = Clock(300.0, began=machine.time, now=machine)
    clock.reserve = 4.0
    steps, progress = drive(clock, machine, PACES[pace])
    assert abs(clock.elapsed + clock.reserve - 300.0) < 0.03 * 300.0
    assert progress > 0.9 and steps > 10


def test_seconds_before_a_resume_count_towards_the_budget() -> None:
    machine = Machine()
    clock = Clock(100.0, began=machine.time, now=machine)
    clock.seconds_before = 60.0
    drive(clock, machine, lambda p: 0.5)
    assert machine.time - 1000.0 == pytest.approx(40.0, abs=1.0)


def test_a_new_plan_is_reported_when_it_changes() -> None:
    machine = Machine()
    clock = Clock(100.0, began=machine.time, now=machine)
    clock.first_pace = 1.0
    assert clock.new_plan(0) == 100
    assert clock.new_plan(0) is None
    machine.time += 50.0
    assert clock.new_plan(10) == 60


# ---------------------------------------------------------------------- batches


def test_splitting_a_batch() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        lengths = np.sort(rng.integers(1, 60, rng.integers(1, 40)))
        n_parts = int(rng.integers(1, 9))
        ranges = split(lengths, n_parts)
        assert [begin for begin, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
        assert ranges[-1][1] == len(lengths)
        if len(lengths) >= n_parts:
            assert all(end > begin for begin, end in ranges)
            assert max(lengths[begin:end].sum() for begin, end in ranges) <= lengths.sum() / n_parts + 2 * lengths.max()


@pytest.mark.parametrize(("world", "micro_tokens"), [(1, 70), (2, None), (2, 50), (3, 40)])
def test_global_batches_do_not_depend_on_the_world_size(
    world: int, micro_tokens: int | None, shards: Shards, tmp_path: Path
) -> None:
    loader = Loader(shards, DataConfig(max_length=32), batch_tokens=200, seed=3, cache=tmp_path)
    single = BatchStream(loader, RankShard())((0, 0))
    streams = [BatchStream(loader, RankShard(rank, world, micro_tokens))((0, 0)) for rank in range(world)]
    for _ in range(len(loader.epoch(0)) + 3):
        step = next(single)
        steps = [next(stream) for stream in streams]
        counted = [
            micro_batch.batch
            for rank_step in steps
            for micro_batch in rank_step.micro_batches
            if micro_batch.is_counted
        ]
        assert np.array_equal(np.concatenate([batch.ids for batch in counted]), step.micro_batches[0].batch.ids)
        assert np.array_equal(np.concatenate([batch.examples for batch in counted]), step.example_ids)
        assert {rank_step.cursor for rank_step in steps} == {step.cursor}
        assert {rank_step.tokens for rank_step in steps} == {step.tokens}


def test_loader_workers_change_nothing(shards: Shards, tmp_path: Path) -> None:
    loader = Loader(shards, DataConfig(max_length=32), batch_tokens=400, seed=3, cache=tmp_path)
    cursor = (0, len(loader.epoch(0)) - 3)  # over the edge of an epoch
    for step, prefetched, _ in zip(
        BatchStream(loader, RankShard())(cursor),
        BatchStream(loader, RankShard(), workers=2)(cursor),
        range(8),
        strict=False,
    ):
        assert (step.cursor, step.next_cursor, step.epochs_done, step.example_ids) == (
            prefetched.cursor,
            prefetched.next_cursor,
            prefetched.epochs_done,
            prefetched.example_ids,
        )
        for a, b in zip(step.micro_batches, prefetched.micro_batches, strict=True):
            assert np.array_equal(a.batch.ids, b.batch.ids)
            assert np.array_equal(a.batch.targets, b.batch.targets)


def test_nothing_to_train_on(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, ["Qz."], language_tokenizer())
    with refused("no-text", kind=BadShards):
        train(shards, tmp_path / "run", "roberta-mini", "model.n_segments=2", "data.short_seq_prob=0", steps=1)


# ---------------------------------------------------------------------- exact


@pytest.fixture
def float64() -> Any:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("objective", ["mlm+nsp", "rtd"])
def test_gradient_accumulation_is_exact(objective: str, shards: Shards, tmp_path: Path, float64: None) -> None:
    """One micro-batch or eight, several loss terms, uneven counts: the same gradients, so the same weights."""
    for name, micro_tokens in (("full_batch", "null"), ("accumulated", "64")):
        settings = [
            "train.dropout=0.0",
            f"train.micro_tokens={micro_tokens}",
            "train.evaluations=0",
            "data.mask_rate=0.05",
        ]
        train(shards, tmp_path / name, PRESETS[objective], *settings, objective=objective, steps=5)
    full_batch = weights(tmp_path / "full_batch", 5)
    accumulated = weights(tmp_path / "accumulated", 5)
    assert max(float((full_batch[name] - accumulated[name]).abs().max()) for name in full_batch) < 1e-9
    initial = weights(tmp_path / "full_batch", 0)
    assert max(float((full_batch[name] - initial[name]).abs().max()) for name in full_batch) > 1e-3, (
        "the weights were trained"
    )


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["data.mask_rate=0.02", "data.max_length=16", "train.batch_tokens=64"],  # processes without a target
        ["data.max_length=48", "train.batch_tokens=48"],  # processes without an example, and so without a pair
        ["train.micro_tokens=64"],
    ],
    ids=["plain", "no targets", "no examples", "micro-batches"],
)
def test_two_processes_train_as_one(settings: list[str], shards: Shards, tmp_path: Path) -> None:
    """Two processes against one, in float64 without dropout, ten steps; by torchrun itself where nothing else is set."""
    all_settings = overridden(*TINY, "train.evaluations=1", "train.keep_checkpoints=9", *settings)
    arguments = ["pretrain", str(shards.folder), "--preset", "bert-mini", "--steps", "10"]
    arguments += [part for setting in all_settings for part in ("--set", setting)]
    processes = [forked(*arguments, "--out", tmp_path / "one", before=use_float64)]
    if settings:
        processes += ranks(*arguments, "--out", tmp_path / "two", port=free_port(), before=use_float64)
    else:
        script = str(Path(__file__).with_name("in_float64.py"))
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        torchrun += ["--master-port", str(free_port()), script, *arguments, "--out", str(tmp_path / "two")]
        processes.append(subprocess.run(torchrun, capture_output=True, text=True))
    for process in processes:
        assert process.returncode == 0, process.stderr
    single = weights(tmp_path / "one", 10)
    double = weights(tmp_path / "two", 10)
    assert max(float((single[name] - double[name]).abs().max()) for name in single) < 1e-9
    assert (
        max(float((single[name] - initial).abs().max()) for name, initial in weights(tmp_path / "one", 0).items())
        > 1e-3
    )
    eval_losses = [events(tmp_path / name, "eval")[-1]["metrics"]["masked"] for name in ("one", "two")]
    assert eval_losses[0] == pytest.approx(eval_losses[1], abs=1e-9)


def test_buffers_are_not_broadcast(tmp_path: Path) -> None:
    """Most of a partial embedding is a buffer: to broadcast it before every step would cost more than the step."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        wrapped = Distributed(world_size=2).wrap(PartialEmbedding(torch.randn(50, 4), torch.arange(3)))
        assert isinstance(wrapped, DistributedDataParallel)
        assert not wrapped.will_sync_module_buffers()
    finally:
        dist.destroy_process_group()


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ---------------------------------------------------------------------- resume


class Stopped(Exception):
    pass


def interrupt(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Training ends after so many steps without saving anything."""
    train_step = runs.Trainer._train_step

    def train_step_or_stop(self: Any, *args: Any) -> None:
        if self.state.step == after:
            raise Stopped
        train_step(self, *args)

    monkeypatch.setattr(runs.Trainer, "_train_step", train_step_or_stop)


@pytest.mark.parametrize("objective", PRESETS)
@pytest.mark.parametrize("micro_tokens", ["null", "128"])
def test_resume_is_exact(
    objective: str, micro_tokens: str, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped within an epoch and after its end, with other loader workers: the same bits as uninterrupted."""
    settings = [
        f"train.micro_tokens={micro_tokens}",
        "train.checkpoint_every=3",
        "train.dropout=0.1",
        "train.evaluations=2",
        "train.keep_checkpoints=9",
    ]
    settings += ["train.batch_tokens=2048"]
    train(shards, tmp_path / "uninterrupted", PRESETS[objective], *settings, objective=objective, steps=14)
    last = json.loads((tmp_path / "uninterrupted" / CHECKPOINTS / "step-00000014" / "state.json").read_text())["state"]
    assert last["epoch"] >= 1, "the run must pass the end of an epoch"
    out = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        interrupt(patch, after=5)
        with pytest.raises(Stopped):
            train(shards, out, PRESETS[objective], *settings, objective=objective, steps=14)
    with monkeypatch.context() as patch:
        interrupt(patch, after=13)
        with pytest.raises(Stopped):
            resume_run(out, workers=1)
    resume_run(out)
    assert digest(out) == digest(tmp_path / "uninterrupted")
    assert (out / "model" / "model.safetensors").read_bytes() == (
        tmp_path / "uninterrupted" / "model" / "model.safetensors"
    ).read_bytes()
    for kind in ("eval", "checkpoint"):
        lines = [
            [(event["step"], event.get("metrics", {}).get("loss")) for event in events(run, kind)]
            for run in (out, tmp_path / "uninterrupted")
        ]
        assert lines[0] == lines[1], "no line is lost or written twice"


def test_a_damaged_checkpoint_is_skipped(shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ["train.checkpoint_every=3", "train.evaluations=0", "train.keep_checkpoints=9"]
    train(shards, tmp_path / "uninterrupted", "bert-mini", *settings, steps=8)
    out = tmp_path / "damaged"
    with monkeypatch.context() as patch:
        interrupt(patch, after=7)
        with pytest.raises(Stopped):
            train(shards, out, "bert-mini", *settings, steps=8)
    path = out / CHECKPOINTS / "step-00000006" / WEIGHTS
    path.write_bytes(path.read_bytes()[:-1])
    resume_run(out)
    assert digest(out) == digest(tmp_path / "uninterrupted")
    remark = events(out, "remark")[0]
    assert remark["code"] == "changed-file" and "step-00000006" in remark["text"]


def test_other_shards_are_refused(shards: Shards, tmp_path: Path) -> None:
    train(shards, tmp_path / "run", "bert-mini", "train.evaluations=0", steps=1)
    other = language_shards(tmp_path / "other", 30)
    record = json.loads((tmp_path / "run" / RUN).read_text())
    (tmp_path / "run" / RUN).write_text(json.dumps({**record, "shards": str(other.folder)}))
    with refused("shards-changed", place=str(other.folder), kind=BadShards):
        resume_run(tmp_path / "run")


def test_lost_checkpoints_are_not_a_fresh_start(shards: Shards, tmp_path: Path) -> None:
    train(shards, tmp_path / "run", "bert-mini", "train.evaluations=0", "train.log_every=1", steps=2)
    shutil.rmtree(tmp_path / "run" / CHECKPOINTS)
    with refused("checkpoints-lost", place=str(tmp_path / "run"), kind=BadCheckpoint):
        resume_run(tmp_path / "run")


@pytest.mark.parametrize("damage", ["missing", "config", "weights"])
def test_a_damaged_model_folder_is_written_again(
    damage: str, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        interrupt(patch, after=3)
        with pytest.raises(Stopped):
            train(shards, out, "bert-mini", "train.checkpoint_every=2", steps=5)
    if damage == "missing":
        shutil.rmtree(out / "model")
    else:
        (out / "model" / {"config": "config.json", "weights": "model.safetensors"}[damage]).write_text("{")
    resume_run(out)
    assert digest(out) and bertworks.load(out).fill("ak [MASK]").blanks


def test_metrics_are_not_those_of_a_model_that_is_lost(tmp_path: Path) -> None:
    log = Log(tmp_path, ignore, since=-1)
    log.write(Evaluated(step=1, metrics={"loss": 1.0}))
    assert best_metrics(tmp_path) == {"loss": 1.0}
    log.write(Remarked(step=2, code=BEST_MODEL_LOST, text=""))
    assert best_metrics(tmp_path) == {}
    log.write(Evaluated(step=3, metrics={"loss": 2.0}))
    log.close()
    assert best_metrics(tmp_path) == {"loss": 2.0}


def test_a_checkpoint_of_another_run_is_skipped(shards: Shards, tmp_path: Path) -> None:
    for name, lr in (("mine", "1e-3"), ("other", "2e-3")):
        train(
            shards,
            tmp_path / name,
            "bert-mini",
            f"optim.lr={lr}",
            "train.evaluations=0",
            "train.checkpoint_every=1",
            steps=3,
        )
    mine = tmp_path / "mine" / CHECKPOINTS
    shutil.rmtree(mine / "step-00000003")
    shutil.copytree(tmp_path / "other" / CHECKPOINTS / "step-00000003", mine / "step-00000003")
    before = digest(tmp_path / "mine", 2)
    resume_run(tmp_path / "mine")
    remark = events(tmp_path / "mine", "remark")[0]
    assert remark["code"] == "other-run" and "step-00000003" in remark["text"]
    assert digest(tmp_path / "mine", 2) == before
    assert digest(tmp_path / "mine", 3) != digest(tmp_path / "other", 3)


def test_a_second_process_is_refused(shards: Shards, tmp_path: Path) -> None:
    train(shards, tmp_path / "run", "bert-mini", "train.evaluations=0", steps=1)
    with locked(tmp_path / "run"), refused("in-use", place=str(tmp_path / "run"), kind=SaveFailed):
        resume_run(tmp_path / "run")
    with refused("run-exists", place=str(tmp_path / "run"), kind=SaveFailed):
        train(shards, tmp_path / "run", "bert-mini", steps=1)


def test_machine_differences_are_reported_on_resume(shards: Shards, tmp_path: Path) -> None:
    same, other = tmp_path / "same", tmp_path / "other"
    train(shards, same, "bert-mini", "train.evaluations=0", "train.checkpoint_every=2", steps=4)
    shutil.rmtree(same / CHECKPOINTS / "step-00000004")
    shutil.copytree(same, other)
    assert resume_run(same).signal == 0
    assert events(same, "resume")[-1]["differences"] == []

    checkpoint = other / CHECKPOINTS / "step-00000002"
    state = json.loads((checkpoint / "state.json").read_text())
    assert state["machine"]["threads"] == 1
    state["machine"]["torch"] = "1.0"
    (checkpoint / "state.json").write_text(json.dumps(state))
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    from bertworks.train.checkpoint import _entry

    (checkpoint / "manifest.json").write_text(json.dumps({**manifest, "state.json": _entry(checkpoint / "state.json")}))
    resume_run(other)
    (difference,) = events(other, "resume")[-1]["differences"]
    assert difference.startswith("torch")
    assert "1.0" in difference.replace(torch.__version__, "")
    assert torch.__version__ in difference


# ---------------------------------------------------------------------- numbers that are not finite


class Broken(Masked):
    """An objective whose loss is NaN in some batches."""

    when: Any = staticmethod(lambda calls: False)
    calls = 0
    seen: ClassVar[dict[int, torch.Tensor]] = {}  # weights at each call

    def forward(self, batch: PretrainBatch) -> Any:
        Broken.calls += self.training
        Broken.seen[Broken.calls] = self.model.encoder.embed.tokens.weight.detach().clone()
        first, *rest = super().forward(batch)
        return (
            replace(first, total=first.total * math.nan) if self.training and Broken.when(Broken.calls) else first,
            *rest,
        )


def test_a_non_finite_batch_is_skipped(shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, "mlm", Broken)
    monkeypatch.setattr(Broken, "calls", 0)
    monkeypatch.setattr(
        Broken, "when", staticmethod(lambda calls: calls == 1 + 4)
    )  # the first call is a trial: this is the fourth step
    train(
        shards,
        tmp_path / "run",
        "bert-mini",
        "train.checkpoint_every=1",
        "train.keep_checkpoints=99",
        "train.evaluations=0",
        steps=6,
    )
    (skipped,) = events(tmp_path / "run", "skip")
    assert skipped["loss"] is None and skipped["step"] == 4 and len(skipped["examples"]) > 0
    assert torch.equal(Broken.seen[5], Broken.seen[6]), "the step was not taken"
    assert not torch.equal(Broken.seen[4], Broken.seen[5])
    assert not torch.equal(Broken.seen[6], Broken.seen[7]), "the other steps were"
    assert [event["step"] for event in events(tmp_path / "run", "checkpoint")] == [0, 1, 2, 3, 5, 6], (
        "a skipped step writes no checkpoint"
    )
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path / "run", 6).values())


def test_many_non_finite_batches_stop_the_run(shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, "mlm", Broken)
    monkeypatch.setattr(Broken, "calls", 0)
    monkeypatch.setattr(Broken, "when", staticmethod(lambda calls: calls > 1 + 2))
    with pytest.raises(Diverged) as error:
        train(
            shards,
            tmp_path / "run",
            "bert-mini",
            "train.bad_steps=3",
            "train.checkpoint_every=2",
            "train.evaluations=0",
            steps=99,
        )
    assert error.value.exit_code == 3
    assert len(events(tmp_path / "run", "skip")) == 3
    newest = max(step for step, _ in list_checkpoints(tmp_path / "run" / CHECKPOINTS))
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path / "run", newest).values())


def test_a_failed_save_is_logged_and_training_continues(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bertworks.train import trainer

    write_checkpoint = trainer.write_checkpoint

    def fail_at_step_2(folder: Path, checkpoint: Any) -> Path:
        if checkpoint.state.step == 2:
            raise SaveFailed("the disk is full")
        return write_checkpoint(folder, checkpoint)

    monkeypatch.setattr(trainer, "write_checkpoint", fail_at_step_2)
    train(shards, tmp_path / "run", "bert-mini", "train.checkpoint_every=2", "train.evaluations=0", steps=5)
    assert [event["step"] for event in events(tmp_path / "run", "save failed")] == [2]
    assert max(step for step, _ in list_checkpoints(tmp_path / "run" / CHECKPOINTS)) == 5


def test_the_log_survives_a_full_disk(tmp_path: Path) -> None:
    """/dev/full refuses every byte; listeners are told once, and later lines are complete."""
    heard: list[Event] = []
    log = Log(tmp_path, heard.append, since=-1)
    log_file = log.file
    with Path("/dev/full").open("ab", buffering=0) as full:
        log.file = full  # type: ignore[assignment]
        for step in (1, 2):
            log.write(trained_event(step))
    log.file = log_file
    log.write(trained_event(3))
    log.close()
    assert [event.kind for event in heard] == ["remark", "train", "train", "train"]
    assert isinstance(heard[0], Remarked) and heard[0].code == "log-not-written"
    assert read_events(tmp_path / "metrics.jsonl") == [trained_event(3)]


def trained_event(step: int) -> Trained:
    return Trained(
        step=step, terms={"masked": 1.0}, lr=0.1, gradient_norm=1.0, tokens_per_second=9.0, mfu=0.5, seconds_left=2.0
    )


# ---------------------------------------------------------------------- real processes, real signals


def start_pretrain_process(
    shards: Shards, out: Path, *settings: str, limit: tuple[str, str] = ("--steps", "100000")
) -> subprocess.Popen[str]:
    all_settings = overridden(*TINY, "train.log_every=1", *settings)
    every = [part for setting in all_settings for part in ("--set", setting)]
    command = [BERTWORKS, "pretrain", str(shards.folder), "--preset", "bert-mini", *limit, "--out", str(out), *every]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_step(out: Path, step: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if (out / "metrics.jsonl").is_file() and any(event["step"] >= step for event in read_metrics(out)):
            return
        time.sleep(0.02)
    raise AssertionError(
        f"never came to step {step}: {process.communicate()[1] if process.poll() is not None else 'too slow'}"
    )


def read_metrics(out: Path) -> list[dict[str, Any]]:
    events = []
    for line in (out / "metrics.jsonl").read_text().splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events


@pytest.mark.parametrize(("signal_number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_saves_a_checkpoint_and_exits(signal_number: int, code: int, shards: Shards, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start_pretrain_process(shards, out)
    wait_for_step(out, 3, process)
    process.send_signal(signal_number)
    try:
        output, errors = process.communicate(timeout=30)
    finally:
        process.kill()  # if it still runs, it would slow all other tests
    assert process.returncode == code, errors
    assert "bertworks resume" in output and "Traceback" not in errors
    assert "stopping after this step; Ctrl-C again ends at once" in errors
    newest = max(step for step, _ in list_checkpoints(out / CHECKPOINTS))
    assert newest >= 3 and newest == read_metrics(out)[-1]["step"]


def test_repeated_hangups_are_one_and_nohup_is_respected() -> None:
    """Shell and kernel both send one when a terminal is closed; a second signal of another kind exits at once."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with own_process(0.0) as runtime:
            os.kill(os.getpid(), signal.SIGHUP)
        assert runtime.stop.signal == 0, "as under nohup"
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with own_process(0.0) as runtime:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGHUP)
        assert runtime.stop.signal == signal.SIGHUP
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("order", ["TERM HUP TERM", "HUP TERM", "TERM TERM HUP", "INT HUP"])
def test_signals_of_one_stop_count_once(order: str) -> None:
    """As systemd and torchrun send them. A process that did not count so would end here, with its own exit code."""
    first, *others = [signal.Signals[f"SIG{name}"] for name in order.split()]
    process_id = os.fork()
    if process_id == 0:
        stop = StopRequest()
        for number in (first, *others):
            stop.handle(number, None)
        os._exit(0 if stop.signal == first else 1)
    _, status = os.waitpid(process_id, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_training_whose_terminal_is_closed_is_saved(shards: Shards, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process_id, terminal = pty.fork()
    if process_id == 0:
        settings = [part for setting in TINY for part in ("--set", setting)]
        arguments = ["pretrain", str(shards.folder), "--preset", "bert-mini", "--steps", "100000", "--out", str(out)]
        os.execv(BERTWORKS, [BERTWORKS, *arguments, *settings])
    while not (out / "metrics.jsonl").is_file() or not any(event["step"] > 3 for event in read_metrics(out)):
        assert os.read(terminal, 65536), "it draws its panel"
    os.close(terminal)
    _, status = os.waitpid(process_id, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    assert max(step for step, _ in list_checkpoints(out / CHECKPOINTS)) > 3


class Small(Trainable):
    """A module with a single trainable number."""

    def __init__(self) -> None:
        super().__init__()
        self.terms = {}
        self.weight = nn.Parameter(torch.ones(1))

    def counts(self, batch: Any) -> dict[str, int]:
        return {}

    def forward(self, batch: Any) -> Loss:
        return ()


def small_trainer(
    folder: Path, clock: Clock, distributed: Distributed | None = None, runtime: Runtime | None = None
) -> Trainer:
    """A real trainer whose methods the test calls itself."""
    environment = {"runtime": runtime or Runtime(), "distributed": distributed or Distributed()}
    context = TrainContext(folder=folder, identity="", machine={}, clock=clock, **environment)  # type: ignore[arg-type]
    policy = EvaluationPolicy(evaluate=lambda step: {"loss": 0.0}, save_model=lambda: None)
    return Trainer(Small(), lambda cursor: iter(()), OptimConfig(), LoopConfig(steps=4), context, policy)


def test_a_signal_during_the_sync_waits_for_the_next_step(tmp_path: Path) -> None:
    """A signal that arrives while the processes synchronise: the others do not know of it and continue."""
    runtime = Runtime()

    class Late(Distributed):
        def sum(self, values: torch.Tensor) -> torch.Tensor:
            runtime.stop.handle(signal.SIGTERM, None)
            return values

    trainer = small_trainer(tmp_path, Clock(None, began=0.0), Late(), runtime)
    step = Step(micro_batches=(), cursor=(0, 0), next_cursor=(0, 1), epochs_done=(0.0, 0.1), tokens=0, example_ids=[])
    assert trainer._sync_step(step).stop_signal == 0
    assert trainer._sync_step(step).stop_signal == signal.SIGTERM


@pytest.mark.parametrize(
    ("now", "evaluated_at", "can_evaluate"),
    [(30.0, 0.0, True), (30.0, 25.0, False), (92.0, 50.0, False), (5.0, 0.0, False)],
)
def test_evaluations_leave_time_in_the_budget(
    now: float, evaluated_at: float, can_evaluate: bool, tmp_path: Path
) -> None:
    trainer = small_trainer(tmp_path, Clock(100.0, began=0.0, now=lambda: now))
    trainer.state = State(evaluation_seconds=3.0, evaluated_at=evaluated_at)
    assert trainer.policy.has_time(trainer.state, trainer.clock) == trainer._can_evaluate() == can_evaluate
    trainer.clock.budget = None
    assert trainer._can_evaluate()


def test_a_second_signal_exits_at_once(shards: Shards, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start_pretrain_process(shards, out, "train.batch_tokens=65536", "model.n_layers=12")  # slow steps
    while not (out / RUN).is_file():
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == 130, "the second signal's code: it did not wait for the first"
    assert (
        not list((out / CHECKPOINTS).glob("step-*"))
        or max(step for step, _ in list_checkpoints(out / CHECKPOINTS)) == 0
    )


@pytest.mark.parametrize(
    ("omp_num_threads", "processes", "threads"), [("", 1, 3), ("2", 1, 2), ("1", 2, 1), ("1", 1, 1)]
)
def test_number_of_threads(omp_num_threads: str, processes: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """OMP_NUM_THREADS counts, but not what torchrun writes into it."""
    before = torch.get_num_threads()
    cores = {0, 1, 2}
    monkeypatch.setenv("OMP_NUM_THREADS", omp_num_threads)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: cores, raising=False)
    try:
        torch.set_num_threads(int(omp_num_threads or 1))
        assert set_threads(None, processes) == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_killed_at_fifty_random_times(shards: Shards, tmp_path: Path) -> None:
    """kill -9, real processes, a checkpoint every second step: every resume works and the end is the same to the
    bit."""
    settings = ("train.checkpoint_every=2", "train.evaluations=3", "train.dropout=0.1", "train.log_every=7")
    uninterrupted = start_pretrain_process(shards, tmp_path / "uninterrupted", *settings, limit=("--steps", "60"))
    began = time.monotonic()
    assert uninterrupted.wait() == 0
    duration = time.monotonic() - began
    expected = digest(tmp_path / "uninterrupted")
    rng = np.random.default_rng(0)
    kills = 0
    runs_done = 0
    max_kills = int(os.environ.get("KILLS", "50"))
    while kills < max_kills:
        out = tmp_path / f"run-{runs_done}"
        is_new = True
        while True:
            process = (
                start_pretrain_process(shards, out, *settings, limit=("--steps", "60"))
                if is_new
                else resume_process(out)
            )
            is_new = is_new and not (out / RUN).is_file()
            try:
                code = process.wait(timeout=float(rng.uniform(0.3, 1.1) * duration))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += bool(
                    list_checkpoints(out / CHECKPOINTS)
                )  # before the first checkpoint there is nothing to lose
                is_new = not (out / RUN).is_file()
                continue
            assert code == 0, process.communicate()[1]
            break
        assert digest(out) == expected, f"after {kills} kills"
        assert (out / "model" / "model.safetensors").read_bytes() == (
            tmp_path / "uninterrupted" / "model" / "model.safetensors"
        ).read_bytes()
        runs_done += 1
    print(f"{kills} kills in {runs_done} runs, all ended with the same bits")


def resume_process(out: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([BERTWORKS, "resume", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_killed_rank_is_restarted(shards: Shards, tmp_path: Path) -> None:
    """One of two processes is killed; torchrun starts both again and the run goes on from its checkpoint."""
    out = tmp_path / "run"
    launcher_options = ["--nproc-per-node", "2", "--max-restarts", "2", "--master-port", str(free_port())]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *launcher_options,
        "-m",
        "bertworks",
        "pretrain",
        str(shards.folder),
    ]
    command += ["--preset", "bert-mini", "--steps", "200", "--out", str(out)]
    command += [
        part for setting in (*TINY, "train.checkpoint_every=5", "train.evaluations=0") for part in ("--set", setting)
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for_step(out, 12, process)
        _kill_one_rank(process)
        _, errors = process.communicate(timeout=120)
    finally:
        process.terminate()  # the launcher ends its processes
    assert process.returncode == 0, errors[-3000:]
    assert max(step for step, _ in list_checkpoints(out / CHECKPOINTS)) == 200
    assert events(out, "resume"), "it resumed instead of starting over"


def _kill_one_rank(launcher: subprocess.Popen[str]) -> None:
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
