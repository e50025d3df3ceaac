"""Weights files: read without trust, written without risk.

Only safetensors are read here. Sizes come from the file's header and are compared with the config before anything is
allocated. A pickle is recognised and refused; `read_pickle`, for the import verb alone, goes through torch's restricted
reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bertworks.errors import BadWeights, NotFound
from bertworks.files import read_json

WEIGHTS, INDEX, PICKLE = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
FLOATS = {"F64", "F32", "F16", "BF16"}


@dataclass(frozen=True)
class Stored:
    """One tensor in a file that is open: its shape is known, its values are not read yet."""

    shape: tuple[int, ...]
    is_float: bool
    read: Callable[[], Tensor]


@contextmanager
def open_weights(folder: Path) -> Iterator[dict[str, Stored]]:
    """All tensors of a model folder by name, from one file or from several."""
    with ExitStack() as stack:
        found: dict[str, Stored] = {}
        for path in weight_files(folder):
            for name, stored in _open(path, stack).items():
                if name in found:
                    raise BadWeights(f"the tensor {name!r} is stored twice", place=str(path), code="stored-twice")
                found[name] = stored
        yield found


def weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        return _shards(folder)
    if (folder / PICKLE).is_file():
        raise BadWeights(
            f"{PICKLE} is a pickle, which can run code when it is read",
            place=str(folder),
            remedy=f"if you trust where it comes from: bertworks import {folder} --out NEW",
            code="pickled-weights",
        )
    raise NotFound(f"no {WEIGHTS} in this folder", place=str(folder), code="missing-file")


def _shards(folder: Path) -> list[Path]:
    try:
        names = set(read_json(folder / INDEX)["weight_map"].values())
    except (KeyError, AttributeError, TypeError) as error:
        raise BadWeights(f"not an index of weights files: {error!r}", place=str(folder / INDEX)) from None
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise BadWeights(
                f"the index points outside the folder: {name!r}", place=str(folder / INDEX), code="outside-folder"
            )
    return [folder / name for name in sorted(names)]


def _open(path: Path, stack: ExitStack) -> dict[str, Stored]:
    if not path.is_file():
        raise NotFound("a weights file is missing", place=str(path), code="missing-file")
    try:
        file = stack.enter_context(safe_open(path, framework="pt"))
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError) as error:
        if path.is_file() and _looks_like_pickle(path):
            raise BadWeights(
                "a pickle where safetensors are expected",
                place=str(path),
                remedy="bertworks import, if you trust it",
                code="pickled-weights",
            ) from None
        raise BadWeights(
            f"not a whole safetensors file: {error}",
            place=str(path),
            remedy="fetch or save the file again",
            code="damaged-file",
        ) from None
    return {
        name: Stored(tuple(part.get_shape()), part.get_dtype() in FLOATS, partial(file.get_tensor, name))
        for name, part in slices.items()
    }


def _looks_like_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(2)
    return start in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


def read_pickle(path: Path) -> dict[str, Stored]:
    """A torch checkpoint, by the reader that builds tensors and nothing else."""
    if not path.is_file():
        raise NotFound(f"no {path.name} in this folder", place=str(path.parent), code="missing-file")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle can fail in any way
        reason = str(error).partition("\n")[0]
        raise BadWeights(f"not a file of plain tensors: {reason}", place=str(path), code="unreadable-pickle") from None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise BadWeights("not a dictionary of tensors", place=str(path), code="not-a-state-dict")
    for name, tensor in state.items():
        # A small file can describe huge tensors: one number, repeated by strides of zero.
        if tensor.is_nested or tensor.layout != torch.strided or tensor.nbytes > tensor.untyped_storage().nbytes():
            raise BadWeights(f"{name} is not a plain tensor", place=str(path), code="not-a-plain-tensor")
    return {
        str(name): Stored(tuple(tensor.shape), tensor.is_floating_point(), tensor.clone)
        for name, tensor in state.items()
    }


def write_weights(path: Path, tensors: Mapping[str, Tensor]) -> None:
    save_file(
        {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"}
    )


def as_numpy(tensor: Tensor) -> NDArray[np.float32]:
    """Results for the user. Weights are not read through when a model is loaded; what comes of them is looked at
    here."""
    if not bool(tensor.isfinite().all()):
        remedy = "its weights are damaged; fetch or save them again"
        raise BadWeights("the model gives numbers that are not finite", remedy=remedy, code="not-finite")
    return tensor.float().cpu().numpy()
