"""Pooling: from the states of a text's tokens to one vector, as configured in the folder. Its files are those of
sentence-transformers.

N  tokens of the batch      B  sequences      R, T  rows and tokens of a run
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from bertworks.errors import BadConfig, Remark, Unsupported
from bertworks.files import JsonObject, read_any_json, read_json
from bertworks.model.layout import PADDING_RANK, Layout, Run

Mode = Literal["mean", "first", "last", "max"]
# Names of modes in sentence-transformers -> ours; flags of its older versions -> its names.
MODES: dict[str, Mode] = {"mean": "mean", "cls": "first", "lasttoken": "last", "max": "max"}
MODE_FLAGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
}
MODULES_FILE = "modules.json"
LIMIT_FILE = "sentence_bert_config.json"
SENTENCE_FILE = "config_sentence_transformers.json"
TOKENIZER_FILE = "tokenizer_config.json"
POOLING_FOLDER = "1_Pooling"
NORMALIZE_FOLDER = "2_Normalize"
POOLING_FILES = (MODULES_FILE, LIMIT_FILE, SENTENCE_FILE, POOLING_FOLDER, NORMALIZE_FOLDER)
MAX_LIMIT = 2**24  # tokens; transformers writes 10^30 for "not known"


@dataclass(frozen=True)
class Pooling:
    """How a text becomes one vector."""

    mode: Mode = "mean"
    normalise: bool = False
    limit: int | None = None  # tokens, special ones included; None: not configured
    limit_file: str = ""  # the file with the limit
    lower_case: bool = False
    stated: bool = False  # the folder has a modules.json
    sentence_config: JsonObject = field(default_factory=dict)  # of SENTENCE_FILE, written back as it was
    refusals: tuple[Remark, ...] = ()  # what the folder configures and is not supported

    @property
    def refusal(self) -> str:
        return ", ".join(map(str, self.refusals))

    @property
    def prompt(self) -> str:
        """The text before every text."""
        prompts = self.sentence_config.get("prompts")
        name = self.sentence_config.get("default_prompt_name")
        return str(prompts.get(name) or "") if isinstance(prompts, dict) and isinstance(name, str) else ""

    def with_mode(self, mode: str | None) -> Pooling:
        if mode is None and self.refusal:
            cause = f"the folder asks for {self.refusal}, which is not supported"
            raise Unsupported(cause, remedy="name a pooling of your own choice", code="unsupported-pooling")
        if mode is None:
            return self
        if mode not in get_args(Mode):
            remedy = f"known: {', '.join(get_args(Mode))}"
            raise Unsupported(f"no such pooling: {mode!r}", remedy=remedy, code="unknown-pooling")
        return replace(self, mode=mode)  # type: ignore[arg-type]

    def pool(self, states: Tensor, layout: Layout) -> Tensor:
        """(N, hidden) -> (B, hidden). Padding, which only rectangular layouts have, does not count."""
        if self.mode == "first":
            return states.index_select(0, layout.starts)
        if self.mode == "last":
            return states.index_select(0, layout.lasts)
        sizes = [rows * length for rows, length, _ in layout.shapes]
        parts = zip(torch.split(states, sizes), layout.shapes, layout.runs, strict=True)
        return torch.cat([self._pool_rows(part.view(rows, length, -1), run) for part, (rows, length, _), run in parts])

    def _pool_rows(self, rows: Tensor, run: Run) -> Tensor:
        """(R, T, hidden) -> (R, hidden)."""
        ranks = run.keys.ranks
        if ranks is None:
            return rows.mean(1) if self.mode == "mean" else rows.amax(1)
        is_text = (ranks < PADDING_RANK).unsqueeze(-1)
        if self.mode == "mean":
            return (rows * is_text).sum(1) / is_text.sum(1)
        return rows.masked_fill(~is_text, -torch.inf).amax(1)

    @classmethod
    def load(cls, folder: Path) -> Pooling:
        limit, limit_file, lower_case = _read_limit(folder)
        if not (folder / MODULES_FILE).is_file():
            return cls(limit=limit, limit_file=limit_file, lower_case=lower_case)
        modules = _read_modules(folder)
        sentence_config = read_json(folder / SENTENCE_FILE) if (folder / SENTENCE_FILE).is_file() else {}
        unsupported = sorted(modules.keys() - {"Transformer", "Pooling", "Normalize"})
        refusals = [Remark("unsupported-module", f"the module {kind}") for kind in unsupported]
        if sentence_config.get("truncate_dim") is not None:
            refusals.append(Remark("unsupported-truncation", f"truncate_dim {sentence_config['truncate_dim']}"))
        mode: Mode = "mean"
        if "Pooling" in modules:
            mode, refusal = _read_mode(folder / modules["Pooling"] / "config.json")
            refusals += [refusal] if refusal else []
        return cls(
            mode=mode,
            normalise="Normalize" in modules,
            limit=limit,
            limit_file=limit_file,
            lower_case=lower_case,
            stated=True,
            sentence_config=sentence_config,
            refusals=tuple(refusals),
        )

    def save(self, folder: Path, hidden_size: int) -> None:
        """Only files that the loaded folder had are written."""
        if self.limit is not None or self.lower_case:
            limit = {} if self.limit is None else {"max_seq_length": self.limit}
            _write_json(folder / LIMIT_FILE, {**limit, "do_lower_case": self.lower_case})
        if self.refusal:
            raise Unsupported(
                f"the folder asked for {self.refusal}, which would be lost",
                remedy="set .pooling to a Pooling() of your own choice first",
                code="pooling-would-be-lost",
            )
        if not self.stated:
            return
        types = {"": "Transformer", POOLING_FOLDER: "Pooling"}
        if self.normalise:
            types[NORMALIZE_FOLDER] = "Normalize"
        modules = [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (path, kind) in enumerate(types.items())
        ]
        _write_json(folder / MODULES_FILE, modules)
        mode_name = next(name for name, mode in MODES.items() if mode == self.mode)
        flags = {flag: name == mode_name for flag, name in MODE_FLAGS.items()}
        _write_json(folder / POOLING_FOLDER / "config.json", {"word_embedding_dimension": hidden_size, **flags})
        if self.sentence_config:
            _write_json(folder / SENTENCE_FILE, self.sentence_config)


def _read_modules(folder: Path) -> dict[str, str]:
    """Type of module -> its folder."""
    path = folder / MODULES_FILE
    modules = read_any_json(path)
    try:
        folders = {_module_type(str(module["type"])): str(module["path"]) for module in modules}
    except (KeyError, TypeError) as error:
        raise BadConfig(f"not a list of modules: {error!r}", place=str(path)) from None
    for module_folder in folders.values():
        if Path(module_folder).is_absolute() or ".." in Path(module_folder).parts:
            raise BadConfig(f"a module outside the folder: {module_folder!r}", place=str(path))
    return folders


def _module_type(name: str) -> str:
    """The class name, if the class is of sentence-transformers; else the full name."""
    return name.rpartition(".")[2] if name.startswith("sentence_transformers.") else name


def _read_limit(folder: Path) -> tuple[int | None, str, bool]:
    """The limit, the name of its file, and whether texts are lowercased."""
    if not (folder / LIMIT_FILE).is_file():
        return None, "", False
    values = read_json(folder / LIMIT_FILE)
    lower_case = bool(values.get("do_lower_case"))
    limit, file = values.get("max_seq_length"), LIMIT_FILE
    if limit is None and (folder / TOKENIZER_FILE).is_file():  # where sentence-transformers 6 keeps it
        limit, file = read_json(folder / TOKENIZER_FILE).get("model_max_length"), TOKENIZER_FILE
    if limit is None or (isinstance(limit, int) and limit > MAX_LIMIT):
        return None, "", lower_case
    if type(limit) is not int or limit < 1:
        raise BadConfig(f"{limit!r} is not a number of tokens", place=str(folder / file))
    return limit, file, lower_case


def _read_mode(path: Path) -> tuple[Mode, Remark | None]:
    """The mode; a remark, if it is not supported."""
    values = read_json(path)
    mode = values.get("pooling_mode")
    names = [mode] if isinstance(mode, str) else [name for flag, name in MODE_FLAGS.items() if values.get(flag)]
    names += [
        key for key, value in values.items() if key.startswith("pooling_mode_") and value and key not in MODE_FLAGS
    ]
    if len(names) != 1 or names[0] not in MODES or values.get("include_prompt", True) is False:
        return "mean", Remark("unsupported-pooling", f"pooling {' + '.join(names) or 'of no kind'}")
    return MODES[names[0]], None


def _write_json(path: Path, values: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
