"""Weights files, read without trusting them.

Only safetensors are read here. Sizes come from the file's header and are compared with the config before anything is
allocated. A pickle is recognised and refused; `read_pickle`, for the import command alone, uses torch's restricted
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

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLE = "pytorch_model.bin"
FLOAT_DTYPES = {"F64", "F32", "F16", "BF16"}
PICKLE_STARTS = (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of an open file: its shape is known, its values are not read yet."""

    shape: tuple[int, ...]
    is_float: bool
    read: Callable[[], Tensor]


@contextmanager
def open_weights(folder: Path) -> Iterator[dict[str, StoredTensor]]:
    """All tensors of a model folder by name, from one file or from several."""
    with ExitStack() as stack:
        tensors: dict[str, StoredTensor] = {}
        for path in weight_files(folder):
            for name, tensor in _open(path, stack).items():
                if name in tensors:
                    raise BadWeights(f"the tensor {name!r} is stored twice", place=str(path), code="stored-twice")
                tensors[name] = tensor
        yield tensors


def weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        return _indexed_files(folder)
    if (folder / PICKLE).is_file():
        raise BadWeights(
            f"{PICKLE} is a pickle, which can run code when it is read",
            place=str(folder),
            remedy=f"if you trust its source: bertworks import {folder} --out NEW",
            code="pickled-weights",
        )
    raise NotFound(f"no {WEIGHTS} in this folder", place=str(folder), code="missing-file")


def _indexed_files(folder: Path) -> list[Path]:
    index = folder / INDEX
    try:
        names = set(read_json(index)["weight_map"].values())
    except (KeyError, AttributeError, TypeError) as error:
        raise BadWeights(f"not an index of weights files: {error!r}", place=str(index)) from None
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise BadWeights(f"the index points outside the folder: {name!r}", place=str(index), code="outside-folder")
    return [folder / name for name in sorted(names)]


def _open(path: Path, stack: ExitStack) -> dict[str, StoredTensor]:
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
            f"not a complete safetensors file: {error}",
            place=str(path),
            remedy="download or save the file again",
            code="damaged-file",
        ) from None
    return {
        name: StoredTensor(tuple(view.get_shape()), view.get_dtype() in FLOAT_DTYPES, partial(file.get_tensor, name))
        for name, view in slices.items()
    }


def _looks_like_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) in PICKLE_STARTS


def read_pickle(path: Path) -> dict[str, StoredTensor]:
    """A torch checkpoint, by the reader that builds tensors and no other objects."""
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
        str(name): StoredTensor(tuple(tensor.shape), tensor.is_floating_point(), tensor.clone)
        for name, tensor in state.items()
    }


def write_weights(path: Path, tensors: Mapping[str, Tensor]) -> None:
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(plain, path, metadata={"format": "pt"})


def as_numpy(tensor: Tensor) -> NDArray[np.float32]:
    """Outputs for the user, checked to be finite: the weights are not checked when a model is loaded."""
    if not bool(tensor.isfinite().all()):
        remedy = "its weights are damaged; download or save them again"
        raise BadWeights("the outputs of the model are not finite", remedy=remedy, code="not-finite")
    return tensor.float().cpu().numpy()
