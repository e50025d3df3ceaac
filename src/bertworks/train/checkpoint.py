"""Checkpoints: a new folder each, whole or not there, and compared with its own manifest before it is used.

    checkpoints/step-00000100/
        weights.safetensors     the trained parameters by name, shared ones once
        optimiser.safetensors   what the optimiser remembers of each
        state.json              step, place in the text, time spent, ...
        manifest.json           size and SHA-256 of the files above

A folder is written under another name, synced to the disk and renamed. So a crash leaves the old ones as they are; a
damaged one is noticed, named and passed over for the one before.
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
from typing import Annotated, Any

import torch
from pydantic import Field, TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertworks.errors import BadCheckpoint, BertworksError, Remark, SaveFailed
from bertworks.files import new_folder, read_json

CHECKPOINTS = "checkpoints"  # in the folder of a run
WEIGHTS, OPTIMIZER, STATE, MANIFEST = "weights.safetensors", "optimiser.safetensors", "state.json", "manifest.json"
NAME = re.compile(r"step-(\d{8,})")
MIN_FREE_BYTES = 32 * 2**20  # bytes that a disk should still have free after a checkpoint
Tensors = dict[str, Tensor]
STATE_BEFORE = {  # fields of before version 0.2
    "looked_at": "evaluated_step",
    "owes_look": "evaluation_pending",
    "in_vain": "evaluations_without_improvement",
    "hopeless": "pruned",
    "looked_seconds": "evaluated_at",
    "look_seconds": "evaluation_seconds",
    "bad_in_a_row": "nonfinite_steps",
}
WEIGHTS_BEFORE = {"encoder.blank": "encoder.mask_state"}


Count = Annotated[int, Field(ge=0, le=2**62)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class State:
    """Where a training stands; with weights and optimiser, all that it needs to go on."""

    step: Count = 0
    epoch: Count = 0
    batch: Count = 0
    progress: Annotated[float, Field(ge=0, le=1)] = 0.0
    seconds: Amount = 0.0
    tokens: Count = 0
    nonfinite_steps: Count = 0
    best: Annotated[float, Field(allow_inf_nan=False)] | None = None  # of what held-out text is judged by
    best_step: Count | None = None
    evaluated_step: Count | None = None  # the step of the last look at held-out text
    evaluation_pending: bool = False  # it was broken off
    evaluations_without_improvement: Count = 0  # looks since the best one
    pruned: bool = False  # by comparison with others
    evaluated_at: Amount = 0.0  # when the last one ended
    evaluation_seconds: Amount = 0.0  # what such a look takes, and a save
    save_seconds: Amount = 0.0


@dataclass(frozen=True)
class Checkpoint:
    """`run` is by whom it was written, `machine` on what."""

    state: State
    run: str
    machine: dict[str, Any]
    weights: Tensors
    optimizer: Tensors


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    place = folder / f"step-{checkpoint.state.step:08}"
    files = {WEIGHTS: checkpoint.weights, OPTIMIZER: checkpoint.optimizer}
    try:
        _check_space(folder, sum(tensor.nbytes for tensors in files.values() for tensor in tensors.values()))
        with new_folder(place, replace=True) as new:
            for name, tensors in files.items():
                save_file({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, new / name)
            state = {"run": checkpoint.run, "machine": checkpoint.machine, "state": asdict(checkpoint.state)}
            (new / STATE).write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
            manifest = {name: _entry(new / name) for name in (WEIGHTS, OPTIMIZER, STATE)}
            (new / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise SaveFailed(f"could not write: {error}", place=str(place)) from None
    return place


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed + MIN_FREE_BYTES:
        cause = f"a checkpoint takes {needed / 1e6:,.0f} MB, the disk has {free / 1e6:,.0f} MB left"
        raise SaveFailed(
            cause, place=str(folder), remedy="free some space; what was saved before is unchanged", code="no-space"
        )


def _entry(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def read_checkpoint(place: Path, run: str) -> Checkpoint:
    """A checkpoint of this run that is what its manifest says, or a `BadCheckpoint` that names the file."""
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
            json.dumps({STATE_BEFORE.get(name, name): value for name, value in saved["state"].items()}), strict=True
        )
        threads = TypeAdapter(Annotated[int, Field(ge=1, le=1024)]).validate_python(
            saved["machine"]["threads"], strict=True
        )
        checkpoint = Checkpoint(
            state,
            saved["run"],
            {**saved["machine"], "threads": threads},
            *map(_load, (place / WEIGHTS, place / OPTIMIZER)),
        )
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise BadCheckpoint(f"cannot be read: {str(error)[:300]}", place=str(place)) from None
    if checkpoint.run != run:
        raise BadCheckpoint("a checkpoint of another run, or of other settings", place=str(place), code="other-run")
    if place.name != f"step-{state.step:08}":
        raise BadCheckpoint(f"this is step {state.step}", place=str(place), code="wrong-step")
    return checkpoint


def _load(path: Path) -> Tensors:
    """Tensors under today's names."""
    tensors: Tensors = load_file(path)
    for old, new in WEIGHTS_BEFORE.items():
        tensors = {name.replace(old, new): tensor for name, tensor in tensors.items()}
    return tensors


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Newest first; whether they are whole is seen when they are read."""
    found = [(int(name[1]), path) for path in folder.glob("step-*") if (name := NAME.fullmatch(path.name))]
    return sorted(found, reverse=True)


def newest_checkpoint(folder: Path, run: str) -> tuple[Checkpoint | None, dict[Path, Remark]]:
    """The newest whole one, and what was wrong with those passed over."""
    damaged: dict[Path, Remark] = {}
    for _, place in list_checkpoints(folder):
        try:
            return read_checkpoint(place, run), damaged
        except BertworksError as error:
            damaged[place] = Remark(error.code, f"{error.place or place}: {error.cause}")
    return None, damaged


def tidy_checkpoints(folder: Path, damaged: Iterable[Path]) -> None:
    """At the start of a process: damaged ones lose their name, so that nothing counts them; what a kill left half done
    goes."""
    for place in damaged:
        aside = place.with_name(f"damaged-{place.name}")
        shutil.rmtree(aside, ignore_errors=True)
        place.rename(aside)
    for path in folder.glob(".*"):
        shutil.rmtree(path, ignore_errors=True)


def prune_checkpoints(folder: Path, keep: int, best: int | None) -> None:
    """The newest stay, and the best. One that cannot be removed does no harm."""
    for step, place in list_checkpoints(folder)[keep:]:
        if step != best:
            with suppress(OSError):
                # Renamed first: a half-deleted folder must not look like a checkpoint.
                shutil.rmtree(place.rename(place.with_name(f".{place.name}.old")))


def optimizer_tensors(module: nn.Module, optimiser: torch.optim.Optimizer) -> Tensors:
    return {
        f"{name}|{key}": value
        for name, parameter in module.named_parameters()
        for key, value in _optimizer_state(optimiser, parameter)
    }


def _optimizer_state(optimiser: torch.optim.Optimizer, parameter: nn.Parameter) -> Iterator[tuple[str, Tensor]]:
    for key, value in optimiser.state.get(parameter, {}).items():
        assert isinstance(value, Tensor)
        yield key, value


@torch.no_grad()
def restore(module: nn.Module, optimiser: torch.optim.Optimizer, checkpoint: Checkpoint, place: str) -> None:
    """Put a checkpoint's tensors where they came from."""
    parameters = dict(module.named_parameters())
    _same_shapes(parameters, checkpoint.weights, place)
    for name, parameter in parameters.items():
        parameter.copy_(checkpoint.weights[name])
    for key, value in checkpoint.optimizer.items():
        name, _, part = key.rpartition("|")
        if name not in parameters:
            cause = f"the optimiser remembers {name!r}, which this model does not have"
            raise BadCheckpoint(cause, place=place, code="other-model")
        # A copy: what is read from the file is a view of it, and the file will be deleted.
        optimiser.state[parameters[name]][part] = value.clone().to(parameters[name].device)


def _same_shapes(parameters: Mapping[str, Tensor], weights: Mapping[str, Tensor], place: str) -> None:
    shapes, stored = ({name: tuple(tensor.shape) for name, tensor in part.items()} for part in (parameters, weights))
    if shapes != stored:
        different = sorted(name for name in shapes.keys() | stored.keys() if shapes.get(name) != stored.get(name))
        raise BadCheckpoint(f"made for another model: {', '.join(different[:5])}", place=place, code="other-model")
