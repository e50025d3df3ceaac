"""Files with examples opened for reading: streams of lines, and tables row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice, zip_longest
from pathlib import Path
from typing import IO

from bertworks.data.compression import CORRUPT, decompressed
from bertworks.data.tables import Row, decoded_lines, inner_suffix, read_rows, table_format
from bertworks.datasets.columns import SAMPLED_ROWS, Columns
from bertworks.datasets.example import Example, is_blank
from bertworks.datasets.report import BadRows, ReadReport
from bertworks.datasets.schema import Schema
from bertworks.errors import BadText, NotFound

Rows = Iterator[tuple[str, Row]]


@contextmanager
def open_stream(path: Path | None) -> Iterator[IO[bytes]]:
    """Without a path, standard input."""
    try:
        with decompressed(path) as (stream, _):
            yield stream
    except CORRUPT as error:
        cause = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise NotFound(cause, place=_name(path), code="unreadable") from None


def _name(path: Path | None) -> str:
    return str(path) if path is not None else "standard input"


def read_lines(path: Path | None, report: ReadReport) -> Iterator[tuple[str, str]]:
    """Each line with its place."""
    with open_stream(path) as stream:
        for number, line in enumerate(decoded_lines(stream, _name(path), report), start=1):
            yield f"{_name(path)}, line {number}", line


def is_table(path: Path) -> bool:
    return _format(path) is not None


def _format(path: Path) -> str | None:
    return table_format(path) or ("json" if inner_suffix(path) == ".json" else None)


@contextmanager
def open_table(path: Path, report: ReadReport) -> Iterator[Rows]:
    """The rows of a table, each with its place."""
    with open_stream(path) as stream:
        yield read_rows(stream, str(_format(path)), str(path), report, all_columns=True)


def check_file(path: Path) -> None:
    if path.is_dir():
        raise NotFound("this is a folder", place=str(path), remedy="name a file in it", code="is-a-folder")
    if not path.exists():
        raise NotFound("no such file", place=str(path))
    if not path.is_file():
        remedy = "write it into one first, or give it to `predict RUN -`"
        raise NotFound("not a file that can be read twice", place=str(path), remedy=remedy, code="not-a-file")


def sample_rows(path: Path) -> list[Row]:
    """The first of a table, to guess its columns from."""
    report = ReadReport()
    with open_table(path, report) as found:
        rows = [row for _, row in islice(found, SAMPLED_ROWS)]
    if not rows:
        if report.bad:
            raise BadRows(report.summary(), report.bad, place=str(path))
        raise BadText("no rows in this table", place=str(path), code="no-rows")
    return rows


def has_columns(path: Path, columns: Sequence[str]) -> bool:
    return is_table(path) and set(columns) <= {name for row in sample_rows(path) for name in row}


class TableReader:
    """Reads examples off the columns of a table."""

    def __init__(self, columns: Columns, schema: Schema) -> None:
        self.columns, self.schema = columns, schema

    def open(self, path: Path, report: ReadReport) -> AbstractContextManager[Rows]:
        """Its rows as they stand there."""
        return open_table(path, report)

    def examples(self, rows: Rows, report: ReadReport, *, labelled: bool = True) -> list[Example]:
        return self.schema.examples(rows, self.columns if labelled else self.columns.without_labels(), report)

    def __call__(self, path: Path, report: ReadReport, *, labelled: bool = True) -> list[Example]:
        with self.open(path, report) as rows:
            return self.examples(rows, report, labelled=labelled)

    def fits(self, path: Path, *, labelled: bool) -> bool:
        """Whether the first row of a file has its texts and, if `labelled`, its label."""
        with self.open(path, ReadReport()) as rows:
            _, row = next(rows, ("", {}))
        wanted = (*self.columns.texts, *(self.columns.labels if labelled else ()))
        if not all(name in row for name in wanted):
            return False
        known = self.columns.label_map
        return not known or all(str(row.get(label) or "").strip() in ("", *known) for label in self.columns.labels)


class GlueReader(TableReader):
    """Rows separated by tabs as GLUE has them: quotes are characters like any other. `header`: for files that have
    none; `malformed`: the official file has rows of another width, or with an empty text, and everybody leaves them
    out."""

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
        self.header, self.malformed = header, malformed

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
                note = report.malformed_row if self.malformed else report.bad_row
                note(f"{len(fields)} fields, {len(header)} expected", place, "wrong-field-count")
            elif line:
                yield place, dict(zip(header, fields, strict=True))

    def examples(self, rows: Rows, report: ReadReport, *, labelled: bool = True) -> list[Example]:
        return super().examples(
            self._filled(rows, report) if self.malformed and labelled else rows, report, labelled=labelled
        )

    def _filled(self, rows: Rows, report: ReadReport) -> Rows:
        for place, row in rows:
            if any(is_blank(row.get(name, "")) for name in self.columns.texts):
                report.malformed_row("empty text", place, "empty-text")
            else:
                yield place, row


class MappedTableReader(TableReader):
    """Rows of any table that are changed before they are read."""

    def __init__(self, schema: Schema, *texts: str, label: str, change: Callable[[Row], Row]) -> None:
        super().__init__(Columns(texts, (label,)), schema)
        self.change = change

    def examples(self, rows: Rows, report: ReadReport, *, labelled: bool = True) -> list[Example]:
        return super().examples(((place, self.change(row)) for place, row in rows), report, labelled=labelled)


class ReviewsReader(MappedTableReader):
    """The folders pos/ and neg/ of aclImdb, or rows with text and label."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema, "text", label="label", change=_with_line_breaks)

    def __call__(self, path: Path, report: ReadReport, *, labelled: bool = True) -> list[Example]:
        if not path.is_dir():
            return super().__call__(path, report, labelled=labelled)
        found = []
        sides = [sorted((path / name).glob("*.txt")) for name in ("neg", "pos")]
        for file in (
            file for pair in zip_longest(*sides) for file in pair if file is not None
        ):  # in turn: the first ones are of both
            text = "\n".join(line for _, line in read_lines(file, report))
            found.append(Example((text.replace("<br />", "\n"),), file.parent.name, str(file)))
        return self.schema.readable(found, report)


def _with_line_breaks(row: Row) -> Row:
    text = row.get("text")
    return {**row, "text": text.replace("<br />", "\n")} if isinstance(text, str) else row
