"""What users hand to a trained model: values in Python, and files that are read a part at a time, as examples without
an answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

from bertworks.data.tables import Row
from bertworks.datasets.columns import Columns, NamedColumns, find_columns
from bertworks.datasets.example import Example, InvalidRow
from bertworks.datasets.report import ReadReport
from bertworks.datasets.schema import ExampleReader, Schema
from bertworks.datasets.tables import TableReader, check_file, is_table, read_lines, sample_rows
from bertworks.errors import BadConfig, BadText, Remark

T = TypeVar("T")
AT_ONCE = 1024  # examples of a file that are read, predicted and written together


@dataclass(frozen=True)
class InputBatch:
    """A part of a file, line by line or row by row, and its rows: as they stand there, where it is a table."""

    examples: list[Example | None]  # None: nothing that could be predicted
    rows: list[Row]

    @property
    def valid(self) -> list[Example]:
        return [example for example in self.examples if example is not None]


class Inputs:
    """A file of inputs: a table, a format of the shape's own, or else a text on each line; several texts of a line are
    separated by tabs. It is read a part at a time, so it may be of any size. A file is gone through once before, so
    that what is wrong with it is said before there is a prediction; standard input cannot be.

    `trained_on`: the columns of text that the model was trained on; `official`: how the data set's own files are read,
    if this is one; `every_line`: a blank line is an invalid row, not one to pass over.
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
    ) -> None:
        self.every_line = every_line
        self.file, self.schema, self.pairs, self.skip_bad = file, schema, pairs, skip_bad
        self.report = ReadReport()
        self.total: int | None = None  # examples, if that is known
        self.header: dict[str, None] = {}  # columns of the rows
        self._reader: ExampleReader | None = None  # of a file that is no plain text
        self._as_trained = False  # a table with the columns that it was trained on
        named = named or NamedColumns()
        path = Path(file)
        if file != "-":
            check_file(path)
        if named.by_option() and (file == "-" or not is_table(path)):
            options = ", ".join(f"--{option}" for option in named.by_option())
            raise BadConfig(f"{options}: this is no table", place=file, remedy="leave it out", code="no-named-columns")
        if file != "-":
            self._reader = official or schema.input_reader(path, labels)
            if self._reader is None and is_table(path):
                self._reader = TableReader(self._columns(path, named, trained_on), schema)
                self._as_trained = self._reader.columns.texts == trained_on
            self.total = 0
            for part in self._parts(self.report):
                self.total += len(part.valid)
                self.header |= dict.fromkeys(name for row in part.rows for name in row)
            self.report.check_encoding(self.total)
            self._check(self.total)
        self.header = self.header or dict.fromkeys(schema.input_columns(pairs))

    def __iter__(self) -> Iterator[InputBatch]:
        if self.total is not None:
            yield from self._parts(ReadReport())
            return
        count = 0
        for part in self._parts(self.report):
            count += len(part.valid)
            self.report.check_encoding(count)
            self.report.check_rows(skip=self.skip_bad)
            yield part
        self._check(count)

    @property
    def remarks(self) -> list[Remark]:
        if not isinstance(self._reader, TableReader):
            return self.report.remarks()
        columns = Remark("columns", f"columns: {', '.join(self._reader.columns.texts)}")
        return [columns, *self.schema.input_remarks(as_trained=self._as_trained), *self.report.remarks()]

    def _check(self, count: int) -> None:
        self.report.check_rows(skip=self.skip_bad)
        if not count:
            raise BadText("no inputs", place=self.file, code="no-inputs")

    def _columns(self, path: Path, named: NamedColumns, trained_on: tuple[str, ...]) -> Columns:
        """The columns that the user names, or those of the table it was trained on, or usual names."""
        rows = sample_rows(path)
        if not named.by_option() and trained_on and all(name in rows[0] for name in trained_on):
            columns = Columns(trained_on)
        else:
            columns = find_columns(self.schema, rows, named, str(path), paired=bool(self.pairs), labelled=False)
        self.schema.check_columns(columns, self.pairs, str(path))
        return columns

    def _parts(self, report: ReadReport) -> Iterator[InputBatch]:
        path = Path(self.file)
        if isinstance(self._reader, TableReader):
            yield from self._table_parts(self._reader, path, report)
        elif self._reader is not None:
            for examples in _in_parts(self._reader(path, report, labelled=False)):
                yield InputBatch(list(examples), [self.schema.as_row(example, self.pairs) for example in examples])
        else:
            for lines in _in_parts(self._lines(read_lines(path if self.file != "-" else None, report), report)):
                yield InputBatch([example for example, _ in lines], [row for _, row in lines])

    def _table_parts(self, reader: TableReader, path: Path, report: ReadReport) -> Iterator[InputBatch]:
        with reader.open(path, report) as rows:
            for part in _in_parts(rows):
                read = {example.place: example for example in reader.examples(iter(part), report, labelled=False)}
                examples = [
                    self.schema.from_cell(read[place], row, reader.columns, as_trained=self._as_trained)
                    if place in read
                    else None
                    for place, row in part
                ]
                yield InputBatch(examples, [row for _, row in part])

    def _lines(self, lines: Iterator[tuple[str, str]], report: ReadReport) -> Iterator[tuple[Example | None, Row]]:
        """Each line as an example, None if it is blank or bad, and as a row of a table."""
        splits = self.schema.splits_lines(self.pairs)
        for place, line in lines:
            example = None
            row: Row = {self.schema.input_columns(self.pairs)[0]: line}
            if line.strip():
                try:
                    given = line.split("\t") if splits and "\t" in line else line
                    example = replace(_parse(given, self.schema, self.pairs), place=place)
                    row = self.schema.as_row(example, self.pairs)
                except InvalidRow as error:
                    report.bad_row(error.cause, place, error.code)
            elif self.every_line:
                report.bad_row("an empty text", place, "empty-text")
            yield example, row


def as_example(given: object, schema: Schema, pairs: bool | None, at: int) -> Example:
    """An input in Python, the one of this number."""
    place = f"input {at}"
    try:
        return replace(_parse(given, schema, pairs), place=place)
    except InvalidRow as error:
        remedy = None if error.code == "wrong-input" else "leave it out"
        raise BadText(error.cause, place=place, remedy=remedy, code=error.code) from None


def _parse(given: object, schema: Schema, pairs: bool | None) -> Example:
    example = schema.parse(given, pairs)
    if example is None:
        raise InvalidRow(f"not what this model takes: {schema.expects(pairs)}", "wrong-input")
    schema.check_texts(example.texts)
    return example


def _in_parts(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while part := list(islice(rest, AT_ONCE)):
        yield part
