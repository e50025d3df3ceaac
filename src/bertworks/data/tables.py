"""Streams of lines and rows from text, JSON, JSON lines, CSV, TSV and Parquet. Invalid rows and characters are
reported to the caller's `ReadErrors`."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from itertools import chain, dropwhile, islice
from pathlib import Path
from typing import IO, Any, Protocol

from bertworks.data.compression import COMPRESSED_SUFFIXES
from bertworks.errors import BadText, Unsupported
from bertworks.files import DuplicateKey, unique_keys

TABLE_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}
MAX_LINE_BYTES = 2**25
MAX_ROW_LINES = 10_000  # of one CSV row
PARQUET_BATCH = 256  # rows in memory
SAMPLED_LINES = 1000  # to see whether a table quotes its cells, and what its columns usually hold
# So many lines of a cell look like rows of the table: then a quote was not closed, and the cell has swallowed them.
MIN_NUMERIC_LINES = 4  # that have numbers where the table has only numbers
MIN_ANY_LINES = 20  # with the table's number of columns
NUMBER = re.compile(r"\s*[-+]?\d[\d.,]*(?:[eE][-+]?\d+)?\s*")
UNCLOSED_QUOTE = ("unclosed quote", "unclosed-quote")
CSV_ERRORS = {  # part of the csv module's message -> our cause and code
    "unexpected end of data": UNCLOSED_QUOTE,
    "field larger than": UNCLOSED_QUOTE,
    "expected after": ("text after a closing quote", "text-after-quote"),
    "new-line character": ("carriage return inside of a line", "carriage-return"),
}
Row = dict[str, Any]


class ReadErrors(Protocol):
    """The caller of a reader, which decides what becomes of invalid rows: skip them, collect them, or raise."""

    def bad_row(self, cause: str, place: str, code: str = ...) -> None: ...

    def bad_characters(self, count: int, cause: str, place: str, code: str = ...) -> None:
        """Characters that could not be decoded and became U+FFFD."""


def inner_suffix(path: Path) -> str:
    """The suffix of a file name, without that of its compression."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() in COMPRESSED_SUFFIXES else path.suffix.lower()


def table_format(path: Path) -> str | None:
    """The table format of a file by its suffix: a value of `TABLE_SUFFIXES`, or None."""
    return TABLE_SUFFIXES.get(inner_suffix(path))


def read_rows(
    stream: IO[bytes], kind: str, name: str, reader: ReadErrors, *, all_columns: bool = False
) -> Iterator[tuple[str, Row]]:
    """The rows of a table of this `kind` (format), each with its place for messages. Nested columns of Parquet, such as
    vectors, only with `all_columns`."""
    if kind == "parquet":
        return parquet_rows(stream, name, all_columns=all_columns)
    if kind == "json":
        return json_file_rows(stream, name, reader)
    lines = decoded_lines(stream, name, reader)
    if kind == "jsonl":
        return json_rows(lines, name, reader)
    return csv_rows(lines, name, "\t" if kind == "tsv" else ",", reader)


def decoded_lines(stream: IO[bytes], name: str, reader: ReadErrors) -> Iterator[str]:
    """Lines as text, without their line ends."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        place = f"{name}, line {number}"
        if len(line) > MAX_LINE_BYTES:
            cause = f"a line longer than {MAX_LINE_BYTES // 2**20} MB"
            remedy = "is this text? split it into lines, or leave the file out"
            raise BadText(cause, place=place, remedy=remedy, code="line-too-long")
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if b"\0" in line:
            is_utf16 = line[:2] in (b"\xff\xfe", b"\xfe\xff")
            cause = "UTF-16 text, not UTF-8" if is_utf16 else "a binary file, not UTF-8 text"
            code = "utf16" if is_utf16 else "binary-file"
            raise BadText(cause, place=place, remedy="convert it to UTF-8, or leave it out", code=code)
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            text = line.decode(errors="replace")
            n_replaced = text.count("\ufffd") - line.count("\ufffd".encode())
            reader.bad_characters(n_replaced, f"not UTF-8 at byte {error.start} of the line", place, "not-utf8")
        yield text.rstrip("\r\n")


def json_rows(lines: Iterator[str], name: str, reader: ReadErrors) -> Iterator[tuple[str, Row]]:
    for number, line in enumerate(lines, start=1):
        place = f"{name}, line {number}"
        if not line or line.isspace():
            continue
        try:
            row = json.loads(line, object_pairs_hook=unique_keys)
        except DuplicateKey as error:
            reader.bad_row(str(error), place, "duplicate-key")
            continue
        except (ValueError, RecursionError) as error:
            reader.bad_row(f"not JSON: {str(error)[:100]}", place, "not-json")
            continue
        yield from _json_row(row, place, reader)


def json_file_rows(stream: IO[bytes], name: str, reader: ReadErrors) -> Iterator[tuple[str, Row]]:
    """The rows of a .json file: a list of objects, at the top level or under "data"; else JSON lines."""
    content = stream.read()
    try:
        values = json.loads(content, object_pairs_hook=unique_keys)
    except DuplicateKey as error:
        raise BadText(str(error), place=name, remedy="remove one of the two", code="duplicate-key") from None
    except (ValueError, RecursionError) as error:
        if not _is_object(content.lstrip().split(b"\n", 1)[0]):
            raise BadText(f"not JSON: {str(error)[:200]}", place=name, code="not-json") from None
        yield from json_rows(decoded_lines(BytesIO(content), name, reader), name, reader)
        return
    rows = values.get("data", [values]) if isinstance(values, dict) else values
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], start=1):
        yield from _json_row(row, f"{name}, row {number}", reader)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _json_row(row: object, place: str, reader: ReadErrors) -> Iterator[tuple[str, Row]]:
    if isinstance(row, dict):
        yield place, repair_surrogates(row, place, reader)
    else:
        reader.bad_row("not a JSON object", place, "not-an-object")


def repair_surrogates(value: object, place: str, reader: ReadErrors) -> Any:
    """Replace lone surrogates, which JSON can escape but UTF-8 cannot encode, in all strings of a JSON value."""
    if isinstance(value, dict):
        return {
            repair_surrogates(key, place, reader): repair_surrogates(item, place, reader) for key, item in value.items()
        }
    if isinstance(value, list):
        return [repair_surrogates(item, place, reader) for item in value]
    if not isinstance(value, str) or value.isascii():
        return value
    repaired = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if repaired != value:
        n_replaced = repaired.count("\ufffd") - value.count("\ufffd")
        reader.bad_characters(n_replaced, "lone surrogate (half a character)", place, "lone-surrogate")
    return repaired


def csv_rows(lines: Iterator[str], name: str, delimiter: str, reader: ReadErrors) -> Iterator[tuple[str, Row]]:
    csv.field_size_limit(MAX_LINE_BYTES)
    numbered_lines = dropwhile(lambda pair: not pair[1].strip(), enumerate(lines, start=1))
    sample = list(islice(numbered_lines, SAMPLED_LINES))
    if sample and (directive := re.fullmatch("sep=(.)", sample[0][1])):  # a line that Excel writes
        delimiter = directive[1]
        del sample[0]
    elif sample:
        delimiter = _find_delimiter(sample[0][1], delimiter)
    quoted = delimiter != "\t" or _are_quoted([line for _, line in sample])
    header: list[str] | None = None
    columns = _column_values([line for _, line in sample], delimiter)
    for number, row in _parse_csv(chain(sample, numbered_lines), delimiter, quoted, columns, name, reader):
        place = f"{name}, line {number}"
        if header is None and number != sample[0][0]:
            place = f"{name}, line {sample[0][0]}"
            raise BadText("unbalanced quotes in the header", place=place, code="quotes-in-header")
        if header is None:
            header = [cell.strip() for cell in row]
            check_columns(header, name)
        elif len(row) == len(header):
            yield place, dict(zip(header, row, strict=True))
        elif row:
            reader.bad_row(f"{len(row)} fields, the header has {len(header)}", place, "wrong-field-count")


def _find_delimiter(header: str, default: str) -> str:
    """The delimiter of the format, unless the header has only another one."""
    others = [delimiter for delimiter in ";\t,|" if delimiter in header]
    return others[0] if default not in header and others else default


def _parse_csv(
    lines: Iterator[tuple[int, str]],
    delimiter: str,
    quoted: bool,
    columns: Sequence[_ColumnValues],
    name: str,
    reader: ReadErrors,
) -> Iterator[tuple[int, list[str]]]:
    """Rows of cells, each with the number of its first line. At a parse error the line in which the row begins is
    reported as invalid, and parsing restarts at the line after it."""
    row_lines: list[tuple[int, str]] = []  # that the parser has read for the current row
    lines_to_repeat: deque[tuple[int, str]] = deque()

    def parser_input() -> Iterator[str]:
        while (pair := lines_to_repeat.popleft() if lines_to_repeat else next(lines, None)) is not None:
            row_lines.append(pair)
            if len(row_lines) > MAX_ROW_LINES:
                raise csv.Error("unexpected end of data")
            yield pair[1] + "\n"

    quoting: Any = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    while True:
        rows = csv.reader(parser_input(), delimiter=delimiter, quoting=quoting, strict=True)
        try:
            for row in rows:
                if any(_has_swallowed_rows(cell, delimiter, columns) for cell in row):
                    raise csv.Error("unexpected end of data")
                if row:
                    yield row_lines[0][0], row
                row_lines.clear()
            return
        except csv.Error as error:
            causes = (known for message, known in CSV_ERRORS.items() if message in str(error))
            cause, code = next(causes, (str(error), "bad-csv"))
            reader.bad_row(cause, f"{name}, line {row_lines[0][0]}", code)
            lines_to_repeat.extendleft(reversed(row_lines[1:]))
            row_lines.clear()


@dataclass(frozen=True)
class _ColumnValues:
    """What the cells of a column usually hold."""

    frequent: set[str]  # values of several rows: labels, mostly
    is_numeric: bool  # all cells are numbers

    @classmethod
    def of(cls, cells: Sequence[str]) -> _ColumnValues:
        frequent = {cell for cell, count in Counter(cells).items() if count > 1 and cell.strip()}
        return cls(frequent, bool(cells) and all(NUMBER.fullmatch(cell) for cell in cells))

    def has_values_like(self, cells: Sequence[str]) -> bool:
        """Whether these cells look like those of this column."""
        all_numbers = all(NUMBER.fullmatch(cell) for cell in cells)
        fits_numbers = self.is_numeric and len(cells) >= MIN_NUMERIC_LINES and all_numbers
        return fits_numbers or all(cell in self.frequent for cell in cells)


def _column_values(lines: Sequence[str], delimiter: str) -> list[_ColumnValues]:
    """The usual values of each column, from the lines without quotes."""
    n_columns = lines[0].count(delimiter) + 1 if lines else 0
    rows = [cells for line in lines[1:] if '"' not in line and len(cells := line.split(delimiter)) == n_columns]
    return [_ColumnValues.of([row[i] for row in rows]) for i in range(n_columns)]


def _has_swallowed_rows(cell: str, delimiter: str, columns: Sequence[_ColumnValues]) -> bool:
    """Whether an unclosed quote has put several rows into one cell: it has tabs in a TSV; or each of its lines has the
    columns of a row, and there are many of them or one of the columns has its usual values in all of them."""
    if "\n" not in cell:
        return False
    rows = [line.split(delimiter) for line in cell.split("\n")[1:-1]]
    are_rows = len(rows) > 1 and len(columns) > 1 and all(len(row) == len(columns) for row in rows)
    are_usual = are_rows and any(column.has_values_like([row[i] for row in rows]) for i, column in enumerate(columns))
    return are_usual or (are_rows and len(rows) >= MIN_ANY_LINES) or (delimiter == "\t" and "\t" in cell)


def _are_quoted(lines: Sequence[str]) -> bool:
    """Whether quotes delimit the cells of a TSV, or are ordinary characters as in GLUE's files. The reading that gives
    more rows of the right width wins; if both give the same, quotes are delimiters if every cell that has one begins
    and ends with one."""

    def row_score(*, quoted: bool) -> int:
        """Rows as wide as the header, minus the others."""
        quoting: Any = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
        try:
            rows = csv.reader((line + "\n" for line in lines), delimiter="\t", quoting=quoting)
            widths = [len(row) for row in rows if row]
        except csv.Error:
            return -len(lines)
        return sum(1 if width == widths[0] else -1 for width in widths)

    quoted_cells = [cell for line in lines for cell in line.split("\t") if '"' in cell]
    are_enclosed = all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in quoted_cells)
    return (row_score(quoted=True), bool(quoted_cells) and are_enclosed) > (row_score(quoted=False), False)


def parquet_rows(file: IO[bytes], name: str, *, all_columns: bool) -> Iterator[tuple[str, Row]]:
    try:
        parquet = import_module("pyarrow.parquet")
        arrow = import_module("pyarrow")
    except ImportError:
        cause = "reading Parquet needs the package pyarrow"
        remedy = "pip install 'bertworks[data]'"
        raise Unsupported(cause, place=name, remedy=remedy, code="missing-extra") from None
    try:
        table = parquet.ParquetFile(file)
        schema = table.schema_arrow
        types = arrow.types
        check_columns(schema.names, name)
        flat_columns = (
            field.name for field in schema if not types.is_nested(field.type) or _is_list_of_text(field.type, types)
        )
        columns = None if all_columns else list(flat_columns)
        for batch_number, batch in enumerate(table.iter_batches(batch_size=PARQUET_BATCH, columns=columns)):
            for i, row in enumerate(batch.to_pylist()):
                yield f"{name}, row {batch_number * PARQUET_BATCH + i + 1}", row
    except arrow.ArrowException as error:
        raise BadText(f"not a Parquet file: {str(error)[:200]}", place=name, code="not-parquet") from None
    except UnicodeDecodeError as error:
        raise BadText(f"not UTF-8: {error.reason}", place=name, code="not-utf8") from None


def _is_list_of_text(data_type: Any, types: Any) -> bool:
    is_list = types.is_list(data_type) or types.is_large_list(data_type)
    return bool(is_list and (types.is_string(data_type.value_type) or types.is_large_string(data_type.value_type)))


def check_columns(columns: Sequence[str], name: str) -> None:
    """Refuse a table with two columns of the same name."""
    duplicates = {column for column in columns if columns.count(column) > 1}
    if duplicates:
        remedy = "give every column a name of its own"
        raise BadText(f"duplicate column {min(duplicates)!r}", place=name, remedy=remedy, code="duplicate-column")
