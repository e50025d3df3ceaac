"""Checkpoints: whole or not there; a damaged one is named and passed over."""

from __future__ import annotations

import json
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bertworks.errors import BadCheckpoint, BertworksError, SaveFailed
from bertworks.train import checkpoint as checkpoints
from bertworks.train.checkpoint import (
    MANIFEST,
    OPTIMIZER,
    STATE,
    WEIGHTS,
    Checkpoint,
    State,
    list_checkpoints,
    newest_checkpoint,
    prune_checkpoints,
    read_checkpoint,
    tidy_checkpoints,
    write_checkpoint,
)
from refusals import refused

FILES = (WEIGHTS, OPTIMIZER, STATE, MANIFEST)


def make_checkpoint(step: int) -> Checkpoint:
    weights = {"a": torch.arange(6.0).view(2, 3) + step, "b": torch.tensor([1.5])}
    optimiser = {"a|exp_avg": torch.ones(2, 3), "a|step": torch.tensor(float(step))}
    return Checkpoint(State(step=step, seconds=1.0), "me", {"threads": 1}, weights, optimiser)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for step in (10, 20):
        write_checkpoint(tmp_path, make_checkpoint(step))
    return tmp_path


def test_checkpoint_round_trip(folder: Path) -> None:
    checkpoint, damaged = newest_checkpoint(folder, "me")
    assert checkpoint is not None and not damaged and checkpoint.state.step == 20
    expected = make_checkpoint(20)
    assert checkpoint.state == expected.state
    for name, tensor in expected.weights.items():
        assert torch.equal(checkpoint.weights[name], tensor)
    assert torch.equal(checkpoint.optimizer["a|step"], torch.tensor(20.0))
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000010", "step-00000020"], (
        "no other files are left"
    )


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(bytes(raw))


def truncate(size: Callable[[int], int]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_bytes(path.read_bytes()[: size(path.stat().st_size)])

    return damage


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def to_link(path: Path) -> None:
    target = path.with_name("elsewhere")
    path.rename(target)
    path.symlink_to(target)


DAMAGE = {
    "flipped": flip,
    "empty": truncate(lambda size: 0),
    "cut at 8": truncate(lambda size: 8),
    "half": truncate(lambda size: size // 2),
    "one short": truncate(lambda size: size - 1),
    "deleted": Path.unlink,
    "a folder": to_folder,
    "a link": to_link,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_checkpoint_is_reported_and_skipped(name: str, damage: str, folder: Path) -> None:
    path = folder / "step-00000020"
    DAMAGE[damage](path / name)
    if name == MANIFEST and damage in ("a link", "one short"):
        assert (
            newest_checkpoint(folder, "me")[0] is not None
        )  # the same content by another name, or without its last newline, does no harm
        return
    with pytest.raises(BertworksError):
        read_checkpoint(path, "me")
    checkpoint, damaged = newest_checkpoint(folder, "me")
    assert checkpoint is not None and checkpoint.state.step == 10
    assert list(damaged) == [path] and "step-00000020" in damaged[path].text


def test_damaged_checkpoints_only(folder: Path) -> None:
    for path in folder.glob("*/" + WEIGHTS):
        flip(path)
    checkpoint, damaged = newest_checkpoint(folder, "me")
    assert checkpoint is None and len(damaged) == 2


def test_a_damaged_checkpoint_is_overwritten(folder: Path) -> None:
    flip(folder / "step-00000020" / WEIGHTS)
    write_checkpoint(folder, make_checkpoint(20))
    checkpoint, damaged = newest_checkpoint(folder, "me")
    assert checkpoint is not None and checkpoint.state.step == 20 and not damaged


def test_a_failed_save_leaves_no_partial_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "save_file", fail)
    with refused("save-failed", place="step-00000030", kind=SaveFailed) as error:
        write_checkpoint(folder, make_checkpoint(30))
    assert "No space left on device" in error.value.cause, "the message of the operating system"
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000010", "step-00000020"]


def test_a_full_disk(folder: Path) -> None:
    """With a real limit on file size, in the middle of writing."""
    big = Checkpoint(State(step=30), "me", {"threads": 1}, {"a": torch.zeros(500_000)}, {})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        with pytest.raises(SaveFailed):
            write_checkpoint(folder, big)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert newest_checkpoint(folder, "me")[0].state.step == 20  # type: ignore[union-attr]
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000010", "step-00000020"]


def test_free_space_is_checked_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 1000))  # type: ignore[attr-defined]
    with refused("no-space", place=str(folder), kind=SaveFailed):
        write_checkpoint(folder, make_checkpoint(30))


def test_a_read_only_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """/sys is read-only for root too."""
    monkeypatch.setattr(checkpoints, "_check_space", lambda folder, needed: None)
    with refused("save-failed", place="/sys/kernel", kind=SaveFailed):
        write_checkpoint(Path("/sys/kernel"), make_checkpoint(1))


def test_pruning_does_not_count_damaged_checkpoints(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40):
        write_checkpoint(tmp_path, make_checkpoint(step))
    for step in (30, 40):
        flip(tmp_path / f"step-{step:08}" / WEIGHTS)
    (tmp_path / ".half.new").mkdir()
    checkpoint, damaged = newest_checkpoint(tmp_path, "me")
    tidy_checkpoints(tmp_path, damaged)
    assert checkpoint is not None and checkpoint.state.step == 20 and len(damaged) == 2
    write_checkpoint(tmp_path, make_checkpoint(25))
    prune_checkpoints(tmp_path, keep=1, best=None)
    assert [step for step, _ in list_checkpoints(tmp_path)] == [25]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "damaged-step-00000030",
        "damaged-step-00000040",
        "step-00000025",
    ]


def test_restored_tensors_do_not_depend_on_the_file(tmp_path: Path) -> None:
    module = torch.nn.Linear(3, 2)
    optimiser = torch.optim.AdamW(module.parameters(), fused=True)
    module(torch.ones(1, 3)).sum().backward()
    optimiser.step()
    weights = dict(module.named_parameters())
    optimizer_tensors = checkpoints.optimizer_tensors(module, optimiser)
    path = write_checkpoint(tmp_path, Checkpoint(State(step=1), "me", {"threads": 1}, weights, optimizer_tensors))  # type: ignore[arg-type]
    checkpoints.restore(module, optimiser, read_checkpoint(path, "me"), "here")
    file = path / OPTIMIZER
    file.write_bytes(bytes(file.stat().st_size))
    state = optimiser.state[module.weight]
    assert float(state["step"]) == 1.0 and bool((state["exp_avg"] != 0).any())


def test_pruning_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4, 5):
        write_checkpoint(tmp_path, make_checkpoint(step))
    prune_checkpoints(tmp_path, keep=2, best=2)
    assert [step for step, _ in list_checkpoints(tmp_path)] == [5, 4, 2]
    assert not list(tmp_path.glob(".*"))


def rewrite_state(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the state, with a manifest that agrees with it."""
    content = json.loads((path / STATE).read_text())
    change(content)
    (path / STATE).write_text(json.dumps(content))
    manifest = json.loads((path / MANIFEST).read_text())
    (path / MANIFEST).write_text(json.dumps({**manifest, STATE: checkpoints._entry(path / STATE)}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", -5),
        ("step", "7"),
        ("step", 1e30),
        ("step", 3),
        ("epoch", -1),
        ("batch", None),
        ("progress", 5.0),
        ("seconds", -1e9),
    ],
)
def test_an_invalid_state_is_refused(name: str, value: object, folder: Path) -> None:
    path = folder / "step-00000020"
    rewrite_state(path, lambda content: content["state"].update({name: value}))
    with pytest.raises(BadCheckpoint):
        read_checkpoint(path, "me")
    assert newest_checkpoint(folder, "me")[0].state.step == 10  # type: ignore[union-attr]


@pytest.mark.parametrize("machine", [None, 5, {}, {"threads": "x"}, {"threads": 10**9}])
def test_an_invalid_machine_is_refused(machine: object, folder: Path) -> None:
    path = folder / "step-00000020"
    rewrite_state(path, lambda content: content.update({"machine": machine}))
    with pytest.raises(BadCheckpoint):
        read_checkpoint(path, "me")


def test_checkpoints_of_another_run_or_step_are_refused(folder: Path) -> None:
    checkpoint, damaged = newest_checkpoint(folder, "you")
    assert checkpoint is None and {remark.code for remark in damaged.values()} == {"other-run"}
    (folder / "step-00000020").rename(folder / "step-00000099")
    checkpoint, damaged = newest_checkpoint(folder, "me")
    (remark,) = damaged.values()
    assert checkpoint is not None and checkpoint.state.step == 10 and remark.code == "wrong-step"
    assert "20" in remark.text.replace(str(folder), "")


def test_a_step_that_is_damaged_twice(folder: Path) -> None:
    for _ in range(2):
        flip(folder / "step-00000020" / WEIGHTS)
        checkpoint, damaged = newest_checkpoint(folder, "me")
        tidy_checkpoints(folder, damaged)
        assert checkpoint is not None and checkpoint.state.step == 10
        write_checkpoint(folder, make_checkpoint(20))


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    module = torch.nn.Linear(3, 2)
    optimiser = torch.optim.AdamW(module.parameters())
    with refused("other-model", kind=BadCheckpoint):
        checkpoints.restore(module, optimiser, make_checkpoint(1), "here")
