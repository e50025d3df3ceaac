"""Inputs for a trained model as unlabelled examples: Python values, and files, which are read in batches."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from bertworks.arguments import fits
from bertworks.data.tables import Row
from bertworks.datasets.columns import Columns, NamedColumns, find_columns, shown_names
from bertworks.datasets.example import Example, InvalidRow
from bertworks.datasets.report import ReadReport
from bertworks.datasets.schema import ExampleReader, Schema
from bertworks.datasets.tables import TableReader, check_file, is_table, read_lines, sample_rows
from bertworks.errors import BadConfig, BadText, Remark

T = TypeVar("T")
INPUT_BATCH_SIZE = 1024  # examples of a file that are read, predicted and written together


@dataclass(frozen=True)
class InputBatch:
    """Consecutive lines or rows of a file."""

    examples: list[Example | None]  # of each row; None: blank or invalid
    rows: list[Row]  # of a table unchanged

    @property
    def valid(self) -> list[Example]:
        return [example for example in self.examples if example is not None]


class Inputs:
    """A file of inputs: a table, a format of the task shape's own (SQuAD, CoNLL), or plain text with one input per
    line, whose texts are separated by tabs. It is read in batches, so it may be of any size. A file is read once in
    advance, so that invalid rows are reported before the first prediction; standard input can only be read once.

    `trained_on`: the text columns that the model was trained on; `official`: the reader of the data set's own files, if
    this is one of them; `every_line`: a blank line is an invalid row, not one to pass over; `is_text`: `file` is the
    input itself.
    """

    def __init__(
        self,
        file: str,
        schema: Schema,
        *,
        pairs: bool | None = False,
        labels: Sequence[str] = (),
        named: NamedColumns | None = None,
        trained_on: tuple[str, ...] = (),
        official: ExampleReader | None = None,
        skip_bad: bool = False,
        every_line: bool = False,
        is_text: bool = False,
    ) -> None:
        self.every_line = every_line
        self.is_text = is_text
        self.is_file = not is_text and file != "-"
        self.file = file
        self.schema = schema
        self.pairs = pairs
        self.skip_bad = skip_bad
        self.report = ReadReport()
        self.total: int | None = None  # number of examples; None: standard input
        self.n_unplaced = 0  # invalid rows that are in no batch, not even as None: they could not be parsed
        self.header: dict[str, None] = {}  # columns of the rows
        self._reader: ExampleReader | None = None  # None: plain text
        self._as_trained = False  # a table with the text columns that the model was trained on
        named = named or NamedColumns()
        path = Path(file)
        if self.is_file:
            check_file(path)
        if named.by_option() and not (self.is_file and is_table(path)):
            options = ", ".join(f"--{option}" for option in named.by_option())
            raise BadConfig(
                f"{options}: this is not a table", place=file, remedy="leave out the option", code="no-named-columns"
            )
        if self.is_file:
            self._reader = official or schema.input_reader(path, labels)
            if self._reader is None and is_table(path):
                self._reader = TableReader(
                    _input_columns(sample_rows(path), schema, pairs, named, trained_on, str(path)), schema
                )
                self._as_trained = self._reader.columns.texts == trained_on
            self.total = 0
            n_invalid = 0
            for batch in self._batches(self.report):
                self.total += len(batch.valid)
                n_invalid += len(batch.examples) - len(batch.valid)
                self.header |= dict.fromkeys(name for row in batch.rows for name in row)
            self.report.check_encoding(self.total)
            self._check(self.total)
            self.n_unplaced = max(0, len(self.report.bad) - n_invalid) + len(self.report.malformed)
        self.header = self.header or dict.fromkeys(schema.input_columns(pairs))

    def __iter__(self) -> Iterator[InputBatch]:
        if self.total is not None:
            yield from self._batches(ReadReport())  # the first reading has reported the invalid rows
            return
        n_read = 0
        for batch in self._batches(self.report):
            n_read += len(batch.valid)
            self.report.check_encoding(n_read)
            self.report.check_rows(skip=self.skip_bad)
            yield batch
        self._check(n_read)

    @property
    def remarks(self) -> list[Remark]:
        if self.is_text:
            return [Remark("read-as-text", "read as a text: there is no such file"), *self.report.remarks()]
        if not isinstance(self._reader, TableReader):
            return self.report.remarks()
        columns = Remark("columns", f"columns: {', '.join(self._reader.columns.texts)}")
        return [columns, *self.schema.input_remarks(as_trained=self._as_trained), *self.report.remarks()]

    def _check(self, n_examples: int) -> None:
        self.report.check_rows(skip=self.skip_bad)
        if not n_examples:
            raise BadText("no inputs", place=self.file, code="no-inputs")

    def _batches(self, report: ReadReport) -> Iterator[InputBatch]:
        path = Path(self.file)
        if isinstance(self._reader, TableReader):
            yield from self._table_batches(self._reader, path, report)
        elif self._reader is not None:
            for examples in _batched(self._reader(path, report, labelled=False)):
                yield InputBatch(list(examples), [self.schema.as_row(example, self.pairs) for example in examples])
        else:
            for lines in _batched(self._lines(self._numbered_lines(report), report)):
                yield InputBatch([example for example, _ in lines], [row for _, row in lines])

    def _numbered_lines(self, report: ReadReport) -> Iterator[tuple[str, str]]:
        """Each line with its place; a text is one line."""
        if self.is_text:
            return iter([("the text", self.file)])
        return read_lines(Path(self.file) if self.is_file else None, report)

    def _table_batches(self, reader: TableReader, path: Path, report: ReadReport) -> Iterator[InputBatch]:
        with reader.open(path, report) as rows:
            for batch in _batched(rows):
                valid = {example.place: example for example in reader.examples(iter(batch), report, labelled=False)}
                examples = [
                    self.schema.from_cell(valid[place], row, reader.columns, as_trained=self._as_trained)
                    if place in valid
                    else None
                    for place, row in batch
                ]
                yield InputBatch(examples, [row for _, row in batch])

    def _lines(self, lines: Iterator[tuple[str, str]], report: ReadReport) -> Iterator[tuple[Example | None, Row]]:
        """Each line as an example, None if it is blank or invalid, and as a row of a table."""
        splits = self.schema.splits_lines(self.pairs)
        for place, line in lines:
            example = None
            row: Row = {self.schema.input_columns(self.pairs)[0]: line}
            if line.strip():
                try:
                    value = line.split("\t") if splits and "\t" in line else line
                    example = replace(_parse(value, self.schema, self.pairs), place=place)
                    row = self.schema.as_row(example, self.pairs)
                except InvalidRow as error:
                    report.bad_row(error.cause, place, error.code)
            elif self.every_line:
                report.bad_row("an empty text", place, "empty-text")
            yield example, row


def _input_columns(
    rows: Sequence[Row],
    schema: Schema,
    pairs: bool | None,
    named: NamedColumns,
    trained_on: tuple[str, ...],
    place: str,
) -> Columns:
    """The columns that the user names, else those that the model was trained on, else guessed ones."""
    if not named.by_option() and trained_on and all(name in rows[0] for name in trained_on):
        columns = Columns(trained_on)
    else:
        try:
            columns = find_columns(schema, rows, named, place, paired=bool(pairs), labelled=False)
        except BadText as error:
            if error.code == "no-text-column" and trained_on:
                cause = f"{error.cause}; this model was trained on: {shown_names(trained_on)}"
                raise BadText(cause, place=place, remedy=error.remedy, code=error.code) from None
            raise
    schema.check_columns(columns, pairs, place)
    return columns


# ---------------------------------------------------------------------- Python values


def as_example(value: object, schema: Schema, pairs: bool | None, number: int) -> Example:
    """A Python value as an example; `number`, from 1, is for messages."""
    place = f"input {number}"
    try:
        return replace(_parse(value, schema, pairs), place=place)
    except InvalidRow as error:
        remedy = f"predict([{_python_input(schema, pairs)}])" if error.code == "wrong-input" else "leave it out"
        raise BadText(error.cause, place=place, remedy=remedy, code=error.code) from None


def _python_input(schema: Schema, pairs: bool | None) -> str:
    names = schema.input_columns(bool(pairs))
    return f"({', '.join(names)})" if len(names) > 1 else names[0]


def row_examples(
    rows: Sequence[Row], schema: Schema, pairs: bool | None, trained_on: tuple[str, ...], report: ReadReport
) -> list[Example | None]:
    """Rows of a DataFrame as examples; None, where one is invalid, which is reported."""
    if not rows:
        return []
    try:
        columns = _input_columns(rows, schema, pairs, NamedColumns(), trained_on, "inputs")
    except BadText as error:
        texts = [f"table[{name!r}]" for name in schema.input_columns(bool(pairs))]
        listed = f"zip({', '.join(texts)})" if len(texts) > 1 else texts[0]
        remedy = f"name the columns yourself: predict(list({listed}))"
        cause = f"{error.cause}; the table has: {shown_names(rows[0])}"
        raise BadText(cause, place="inputs", remedy=remedy, code=error.code) from None
    placed = {f"inputs, row {number}": row for number, row in enumerate(rows, start=1)}
    valid = {example.place: example for example in schema.examples(placed.items(), columns, report)}
    as_trained = columns.texts == trained_on
    return [
        schema.from_cell(valid[place], row, columns, as_trained=as_trained) if place in valid else None
        for place, row in placed.items()
    ]


def table_rows(data: Any) -> list[Row] | None:
    """The rows of a list of dicts or a DataFrame, by duck typing: pandas and polars are not imported; None: it is
    neither."""
    if hasattr(data, "to_dicts"):  # polars
        data = data.to_dicts()
    elif hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
        data = data.to_dict("records")
    rows: list[Any] = list(data) if fits(data, Iterable) else [None]
    if not all(isinstance(row, Mapping) for row in rows):
        return None
    return [{str(name): cell for name, cell in row.items()} for row in rows]  # pandas numbers columns without names


def _parse(value: object, schema: Schema, pairs: bool | None) -> Example:
    example = schema.parse(value, pairs)
    if example is None:
        received = " ".join(reprlib.repr(value).split())
        raise InvalidRow(f"this model expects {schema.expects(pairs)}, not {received}", "wrong-input")
    schema.check_texts(example.texts)
    return example


def _batched(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, INPUT_BATCH_SIZE)):
        yield batch
