"""A model is a folder, and it is a Hugging Face folder, in both directions.

Reading: `config.json` says what the model is, the weights' header says what is there; the two are compared before
anything is allocated. Writing: all files go to a temporary folder beside the target, are synced, and take its place in
one step. What Hugging Face cannot express keeps the layout but says `model_type: bertworks`, so that others refuse it
by name.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from safetensors import SafetensorError
from torch import Tensor

from bertworks.config import ModelConfig
from bertworks.errors import BadConfig, BadWeights, BertworksError, Remark, SaveFailed, Unsupported
from bertworks.files import exchange, read_json, sync_tree
from bertworks.model.hf_config import OURS, from_hf, own_config, to_hf
from bertworks.model.hf_names import HF_NAMES, Entry, architecture, find_heads, mapping, plain_names, spare_pooler
from bertworks.model.model import Model
from bertworks.model.weights import (
    INDEX,
    PICKLE,
    WEIGHTS,
    Stored,
    open_weights,
    read_pickle,
    weight_files,
    write_weights,
)

CONFIG = "config.json"
NAMES_BEFORE = {"encoder.blank": "encoder.mask_state"}  # of our own format, before version 0.2
GENERATOR = "generator"  # a folder in the folder of an ELECTRA discriminator: what it was trained with


class WeightsMismatch(BadWeights):
    """Weights that are not those the config describes, by their names; `shapes` are those stored and those expected."""

    code = "weights-mismatch"

    def __init__(
        self,
        cause: str,
        *,
        place: str | None = None,
        remedy: str | None = None,
        missing: Iterable[str] = (),
        unexpected: Iterable[str] = (),
        shapes: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] | None = None,
        not_float: Iterable[str] = (),
    ) -> None:
        self.missing, self.unexpected, self.shapes, self.not_float = (
            set(missing),
            set(unexpected),
            dict(shapes or {}),
            set(not_float),
        )
        super().__init__(cause, place=place, remedy=remedy)


@dataclass(frozen=True)
class Loaded:
    """A model read from a folder, with the fields of its `config.json` and remarks for the user."""

    model: Model
    hf_config: dict[str, Any]
    remarks: list[Remark] = field(default_factory=list)


def load_folder(folder: Path) -> Loaded:
    hf = read_json(folder / CONFIG)
    with open_weights(folder) as stored:
        return _assemble(hf, stored, folder)


def import_folder(folder: Path) -> Loaded:
    """As `load_folder`, from `pytorch_model.bin`: the one place where a pickle is read."""
    return _assemble(read_json(folder / CONFIG), read_pickle(folder / PICKLE), folder)


def _assemble(hf: dict[str, Any], stored: Mapping[str, Stored], folder: Path) -> Loaded:
    config = from_hf(hf, str(folder / CONFIG))
    remarks: list[Remark] = []
    if "auto_map" in hf:
        remarks.append(Remark("remote-code-ignored", "config.json names code to run (auto_map); it is ignored"))
    if hf["model_type"] == OURS:
        with torch.device("meta"):
            model = Model(config, _strings(hf, "heads", folder), summary="summary.dense.weight" in stored)
        entries = [Entry(name, (name,)) for name in model.state_dict()]
        stored = {NAMES_BEFORE.get(name, name): tensor for name, tensor in stored.items()}
    else:
        stored = _renamed(config, stored, folder)
        heads, summary = find_heads(config, stored.keys(), _strings(hf, "architectures", folder))
        stored = _untie(config, stored, folder)
        with torch.device("meta"):
            model = Model(config, heads, summary=summary)
        entries = mapping(model)
        spare = stored.keys() & spare_pooler(config) - {entry.theirs for entry in entries}
        if spare:
            remarks.append(Remark("unused-weights", f"{', '.join(sorted(spare))}: read by no head, left out"))
            stored = {name: tensor for name, tensor in stored.items() if name not in spare}
    _compare(model, entries, stored, folder)
    _fill(model, entries, stored)
    return Loaded(model.eval(), hf, remarks)


def _strings(hf: Mapping[str, Any], key: str, folder: Path) -> list[str]:
    values = hf.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise BadConfig(f"{key} = {values!r} is not a list of names", place=str(folder / CONFIG))
    return values


def _renamed(config: ModelConfig, stored: Mapping[str, Stored], folder: Path) -> dict[str, Stored]:
    """Under the names of today; two names for one tensor are one too many."""
    renamed: dict[str, Stored] = {}
    for key, name in plain_names(config, stored).items():
        if name in renamed:
            raise BadWeights(f"{name} is stored twice, once as {key}", place=str(folder), code="stored-twice")
        renamed[name] = stored[key]
    return renamed


def _untie(config: ModelConfig, stored: Mapping[str, Stored], folder: Path) -> dict[str, Stored]:
    """Without the second copies of tied tensors, which must be copies."""
    single = dict(stored)
    for copy, original in HF_NAMES[config.family].tied.items():
        if copy in single and original not in single:
            single[original] = single.pop(copy)
        elif copy in single:
            a, b = single.pop(copy), single[original]
            if a.shape != b.shape or not (
                a.is_float and b.is_float and torch.equal(a.read().float(), b.read().float())
            ):
                cause = f"{copy} differs from {original}; here the two are one tensor"
                raise Unsupported(cause, place=str(folder), code="untied-weights")
    return single


def _compare(model: Model, entries: Iterable[Entry], stored: Mapping[str, Stored], folder: Path) -> None:
    """The file holds just what the config describes. Nothing has been allocated yet: the model has shapes only."""
    shapes = model.state_dict()
    expected = {entry.theirs: tuple(entry.join([shapes[name] for name in entry.ours]).shape) for entry in entries}
    missing, unexpected = expected.keys() - stored.keys(), stored.keys() - expected.keys()
    wrong = {
        name: (stored[name].shape, shape)
        for name, shape in expected.items()
        if name in stored and stored[name].shape != shape
    }
    not_float = {name for name in expected.keys() & stored.keys() if not stored[name].is_float}
    problems = [
        _list("missing", missing),
        _list("not expected", unexpected),
        _list(
            "of another size", (f"{name} is {list(found)}, not {list(shape)}" for name, (found, shape) in wrong.items())
        ),
        _list("", (f"{name} does not hold floating-point numbers" for name in not_float)),
    ]
    if any(problems):
        raise WeightsMismatch(
            "the weights do not fit the config:\n  " + "\n  ".join(filter(None, problems)),
            place=str(folder),
            remedy="config.json and weights must come from the same model",
            missing=missing,
            unexpected=unexpected,
            shapes=wrong,
            not_float=not_float,
        )


def _list(title: str, names: Iterable[str], most: int = 8) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return f"{title}: {', '.join(ordered[:most])}{more}" if ordered else ""


def _fill(model: Model, entries: Iterable[Entry], stored: Mapping[str, Stored]) -> None:
    state: dict[str, Tensor] = {}
    for entry in entries:
        parts = entry.split(stored[entry.theirs].read().float())
        state |= {name: part.contiguous() for name, part in zip(entry.ours, parts, strict=True)}
    model.load_state_dict(state, assign=True)


def save_folder(
    model: Model,
    folder: Path,
    *,
    hf_config: Mapping[str, Any],
    files: Callable[[Path], None],
    owned: Iterable[str] = (),
) -> None:
    """`hf_config`: fields of an earlier `config.json` to carry along. `files` writes what else belongs to the model;
    `owned` are the names it may write, and an earlier model's files of these names go."""
    described = describe(model, hf_config)
    if described["model_type"] == OURS:
        tensors = dict(model.state_dict())
    else:
        state, prefix = model.state_dict(), HF_NAMES[model.config.family].prefix + "."
        tensors = {entry.theirs: entry.join([state[name] for name in entry.ours]) for entry in mapping(model)}
        if not model.heads:
            tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}

    def write(new: Path) -> None:
        (new / CONFIG).write_text(json.dumps(described, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        write_weights(new / WEIGHTS, tensors)
        shutil.copymode(new / CONFIG, new / WEIGHTS)  # the library writes for its owner only
        files(new)

    replace_folder(folder.resolve(), write, stale={INDEX, PICKLE, *owned})


def describe(model: Model, hf_config: Mapping[str, Any]) -> dict[str, Any]:
    """The `config.json` of a model: theirs where they can express it, ours where not."""
    hf = to_hf(model.config)
    if hf is None:
        return {**own_config(model.config), "heads": list(model.heads)}
    name = architecture(model)
    # Some heads of theirs have as many outputs as there are labels, where two are meant.
    binary = not HF_NAMES[model.config.family].of_labels & set(model.heads) or len(model.config.heads.labels) == 2
    if name is None or not binary:
        return {**own_config(model.config), "heads": list(model.heads)}
    carried = hf_config if hf_config.get("model_type") == hf["model_type"] else {}
    carried = {key: value for key, value in carried.items() if key not in ("auto_map", OURS)}
    return {
        **carried,
        **hf,
        "architectures": [name],
        "dtype": str(model.encoder.token_table.dtype).removeprefix("torch."),
    }


def replace_folder(folder: Path, write: Callable[[Path], None], *, stale: Iterable[str] = ()) -> None:
    """Write a folder so that the old one or the new one is there, whole, at every moment. Files of others are kept."""
    if folder.exists() and not folder.is_dir():
        raise SaveFailed("there is a file of this name", place=str(folder), code="not-a-folder")
    if folder.is_dir() and any(folder.iterdir()) and not _is_model(folder):
        cause = "this folder is not empty and not a model folder"
        raise SaveFailed(cause, place=str(folder), remedy="choose another name", code="not-a-model-folder")
    new = folder.parent / f".{folder.name}.{uuid4().hex[:8]}.new"
    try:
        new.mkdir(parents=True)
        write(new)
        if folder.is_dir():
            _carry_over(folder, new, set(stale))
        sync_tree(new)
        sync_tree(new.parent, deep=False)
        exchange(new, folder)
    except BertworksError:
        raise
    except (OSError, SafetensorError) as error:
        raise SaveFailed(
            f"could not write: {error}", place=str(folder), remedy="what was there before is unchanged"
        ) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)  # after an exchange this is the old folder


def _is_model(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and isinstance(read_json(folder / CONFIG).get("model_type"), str)


def _carry_over(old: Path, new: Path, stale: set[str]) -> None:
    shutil.copymode(old, new)
    if (old / INDEX).is_file():
        stale = stale | {path.name for path in weight_files(old) if path.suffix == ".safetensors"}
    for path in old.iterdir():
        target = new / path.name
        if target.exists() or path.name in stale:
            continue
        if path.is_dir():
            shutil.copytree(path, target, symlinks=True)
        else:
            shutil.copy2(path, target, follow_symlinks=False)
