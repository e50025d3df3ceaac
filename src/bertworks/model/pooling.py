"""From the states of a text's tokens to one vector, as the folder says: the files of sentence-transformers, read and written.

N  tokens of the batch      B  sequences      R, T  rows and tokens of a run
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from bertworks.errors import BadConfig, Unsupported
from bertworks.model.folder import read_json
from bertworks.model.layout import Layout

Mode = Literal["mean", "first", "last", "max"]
THEIR_MODES: dict[str, Mode] = {"mean": "mean", "cls": "first", "lasttoken": "last", "max": "max"}
OLD_FLAGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
}
MODULES, LIMIT, PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"


@dataclass(frozen=True)
class Pooling:
    """How a text becomes one vector."""

    mode: Mode = "mean"
    normalise: bool = False
    limit: int | None = None  # tokens, special ones included; None: the model's positions
    prompt: str = ""  # set before every text
    lower_case: bool = False
    stated: bool = False  # the folder says so itself

    def with_mode(self, mode: str | None) -> Pooling:
        if mode is None:
            return self
        if mode not in get_args(Mode):
            raise Unsupported(f"no such pooling: {mode!r}", remedy=f"known: {', '.join(get_args(Mode))}")
        return replace(self, mode=mode)  # type: ignore[arg-type]

    def pool(self, states: Tensor, layout: Layout) -> Tensor:
        """(N, hidden) -> (B, hidden)."""
        if self.mode == "first":
            return states.index_select(0, layout.starts)
        if self.mode == "last":
            return states.index_select(0, layout.lasts)
        runs = torch.split(states, [rows * length for rows, length, _ in layout.shapes])
        rows = [run.view(rows, length, -1) for run, (rows, length, _) in zip(runs, layout.shapes, strict=True)]
        return torch.cat([run.mean(1) if self.mode == "mean" else run.amax(1) for run in rows])

    @classmethod
    def load(cls, folder: Path) -> Pooling:
        limit, lower_case = _limit(folder)
        if not (folder / MODULES).is_file():
            return cls(limit=limit, lower_case=lower_case)
        try:
            modules = json.loads((folder / MODULES).read_text())
            kinds = {module["type"].rpartition(".")[2]: module["path"] for module in modules}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadConfig(f"not a list of modules: {error!r}", place=str(folder / MODULES)) from None
        strange = sorted(kinds.keys() - {"Transformer", "Pooling", "Normalize"})
        if strange:
            raise Unsupported(f"modules that are not built here: {', '.join(strange)}", place=str(folder / MODULES))
        if Path(kinds.get("Pooling", "")).is_absolute() or ".." in Path(kinds.get("Pooling", "")).parts:
            raise BadConfig("a module outside the folder", place=str(folder / MODULES))
        mode = _mode(folder / kinds["Pooling"] / "config.json") if "Pooling" in kinds else "mean"
        return cls(mode, "Normalize" in kinds, limit, _prompt(folder), lower_case, stated=True)

    def save(self, folder: Path, hidden_size: int) -> None:
        """Only a folder that had settings of its own gets them again."""
        if self.limit is not None:
            _write(folder / LIMIT, {"max_seq_length": self.limit, "do_lower_case": self.lower_case})
        if not self.stated:
            return
        kinds = ["Transformer", "Pooling", *(["Normalize"] if self.normalise else [])]
        paths = ["", "1_Pooling", "2_Normalize"]
        _write(
            folder / MODULES,
            [{"idx": i, "name": str(i), "path": paths[i], "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)],
        )
        their_mode = next(theirs for theirs, ours in THEIR_MODES.items() if ours == self.mode)
        flags = {flag: name == their_mode for flag, name in OLD_FLAGS.items()}
        _write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": hidden_size, **flags})
        if self.prompt:
            _write(folder / PROMPTS, {"prompts": {"default": self.prompt}, "default_prompt_name": "default"})


def _limit(folder: Path) -> tuple[int | None, bool]:
    if not (folder / LIMIT).is_file():
        return None, False
    values = read_json(folder / LIMIT)
    limit = values.get("max_seq_length")
    if limit is None and (folder / "tokenizer_config.json").is_file():
        # sentence-transformers 6 keeps it there
        limit = read_json(folder / "tokenizer_config.json").get("model_max_length")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise BadConfig(f"max_seq_length = {limit!r} is not a number of tokens", place=str(folder / LIMIT))
    return limit, bool(values.get("do_lower_case", False))


def _mode(path: Path) -> Mode:
    values = read_json(path)
    named = values.get("pooling_mode")
    names = [named] if isinstance(named, str) else [name for flag, name in OLD_FLAGS.items() if values.get(flag)]
    others = [key for key, value in values.items() if key.startswith("pooling_mode_") and value and key not in OLD_FLAGS]
    if len(names) != 1 or others or names[0] not in THEIR_MODES or values.get("include_prompt", True) is False:
        raise Unsupported(
            f"pooling {names + others} is not built here", place=str(path), remedy=f"known: {', '.join(THEIR_MODES)}, one of them"
        )
    return THEIR_MODES[names[0]]


def _prompt(folder: Path) -> str:
    values: dict[str, Any] = read_json(folder / PROMPTS) if (folder / PROMPTS).is_file() else {}
    name = values.get("default_prompt_name")
    return str((values.get("prompts") or {}).get(name, "")) if name else ""


def _write(path: Path, values: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
