"""Answers of a fine-tuned model as lines and tables."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from bertworks.data.tables import Row
from bertworks.errors import BadConfig, NotFound
from bertworks.files import whole_file
from bertworks.tasks.example import Example
from bertworks.tasks.inputs import Asked, Inputs
from bertworks.text.ledger import Ledger, OnLong
from bertworks.workbench import Workbench

DELIMITERS = {".csv": ",", ".tsv": "\t"}
LINES = (".jsonl", ".ndjson")
Write = Callable[[Asked, Sequence[Any]], None]
JOINED = {"labels": ", ", "undecided": ", ", "words": " ", "tags": " "}
FOR_PROGRAMS = ("score", "blank", "best")  # of an answer: what it was weighed by
UNSURE = "?"  # in the place of a tag or an answer


def check_out(out: Path | None, file: str, *, as_json: bool) -> None:
    """Before any work is done."""
    if out is not None and file != "-" and out.resolve() == Path(file).resolve():
        cause, remedy = "this would replace the file that is asked", "--out names another file"
        raise BadConfig(cause, place=str(out), remedy=remedy, code="would-replace-input")
    if out is not None and as_json:
        raise BadConfig("--json prints, --out writes", remedy="one of them; a file that ends in .jsonl holds the same")
    if out is not None and out.suffix not in (*DELIMITERS, *LINES):
        raise BadConfig("no such kind of file", place=str(out), remedy="known kinds: .csv, .tsv, .jsonl", code="unknown-file-type")
    if out is not None and not out.parent.is_dir():
        raise NotFound("no such folder", place=str(out.parent))


def answer_all(
    bench: Workbench,
    inputs: Inputs,
    write: Write,
    *,
    on_long: OnLong | None,
    min_confidence: float,
    progress: Callable[[int, int | None], None],
) -> tuple[Ledger, int]:
    """Reads, answers and writes part after part; what was read, and how many answers the model was not sure enough to give."""
    ledger, silent = Ledger(), 0
    for asked in inputs:

        def advance(new: int, _: int, before: int = ledger.texts) -> None:
            progress(before + new, inputs.total)

        answers = bench.predict(asked.examples, on_long=on_long, min_confidence=min_confidence, ledger=ledger, progress=advance)
        write(asked, answers)
        silent += sum(answer.unsure for answer in answers) if min_confidence else 0
    return ledger, silent


@contextmanager
def opened_out(out: Path | None, header: Collection[str], *, as_json: bool) -> Iterator[Write]:
    """Where answers go: to standard output, or to a file that is there when all of them are in it. Rows keep the columns that they
    came with, their `header`."""
    if out is None:
        yield partial(_write_json, sys.stdout, header) if as_json else partial(_write_plain, sys.stdout)
        return
    with whole_file(out) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        yield partial(_write_json, text, header) if out.suffix in LINES else _Table(text, header, DELIMITERS[out.suffix])
        text.detach()


def _joined(asked: Asked, answers: Sequence[Any]) -> Iterator[tuple[Row, Example | None, Any]]:
    """Each place of a file with its answer, None where there is nothing to answer."""
    given = iter(answers)
    for row, example in zip(asked.rows, asked.places, strict=True):
        yield row, example, next(given) if example is not None else None


def _write_plain(file: TextIO, asked: Asked, answers: Sequence[Any]) -> None:
    """For people, between tabs; a line for each line or row that could be read."""
    for _, _, answer in _joined(asked, answers):
        cells = [cell for name, cell in _flat(answer).items() if name not in FOR_PROGRAMS] if answer is not None else ()
        file.write("\t".join(f"{cell:.4f}" if isinstance(cell, float) else " ".join(str(cell).split()) for cell in cells) + "\n")


def _write_json(file: TextIO, header: Collection[str], asked: Asked, answers: Sequence[Any]) -> None:
    """One object for each answer, with what it is an answer to."""
    for row, example, answer in _joined(asked, answers):
        if example is not None:
            about = {"place": example.place, **({"id": example.name} if example.name else {}), **row}
            said = {_free(name, header): value for name, value in asdict(answer).items()}
            file.write(_as_json({**about, **said}) + "\n")


class _Table:
    """Rows with cells for the answer, which are empty where there is none."""

    def __init__(self, file: TextIO, header: Collection[str], delimiter: str) -> None:
        self.file, self.header, self.delimiter = file, header, delimiter
        self.writer: csv.DictWriter[str] | None = None
        self.waiting: list[Row] = []  # for the first answer: what its cells are

    def __call__(self, asked: Asked, answers: Sequence[Any]) -> None:
        for row, _, answer in _joined(asked, answers):
            given = {name: _as_json(value) if isinstance(value, list | dict) else value for name, value in row.items()}
            said = {_free(name, self.header): cell for name, cell in _flat(answer).items()} if answer is not None else {}
            self.waiting.append({**given, **said})
            if self.writer is None and said:
                self.writer = csv.DictWriter(self.file, [*self.header, *said], delimiter=self.delimiter)
                self.writer.writeheader()
            if self.writer is not None:
                self.writer.writerows(self.waiting)
                self.waiting.clear()


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _flat(answer: Any) -> dict[str, Any]:
    """What fits into the cells of a table; no answer is an empty cell. The rest is for JSON."""
    cells = {}
    for name, value in vars(answer).items():
        if name in JOINED:
            cells[name] = JOINED[name].join(UNSURE if one is None else one for one in value)
        elif not isinstance(value, list | dict):
            cells[name] = (UNSURE if name == "answer" else "") if value is None else value  # "" is an answer: the passage does not say
    return cells


def _free(name: str, taken: Container[str]) -> str:
    """Beside the columns of a file, so that nobody takes it for one of them."""
    name = f"predicted_{name}"
    while name in taken:
        name = f"predicted_{name}"
    return name
