"""Opening files of examples: streams of lines, and tables row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice, zip_longest
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import IO

from bertworks.data.compression import STREAM_ERRORS, decompressed
from bertworks.data.tables import Row, decoded_lines, inner_suffix, read_rows, table_format
from bertworks.datasets.columns import SAMPLED_ROWS, Columns
from bertworks.datasets.example import Example, is_blank
from bertworks.datasets.report import BadRows, ReadReport
from bertworks.datasets.schema import Schema
from bertworks.errors import BadText, NotFound

Rows = Iterator[tuple[str, Row]]
"""Each row with its place: file and row number, for messages."""


@contextmanager
def open_stream(path: Path | None) -> Iterator[IO[bytes]]:
    """A file, decompressed if need be; None: standard input."""
    try:
        with decompressed(path) as (stream, _):
            yield stream
    except STREAM_ERRORS as error:
        cause = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise NotFound(cause, place=_display_name(path), code="unreadable") from None


def _display_name(path: Path | None) -> str:
    return str(path) if path is not None else "standard input"


def read_lines(path: Path | None, report: ReadReport) -> Iterator[tuple[str, str]]:
    """Each line with its place."""
    with open_stream(path) as stream:
        for number, line in enumerate(decoded_lines(stream, _display_name(path), report), start=1):
            yield f"{_display_name(path)}, line {number}", line


def read_text(path: Path, report: ReadReport) -> str:
    """A whole file, with its line ends, so that character offsets into it hold."""
    with open_stream(path) as stream:
        content = stream.read()
    text = content.decode(errors="replace")
    if n_replaced := text.count("\ufffd") - content.count("\ufffd".encode()):
        report.bad_characters(n_replaced, "not UTF-8", str(path), "not-utf8")
    return text


def is_table(path: Path) -> bool:
    return _format(path) is not None


def _format(path: Path) -> str | None:
    return table_format(path) or ("json" if inner_suffix(path) == ".json" else None)


@contextmanager
def open_table(path: Path, report: ReadReport) -> Iterator[Rows]:
    """The rows of a table, each with its place."""
    with open_stream(path) as stream:
        yield read_rows(stream, str(_format(path)), str(path), report, all_columns=True)


def check_file(path: Path, remedy: str | None = None) -> None:
    """`remedy`: if there is no such file."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise NotFound("no such file", place=str(path), remedy=remedy) from None
    except (OSError, ValueError) as error:  # a text is longer than a name can be, or has other characters
        cause = f"no such file: {getattr(error, 'strerror', None) or error}"
        raise NotFound(cause, place=str(path), remedy=remedy) from None
    if S_ISDIR(mode):
        raise NotFound("this is a folder", place=str(path), remedy="name a file in it", code="is-a-folder")
    if not S_ISREG(mode):
        remedy = "save it as a file, or pipe it to `predict RUN -`"
        raise NotFound("not a regular file, which can be read twice", place=str(path), remedy=remedy, code="not-a-file")


def sample_rows(path: Path) -> list[Row]:
    """The first rows of a table, to guess its columns from."""
    report = ReadReport()
    with open_table(path, report) as all_rows:
        rows = [row for _, row in islice(all_rows, SAMPLED_ROWS)]
    if not rows:
        if report.bad:
            raise BadRows(report.summary(), report.bad, place=str(path))
        raise BadText("no rows in this table", place=str(path), code="no-rows")
    return rows


def has_columns(path: Path, columns: Sequence[str]) -> bool:
    return is_table(path) and set(columns) <= {name for row in sample_rows(path) for name in row}


class TableReader:
    """Reads examples from the columns of a table."""

    def __init__(self, columns: Columns, schema: Schema) -> None:
        self.columns = columns
        self.schema = schema

    def open(self, path: Path, report: ReadReport) -> AbstractContextManager[Rows]:
        """The rows of a file, unchanged."""
        return open_table(path, report)

    def examples(self, rows: Rows, report: ReadReport, *, labelled: bool = True) -> list[Example]:
        return self.schema.examples(rows, self.columns if labelled else self.columns.without_labels(), report)

    def __call__(self, path: Path, report: ReadReport, *, labelled: bool = True) -> list[Example]:
        with self.open(path, report) as rows:
            return self.examples(rows, report, labelled=labelled)

    def matches(self, path: Path, *, labelled: bool) -> bool:
        """Whether the first row of a file has the text columns and, if `labelled`, a known label."""
        with self.open(path, ReadReport()) as rows:
            _, row = next(rows, ("", {}))
        required = (*self.columns.texts, *(self.columns.labels if labelled else ()))
        if not all(name in row for name in required):
            return False
        labels = self.columns.label_map
        return not labels or all(str(row.get(name) or "").strip() in ("", *labels) for name in self.columns.labels)


class GlueReader(TableReader):
    """GLUE's tab-separated files, in which quotes have no meaning. `header`: for files without one. `malformed`: the
    official files have rows of another width or with an empty text, which are customarily skipped."""

    def __init__(
        self,
        schema: Schema,
        *texts: str,
        label: str,
        label_map: Mapping[str, str] | None = None,
        header: Sequence[str] | None = None,
        malformed: bool = False,
    ) -> None:
        super().__init__(Columns(texts, (label,), label_map or {}), schema)
        self.header = header
        self.malformed = malformed

    @contextmanager
    def open(self, path: Path, report: ReadReport) -> Iterator[Rows]:
        yield self._rows(path, report)

    def _rows(self, path: Path, report: ReadReport) -> Rows:
        header: Sequence[str] = ()
        for place, line in read_lines(path, report):
            fields = line.split("\t")
            if not header:
                is_header = self.header is None or all(name in fields for name in self.columns.texts)
                header = fields if is_header else self.header or ()
                if is_header:
                    continue
            if line and len(fields) != len(header):
                report_row = report.malformed_row if self.malformed else report.bad_row
                report_row(f"{len(fields)} fields, {len(header)} expected", place, "wrong-field-count")
            elif line:
                yield place, dict(zip(header, fields, strict=True))

    def examples(self, rows: Rows, report: ReadReport, *, labelled: bool = True) -> list[Example]:
        if self.malformed and labelled:
            rows = self._without_empty_texts(rows, report)
        return super().examples(rows, report, labelled=labelled)

    def _without_empty_texts(self, rows: Rows, report: ReadReport) -> Rows:
        for place, row in rows:
            if any(is_blank(row.get(name, "")) for name in self.columns.texts):
                report.malformed_row("empty text", place, "empty-text")
            else:
                yield place, row


class MappedTableReader(TableReader):
    """Any table whose rows are transformed before they are read."""

    def __init__(self, schema: Schema, *texts: str, label: str, transform: Callable[[Row], Row]) -> None:
        super().__init__(Columns(texts, (label,)), schema)
        self.transform = transform

    def examples(self, rows: Rows, report: ReadReport, *, labelled: bool = True) -> list[Example]:
        return super().examples(((place, self.transform(row)) for place, row in rows), report, labelled=labelled)


class ImdbReader(MappedTableReader):
    """The folders pos/ and neg/ of aclImdb, or a table with the columns text and label."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema, "text", label="label", transform=_with_line_breaks)

    def __call__(self, path: Path, report: ReadReport, *, labelled: bool = True) -> list[Example]:
        if not path.is_dir():
            return super().__call__(path, report, labelled=labelled)
        examples = []
        by_label = [sorted((path / name).glob("*.txt")) for name in ("neg", "pos")]
        # Interleaved, so that the first examples have both labels.
        for file in (file for pair in zip_longest(*by_label) for file in pair if file is not None):
            text = "\n".join(line for _, line in read_lines(file, report))
            examples.append(Example((text.replace("<br />", "\n"),), file.parent.name, str(file)))
        return self.schema.without_blank_texts(examples, report)


def _with_line_breaks(row: Row) -> Row:
    text = row.get("text")
    return {**row, "text": text.replace("<br />", "\n")} if isinstance(text, str) else row
