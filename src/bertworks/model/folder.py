"""A model is saved as a Hugging Face folder, and loaded from one.

Reading: `config.json` describes the model, the header of the weights lists the tensors; the two are compared before
anything is allocated. Writing: all files go to a temporary folder beside the target, are synced, and take its place in
one step. What Hugging Face cannot express keeps the layout but has `model_type: bertworks`, so that other libraries
refuse it by name.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import torch
from safetensors import SafetensorError
from torch import Tensor

from bertworks.config import ModelConfig
from bertworks.errors import BadConfig, BadWeights, BertworksError, Remark, SaveFailed, Unsupported, nearest
from bertworks.files import JsonObject, exchange, read_json, sync_tree
from bertworks.model.heads import SUMMARY_HEADS
from bertworks.model.hf_config import MAX_LABELS, OURS, from_hf, own_config, to_hf
from bertworks.model.hf_names import (
    HF_NAMES,
    Entry,
    current_names,
    declared_heads,
    families_of_classes,
    families_of_tensors,
    find_architecture,
    find_heads,
    has_summary,
    mapping,
    pooler_names,
)
from bertworks.model.model import Model
from bertworks.model.weights import (
    INDEX,
    PICKLE,
    WEIGHTS,
    StoredTensor,
    open_weights,
    read_pickle,
    weight_files,
    write_weights,
)

CONFIG = "config.json"
RENAMED_TENSORS = {"encoder.blank": "encoder.mask_state"}  # of our own format, before version 0.2
LABELLED_HEADS = frozenset({"sequence", "token"})  # with an output for each label
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
        self.missing = set(missing)
        self.unexpected = set(unexpected)
        self.shapes = dict(shapes or {})
        self.not_float = set(not_float)
        super().__init__(cause, place=place, remedy=remedy)


@dataclass(frozen=True)
class LoadedModel:
    """A model read from a folder, with the fields of its `config.json` and remarks for the user."""

    model: Model
    hf_config: JsonObject
    remarks: list[Remark] = field(default_factory=list)


def load_folder(folder: Path, *, family: str | None = None, strict: bool = False) -> LoadedModel:
    """`family`: where the config does not say it. `strict` refuses weights that nothing reads, and heads without
    weights, which are otherwise left out and named."""
    hf = read_json(folder / CONFIG)
    with open_weights(folder) as stored:
        return assemble(hf, stored, folder, family=family, strict=strict)


def import_folder(folder: Path, *, family: str | None = None, strict: bool = False) -> LoadedModel:
    """As `load_folder`, from `pytorch_model.bin` if there is one: here alone and in `fairseq.py` a pickle is read."""
    if not (folder / PICKLE).exists() and any((folder / name).exists() for name in (WEIGHTS, INDEX)):
        return load_folder(folder, family=family, strict=strict)
    return assemble(read_json(folder / CONFIG), read_pickle(folder / PICKLE), folder, family=family, strict=strict)


def assemble(
    hf: JsonObject, stored: Mapping[str, StoredTensor], folder: Path, *, family: str | None, strict: bool
) -> LoadedModel:
    """The model that a `config.json` describes, with these weights."""
    remarks: list[Remark] = []
    if "auto_map" in hf:
        remarks.append(Remark("remote-code-ignored", "config.json names code to run (auto_map); it is ignored"))
    hf = _with_family(hf, stored.keys(), family, folder, remarks)
    config = from_hf(hf, str(folder / CONFIG))
    if hf["model_type"] == OURS:
        with torch.device("meta"):
            model = Model(config, _string_list(hf, "heads", folder), summary="summary.dense.weight" in stored)
        entries = [Entry(name, (name,)) for name in model.state_dict()]
        stored = {RENAMED_TENSORS.get(name, name): tensor for name, tensor in stored.items()}
    else:
        model, stored = _hf_model(config, hf, stored, folder, strict, remarks)
        entries = mapping(model)
    _check_weights(model, entries, stored, folder, strict)
    _fill_weights(model, entries, stored)
    return LoadedModel(model.eval(), hf, remarks)


def _with_family(
    hf: JsonObject, names: Set[str], family: str | None, folder: Path, remarks: list[Remark]
) -> JsonObject:
    """With a `model_type`, which files of before 2020 do not have."""
    stated = hf.get("model_type")
    place = str(folder / CONFIG)
    if family is not None and family not in HF_NAMES:
        raise BadConfig(f"no such family: {family!r}", remedy=nearest(family, HF_NAMES), code="unknown-family")
    if family is not None and stated in (None, ""):
        return {**hf, "model_type": family}
    if family is not None and stated != family:
        cause = f"config.json says model_type {stated!r}, not {family!r}"
        remedy = "leave the family out, or correct model_type in config.json"
        raise BadConfig(cause, place=place, remedy=remedy, code="other-family", fields=["model_type"])
    if stated not in (None, ""):
        return hf
    named = families_of_classes(_string_list(hf, "architectures", folder))
    families = named or families_of_tensors(names)
    if len(families) != 1:
        fitting = f"; they fit {', '.join(families)}" if families else ""
        raise BadConfig(
            f"config.json has no model_type, and neither architectures nor the tensors' names tell the family{fitting}",
            place=place,
            remedy=f"say it: bertworks import {folder} --family {(families or ['bert'])[0]} --out NEW",
            code="missing-model-type",
            fields=["model_type"],
        )
    source = "its architectures" if named else "the names of its tensors"
    remarks.append(Remark("family-assumed", f"config.json has no model_type: taken for {families[0]}, by {source}"))
    return {**hf, "model_type": families[0]}


def _hf_model(
    config: ModelConfig,
    hf: JsonObject,
    stored: Mapping[str, StoredTensor],
    folder: Path,
    strict: bool,
    remarks: list[Remark],
) -> tuple[Model, dict[str, StoredTensor]]:
    """A model without values, and the tensors for it under current names. Its heads are those that have weights."""
    stored = _renamed(config, stored, folder)
    architectures = _string_list(hf, "architectures", folder)
    declared = declared_heads(config, architectures)
    heads = find_heads(config, stored.keys(), architectures)
    stored = _untie(config, stored, folder)
    config = _with_labels(config, hf, heads, stored, remarks)
    if strict:
        with torch.device("meta"):
            return Model(config, declared.union(heads), summary=has_summary(config, heads, stored.keys())), stored
    model = _whole_heads(config, heads, stored)
    if missing := sorted(declared.union(heads) - set(model.heads)):
        text = f"the weights of the {' and the '.join(missing)} head are missing or incomplete: the model has none"
        remarks.append(Remark("incomplete-head", text))
    return model, _without_unused(model, stored, remarks)


def _whole_heads(config: ModelConfig, heads: list[str], stored: Mapping[str, StoredTensor]) -> Model:
    """With those of the heads, and the summary layer, of which no tensor is missing."""
    with torch.device("meta"):
        model = Model(config, heads, summary=has_summary(config, heads, stored.keys()))
    missing = {name for entry in mapping(model) if entry.theirs not in stored for name in entry.ours}
    incomplete = {head for head in heads if any(name.startswith(f"heads.{head}.") for name in missing)}
    if any(name.startswith("summary.") for name in missing):
        incomplete |= SUMMARY_HEADS & set(heads)
    # Without these heads, the summary layer may be another one.
    return _whole_heads(config, [head for head in heads if head not in incomplete], stored) if incomplete else model


def _with_labels(
    config: ModelConfig,
    hf: JsonObject,
    heads: Iterable[str],
    stored: Mapping[str, StoredTensor],
    remarks: list[Remark],
) -> ModelConfig:
    """With as many labels as the head has outputs: `id2label` and `num_labels` may be left from another model."""
    for head in LABELLED_HEADS & set(heads):
        weight = stored.get(f"{HF_NAMES[config.family].heads[head]['out']}.weight")
        if (
            weight is None
            or weight.shape[1:] != (config.encoder.hidden_size,)
            or not 1 <= weight.shape[0] <= MAX_LABELS
        ):
            continue  # missing, or refused with the other shapes
        n_outputs = weight.shape[0]
        stated = {"id2label": len(hf["id2label"])} if hf.get("id2label") else {}
        stated |= {"num_labels": hf["num_labels"]} if "num_labels" in hf else {}
        if all(count == n_outputs for count in stated.values()) and len(config.heads.labels) == n_outputs:
            continue
        if len(config.heads.labels) != n_outputs:
            config = config.override(labels=tuple(f"LABEL_{i}" for i in range(n_outputs)))
        sizes = " and ".join(f"{key} of {count}" for key, count in stated.items()) or "no labels"
        labels = _shorten(config.heads.labels)
        text = f"the {head} head has {n_outputs} outputs, config.json has {sizes}: the head decides, labels: {labels}"
        remarks.append(Remark("labels-assumed", text))
    return config


def _without_unused(model: Model, stored: Mapping[str, StoredTensor], remarks: list[Remark]) -> dict[str, StoredTensor]:
    """Without heads that we do not have, and buffers. What an encoder has beyond its config stays, and is refused; so
    does everything beside an encoder that is not whole."""
    prefix = HF_NAMES[model.config.family].prefix + "."
    poolers = pooler_names(model.config)
    expected = {entry.theirs for entry in mapping(model)}
    if not expected <= stored.keys():
        return dict(stored)
    unused = {
        name
        for name in stored.keys() - expected
        if not name.startswith(prefix) or name in poolers or not stored[name].is_float
    }
    if unused:
        remarks.append(Remark("unused-weights", f"{_shorten(sorted(unused))}: read by no head, left out"))
    return {name: tensor for name, tensor in stored.items() if name not in unused}


def _string_list(hf: JsonObject, key: str, folder: Path) -> list[str]:
    values = hf.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise BadConfig(f"{key} = {values!r} is not a list of names", place=str(folder / CONFIG))
    return values


def _renamed(config: ModelConfig, stored: Mapping[str, StoredTensor], folder: Path) -> dict[str, StoredTensor]:
    """Under current names, each of which may occur once."""
    renamed: dict[str, StoredTensor] = {}
    for key, name in current_names(config, stored).items():
        if name in renamed:
            raise BadWeights(f"{name} is stored twice, once as {key}", place=str(folder), code="stored-twice")
        renamed[name] = stored[key]
    return renamed


def _untie(config: ModelConfig, stored: Mapping[str, StoredTensor], folder: Path) -> dict[str, StoredTensor]:
    """Without the second copies of tied tensors; a copy that differs is an error."""
    untied = dict(stored)
    for copy_name, name in HF_NAMES[config.family].tied.items():
        if copy_name in untied and name not in untied:
            untied[name] = untied.pop(copy_name)
        elif copy_name in untied and not _equal(untied.pop(copy_name), untied[name]):
            cause = f"{copy_name} differs from {name}; here the two are one tensor"
            raise Unsupported(cause, place=str(folder), code="untied-weights")
    return untied


def _equal(a: StoredTensor, b: StoredTensor) -> bool:
    if a.shape != b.shape or not (a.is_float and b.is_float):
        return False
    return torch.equal(a.read().float(), b.read().float())


def _check_weights(
    model: Model, entries: Iterable[Entry], stored: Mapping[str, StoredTensor], folder: Path, strict: bool
) -> None:
    """The file must hold just what the config describes. Nothing is allocated yet: the model has shapes only."""
    state = model.state_dict()
    expected = {entry.theirs: tuple(entry.join([state[name] for name in entry.ours]).shape) for entry in entries}
    missing = expected.keys() - stored.keys()
    unexpected = stored.keys() - expected.keys()
    present = expected.keys() & stored.keys()
    shapes = {
        name: (stored[name].shape, shape)
        for name, shape in expected.items()
        if name in present and stored[name].shape != shape
    }
    not_float = {name for name in present if not stored[name].is_float}
    wrong_shapes = [f"{name} is {list(actual)}, not {list(shape)}" for name, (actual, shape) in shapes.items()]
    problems = [
        _problem("missing", missing),
        _problem("not expected", unexpected),
        _problem("of another size", wrong_shapes),
        _problem("", (f"{name} does not hold floating-point numbers" for name in not_float)),
    ]
    if any(problems):
        or_not_strict = "; without strict, heads that do not fit are left out" if strict else ""
        raise WeightsMismatch(
            "the weights do not fit the config:\n  " + "\n  ".join(filter(None, problems)),
            place=str(folder),
            remedy="config.json and weights must come from the same model" + or_not_strict,
            missing=missing,
            unexpected=unexpected,
            shapes=shapes,
            not_float=not_float,
        )


def _problem(title: str, items: Iterable[str]) -> str:
    ordered = sorted(items)
    return f"{title}: {_shorten(ordered)}" if ordered else ""


def _shorten(items: Sequence[str], max_items: int = 8) -> str:
    """A list for people, without its end if it is long."""
    more = f" and {len(items) - max_items} more" if len(items) > max_items else ""
    return ", ".join(items[:max_items]) + more


def _fill_weights(model: Model, entries: Iterable[Entry], stored: Mapping[str, StoredTensor]) -> None:
    state: dict[str, Tensor] = {}
    for entry in entries:
        parts = entry.split(stored[entry.theirs].read().float())
        state |= {name: part.contiguous() for name, part in zip(entry.ours, parts, strict=True)}
    model.load_state_dict(state, assign=True)


def save_folder(
    model: Model,
    folder: Path,
    *,
    hf_config: JsonObject,
    files: Callable[[Path], None],
    owned: Iterable[str] = (),
) -> None:
    """`hf_config`: fields of an earlier `config.json` to keep. `files` writes the other files of the model; `owned` are
    the names it may write: an earlier model's files of these names are not kept."""
    values = config_values(model, hf_config)
    tensors = model.state_dict()
    if values["model_type"] != OURS:
        tensors = {entry.theirs: entry.join([tensors[name] for name in entry.ours]) for entry in mapping(model)}
        if not model.heads:
            prefix = HF_NAMES[model.config.family].prefix + "."
            tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}

    def write(new: Path) -> None:
        (new / CONFIG).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        write_weights(new / WEIGHTS, tensors)
        shutil.copymode(new / CONFIG, new / WEIGHTS)  # the library writes for its owner only
        files(new)

    replace_folder(folder.resolve(), write, stale={INDEX, PICKLE, *owned})


def config_values(model: Model, hf_config: JsonObject) -> JsonObject:
    """The `config.json` of a model: Hugging Face's fields where they can express it, else our own."""
    own = {**own_config(model.config), "heads": list(model.heads)}
    hf = to_hf(model.config)
    if hf is None:
        return own
    architecture = find_architecture(model)
    # In Hugging Face's classes, some heads have as many outputs as there are labels, where ours have two.
    sized_by_labels = HF_NAMES[model.config.family].sized_by_labels & set(model.heads)
    if architecture is None or (sized_by_labels and len(model.config.heads.labels) != 2):
        return own
    kept = hf_config if hf_config.get("model_type") == hf["model_type"] else {}
    kept = {key: value for key, value in kept.items() if key not in ("auto_map", "num_labels", OURS)}
    dtype = str(model.encoder.token_table.dtype).removeprefix("torch.")
    return {**kept, **hf, "architectures": [architecture], "dtype": dtype}


def replace_folder(folder: Path, write: Callable[[Path], None], *, stale: Iterable[str] = ()) -> None:
    """Write a folder so that the old one or the new one is there, complete, at every moment. Files that are not the
    model's are kept."""
    new = folder.parent / f".{folder.name}.{uuid4().hex[:8]}.new"
    try:
        if folder.exists() and not folder.is_dir():
            raise SaveFailed("there is a file of this name", place=str(folder), code="not-a-folder")
        if folder.is_dir() and any(folder.iterdir()) and not _is_model(folder):
            cause = "this folder is not empty and not a model folder"
            raise SaveFailed(cause, place=str(folder), remedy="choose another name", code="not-a-model-folder")
        new.mkdir(parents=True)
        write(new)
        if folder.is_dir():
            _copy_other_files(folder, new, set(stale))
        sync_tree(new)
        sync_tree(new.parent, deep=False)
        exchange(new, folder)
    except BertworksError:
        raise
    except (OSError, SafetensorError) as error:
        too_long = isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG
        remedy = "choose a shorter name" if too_long else "what was there before is unchanged"
        reason = getattr(error, "strerror", None) or error
        raise SaveFailed(f"could not write: {reason}", place=str(folder), remedy=remedy) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)  # after an exchange this is the old folder


def _is_model(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and isinstance(read_json(folder / CONFIG).get("model_type"), str)


def _copy_other_files(old: Path, new: Path, stale: set[str]) -> None:
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
