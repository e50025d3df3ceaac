"""Weights files, read without trusting them.

Only safetensors are read here. Sizes come from the file's header and are compared with the config before anything is
allocated. A pickle is recognised and refused; `load_pickle`, for the import command alone, uses torch's restricted
reader, which builds tensors and plain containers. Any other name in a pickle is refused, unless it is one of those that
the caller knows; for these an `Inert` object is built, which keeps what it is given and does nothing.
"""

from __future__ import annotations

import pickletools
import zipfile
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Self

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
PLAIN_NAMES = {"collections.OrderedDict", "collections.Counter", "_codecs.encode"}
PLAIN_NAMES |= {f"builtins.{name}" for name in ("set", "bytearray", "complex")}
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
    is_pickle = _first_bytes(path) in PICKLE_STARTS
    try:
        file = stack.enter_context(safe_open(path, framework="pt"))
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError) as error:
        if is_pickle:
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


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(2)
    except OSError as error:
        remedy = f"ls -l {path} shows who may read it"
        raise NotFound(f"cannot be read: {error.strerror}", place=str(path), remedy=remedy, code="unreadable") from None


def read_pickle(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a torch checkpoint that holds nothing else."""
    return stored_tensors(load_pickle(path), path)


class Inert:
    """Built in place of an object of a class that is not imported: keeps arguments and state, and runs nothing."""

    arguments: tuple[Any, ...]
    state: Any = None

    def __new__(cls, *arguments: Any) -> Self:
        self = super().__new__(cls)
        self.arguments = arguments
        return self

    def __init__(self, *arguments: Any) -> None:
        pass  # unpickling calls __new__ alone, or both

    def __setstate__(self, state: Any) -> None:
        self.state = state


def load_pickle(path: Path, is_known: Callable[[str], bool] = lambda name: False) -> Any:
    """The content of a torch checkpoint, with `Inert` objects for those of known names; any other name is refused."""
    if not path.is_file():
        raise NotFound(f"no {path.name} in this folder", place=str(path.parent), code="missing-file")
    _first_bytes(path)
    names = {name for name in _pickled_names(path) if not _is_plain(name)}
    if foreign := sorted(name for name in names if not is_known(name)):
        raise BadWeights(
            f"this pickle names {', '.join(foreign[:5])}, which a file of weights does not need; nothing of it was run",
            place=str(path),
            remedy="get the weights as safetensors, or from a source that you trust; opened elsewhere it may run code",
            code="unsafe-pickle",
        )
    stand_ins: list[Any] = [(_empty_dict if name == "collections.defaultdict" else Inert, name) for name in names]
    try:
        with torch.serialization.safe_globals(stand_ins):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # a damaged pickle can fail in any way; torch's messages advise to load it without protection
        cause = "not a complete file of plain tensors, as torch.save writes them"
        remedy = "download or save the file again"
        raise BadWeights(cause, place=str(path), remedy=remedy, code="unreadable-pickle") from None


def _empty_dict(*arguments: Any) -> dict[Any, Any]:
    """For a defaultdict: the reader puts its items into plain dicts only."""
    return {}


def _is_plain(name: str) -> bool:
    """Whether a name is for torch's reader to judge: it has a list of what tensors and plain containers need."""
    return name.startswith("torch.") or name in PLAIN_NAMES


def _pickled_names(path: Path) -> set[str]:
    """What a torch checkpoint would import, found without unpickling; of a damaged one as far as it can be read, since
    torch's reader refuses it."""
    names: set[str] = set()
    with suppress(Exception), ExitStack() as stack:
        if zipfile.is_zipfile(path):
            archive = stack.enter_context(zipfile.ZipFile(path))
            pickles = [archive.open(entry) for entry in archive.infolist() if entry.filename.endswith("/data.pkl")]
        else:
            # Before version 1.6: magic number, version and system, then the content and the keys of its storages.
            pickles = [stack.enter_context(path.open("rb"))] * 5
        for file in pickles:
            for name in _imports(file):
                names.add(name)  # one by one: those before the damage count
    return names


def _imports(file: IO[bytes]) -> Iterator[str]:
    """The names that a pickle would import. Newer protocols take them from the stack, where strings are remembered."""
    memo: dict[object, Any] = {}
    pushed: deque[Any] = deque([None, None], maxlen=2)
    for opcode, argument, _ in pickletools.genops(file):
        if opcode.name == "GLOBAL":
            yield _current_name(*str(argument).split(" ", 1))
        elif opcode.name == "STACK_GLOBAL":
            yield _current_name(*map(str, pushed))
        if opcode.name == "MEMOIZE" or opcode.name.endswith("PUT"):
            memo[len(memo) if argument is None else argument] = pushed[-1]
        elif opcode.name.endswith("GET"):
            pushed.append(memo.get(argument))
        elif opcode.stack_after:
            pushed.append(argument)


def _current_name(module: str, name: str) -> str:
    """Python 2's names are those of Python 3, as for torch's reader."""
    module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
    return f"{module}.{name}"


def stored_tensors(state: object, path: Path) -> dict[str, StoredTensor]:
    """A state dict, checked to hold plain tensors only."""
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
