"""The loop: exact sums, exact resume, learning rates, the clock, signals, and numbers that are not finite."""

from __future__ import annotations

import json
import math
import os
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
from bertworks.train.checkpoint import CHECKPOINTS, WEIGHTS, State, list_checkpoints
from bertworks.train.clock import Clock
from bertworks.train.distributed import Distributed
from bertworks.train.events import Event, Log, Remarked, Trained, read_events
from bertworks.train.optim import learning_rate, make_optimizer
from bertworks.train.policy import EvaluationPolicy
from bertworks.train.runtime import Runtime, set_threads
from bertworks.train.trainer import TrainContext, Trainer
from refusals import refused
from texts import make_shards
from training import TINY, digest, events, go_on, language, language_shards, train

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
def test_learning_rates(schedule: Any, expected: dict[float, float]) -> None:
    config = OptimConfig(lr=2e-3, warmup=0.1, cooldown=0.2, schedule=schedule)
    for progress, share in expected.items():
        assert learning_rate(config, progress) == pytest.approx(2e-3 * share, abs=1e-9), progress


def test_decay_is_for_matrices_only() -> None:
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
    x, m, v = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    for step, gradient in enumerate(([0.3, -0.1], [0.2, 0.4]), start=1):
        parameter.grad = torch.tensor([gradient], dtype=torch.float64)
        optimiser.step()
        g = np.array(gradient)
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g
        x = x - 0.1 * 0.05 * x - 0.1 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.98**step)) + 1e-6)
    assert np.allclose(parameter.detach().numpy()[0], x, rtol=1e-12)


# ---------------------------------------------------------------------- the clock


class Machine:
    """A clock that only a test moves."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def drive(clock: Clock, machine: Machine, pace: Any, most: int = 100_000) -> tuple[int, float]:
    step, progress = 0, 0.0
    clock.first_pace = pace(0.0)
    clock.tick()
    while (left := clock.steps_left()) and step < most:
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
def test_a_budget_ends_in_time(pace: str) -> None:
    machine = Machine()
    clock = Clock(300.0, began=machine.time, now=machine)
    clock.reserve = 4.0
    steps, progress = drive(clock, machine, PACES[pace])
    assert abs(clock.elapsed + clock.reserve - 300.0) < 0.03 * 300.0
    assert progress > 0.9 and steps > 10


def test_time_spent_before_counts() -> None:
    machine = Machine()
    clock = Clock(100.0, began=machine.time, now=machine)
    clock.seconds_before = 60.0
    drive(clock, machine, lambda p: 0.5)
    assert machine.time - 1000.0 == pytest.approx(40.0, abs=1.0)


def test_plans_are_said_when_they_change() -> None:
    machine = Machine()
    clock = Clock(100.0, began=machine.time, now=machine)
    clock.first_pace = 1.0
    assert clock.new_plan(0) == 100
    assert clock.new_plan(0) is None
    machine.time += 50.0
    assert clock.new_plan(10) == 60


# ---------------------------------------------------------------------- batches


def test_pieces_of_a_batch() -> None:
    draw = np.random.default_rng(0)
    for _ in range(200):
        lengths, pieces = np.sort(draw.integers(1, 60, draw.integers(1, 40))), int(draw.integers(1, 9))
        found = split(lengths, pieces)
        assert [begin for begin, _ in found] == [0, *(end for _, end in found[:-1])] and found[-1][1] == len(lengths)
        if len(lengths) >= pieces:
            assert all(end > begin for begin, end in found)
            assert max(lengths[b:e].sum() for b, e in found) <= lengths.sum() / pieces + 2 * lengths.max()


@pytest.mark.parametrize(("world", "micro"), [(1, 70), (2, None), (2, 50), (3, 40)])
def test_the_same_global_batches_for_any_world(world: int, micro: int | None, shards: Shards, tmp_path: Path) -> None:
    loader = Loader(shards, DataConfig(max_length=32), batch_tokens=200, seed=3, cache=tmp_path)
    whole = BatchStream(loader, RankShard())((0, 0))
    parts = [BatchStream(loader, RankShard(rank, world, micro))((0, 0)) for rank in range(world)]
    for _ in range(len(loader.epoch(0)) + 3):
        step, mine = next(whole), [next(part) for part in parts]
        counted = [portion.batch for one in mine for portion in one.micro_batches if portion.is_counted]
        assert np.array_equal(np.concatenate([batch.ids for batch in counted]), step.micro_batches[0].batch.ids)
        assert np.array_equal(np.concatenate([batch.examples for batch in counted]), step.example_ids)
        assert {one.cursor for one in mine} == {step.cursor} and {one.tokens for one in mine} == {step.tokens}


def test_workers_change_nothing(shards: Shards, tmp_path: Path) -> None:
    loader = Loader(shards, DataConfig(max_length=32), batch_tokens=400, seed=3, cache=tmp_path)
    place = (0, len(loader.epoch(0)) - 3)  # over the edge of an epoch
    for now, ahead, _ in zip(
        BatchStream(loader, RankShard())(place),
        BatchStream(loader, RankShard(), workers=2)(place),
        range(8),
        strict=False,
    ):
        assert (now.cursor, now.next_cursor, now.epochs_done, now.example_ids) == (
            ahead.cursor,
            ahead.next_cursor,
            ahead.epochs_done,
            ahead.example_ids,
        )
        for a, b in zip(now.micro_batches, ahead.micro_batches, strict=True):
            assert np.array_equal(a.batch.ids, b.batch.ids) and np.array_equal(a.batch.targets, b.batch.targets)


def test_nothing_to_train_on(tmp_path: Path) -> None:
    shards = make_shards(tmp_path, ["Qz."], language())
    with refused("no-text", kind=BadShards):
        train(shards, tmp_path / "run", "roberta-mini", "model.n_segments=2", "data.short_seq_prob=0", steps=1)


# ---------------------------------------------------------------------- exact


@pytest.fixture
def float64() -> Any:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("objective", ["mlm+nsp", "rtd"])
def test_accumulation_is_exact(objective: str, shards: Shards, tmp_path: Path, float64: None) -> None:
    """One portion or eight, several terms, uneven counts: the same gradients, so the same weights."""
    for name, micro in (("whole", "null"), ("cut", "64")):
        settings = ["train.dropout=0.0", f"train.micro_tokens={micro}", "train.evaluations=0", "data.mask_rate=0.05"]
        train(shards, tmp_path / name, PRESETS[objective], *settings, objective=objective, steps=5)
    whole, cut = weights(tmp_path / "whole", 5), weights(tmp_path / "cut", 5)
    assert max(float((whole[name] - cut[name]).abs().max()) for name in whole) < 1e-9
    start = weights(tmp_path / "whole", 0)
    assert max(float((whole[name] - start[name]).abs().max()) for name in whole) > 1e-3, "something was learned"


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["data.mask_rate=0.02", "data.max_length=16", "train.batch_tokens=64"],  # processes without a target
        ["data.max_length=48", "train.batch_tokens=48"],  # processes without an example, and so without a pair
        ["train.micro_tokens=64"],
    ],
    ids=["plain", "no targets", "no examples", "portions"],
)
def test_two_processes_are_one(settings: list[str], shards: Shards, tmp_path: Path) -> None:
    """torchrun with two processes against one, in float64 without dropout, ten steps."""
    script = str(Path(__file__).with_name("in_float64.py"))
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        str(free_port()),
    ]
    every = [*TINY, "train.evaluations=1", "train.keep_checkpoints=9", *settings]
    for name, command in (("one", [sys.executable]), ("two", torchrun)):
        call = [
            *command,
            script,
            "pretrain",
            str(shards.folder),
            "--preset",
            "bert-mini",
            "--steps",
            "10",
            "--out",
            str(tmp_path / name),
        ]
        done = subprocess.run(
            [*call, *(part for setting in every for part in ("--set", setting))], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    one, two = weights(tmp_path / "one", 10), weights(tmp_path / "two", 10)
    assert max(float((one[name] - two[name]).abs().max()) for name in one) < 1e-9
    assert max(float((one[name] - start).abs().max()) for name, start in weights(tmp_path / "one", 0).items()) > 1e-3
    held_out = [events(tmp_path / name, "eval")[-1]["metrics"]["masked"] for name in ("one", "two")]
    assert held_out[0] == pytest.approx(held_out[1], abs=1e-9)


def test_buffers_stay_where_they_are(tmp_path: Path) -> None:
    """Most of an embedding of which few rows learn is a buffer: sent before every step, it would cost more than the
    step."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        shared = Distributed(world_size=2).wrap(PartialEmbedding(torch.randn(50, 4), torch.arange(3)))
        assert isinstance(shared, DistributedDataParallel) and not shared.will_sync_module_buffers()
    finally:
        dist.destroy_process_group()


def free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


# ---------------------------------------------------------------------- resume


class Stopped(Exception):
    pass


def interrupt(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """The process ends, without a word, after so many steps."""
    taken = runs.Trainer._train_step

    def take(self: Any, *args: Any) -> None:
        if self.state.step == after:
            raise Stopped
        taken(self, *args)

    monkeypatch.setattr(runs.Trainer, "_train_step", take)


@pytest.mark.parametrize("objective", PRESETS)
@pytest.mark.parametrize("micro", ["null", "128"])
def test_resume_is_exact(
    objective: str, micro: str, shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle of an epoch and after its end, with other loader workers: the same bits as undisturbed."""
    settings = [
        f"train.micro_tokens={micro}",
        "train.checkpoint_every=3",
        "train.dropout=0.1",
        "train.evaluations=2",
        "train.keep_checkpoints=9",
    ]
    settings += ["train.batch_tokens=2048"]
    train(shards, tmp_path / "whole", PRESETS[objective], *settings, objective=objective, steps=14)
    last = json.loads((tmp_path / "whole" / CHECKPOINTS / "step-00000014" / "state.json").read_text())["state"]
    assert last["epoch"] >= 1, "the run must pass the end of an epoch"
    out = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        interrupt(patch, after=5)
        with pytest.raises(Stopped):
            train(shards, out, PRESETS[objective], *settings, objective=objective, steps=14)
    with monkeypatch.context() as patch:
        interrupt(patch, after=13)
        with pytest.raises(Stopped):
            go_on(out, workers=1)
    go_on(out)
    assert digest(out) == digest(tmp_path / "whole")
    assert (out / "model" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model" / "model.safetensors"
    ).read_bytes()
    for kind in ("eval", "checkpoint"):
        shown = [
            [(e["step"], e.get("metrics", {}).get("loss")) for e in events(run, kind)]
            for run in (out, tmp_path / "whole")
        ]
        assert shown[0] == shown[1], "no line is lost or written twice"


def test_a_damaged_checkpoint_is_passed_over(shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ["train.checkpoint_every=3", "train.evaluations=0", "train.keep_checkpoints=9"]
    train(shards, tmp_path / "whole", "bert-mini", *settings, steps=8)
    out = tmp_path / "damaged"
    with monkeypatch.context() as patch:
        interrupt(patch, after=7)
        with pytest.raises(Stopped):
            train(shards, out, "bert-mini", *settings, steps=8)
    path = out / CHECKPOINTS / "step-00000006" / WEIGHTS
    path.write_bytes(path.read_bytes()[:-1])
    go_on(out)
    assert digest(out) == digest(tmp_path / "whole")
    said = events(out, "remark")[0]
    assert said["code"] == "changed-file" and "step-00000006" in said["text"]


def test_other_shards_are_refused(shards: Shards, tmp_path: Path) -> None:
    train(shards, tmp_path / "run", "bert-mini", "train.evaluations=0", steps=1)
    other = language_shards(tmp_path / "other", 30)
    record = json.loads((tmp_path / "run" / RUN).read_text())
    (tmp_path / "run" / RUN).write_text(json.dumps({**record, "shards": str(other.folder)}))
    with refused("shards-changed", place=str(other.folder), kind=BadShards):
        go_on(tmp_path / "run")


def test_lost_checkpoints_are_not_a_fresh_start(shards: Shards, tmp_path: Path) -> None:
    train(shards, tmp_path / "run", "bert-mini", "train.evaluations=0", "train.log_every=1", steps=2)
    shutil.rmtree(tmp_path / "run" / CHECKPOINTS)
    with refused("checkpoints-lost", place=str(tmp_path / "run"), kind=BadCheckpoint):
        go_on(tmp_path / "run")


@pytest.mark.parametrize("damage", ["missing", "config", "weights"])
def test_a_damaged_model_folder_is_written_anew(
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
    go_on(out)
    assert digest(out) and bertworks.load(out).fill("ak [MASK]").blanks


def test_a_checkpoint_of_another_run_is_passed_over(shards: Shards, tmp_path: Path) -> None:
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
    go_on(tmp_path / "mine")
    said = events(tmp_path / "mine", "remark")[0]
    assert said["code"] == "other-run" and "step-00000003" in said["text"]
    assert digest(tmp_path / "mine", 2) == before and digest(tmp_path / "mine", 3) != digest(tmp_path / "other", 3)


def test_a_second_process_is_kept_off(shards: Shards, tmp_path: Path) -> None:
    train(shards, tmp_path / "run", "bert-mini", "train.evaluations=0", steps=1)
    with locked(tmp_path / "run"), refused("in-use", place=str(tmp_path / "run"), kind=SaveFailed):
        go_on(tmp_path / "run")
    with refused("run-exists", place=str(tmp_path / "run"), kind=SaveFailed):
        train(shards, tmp_path / "run", "bert-mini", steps=1)


def test_differences_are_named(shards: Shards, tmp_path: Path) -> None:
    train(shards, tmp_path / "run", "bert-mini", "train.evaluations=0", steps=2)
    place = tmp_path / "run" / CHECKPOINTS / "step-00000002"
    state = json.loads((place / "state.json").read_text())
    assert state["machine"]["threads"] == 1
    assert go_on(tmp_path / "run").signal == 0
    assert events(tmp_path / "run", "resume")[-1]["differences"] == []
    state["machine"]["torch"] = "1.0"
    (place / "state.json").write_text(json.dumps(state))
    manifest = json.loads((place / "manifest.json").read_text())
    from bertworks.train.checkpoint import _entry

    (place / "manifest.json").write_text(json.dumps({**manifest, "state.json": _entry(place / "state.json")}))
    go_on(tmp_path / "run")
    (difference,) = events(tmp_path / "run", "resume")[-1]["differences"]
    assert (
        difference.startswith("torch")
        and "1.0" in difference.replace(torch.__version__, "")
        and torch.__version__ in difference
    )


# ---------------------------------------------------------------------- numbers that are not finite


class Broken(Masked):
    """Not a number in some batches."""

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


def test_a_bad_batch_is_passed_over(shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OBJECTIVES, "mlm", Broken)
    monkeypatch.setattr(Broken, "calls", 0)
    monkeypatch.setattr(Broken, "when", staticmethod(lambda calls: calls == 1 + 4))  # after a trial: the fourth step
    train(
        shards,
        tmp_path / "run",
        "bert-mini",
        "train.checkpoint_every=1",
        "train.keep_checkpoints=99",
        "train.evaluations=0",
        steps=6,
    )
    (bad,) = events(tmp_path / "run", "skip")
    assert bad["loss"] is None and bad["step"] == 4 and len(bad["examples"]) > 0
    assert torch.equal(Broken.seen[5], Broken.seen[6]), "the step was not taken"
    assert not torch.equal(Broken.seen[4], Broken.seen[5]) and not torch.equal(Broken.seen[6], Broken.seen[7]), (
        "the others were"
    )
    assert [event["step"] for event in events(tmp_path / "run", "checkpoint")] == [0, 1, 2, 3, 5, 6], (
        "the good one stayed the last"
    )
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path / "run", 6).values())


def test_many_bad_batches_stop_the_run(shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_failed_save_is_said_and_the_run_goes_on(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bertworks.train import trainer

    written = trainer.write_checkpoint

    def fail(folder: Path, checkpoint: Any) -> Path:
        if checkpoint.state.step == 2:
            raise SaveFailed("the disk is full")
        return written(folder, checkpoint)

    monkeypatch.setattr(trainer, "write_checkpoint", fail)
    train(shards, tmp_path / "run", "bert-mini", "train.checkpoint_every=2", "train.evaluations=0", steps=5)
    assert [event["step"] for event in events(tmp_path / "run", "save failed")] == [2]
    assert max(step for step, _ in list_checkpoints(tmp_path / "run" / CHECKPOINTS)) == 5


def test_a_full_disk_does_not_end_the_log(tmp_path: Path) -> None:
    """/dev/full refuses every byte; whoever watches hears of it once, and later lines are whole."""
    heard: list[Event] = []
    log = Log(tmp_path, heard.append, since=-1)
    kept = log.file
    with Path("/dev/full").open("ab", buffering=0) as full:
        log.file = full  # type: ignore[assignment]
        for step in (1, 2):
            log.write(trained(step))
    log.file = kept
    log.write(trained(3))
    log.close()
    assert [event.kind for event in heard] == ["remark", "train", "train", "train"]
    assert isinstance(heard[0], Remarked) and heard[0].code == "log-not-written"
    assert read_events(tmp_path / "metrics.jsonl") == [trained(3)]


def trained(step: int) -> Trained:
    return Trained(
        step=step, terms={"masked": 1.0}, lr=0.1, gradient_norm=1.0, tokens_per_second=9.0, mfu=0.5, seconds_left=2.0
    )


# ---------------------------------------------------------------------- real processes, real signals


def start(
    shards: Shards, out: Path, *settings: str, limit: tuple[str, str] = ("--steps", "100000")
) -> subprocess.Popen[str]:
    every = [part for setting in (*TINY, "train.log_every=1", *settings) for part in ("--set", setting)]
    call = [BERTWORKS, "pretrain", str(shards.folder), "--preset", "bert-mini", *limit, "--out", str(out), *every]
    return subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_step(out: Path, step: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        if (out / "metrics.jsonl").is_file() and any(event["step"] >= step for event in read(out)):
            return
        time.sleep(0.02)
    raise AssertionError(
        f"never came to step {step}: {process.communicate()[1] if process.poll() is not None else 'too slow'}"
    )


def read(out: Path) -> list[dict[str, Any]]:
    found = []
    for line in (out / "metrics.jsonl").read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_ends(number: int, code: int, shards: Shards, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(shards, out)
    wait_for_step(out, 3, process)
    process.send_signal(number)
    said, errors = process.communicate(timeout=30)
    assert process.returncode == code, errors
    assert "bertworks resume" in said and "Traceback" not in errors
    newest = max(step for step, _ in list_checkpoints(out / CHECKPOINTS))
    assert newest >= 3 and newest == read(out)[-1]["step"]


class Small(Trainable):
    """One number to train."""

    def __init__(self) -> None:
        super().__init__()
        self.terms, self.weight = {}, nn.Parameter(torch.ones(1))

    def counts(self, batch: Any) -> dict[str, int]:
        return {}

    def forward(self, batch: Any) -> Loss:
        return ()


def small_trainer(
    folder: Path, clock: Clock, distributed: Distributed | None = None, runtime: Runtime | None = None
) -> Trainer:
    """A trainer in its own right; the test calls what it would call in a run."""
    around = {"runtime": runtime or Runtime(), "distributed": distributed or Distributed()}
    context = TrainContext(folder=folder, identity="", machine={}, clock=clock, **around)  # type: ignore[arg-type]
    policy = EvaluationPolicy(evaluate=lambda: {"loss": 0.0}, save_model=lambda: None)
    return Trainer(Small(), lambda cursor: iter(()), OptimConfig(), LoopConfig(steps=4), context, policy)


def test_a_signal_between_processes_waits_for_the_next_step(tmp_path: Path) -> None:
    """One that comes while they talk: the others have not heard of it, and go on."""
    runtime = Runtime()

    class Late(Distributed):
        def sum(self, values: torch.Tensor) -> torch.Tensor:
            runtime.stop.handle(signal.SIGTERM, None)
            return values

    trainer = small_trainer(tmp_path, Clock(None, began=0.0), Late(), runtime)
    step = Step(micro_batches=(), cursor=(0, 0), next_cursor=(0, 1), epochs_done=(0.0, 0.1), tokens=0, example_ids=[])
    assert trainer._sync_step(step).stop_signal == 0 and trainer._sync_step(step).stop_signal == signal.SIGTERM


@pytest.mark.parametrize(
    ("now", "looked", "can"), [(30.0, 0.0, True), (30.0, 25.0, False), (92.0, 50.0, False), (5.0, 0.0, False)]
)
def test_looks_leave_a_budget_its_time(now: float, looked: float, can: bool, tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, Clock(100.0, began=0.0, now=lambda: now))
    trainer.state = State(evaluation_seconds=3.0, evaluated_at=looked)
    assert trainer.policy.has_time(trainer.state, trainer.clock) == trainer._can_evaluate() == can
    trainer.clock.budget = None
    assert trainer._can_evaluate()


def test_two_signals_end_at_once(shards: Shards, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(shards, out, "train.batch_tokens=65536", "model.n_layers=12")  # slow steps
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


@pytest.mark.parametrize(("said", "processes", "threads"), [("", 1, 3), ("2", 1, 2), ("1", 2, 1), ("1", 1, 1)])
def test_threads_are_those_that_were_asked_for(
    said: str, processes: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OMP_NUM_THREADS counts, but not what torchrun writes into it."""
    before, cores = torch.get_num_threads(), {0, 1, 2}
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: cores, raising=False)
    try:
        torch.set_num_threads(int(said or 1))
        assert set_threads(None, processes) == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_killed_at_fifty_moments(shards: Shards, tmp_path: Path) -> None:
    """kill -9, real processes, a save after every second step: every resume works and the end is the same to the
    bit."""
    settings = ("train.checkpoint_every=2", "train.evaluations=3", "train.dropout=0.1", "train.log_every=7")
    whole = start(shards, tmp_path / "whole", *settings, limit=("--steps", "60"))
    begin = time.monotonic()
    assert whole.wait() == 0
    lasted, expected = time.monotonic() - begin, digest(tmp_path / "whole")
    draw = np.random.default_rng(0)
    kills, runs_done, most = 0, 0, int(os.environ.get("KILLS", "50"))
    while kills < most:
        out, first = tmp_path / f"run-{runs_done}", True
        while True:
            process = start(shards, out, *settings, limit=("--steps", "60")) if first else resume_process(out)
            first = first and not (out / RUN).is_file()
            try:
                code = process.wait(timeout=float(draw.uniform(0.3, 1.1) * lasted))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += bool(
                    list_checkpoints(out / CHECKPOINTS)
                )  # before the first checkpoint there is nothing to lose
                first = not (out / RUN).is_file()
                continue
            assert code == 0, process.communicate()[1]
            break
        assert digest(out) == expected, f"after {kills} kills"
        assert (out / "model" / "model.safetensors").read_bytes() == (
            tmp_path / "whole" / "model" / "model.safetensors"
        ).read_bytes()
        runs_done += 1
    print(f"{kills} kills in {runs_done} runs, all ended with the same bits")


def resume_process(out: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([BERTWORKS, "resume", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_rank_that_dies_is_started_again(shards: Shards, tmp_path: Path) -> None:
    """One of two processes is killed; torchrun starts both again and the run goes on from its checkpoint."""
    out = tmp_path / "run"
    elastic = ["--nproc-per-node", "2", "--max-restarts", "2", "--master-port", str(free_port())]
    call = [sys.executable, "-m", "torch.distributed.run", *elastic, "-m", "bertworks", "pretrain", str(shards.folder)]
    call += ["--preset", "bert-mini", "--steps", "200", "--out", str(out)]
    call += [
        part for setting in (*TINY, "train.checkpoint_every=5", "train.evaluations=0") for part in ("--set", setting)
    ]
    process = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for_step(out, 12, process)
        _kill_one(process)
        _, errors = process.communicate(timeout=120)
    finally:
        process.terminate()  # the launcher ends its processes
    assert process.returncode == 0, errors[-3000:]
    assert max(step for step, _ in list_checkpoints(out / CHECKPOINTS)) == 200
    assert events(out, "resume"), "it went on instead of beginning again"


def _kill_one(launcher: subprocess.Popen[str]) -> None:
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
