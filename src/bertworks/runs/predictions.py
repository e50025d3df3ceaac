"""Predictions as lines and tables, read and written a part at a time."""

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
from bertworks.datasets.columns import NamedColumns
from bertworks.datasets.example import Example
from bertworks.datasets.inputs import InputBatch, Inputs
from bertworks.errors import BadConfig, NotFound
from bertworks.files import atomic_write
from bertworks.predictor import Predictor
from bertworks.tasks.catalogue import CATALOGUE
from bertworks.tasks.task import Prediction
from bertworks.text.ledger import Ledger, OnLong

DELIMITERS = {".csv": ",", ".tsv": "\t"}
LINES = (".jsonl", ".ndjson")
Write = Callable[[InputBatch, Sequence[Prediction]], None]


def check_output(out: Path | None, file: str, *, as_json: bool) -> None:
    """Before any work is done."""
    if out is not None and file != "-" and out.resolve() == Path(file).resolve():
        cause, remedy = "this would replace the file that is asked", "--out names another file"
        raise BadConfig(cause, place=str(out), remedy=remedy, code="would-replace-input")
    if out is not None and as_json:
        raise BadConfig("--json prints, --out writes", remedy="one of them; a file that ends in .jsonl holds the same")
    if out is not None and out.suffix not in (*DELIMITERS, *LINES):
        raise BadConfig(
            "no such kind of file", place=str(out), remedy="known kinds: .csv, .tsv, .jsonl", code="unknown-file-type"
        )
    if out is not None and not out.parent.is_dir():
        raise NotFound("no such folder", place=str(out.parent))


def inputs_for(predictor: Predictor, file: str, *, named: NamedColumns | None = None, skip_bad: bool = False) -> Inputs:
    """A file as this model reads it: as in training, where it looks like that."""
    artifact, schema = predictor.artifact, predictor.task.schema
    row = CATALOGUE.get(artifact.dataset or "")
    is_official = (
        row is not None and file != "-" and not (named and named.by_option()) and row.has(Path(file), labelled=False)
    )
    return Inputs(
        file,
        schema,
        pairs=artifact.task.pairs,
        labels=artifact.task.labels,
        named=named,
        trained_on=artifact.columns,
        official=row.read if row is not None and is_official else None,
        skip_bad=skip_bad,
    )


def predict_file(
    predictor: Predictor,
    inputs: Inputs,
    write: Write,
    *,
    on_long: OnLong | None,
    min_confidence: float,
    progress: Callable[[int, int | None], None],
) -> tuple[Ledger, int]:
    """Reads, predicts and writes part after part; what was read, and in how many predictions the model abstained."""
    ledger, n_abstained = Ledger(), 0
    for batch in inputs:

        def advance(done: int, _: int, before: int = ledger.texts) -> None:
            progress(before + done, inputs.total)

        predictions = predictor.predict(
            batch.valid, on_long=on_long, min_confidence=min_confidence, ledger=ledger, progress=advance
        )
        write(batch, predictions)
        n_abstained += sum(one.abstained for one in predictions) if min_confidence else 0
    return ledger, n_abstained


@contextmanager
def open_output(out: Path | None, header: Collection[str], *, as_json: bool) -> Iterator[Write]:
    """Where answers go: to standard output, or to a file that is there when all of them are in it. Rows keep the
    columns that they came with, their `header`."""
    if out is None:
        yield partial(_write_json, sys.stdout, header) if as_json else partial(_write_plain, sys.stdout)
        return
    with atomic_write(out) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        yield (
            partial(_write_json, text, header) if out.suffix in LINES else _Table(text, header, DELIMITERS[out.suffix])
        )
        text.detach()


def _joined(
    batch: InputBatch, predictions: Sequence[Prediction]
) -> Iterator[tuple[Row, Example | None, Prediction | None]]:
    """Each line or row of a file with its prediction, None where there is nothing to predict."""
    rest = iter(predictions)
    for row, example in zip(batch.rows, batch.examples, strict=True):
        yield row, example, next(rest) if example is not None else None


def _write_plain(file: TextIO, batch: InputBatch, predictions: Sequence[Prediction]) -> None:
    """For people, separated by tabs; a line for each line or row that could be read."""
    for _, _, prediction in _joined(batch, predictions):
        cells = prediction.cells().values() if prediction is not None else ()
        file.write(
            "\t".join(f"{cell:.4f}" if isinstance(cell, float) else " ".join(str(cell).split()) for cell in cells)
            + "\n"
        )


def _write_json(file: TextIO, header: Collection[str], batch: InputBatch, predictions: Sequence[Prediction]) -> None:
    """One object for each prediction, with its input."""
    for row, example, prediction in _joined(batch, predictions):
        if example is not None and prediction is not None:
            given = {"place": example.place, **({"id": example.name} if example.name else {}), **row}
            predicted = {_free(name, header): value for name, value in asdict(prediction).items()}
            file.write(_as_json({**given, **predicted}) + "\n")


class _Table:
    """Rows with cells for the prediction, which are empty where there is none."""

    def __init__(self, file: TextIO, header: Collection[str], delimiter: str) -> None:
        self.file, self.header, self.delimiter = file, header, delimiter
        self.writer: csv.DictWriter[str] | None = None
        self.waiting: list[Row] = []  # for the first prediction: what its cells are

    def __call__(self, batch: InputBatch, predictions: Sequence[Prediction]) -> None:
        for row, _, prediction in _joined(batch, predictions):
            given = {name: _as_json(value) if isinstance(value, list | dict) else value for name, value in row.items()}
            cells = prediction.cells() if prediction is not None else {}
            predicted = {_free(name, self.header): cell for name, cell in cells.items()}
            self.waiting.append({**given, **predicted})
            if self.writer is None and predicted:
                self.writer = csv.DictWriter(self.file, [*self.header, *predicted], delimiter=self.delimiter)
                self.writer.writeheader()
            if self.writer is not None:
                self.writer.writerows(self.waiting)
                self.waiting.clear()


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _free(name: str, taken: Container[str]) -> str:
    """Beside the columns of a file, so that nobody takes it for one of them."""
    name = f"predicted_{name}"
    while name in taken:
        name = f"predicted_{name}"
    return name
