"""From the states of a text's tokens to one vector, as the folder says: the files of sentence-transformers, read and
written.

N  tokens of the batch      B  sequences      R, T  rows and tokens of a run
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from bertworks.errors import BadConfig, Remark, Unsupported
from bertworks.files import read_any_json, read_json
from bertworks.model.layout import PADDING_RANK, Layout, Run

Mode = Literal["mean", "first", "last", "max"]
THEIR_MODES: dict[str, Mode] = {"mean": "mean", "cls": "first", "lasttoken": "last", "max": "max"}
OLD_FLAGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
}
MODULES, LIMIT, SENTENCES = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
POOLING, TOKENIZER = "1_Pooling", "tokenizer_config.json"
POOLING_FILES = (MODULES, LIMIT, SENTENCES, POOLING, "2_Normalize")
MAX_LIMIT = 2**24


@dataclass(frozen=True)
class Pooling:
    """How a text becomes one vector."""

    mode: Mode = "mean"
    normalise: bool = False
    limit: int | None = None  # tokens, special ones included; None: not said
    limit_file: str = ""  # which file says so
    lower_case: bool = False
    stated: bool = False  # the folder has a modules.json
    sentence_config: dict[str, Any] = field(
        default_factory=dict
    )  # config_sentence_transformers.json, written back as it was
    refusals: tuple[Remark, ...] = ()  # what the folder asks for and is not built here

    @property
    def refusal(self) -> str:
        return ", ".join(map(str, self.refusals))

    @property
    def prompt(self) -> str:
        """What is set before every text."""
        prompts, name = self.sentence_config.get("prompts"), self.sentence_config.get("default_prompt_name")
        return str(prompts.get(name) or "") if isinstance(prompts, dict) and isinstance(name, str) else ""

    def with_mode(self, mode: str | None) -> Pooling:
        if mode is None and self.refusal:
            cause = f"the folder asks for {self.refusal}, which is not built here"
            raise Unsupported(cause, remedy="name a pooling of your own choice", code="unsupported-pooling")
        if mode is None:
            return self
        if mode not in get_args(Mode):
            raise Unsupported(
                f"no such pooling: {mode!r}", remedy=f"known: {', '.join(get_args(Mode))}", code="unknown-pooling"
            )
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
        limit, limit_file, lower_case = _limit(folder)
        if not (folder / MODULES).is_file():
            return cls(limit=limit, limit_file=limit_file, lower_case=lower_case)
        kinds = _modules(folder)
        sentence_config = read_json(folder / SENTENCES) if (folder / SENTENCES).is_file() else {}
        strangers = sorted(kinds.keys() - {"Transformer", "Pooling", "Normalize"})
        refusals = [Remark("unsupported-module", f"the module {kind}") for kind in strangers]
        if sentence_config.get("truncate_dim") is not None:
            refusals.append(Remark("unsupported-truncation", f"truncate_dim {sentence_config['truncate_dim']}"))
        mode, complaint = _mode(folder / kinds["Pooling"] / "config.json") if "Pooling" in kinds else ("mean", None)
        return cls(
            mode=mode,
            normalise="Normalize" in kinds,
            limit=limit,
            limit_file=limit_file,
            lower_case=lower_case,
            stated=True,
            sentence_config=sentence_config,
            refusals=(*refusals, *([complaint] if complaint else [])),
        )

    def save(self, folder: Path, hidden_size: int) -> None:
        """Only what the folder said itself is said again."""
        if self.limit is not None or self.lower_case:
            limit = {} if self.limit is None else {"max_seq_length": self.limit}
            _write(folder / LIMIT, {**limit, "do_lower_case": self.lower_case})
        if self.refusal:
            raise Unsupported(
                f"the folder asked for {self.refusal}, which would be lost",
                remedy="set .pooling to a Pooling() of your own choice first",
                code="pooling-would-be-lost",
            )
        if not self.stated:
            return
        kinds = ["Transformer", "Pooling", *(["Normalize"] if self.normalise else [])]
        paths = ["", POOLING, "2_Normalize"]
        _write(
            folder / MODULES,
            [
                {"idx": i, "name": str(i), "path": paths[i], "type": f"sentence_transformers.models.{kind}"}
                for i, kind in enumerate(kinds)
            ],
        )
        their_mode = next(theirs for theirs, ours in THEIR_MODES.items() if ours == self.mode)
        flags = {flag: name == their_mode for flag, name in OLD_FLAGS.items()}
        _write(folder / POOLING / "config.json", {"word_embedding_dimension": hidden_size, **flags})
        if self.sentence_config:
            _write(folder / SENTENCES, self.sentence_config)


def _modules(folder: Path) -> dict[str, str]:
    """Kind of module -> its folder."""
    path = folder / MODULES
    modules = read_any_json(path)
    try:
        kinds = {_kind(str(module["type"])): str(module["path"]) for module in modules}
    except (KeyError, TypeError) as error:
        raise BadConfig(f"not a list of modules: {error!r}", place=str(path)) from None
    for where in kinds.values():
        if Path(where).is_absolute() or ".." in Path(where).parts:
            raise BadConfig(f"a module outside the folder: {where!r}", place=str(path))
    return kinds


def _kind(name: str) -> str:
    """The last part of that library's own names; others are strangers."""
    return name.rpartition(".")[2] if name.startswith("sentence_transformers.") else name


def _limit(folder: Path) -> tuple[int | None, str, bool]:
    if not (folder / LIMIT).is_file():
        return None, "", False
    values = read_json(folder / LIMIT)
    limit, source = values.get("max_seq_length"), LIMIT
    if limit is None and (folder / TOKENIZER).is_file():
        # sentence-transformers 6 keeps it there
        limit, source = read_json(folder / TOKENIZER).get("model_max_length"), TOKENIZER
    if limit is None or (isinstance(limit, int) and limit > MAX_LIMIT):  # transformers writes 10^30 for "not known"
        return None, "", bool(values.get("do_lower_case"))
    if type(limit) is not int or limit < 1:
        raise BadConfig(f"{limit!r} is not a number of tokens", place=str(folder / source))
    return limit, source, bool(values.get("do_lower_case"))


def _mode(path: Path) -> tuple[Mode, Remark | None]:
    """The mode, and what is wrong with it."""
    values = read_json(path)
    named = values.get("pooling_mode")
    names = [named] if isinstance(named, str) else [name for flag, name in OLD_FLAGS.items() if values.get(flag)]
    others = [
        key for key, value in values.items() if key.startswith("pooling_mode_") and value and key not in OLD_FLAGS
    ]
    if len(names) != 1 or others or names[0] not in THEIR_MODES or values.get("include_prompt", True) is False:
        return "mean", Remark("unsupported-pooling", f"pooling {' + '.join([*names, *others]) or 'of no kind'}")
    return THEIR_MODES[names[0]], None


def _write(path: Path, values: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
