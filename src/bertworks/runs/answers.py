"""Answers of a fine-tuned model as lines and tables."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

from bertworks.errors import BadConfig
from bertworks.files import whole_file
from bertworks.tasks.example import Example
from bertworks.tasks.inputs import Asked

DELIMITERS = {".csv": ",", ".tsv": "\t"}
LINES = (".jsonl", ".ndjson")


def check_out(out: Path | None) -> None:
    """Before any work is done."""
    if out is not None and out.suffix not in (*DELIMITERS, *LINES):
        raise BadConfig("no such kind of file", place=str(out), remedy="known kinds: .csv, .tsv, .jsonl")


def flat(answer: Any) -> dict[str, Any]:
    """What fits into the cells of a table: no answer is an empty cell, words stand between spaces, the rest is for JSON."""
    cells = {}
    for name, value in vars(answer).items():
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            cells[name] = " ".join(value)
        elif not isinstance(value, list | dict):
            cells[name] = "" if value is None else value
    return cells


def write_lines(file: TextIO, asked: Asked, answers: Sequence[Any]) -> None:
    """JSON, one object for each answer, with what it is an answer to."""
    for example, answer in zip(asked.examples, answers, strict=True):
        file.write(json.dumps({**_about(example), **asdict(answer)}, ensure_ascii=False) + "\n")


def write_answers(out: Path, asked: Asked, answers: Sequence[Any]) -> None:
    """A table keeps the columns that it came with."""
    text = StringIO(newline="")
    if out.suffix in LINES:
        write_lines(text, asked, answers)
    else:
        rows = asked.rows or [{"text": " ".join(example.texts)} for example in asked.examples]
        cells = [flat(answer) for answer in answers]
        added = {name: name if name not in rows[0] else f"predicted_{name}" for name in cells[0]}
        writer = csv.DictWriter(text, [*rows[0], *added.values()], delimiter=DELIMITERS[out.suffix], extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**row, **{added[name]: value for name, value in said.items()}} for row, said in zip(rows, cells, strict=True))
    with whole_file(out) as file:
        file.write(text.getvalue().encode())


def _about(example: Example) -> dict[str, Any]:
    return {"place": example.place, **({"id": example.name} if example.name else {})}
