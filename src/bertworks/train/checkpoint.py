"""Checkpoints: a folder each, written atomically, and checked against its manifest before it is used.

    checkpoints/step-00000100/
        weights.safetensors     the trained parameters by name, shared ones once
        optimiser.safetensors   the optimizer state of each
        state.json              step, cursor in the data, time spent, ...
        manifest.json           size and SHA-256 of the files above

A folder is written under a temporary name, synced to the disk and renamed. So a crash leaves the older ones intact; a
damaged one is detected, reported and skipped in favour of the one before.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field, TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertworks.errors import BadCheckpoint, BertworksError, Remark, SaveFailed
from bertworks.files import JsonObject, new_folder, read_json

CHECKPOINTS = "checkpoints"  # folder inside of a run's
WEIGHTS, OPTIMIZER, STATE, MANIFEST = "weights.safetensors", "optimiser.safetensors", "state.json", "manifest.json"
NAME = re.compile(r"step-(\d{8,})")
MIN_FREE_BYTES = 32 * 2**20  # that a disk must still have after a checkpoint
Tensors = dict[str, Tensor]
OLD_STATE_FIELDS = {  # names before version 0.2: names of today
    "looked_at": "evaluated_step",
    "owes_look": "evaluation_pending",
    "in_vain": "evaluations_without_improvement",
    "hopeless": "pruned",
    "looked_seconds": "evaluated_at",
    "look_seconds": "evaluation_seconds",
    "bad_in_a_row": "nonfinite_steps",
}
OLD_WEIGHT_NAMES = {"encoder.blank": "encoder.mask_state"}

Count = Annotated[int, Field(ge=0, le=2**62)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class State:
    """Where a training stands; with weights and optimizer, all that is needed to resume it."""

    step: Count = 0
    epoch: Count = 0  # with `batch`: the cursor of the next step
    batch: Count = 0
    progress: Annotated[float, Field(ge=0, le=1)] = 0.0
    seconds: Seconds = 0.0  # spent so far
    tokens: Count = 0  # trained on so far
    nonfinite_steps: Count = 0  # skipped in a row
    best: Annotated[float, Field(allow_inf_nan=False)] | None = None  # value of the monitored metric
    best_step: Count | None = None
    evaluated_step: Count | None = None  # of the last evaluation
    evaluation_pending: bool = False  # the last evaluation was interrupted
    evaluations_without_improvement: Count = 0
    pruned: bool = False  # far behind other seeds
    evaluated_at: Seconds = 0.0  # when the last evaluation ended
    evaluation_seconds: Seconds = 0.0  # duration of the last evaluation
    save_seconds: Seconds = 0.0  # duration of the last save


@dataclass(frozen=True)
class Checkpoint:
    state: State
    run: str  # identity of the run
    machine: JsonObject  # that wrote it
    weights: Tensors
    optimizer: Tensors


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    path = folder / f"step-{checkpoint.state.step:08}"
    files = {WEIGHTS: checkpoint.weights, OPTIMIZER: checkpoint.optimizer}
    try:
        _check_space(folder, sum(tensor.nbytes for tensors in files.values() for tensor in tensors.values()))
        with new_folder(path, replace=True) as new:
            for name, tensors in files.items():
                save_file({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, new / name)
            state = {"run": checkpoint.run, "machine": checkpoint.machine, "state": asdict(checkpoint.state)}
            (new / STATE).write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
            manifest = {name: _entry(new / name) for name in (WEIGHTS, OPTIMIZER, STATE)}
            (new / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise SaveFailed(f"could not write: {error}", place=str(path)) from None
    return path


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed + MIN_FREE_BYTES:
        cause = f"a checkpoint needs {needed / 1e6:,.0f} MB, the disk has {free / 1e6:,.0f} MB free"
        remedy = "free some space; earlier checkpoints are intact"
        raise SaveFailed(cause, place=str(folder), remedy=remedy, code="no-space")


def _entry(path: Path) -> dict[str, int | str]:
    """A file's entry in the manifest."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def read_checkpoint(place: Path, run: str) -> Checkpoint:
    """A checkpoint of this run that matches its manifest, or a `BadCheckpoint` that names the file."""
    manifest = read_json(place / MANIFEST)
    for name in (WEIGHTS, OPTIMIZER, STATE):
        path = place / name
        if not path.is_file() or path.is_symlink():
            raise BadCheckpoint("a file of this checkpoint is missing", place=str(path), code="missing-file")
        if _entry(path) != manifest.get(name):
            raise BadCheckpoint(
                "this file has changed since it was written (size or SHA-256)", place=str(path), code="changed-file"
            )
    try:
        saved = read_json(place / STATE)
        state = TypeAdapter(State).validate_json(
            json.dumps({OLD_STATE_FIELDS.get(name, name): value for name, value in saved["state"].items()}), strict=True
        )
        threads = TypeAdapter(Annotated[int, Field(ge=1, le=1024)]).validate_python(
            saved["machine"]["threads"], strict=True
        )
        checkpoint = Checkpoint(
            state,
            saved["run"],
            {**saved["machine"], "threads": threads},
            _load(place / WEIGHTS),
            _load(place / OPTIMIZER),
        )
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise BadCheckpoint(f"cannot be read: {str(error)[:300]}", place=str(place)) from None
    if checkpoint.run != run:
        raise BadCheckpoint("the checkpoint of another run, or of other settings", place=str(place), code="other-run")
    if place.name != f"step-{state.step:08}":
        raise BadCheckpoint(f"holds step {state.step}, not that of its name", place=str(place), code="wrong-step")
    return checkpoint


def _load(path: Path) -> Tensors:
    """Tensors under today's names."""
    tensors: Tensors = load_file(path)
    for old, new in OLD_WEIGHT_NAMES.items():
        tensors = {name.replace(old, new): tensor for name, tensor in tensors.items()}
    return tensors


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """(step, folder), newest first. They are not checked before they are read."""
    checkpoints = [(int(match[1]), path) for path in folder.glob("step-*") if (match := NAME.fullmatch(path.name))]
    return sorted(checkpoints, reverse=True)


def newest_checkpoint(folder: Path, run: str) -> tuple[Checkpoint | None, dict[Path, Remark]]:
    """The newest intact one, and what was wrong with newer ones that were skipped."""
    damaged: dict[Path, Remark] = {}
    for _, place in list_checkpoints(folder):
        try:
            return read_checkpoint(place, run), damaged
        except BertworksError as error:
            damaged[place] = Remark(error.code, f"{error.place or place}: {error.cause}")
    return None, damaged


def tidy_checkpoints(folder: Path, damaged: Iterable[Path]) -> None:
    """At the start of a process: damaged ones are renamed, so that they are no longer listed, and unfinished ones of a
    killed process are deleted."""
    for place in damaged:
        renamed = place.with_name(f"damaged-{place.name}")
        shutil.rmtree(renamed, ignore_errors=True)
        place.rename(renamed)
    for path in folder.glob(".*"):
        shutil.rmtree(path, ignore_errors=True)


def prune_checkpoints(folder: Path, keep: int, best: int | None) -> None:
    """Delete all but the `keep` newest and the best. One that cannot be deleted does no harm."""
    for step, place in list_checkpoints(folder)[keep:]:
        if step != best:
            with suppress(OSError):
                # Renamed first: a half-deleted folder must not look like a checkpoint.
                shutil.rmtree(place.rename(place.with_name(f".{place.name}.old")))


def optimizer_tensors(module: nn.Module, optimizer: torch.optim.Optimizer) -> Tensors:
    return {
        f"{name}|{key}": value
        for name, parameter in module.named_parameters()
        for key, value in _optimizer_state(optimizer, parameter)
    }


def _optimizer_state(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> Iterator[tuple[str, Tensor]]:
    for key, value in optimizer.state.get(parameter, {}).items():
        assert isinstance(value, Tensor)
        yield key, value


@torch.no_grad()
def restore(module: nn.Module, optimizer: torch.optim.Optimizer, checkpoint: Checkpoint, place: str) -> None:
    """Load a checkpoint's tensors into module and optimizer."""
    parameters = dict(module.named_parameters())
    _check_shapes(parameters, checkpoint.weights, place)
    for name, parameter in parameters.items():
        parameter.copy_(checkpoint.weights[name])
    for key, value in checkpoint.optimizer.items():
        name, _, state_key = key.rpartition("|")
        if name not in parameters:
            cause = f"the optimizer state has {name!r}, which is no parameter of this model"
            raise BadCheckpoint(cause, place=place, code="other-model")
        # A copy: what is read from the file is a view of it, and the file will be deleted.
        optimizer.state[parameters[name]][state_key] = value.clone().to(parameters[name].device)


def _check_shapes(parameters: Mapping[str, Tensor], weights: Mapping[str, Tensor], place: str) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in parameters.items()}
    stored = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if expected != stored:
        different = sorted(name for name in expected.keys() | stored.keys() if expected.get(name) != stored.get(name))
        cause = f"the checkpoint of another model; different parameters: {', '.join(different[:5])}"
        raise BadCheckpoint(cause, place=place, code="other-model")
