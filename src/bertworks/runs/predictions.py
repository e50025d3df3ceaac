"""Predictions for a file, as lines or tables, read and written in batches."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from bertworks.data.corpus import ReadProgress
from bertworks.data.tables import Row
from bertworks.datasets.columns import NamedColumns
from bertworks.datasets.example import Example
from bertworks.datasets.inputs import InputBatch, Inputs
from bertworks.errors import BadConfig, NotFound, Remark
from bertworks.files import atomic_write, check_not_input
from bertworks.predictor import Predictor
from bertworks.tasks.catalogue import CATALOGUE
from bertworks.tasks.task import Prediction
from bertworks.text.ledger import Ledger, OnLong

DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSON_LINES_SUFFIXES = (".jsonl", ".ndjson")
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")  # at the beginning of a cell, if it is not a number
NUMBER = re.compile(r"[-+]?[\d.,]*\d(?:[eE][-+]?\d+)?%?")
WriteText = Callable[[str], object]


def check_output(out: Path | None, file: str, *, as_json: bool, raw: bool = False) -> None:
    """Before anything is computed."""
    if raw and (out is None or out.suffix not in DELIMITERS):
        raise BadConfig("--raw is for tables", remedy="--out FILE.csv, or leave it out", code="no-effect")
    if out is None:
        return
    check_not_input(out, file)
    if as_json:
        raise BadConfig("--json prints, --out writes", remedy="one of them; a file that ends in .jsonl holds the same")
    if out.suffix not in (*DELIMITERS, *JSON_LINES_SUFFIXES):
        remedy = "known types: .csv, .tsv, .jsonl"
        raise BadConfig("unknown file type", place=str(out), remedy=remedy, code="unknown-file-type")
    if not out.parent.is_dir():
        raise NotFound("no such folder", place=str(out.parent))


def inputs_for(
    predictor: Predictor,
    file: str,
    *,
    named: NamedColumns | None = None,
    skip_bad: bool = False,
    is_text: bool = False,
) -> Inputs:
    """A file as this model reads it: an official file of the data set it was trained on, or a table or lines;
    `is_text`: `file` is the input itself."""
    artifact = predictor.artifact
    data_set = CATALOGUE.get(artifact.dataset or "")
    official = None
    if data_set is not None and file != "-" and not is_text and not (named and named.by_option()):
        official = data_set.read if data_set.has(Path(file), labelled=False) else None
    return Inputs(
        file,
        predictor.task.schema,
        pairs=artifact.task.pairs,
        labels=artifact.task.labels,
        named=named,
        trained_on=artifact.columns,
        official=official,
        skip_bad=skip_bad,
        is_text=is_text,
    )


def predict_file(
    predictor: Predictor,
    inputs: Inputs,
    write: Output,
    *,
    on_long: OnLong | None,
    min_confidence: float,
    progress: ReadProgress,
) -> tuple[Ledger, int]:
    """Read, predict and write batch after batch. Returns the ledger and the number of abstentions."""
    ledger = Ledger()
    n_abstained = 0
    for batch in inputs:

        def advance(done: int, _: int, before: int = ledger.texts) -> None:
            progress(before + done, inputs.total)

        predictions = predictor.predict(
            batch.valid, on_long=on_long, min_confidence=min_confidence, ledger=ledger, progress=advance
        )
        write(batch, predictions)
        n_abstained += sum(prediction.abstained for prediction in predictions) if min_confidence else 0
    return ledger, n_abstained


@contextmanager
def open_output(
    out: Path | None, header: Collection[str], print_text: WriteText, *, as_json: bool, raw: bool = False
) -> Iterator[Output]:
    """Where predictions go: printed, or to a file that appears when it is complete. Rows keep their own columns, the
    `header`. `raw`: the cells of a table, too, that a spreadsheet would run as formulas."""
    if out is None:
        yield _JsonOutput(print_text, header) if as_json else _PlainOutput(print_text)
        return
    with atomic_write(out) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        if out.suffix in JSON_LINES_SUFFIXES:
            yield _JsonOutput(text.write, header)
        else:
            yield _TableOutput(text, header, DELIMITERS[out.suffix], raw=raw)
        text.detach()


def _joined(
    batch: InputBatch, predictions: Sequence[Prediction]
) -> Iterator[tuple[Row, Example | None, Prediction | None]]:
    """Each line or row of a file with its prediction, None where it is invalid."""
    remaining = iter(predictions)
    for row, example in zip(batch.rows, batch.examples, strict=True):
        yield row, example, next(remaining) if example is not None else None


class Output:
    """Writes predictions, a batch at a time."""

    n_formulas = 0  # cells of a table that a spreadsheet would have run

    @property
    def remarks(self) -> list[Remark]:
        text = f"{self.n_formulas:,} cells that a spreadsheet would run as formulas begin with ' now; --raw keeps them"
        return [Remark("formulas", text)] if self.n_formulas else []

    def __call__(self, batch: InputBatch, predictions: Sequence[Prediction]) -> None:
        raise NotImplementedError


class _PlainOutput(Output):
    """For people, separated by tabs; a line for each line or row of the input, empty where it is invalid."""

    def __init__(self, write_text: WriteText) -> None:
        self.write_text = write_text

    def __call__(self, batch: InputBatch, predictions: Sequence[Prediction]) -> None:
        for _, _, prediction in _joined(batch, predictions):
            cells = prediction.shown().values() if prediction is not None else ()
            texts = (f"{cell:.4f}" if isinstance(cell, float) else " ".join(str(cell).split()) for cell in cells)
            self.write_text("\t".join(texts) + "\n")


class _JsonOutput(Output):
    """One object for each prediction, with its input."""

    def __init__(self, write_text: WriteText, header: Collection[str]) -> None:
        self.write_text = write_text
        self.header = header

    def __call__(self, batch: InputBatch, predictions: Sequence[Prediction]) -> None:
        for row, example, prediction in _joined(batch, predictions):
            if example is not None and prediction is not None:
                place = {"place": example.place, **({"id": example.name} if example.name else {})}
                predicted = {_predicted_name(name, self.header): value for name, value in asdict(prediction).items()}
                self.write_text(_as_json({**place, **row, **predicted}) + "\n")


class _TableOutput(Output):
    """Rows with the cells of their predictions, empty where there is none."""

    def __init__(self, file: TextIO, header: Collection[str], delimiter: str, *, raw: bool) -> None:
        self.writer = csv.writer(file, delimiter=delimiter)
        self.header = header
        self.raw = raw
        self.predicted: list[str] = []  # columns of the predictions, once the first one has told them
        self.pending: list[Row] = []  # until then

    def __call__(self, batch: InputBatch, predictions: Sequence[Prediction]) -> None:
        for row, _, prediction in _joined(batch, predictions):
            cells = {name: _as_json(value) if isinstance(value, list | dict) else value for name, value in row.items()}
            prediction_cells = prediction.cells() if prediction is not None else {}
            predicted = {_predicted_name(name, self.header): cell for name, cell in prediction_cells.items()}
            self.pending.append({**cells, **predicted})
            if predicted and not self.predicted:
                self.predicted = list(predicted)
                self._write(self._columns)
        if self.predicted:
            for values in self.pending:
                self._write([values.get(name, "") for name in self._columns])
            self.pending.clear()

    @property
    def _columns(self) -> list[str]:
        return [*self.header, *self.predicted]

    def _write(self, cells: Sequence[object]) -> None:
        formulas = [not self.raw and isinstance(cell, str) and _is_formula(cell) for cell in cells]
        self.n_formulas += sum(formulas)
        self.writer.writerow([f"'{cell}" if formula else cell for cell, formula in zip(cells, formulas, strict=True)])


def _is_formula(cell: str) -> bool:
    """Whether a spreadsheet would run the text of a cell."""
    return cell.startswith(FORMULA_SIGNS) and not NUMBER.fullmatch(cell)


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _predicted_name(name: str, header: Container[str]) -> str:
    """The column of a field of the prediction: a name that the input's columns do not have."""
    name = f"predicted_{name}"
    while name in header:
        name = f"predicted_{name}"
    return name
