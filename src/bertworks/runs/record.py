"""The record of a run, `run.json`: what is trained, on what, from what; written before the first step and never
changed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from bertworks import __version__
from bertworks.config import Frozen
from bertworks.errors import BadConfig, NotFound
from bertworks.files import JsonObject, read_json, write_json
from bertworks.model.locate import RUN

Kind = Literal["pretrain", "finetune", "seeds"]
PRETRAIN: Kind = "pretrain"
FINETUNE: Kind = "finetune"
SEEDS: Kind = "seeds"  # several of one fine-tuning


class RunRecord(BaseModel):
    """`config` stays as it was written, with the keys of its version: the identity of the run depends on it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal[1] = 1
    written_by: str = f"bertworks {__version__}"
    kind: Kind
    preset: str | None = None
    init: str | None = None  # the model it began with
    shards: str | None = None  # pre-training
    source: JsonObject | None = None  # fine-tuning: where the examples come from
    data: JsonObject | str  # fingerprint of the shards or examples
    config: JsonObject
    seeds: list[int] | None = None
    environment: JsonObject | None = None

    @classmethod
    def new(cls, kind: Kind, config: Frozen, **fields: object) -> RunRecord:
        return cls(kind=kind, config=config.model_dump(mode="json"), **fields)

    @classmethod
    def read(cls, folder: Path, *kinds: str) -> RunRecord:
        """A run of one of `kinds`; without any, of any kind."""
        if not (folder / RUN).is_file():
            remedy = "`bertworks pretrain` and `bertworks finetune` make them"
            raise NotFound("no run in this folder", place=str(folder), remedy=remedy, code="not-a-run")
        try:
            record = cls.model_validate(read_json(folder / RUN))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            cause = f"not the record of a run that this version knows: {field}: {first['msg']}"
            raise BadConfig(cause, place=str(folder / RUN), code="unknown-record") from None
        if kinds and record.kind not in kinds:
            cause = f"this is a run of {record.kind}, not of {' or '.join(kinds)}"
            raise BadConfig(cause, place=str(folder), code="other-kind-of-run")
        return record

    def write(self, folder: Path) -> None:
        write_json(folder / RUN, self.model_dump(mode="json", exclude_none=True) | {"init": self.init})

    @property
    def identity(self) -> str:
        """A hash of config, data and preset, by which a run recognises its own checkpoints."""
        train = {name: value for name, value in self.config["train"].items() if name != "workers"}
        text = json.dumps([{**self.config, "train": train}, self.data, self.preset], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def with_loop(self, **changes: object) -> RunRecord:
        """With other keys of the training loop, named as in this record."""
        return self.model_copy(update={"config": {**self.config, "train": {**self.config["train"], **changes}}})
