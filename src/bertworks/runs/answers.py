"""Answers of a fine-tuned model as lines and tables."""

from __future__ import annotations

import csv
import json
from collections.abc import Container, Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

from bertworks.errors import BadConfig, NotFound
from bertworks.files import whole_file
from bertworks.tasks.example import Example
from bertworks.tasks.inputs import Asked

DELIMITERS = {".csv": ",", ".tsv": "\t"}
LINES = (".jsonl", ".ndjson")
JOINED = {"labels": ", ", "words": " ", "tags": " "}


def check_out(out: Path | None, *, as_json: bool) -> None:
    """Before any work is done."""
    if out is not None and as_json:
        raise BadConfig("--json prints, --out writes", remedy="one of them; a file that ends in .jsonl holds the same")
    if out is not None and out.suffix not in (*DELIMITERS, *LINES):
        raise BadConfig("no such kind of file", place=str(out), remedy="known kinds: .csv, .tsv, .jsonl")
    if out is not None and not out.parent.is_dir():
        raise NotFound("no such folder", place=str(out.parent))


def flat(answer: Any) -> dict[str, Any]:
    """What fits into the cells of a table; no answer is an empty cell. The rest is for JSON."""
    cells = {}
    for name, value in vars(answer).items():
        if name in JOINED:
            cells[name] = JOINED[name].join(value)
        elif not isinstance(value, list | dict):
            cells[name] = "" if value is None else value
    return cells


def line_of(answer: Any) -> str:
    """For people, between tabs."""
    return "\t".join(f"{cell:.4f}" if isinstance(cell, float) else " ".join(str(cell).split()) for cell in flat(answer).values())


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
        rows = asked.rows or [{"text": example.whole or " ".join(example.texts)} for example in asked.examples]
        columns = dict.fromkeys(name for row in rows for name in row)
        added = {name: _free(name, columns) for name in flat(answers[0])}
        writer = csv.DictWriter(text, [*columns, *added.values()], delimiter=DELIMITERS[out.suffix])
        writer.writeheader()
        for row, answer in zip(rows, answers, strict=True):
            given = {
                name: json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value for name, value in row.items()
            }
            writer.writerow({**given, **{added[name]: value for name, value in flat(answer).items()}})
    with whole_file(out) as file:
        file.write(text.getvalue().encode())


def _free(name: str, taken: Container[str]) -> str:
    while name in taken:
        name = f"predicted_{name}"
    return name


def _about(example: Example) -> dict[str, Any]:
    return {"place": example.place, **({"id": example.name} if example.name else {})}
