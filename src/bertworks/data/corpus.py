"""A corpus: files of the usual formats, read as a stream of documents in bounded memory.

Text (a blank line ends a document; or every line is one, or every file), JSON lines, CSV and TSV, Parquet;
uncompressed, or compressed with gzip, xz or zstd; folders, and standard input. What was replaced, split or skipped is
counted in `ReadStats` and reported as remarks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from bertworks.data.compression import STREAM_ERRORS, decompressed
from bertworks.data.tables import TABLE_SUFFIXES, Row, decoded_lines, inner_suffix, read_rows, table_format
from bertworks.errors import BadConfig, BadText, NotFound, Remark

TEXT_SUFFIXES = (".txt", ".text", ".md", ".rst")
TEXT_COLUMNS = ("text", "content", "document", "article", "body", "review", "sentence", "paragraph")  # usual names
MAX_DOCUMENT_CHARACTERS = 2**22  # longer ones are split
ROWS_TO_GUESS_FROM = 100  # which column holds the text

DOCUMENT_RULES = {  # what a document is -> in words, after a number of documents
    "blank-lines": "between blank lines",
    "line": "a line each",
    "file": "a file each",
    "row": "a row each",
}
SKIP_BAD = "correct it, or skip it with --skip-bad"
ReadProgress = Callable[[int, int | None], None]
"""Called with (bytes or rows done, their total if known)."""


@dataclass
class ReadStats:
    """Counts of what was read, replaced, split and skipped. Saved in the manifest of the shards."""

    files: int = 0
    documents: int = 0
    characters: int = 0
    replaced: int = 0  # characters that were not UTF-8
    split_documents: int = 0
    bad_rows: int = 0
    skipped_files: int = 0
    columns: dict[str, str] = field(default_factory=dict)  # file name -> the column that was taken for the text
    rules: dict[str, int] = field(default_factory=dict)  # a key of `DOCUMENT_RULES` -> documents

    def remarks(self) -> list[Remark]:
        remarks = [
            Remark("text-column", f"text column of {file}: {column!r}")
            for file, column in islice(self.columns.items(), 10)
        ]
        if self.skipped_files:
            remarks.append(Remark("other-files", f"skipped {self.skipped_files:,} files of other formats"))
        if self.replaced:
            text = f"{self.replaced:,} characters could not be decoded and became U+FFFD"
            remarks.append(Remark("replaced-characters", text))
        if self.bad_rows:
            rows = "1 invalid row" if self.bad_rows == 1 else f"{self.bad_rows:,} invalid rows"
            remarks.append(Remark("bad-rows", f"skipped {rows}"))
        if self.split_documents:
            text = f"{self.split_documents:,} documents longer than {MAX_DOCUMENT_CHARACTERS:,} characters were split"
            remarks.append(Remark("split-documents", text))
        return remarks


@dataclass(frozen=True)
class ReadOptions:
    """How files are read."""

    column: str | None = None  # of tables: the one with the text; None: guessed
    line_docs: bool = False  # every line of a text file is a document
    skip_bad: bool = False  # skip invalid rows, replace invalid characters, and count them
    file_docs: bool = False  # every text file is a document

    def __post_init__(self) -> None:
        if self.line_docs and self.file_docs:
            cause = "a document cannot be both a line and a file"
            remedy = "one of --line-docs and --file-docs"
            raise BadConfig(cause, remedy=remedy, code="given-twice", fields=["line_docs", "file_docs"])


class Corpus:
    """An iterable of documents, in the order of the files; the lines of a document are its paragraphs."""

    def __init__(self, sources: Sequence[str], options: ReadOptions | None = None) -> None:
        self.options = options or ReadOptions()
        self.stats = ReadStats()
        self.paths: list[Path | None] = []  # None is standard input
        for source in sources:
            self.paths += [None] if source == "-" else self._list_files(source)
        if not self.paths:
            remedy = f"known formats: {', '.join([*TEXT_SUFFIXES, *TABLE_SUFFIXES])}"
            raise NotFound("no text files", place=", ".join(sources), remedy=remedy, code="no-text-files")
        sizes = [None if path is None or not path.is_file() else path.stat().st_size for path in self.paths]
        self.total = None if None in sizes else sum(size or 0 for size in sizes)  # bytes on the disk; None: unknown
        self.finished_bytes = 0  # of the files that are read to their end
        self._position_in_file: Callable[[], int] = lambda: 0

    @property
    def position(self) -> int:
        """Bytes read so far, as counted in `total`."""
        return self.finished_bytes + self._position_in_file()

    def __iter__(self) -> Iterator[str]:
        self.stats = ReadStats(skipped_files=self.stats.skipped_files)
        self.finished_bytes = 0
        for path in self.paths:
            self.stats.files += 1
            rule = self._document_rule(path)
            for document in self._documents(path):
                for part in self._split_long(document):
                    self.stats.documents += 1
                    self.stats.rules[rule] = self.stats.rules.get(rule, 0) + 1
                    self.stats.characters += len(part)
                    yield part
            self._position_in_file = lambda: 0
            self.finished_bytes += 0 if path is None else path.stat().st_size

    def paragraphs(self, progress: ReadProgress = lambda done, total: None) -> Iterator[str]:
        """The non-empty lines of all documents, where document boundaries do not matter."""
        for document in self:
            progress(self.position, self.total)
            yield from (line for line in document.split("\n") if line and not line.isspace())

    def _list_files(self, source: str) -> list[Path]:
        path = Path(source)
        try:
            if source and path.is_dir():
                files = sorted(file for file in _walk(path) if file.is_file())
                readable = [file for file in files if _format(file) is not None]
                self.stats.skipped_files += len(files) - len(readable)
                return readable
            if not source or not path.exists():
                raise NotFound("no such file or folder", place=source or "''")
        except OSError as error:
            raise NotFound(
                f"cannot be read: {error.strerror}", place=_printable(error.filename or path), code="unreadable"
            ) from None
        return [path]

    def _split_long(self, document: str) -> Iterator[str]:
        if len(document) <= MAX_DOCUMENT_CHARACTERS:
            if document and not document.isspace():
                yield document
            return
        self.stats.split_documents += 1
        while len(document) > MAX_DOCUMENT_CHARACTERS:
            space = max(
                document.rfind("\n", 0, MAX_DOCUMENT_CHARACTERS), document.rfind(" ", 0, MAX_DOCUMENT_CHARACTERS)
            )
            end = space if space > 0 else MAX_DOCUMENT_CHARACTERS
            yield document[:end]
            document = document[end:].lstrip()
        if document:
            yield document

    def _document_rule(self, path: Path | None) -> str:
        """A key of `DOCUMENT_RULES`."""
        if path is not None and table_format(path) is not None:
            return "row"
        return "line" if self.options.line_docs else "file" if self.options.file_docs else "blank-lines"

    def _documents(self, path: Path | None) -> Iterator[str]:
        name = "standard input" if path is None else _printable(path)
        file_format = "text" if path is None else _format(path) or "text"
        try:
            with decompressed(path) as (stream, position):
                self._position_in_file = position
                if file_format == "text":
                    lines = decoded_lines(stream, name, self)
                    yield from (
                        self._line_documents(lines) if self.options.line_docs else self._paragraph_documents(lines)
                    )
                else:
                    yield from self._table_documents(read_rows(stream, file_format, name, self), name)
        except STREAM_ERRORS as error:
            code = "truncated-file" if isinstance(error, EOFError) else "unreadable"
            reason = getattr(error, "strerror", None) or error
            raise NotFound(f"cannot be read: {reason}", place=name, code=code) from None

    def _line_documents(self, lines: Iterator[str]) -> Iterator[str]:
        return (line for line in lines if line and not line.isspace())

    def _paragraph_documents(self, lines: Iterator[str]) -> Iterator[str]:
        """A blank line ends a document, unless every file is one."""
        paragraphs: list[str] = []
        size = 0
        for line in lines:
            blank = not line or line.isspace()
            ends = blank and not self.options.file_docs
            if (ends or size + len(line) > MAX_DOCUMENT_CHARACTERS) and paragraphs:
                self.stats.split_documents += not ends
                yield "\n".join(paragraphs)
                paragraphs = []
                size = 0
            if not blank:
                paragraphs.append(line)
                size += len(line) + 1
        if paragraphs:
            yield "\n".join(paragraphs)

    def _table_documents(self, rows: Iterator[tuple[str, Row]], name: str) -> Iterator[str]:
        first_rows = list(islice(rows, ROWS_TO_GUESS_FROM))
        if not first_rows:
            return
        column = self._text_column([row for _, row in first_rows], name)
        for place, row in chain(first_rows, rows):
            text = row.get(column)
            if isinstance(text, str):
                yield text.replace("\r\n", "\n")
            else:
                self.bad_row(f"no text in column {column!r}", place, "no-text")

    def _text_column(self, rows: list[Row], name: str) -> str:
        """The chosen column; else one with a usual name; else the one with the longest texts."""
        columns = list(dict.fromkeys(key for row in rows for key in row if key is not None))
        chosen = self.options.column
        if chosen is None:
            lengths = {key: sum(len(row[key]) for row in rows if isinstance(row.get(key), str)) for key in columns}
            usual_names = [key for key in columns if key.lower() in TEXT_COLUMNS and lengths[key]]
            chosen = usual_names[0] if usual_names else max(columns, key=lambda key: lengths[key], default=None)
            if chosen is None or not lengths[chosen]:
                cause = f"no column with text; columns: {', '.join(columns)}"
                raise BadText(cause, place=name, remedy="choose one with --column", code="no-text-column")
            self.stats.columns[name] = chosen
        elif chosen not in columns:
            remedy = f"columns: {', '.join(columns)}"
            raise BadText(f"no column {chosen!r}", place=name, remedy=remedy, code="missing-column")
        return chosen

    def bad_row(self, cause: str, place: str, code: str = "bad-row") -> None:
        if not self.options.skip_bad:
            raise BadText(cause, place=place, remedy=SKIP_BAD, code=code)
        self.stats.bad_rows += 1

    def bad_characters(self, count: int, cause: str, place: str, code: str = "not-utf8") -> None:
        if not self.options.skip_bad:
            raise BadText(cause, place=place, remedy=SKIP_BAD, code=code)
        self.stats.replaced += count


def describe_documents(rules: Mapping[str, int]) -> str:
    """How documents were told apart, for people; empty, where that is not known."""
    if len(rules) == 1:
        return f" ({DOCUMENT_RULES[next(iter(rules))]})"
    parts = ", ".join(f"{count:,} {DOCUMENT_RULES[rule]}" for rule, count in rules.items())
    return f" ({parts})" if parts else ""


def _walk(folder: Path) -> Iterator[Path]:
    """The files below a folder, without hidden ones. A folder that cannot be listed is an error, not empty."""

    def refuse(error: OSError) -> None:
        raise error

    for parent, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent) / name for name in files if not name.startswith("."))


def _printable(path: object) -> str:
    """A path as valid UTF-8, whatever its bytes are."""
    return os.fsencode(str(path)).decode("utf-8", "replace")


def _format(path: Path) -> str | None:
    return table_format(path) or ("text" if inner_suffix(path) in TEXT_SUFFIXES else None)
