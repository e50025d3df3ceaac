"""Lines and rows of files, as streams: text, JSON lines, CSV, TSV and Parquet. What is damaged is reported to whoever
reads."""

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

TABLE_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}
LONGEST_LINE = 2**25  # bytes
MOST_LINES = 10_000  # of a row
PARQUET_ROWS = 256  # held at once
SAMPLED = 1000  # lines that show whether a table quotes its cells, and what its cells usually hold
SOME_LINES, MANY_LINES = 4, 20  # in a cell, each like a row: with numbers where the table has numbers, with anything
NUMBER = re.compile(r"\s*[-+]?\d[\d.,]*(?:[eE][-+]?\d+)?\s*")
OPEN_QUOTE = ("a quote that is opened and not closed", "unclosed-quote")
CSV_ERRORS = {  # what csv says -> what is meant, and its code
    "unexpected end of data": OPEN_QUOTE,
    "field larger than": OPEN_QUOTE,
    "expected after": ("text behind a closing quote", "text-after-quote"),
    "new-line character": ("a carriage return inside of a line", "carriage-return"),
}
Row = dict[str, Any]


class ReadErrors(Protocol):
    """Who reads, and decides what becomes of damage."""

    def bad_row(self, cause: str, place: str, code: str = ...) -> None: ...

    def bad_characters(self, count: int, cause: str, place: str, code: str = ...) -> None:
        """Signs that were not whole, and became U+FFFD."""


def inner_suffix(path: Path) -> str:
    """Of what is inside, where a file is packed."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() in COMPRESSED_SUFFIXES else path.suffix.lower()


def table_format(path: Path) -> str | None:
    """Which table a file holds, by its name."""
    return TABLE_SUFFIXES.get(inner_suffix(path))


def read_rows(
    stream: IO[bytes], kind: str, name: str, reader: ReadErrors, *, all_columns: bool = False
) -> Iterator[tuple[str, Row]]:
    """The rows of a table, each with its place. Parquet's columns of numbers by the thousand, such as vectors, only if
    asked for."""
    if kind == "parquet":
        return parquet_rows(stream, name, all_columns=all_columns)
    if kind == "json":
        return json_file_rows(stream, name, reader)
    lines = decoded_lines(stream, name, reader)
    return (
        json_rows(lines, name, reader)
        if kind == "jsonl"
        else csv_rows(lines, name, "\t" if kind == "tsv" else ",", reader)
    )


def decoded_lines(stream: IO[bytes], name: str, reader: ReadErrors) -> Iterator[str]:
    """Lines without their ends."""
    number = 0
    while line := stream.readline(LONGEST_LINE + 1):
        number += 1
        place = f"{name}, line {number}"
        if len(line) > LONGEST_LINE:
            remedy = "is this text? break it into lines, or leave the file out"
            raise BadText(
                f"a line of more than {LONGEST_LINE // 2**20} MB", place=place, remedy=remedy, code="line-too-long"
            )
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if b"\0" in line:
            cause, code = (
                ("UTF-16 text", "utf16") if line[:2] in (b"\xff\xfe", b"\xfe\xff") else ("a binary file", "binary-file")
            )
            raise BadText(
                f"{cause}, not UTF-8 text", place=place, remedy="leave it out, or convert it to UTF-8", code=code
            )
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            text = line.decode(errors="replace")
            damaged = text.count("\ufffd") - line.count("\ufffd".encode())
            reader.bad_characters(damaged, f"not UTF-8 at byte {error.start} of the line", place, "not-utf8")
        yield text.rstrip("\r\n")


def json_rows(lines: Iterator[str], name: str, reader: ReadErrors) -> Iterator[tuple[str, Row]]:
    for number, line in enumerate(lines, start=1):
        place = f"{name}, line {number}"
        if not line or line.isspace():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reader.bad_row(f"not JSON: {str(error)[:100]}", place, "not-json")
            continue
        yield from _json_row(row, place, reader)


def json_file_rows(stream: IO[bytes], name: str, reader: ReadErrors) -> Iterator[tuple[str, Row]]:
    """A list of objects, bare or under "data"; or else an object on each line."""
    content = stream.read()
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        if not _is_object(content.lstrip().split(b"\n", 1)[0]):
            raise BadText(f"not JSON: {str(error)[:200]}", place=name, code="not-json") from None
        yield from json_rows(decoded_lines(BytesIO(content), name, reader), name, reader)
        return
    rows = found.get("data", [found]) if isinstance(found, dict) else found
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], start=1):
        yield from _json_row(row, f"{name}, row {number}", reader)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _json_row(row: Any, place: str, reader: ReadErrors) -> Iterator[tuple[str, Row]]:
    if isinstance(row, dict):
        yield place, repair_surrogates(row, place, reader)
    else:
        reader.bad_row("not a JSON object", place, "not-an-object")


def repair_surrogates(value: Any, place: str, reader: ReadErrors) -> Any:
    """JSON can hold half characters, which no file of ours could."""
    if isinstance(value, dict):
        return {
            repair_surrogates(key, place, reader): repair_surrogates(one, place, reader) for key, one in value.items()
        }
    if isinstance(value, list):
        return [repair_surrogates(one, place, reader) for one in value]
    if not isinstance(value, str) or value.isascii():
        return value
    mended = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if mended != value:
        reader.bad_characters(
            mended.count("\ufffd") - value.count("\ufffd"),
            "half a character (a lone surrogate)",
            place,
            "lone-surrogate",
        )
    return mended


def csv_rows(lines: Iterator[str], name: str, delimiter: str, reader: ReadErrors) -> Iterator[tuple[str, Row]]:
    csv.field_size_limit(LONGEST_LINE)
    numbered = dropwhile(lambda pair: not pair[1].strip(), enumerate(lines, start=1))
    sample = list(islice(numbered, SAMPLED))
    if sample and (said := re.fullmatch("sep=(.)", sample[0][1])):  # as Excel has it
        delimiter = said[1]
        del sample[0]
    elif sample:
        delimiter = _delimiter(sample[0][1], delimiter)
    quoted = delimiter != "\t" or _are_quoted([line for _, line in sample])
    header: list[str] | None = None
    usual = _column_values([line for _, line in sample], delimiter)
    for number, row in _cells(chain(sample, numbered), delimiter, quoted, usual, name, reader):
        place = f"{name}, line {number}"
        if header is None and number != sample[0][0]:
            raise BadText(
                "the quotes of the header do not fit", place=f"{name}, line {sample[0][0]}", code="quotes-in-header"
            )
        if header is None:
            header = [cell.strip() for cell in row]
            check_columns(header, name)
        elif len(row) == len(header):
            yield place, dict(zip(header, row, strict=True))
        elif row:
            reader.bad_row(f"{len(row)} fields, the header has {len(header)}", place, "wrong-field-count")


def _delimiter(header: str, usual: str) -> str:
    """What stands between the columns, where it is not what the file's name promises."""
    others = [sign for sign in ";\t,|" if sign in header]
    return others[0] if usual not in header and others else usual


def _cells(
    lines: Iterator[tuple[int, str]],
    delimiter: str,
    quoted: bool,
    usual: Sequence[_ColumnValues],
    name: str,
    reader: ReadErrors,
) -> Iterator[tuple[int, list[str]]]:
    """Rows, each with the number of its first line. Where quotes do not fit, the line in which a row begins is bad, and
    reading goes on in the next."""
    fed: list[tuple[int, str]] = []
    again: deque[tuple[int, str]] = deque()

    def feed() -> Iterator[str]:
        while (pair := again.popleft() if again else next(lines, None)) is not None:
            fed.append(pair)
            if len(fed) > MOST_LINES:
                raise csv.Error("unexpected end of data")
            yield pair[1] + "\n"

    quoting: Any = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    while True:
        rows = csv.reader(feed(), delimiter=delimiter, quoting=quoting, strict=True)
        try:
            for row in rows:
                if any(_has_swallowed_rows(cell, delimiter, usual) for cell in row):
                    raise csv.Error("unexpected end of data")
                if row:
                    yield fed[0][0], row
                fed.clear()
            return
        except csv.Error as error:
            said, code = next(
                (ours for theirs, ours in CSV_ERRORS.items() if theirs in str(error)), (str(error), "bad-csv")
            )
            reader.bad_row(said, f"{name}, line {fed[0][0]}", code)
            again.extendleft(reversed(fed[1:]))
            fed.clear()


@dataclass(frozen=True)
class _ColumnValues:
    """What the cells of a column hold."""

    frequent: set[str]  # what stands in several rows: labels, mostly
    is_numeric: bool  # nothing else does

    @classmethod
    def of(cls, cells: Sequence[str]) -> _ColumnValues:
        often = {cell for cell, count in Counter(cells).items() if count > 1 and cell.strip()}
        return cls(often, bool(cells) and all(NUMBER.fullmatch(cell) for cell in cells))

    def holds(self, cells: Sequence[str]) -> bool:
        numbers = self.is_numeric and len(cells) >= SOME_LINES and all(NUMBER.fullmatch(cell) for cell in cells)
        return numbers or all(cell in self.frequent for cell in cells)


def _column_values(lines: Sequence[str], delimiter: str) -> list[_ColumnValues]:
    """Of each column, in rows without quotes."""
    width = lines[0].count(delimiter) + 1 if lines else 0
    rows = [cells for line in lines[1:] if '"' not in line and len(cells := line.split(delimiter)) == width]
    return [_ColumnValues.of([row[at] for row in rows]) for at in range(width)]


def _has_swallowed_rows(cell: str, delimiter: str, usual: Sequence[_ColumnValues]) -> bool:
    """Whether a quote that was not closed has made a cell of whole rows: there are tabs in it; or each of its lines has
    the columns of a row, and they are very many or all hold what is usual in one of the columns."""
    if "\n" not in cell:
        return False
    inside = [line.split(delimiter) for line in cell.split("\n")[1:-1]]
    rows = len(inside) > 1 and len(usual) > 1 and all(len(row) == len(usual) for row in inside)
    alike = rows and any(column.holds([row[at] for row in inside]) for at, column in enumerate(usual))
    return alike or (rows and len(inside) >= MANY_LINES) or (delimiter == "\t" and "\t" in cell)


def _are_quoted(lines: Sequence[str]) -> bool:
    """Between tabs quotes may be signs like any other, as in GLUE's files. What makes more rows of the right width is
    right; if both do, quotes are marks where every cell that has one begins and ends with it."""

    def whole_rows(*, quoted: bool) -> int:
        try:
            rows = csv.reader(
                (line + "\n" for line in lines), delimiter="\t", quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
            )
            widths = [len(row) for row in rows if row]
        except csv.Error:
            return -len(lines)
        return sum(1 if width == widths[0] else -1 for width in widths)

    cells = [cell for line in lines for cell in line.split("\t") if '"' in cell]
    marked = bool(cells) and all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in cells)
    return (whole_rows(quoted=True), marked) > (whole_rows(quoted=False), False)


def parquet_rows(file: IO[bytes], name: str, *, all_columns: bool) -> Iterator[tuple[str, Row]]:
    try:
        parquet, arrow = import_module("pyarrow.parquet"), import_module("pyarrow")
    except ImportError:
        raise Unsupported(
            "Parquet needs pyarrow", place=name, remedy="pip install 'bertworks[data]'", code="missing-extra"
        ) from None
    try:
        table = parquet.ParquetFile(file)
        schema, types = table.schema_arrow, arrow.types
        check_columns(schema.names, name)
        simple = (
            field.name for field in schema if not types.is_nested(field.type) or _is_list_of_text(field.type, types)
        )
        wanted = None if all_columns else list(simple)
        for at, batch in enumerate(table.iter_batches(batch_size=PARQUET_ROWS, columns=wanted)):
            for row, values in enumerate(batch.to_pylist()):
                yield f"{name}, row {at * PARQUET_ROWS + row + 1}", values
    except arrow.ArrowException as error:
        raise BadText(f"not a Parquet file: {str(error)[:200]}", place=name, code="not-parquet") from None
    except UnicodeDecodeError as error:
        raise BadText(f"text that is not UTF-8: {error.reason}", place=name, code="not-utf8") from None


def _is_list_of_text(kind: Any, types: Any) -> bool:
    listed = types.is_list(kind) or types.is_large_list(kind)
    return bool(listed and (types.is_string(kind.value_type) or types.is_large_string(kind.value_type)))


def check_columns(columns: Sequence[str], name: str) -> None:
    twice = {column for column in columns if columns.count(column) > 1}
    if twice:
        remedy = "give every column a name of its own"
        raise BadText(f"two columns are called {min(twice)!r}", place=name, remedy=remedy, code="duplicate-column")
