"""Files of any usual kind, read as a stream of documents in bounded memory.

Text (a blank line ends a document, or every line is one), JSON lines, CSV and TSV, Parquet; plain, or packed with gzip,
xz or zstd; folders, and standard input. What was damaged, cut or left out on the way is counted in `Tally` and said.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from bertworks.data.compression import CORRUPT, decompressed
from bertworks.data.tables import TABLE_SUFFIXES, Row, decoded_lines, inner_suffix, read_rows, table_format
from bertworks.errors import BadText, NotFound, Remark

TEXT_SUFFIXES = (".txt", ".text", ".md", ".rst")
USUAL_COLUMNS = ("text", "content", "document", "article", "body", "review", "sentence", "paragraph")
LONGEST_DOCUMENT = 2**22  # characters; longer ones become several
GUESSED_FROM = 100  # rows
SKIP_BAD = "put it right, or --skip-bad goes on without it"


@dataclass
class ReadStats:
    """What the reading found."""

    files: int = 0
    documents: int = 0
    characters: int = 0
    replaced: int = 0  # signs that were not UTF-8
    split_documents: int = 0
    bad_rows: int = 0
    skipped_files: int = 0
    columns: dict[str, str] = field(default_factory=dict)  # which column held the text, by file

    def remarks(self) -> list[Remark]:
        said = [
            Remark("text-column", f"text column of {file}: {column!r}")
            for file, column in islice(self.columns.items(), 10)
        ]
        if self.skipped_files:
            said.append(Remark("other-files", f"{self.skipped_files:,} files of other kinds were left out"))
        if self.replaced:
            said.append(Remark("replaced-characters", f"{self.replaced:,} signs were not UTF-8 and became U+FFFD"))
        if self.bad_rows:
            said.append(
                Remark("bad-rows", f"{self.bad_rows:,} rows could not be read or had no text, and were left out")
            )
        if self.split_documents:
            text = f"{self.split_documents:,} documents were longer than {LONGEST_DOCUMENT:,} characters and became several"
            said.append(Remark("split-documents", text))
        return said


@dataclass(frozen=True)
class ReadOptions:
    """How the files are to be read."""

    column: str | None = None  # of the text in tables; guessed if not given
    line_docs: bool = False  # every line of a text file is a document
    skip_bad: bool = False  # go on without invalid rows and characters, and count them


class Corpus:
    """Documents, one after the other, in the order of the files; each is text whose lines are paragraphs."""

    def __init__(self, sources: Sequence[str], options: ReadOptions | None = None) -> None:
        self.options, self.stats = options or ReadOptions(), ReadStats()
        self.paths: list[Path | None] = []  # None is standard input
        for source in sources:
            self.paths += [None] if source == "-" else self._files(source)
        if not self.paths:
            remedy = f"known kinds: {', '.join([*TEXT_SUFFIXES, *TABLE_SUFFIXES])}"
            raise NotFound("no files of text", place=", ".join(sources), remedy=remedy, code="no-text-files")
        sizes = [None if path is None or not path.is_file() else path.stat().st_size for path in self.paths]
        self.total = None if None in sizes else sum(size or 0 for size in sizes)  # bytes
        self.done = 0  # bytes of the files already read
        self._position: Callable[[], int] = lambda: 0

    @property
    def position(self) -> int:
        """Bytes read so far, as they stand on the disk."""
        return self.done + self._position()

    def __iter__(self) -> Iterator[str]:
        self.stats = ReadStats(skipped_files=self.stats.skipped_files)
        self.done = 0
        for path in self.paths:
            self.stats.files += 1
            for document in self._documents(path):
                for part in self._bounded(document):
                    self.stats.documents += 1
                    self.stats.characters += len(part)
                    yield part
            self._position = lambda: 0
            self.done += 0 if path is None else path.stat().st_size

    def paragraphs(self, progress: Callable[[int, int | None], None] = lambda done, total: None) -> Iterator[str]:
        """The lines of all documents, for those who do not care where one ends."""
        for document in self:
            progress(self.position, self.total)
            yield from (line for line in document.split("\n") if line and not line.isspace())

    def _files(self, source: str) -> list[Path]:
        path = Path(source)
        try:
            if source and path.is_dir():
                found = sorted(file for file in _walk(path) if file.is_file())
                known = [file for file in found if _kind(file) is not None]
                self.stats.skipped_files += len(found) - len(known)
                return known
            if not source or not path.exists():
                raise NotFound("no such file or folder", place=source or "''")
        except OSError as error:
            raise NotFound(
                f"cannot be read: {error.strerror}", place=_printable(error.filename or path), code="unreadable"
            ) from None
        return [path]

    def _bounded(self, document: str) -> Iterator[str]:
        if len(document) <= LONGEST_DOCUMENT:
            if document and not document.isspace():
                yield document
            return
        self.stats.split_documents += 1
        while len(document) > LONGEST_DOCUMENT:
            space = max(document.rfind("\n", 0, LONGEST_DOCUMENT), document.rfind(" ", 0, LONGEST_DOCUMENT))
            end = space if space > 0 else LONGEST_DOCUMENT
            yield document[:end]
            document = document[end:].lstrip()
        if document:
            yield document

    def _documents(self, path: Path | None) -> Iterator[str]:
        name = "standard input" if path is None else _printable(path)
        kind = "text" if path is None else _kind(path) or "text"
        try:
            with decompressed(path) as (stream, position):
                self._position = position
                if kind == "text":
                    lines = decoded_lines(stream, name, self)
                    yield from (
                        self._line_documents(lines) if self.options.line_docs else self._blank_line_documents(lines)
                    )
                else:
                    yield from self._table(read_rows(stream, kind, name, self), name)
        except CORRUPT as error:
            code = "truncated-file" if isinstance(error, EOFError) else "unreadable"
            raise NotFound(
                f"cannot be read: {getattr(error, 'strerror', None) or error}", place=name, code=code
            ) from None

    def _line_documents(self, lines: Iterator[str]) -> Iterator[str]:
        return (line for line in lines if line and not line.isspace())

    def _blank_line_documents(self, lines: Iterator[str]) -> Iterator[str]:
        paragraphs: list[str] = []
        size = 0
        for line in lines:
            blank = not line or line.isspace()
            if (blank or size + len(line) > LONGEST_DOCUMENT) and paragraphs:
                self.stats.split_documents += not blank
                yield "\n".join(paragraphs)
                paragraphs, size = [], 0
            if not blank:
                paragraphs.append(line)
                size += len(line) + 1
        if paragraphs:
            yield "\n".join(paragraphs)

    def _table(self, rows: Iterator[tuple[str, Row]], name: str) -> Iterator[str]:
        first = list(islice(rows, GUESSED_FROM))
        if not first:
            return
        column = self._column([row for _, row in first], name)
        for place, row in chain(first, rows):
            text = row.get(column)
            if isinstance(text, str):
                yield text.replace("\r\n", "\n")
            else:
                self.bad_row(f"no text in column {column!r}", place, "no-text")

    def _column(self, rows: list[Row], name: str) -> str:
        columns = list(dict.fromkeys(key for row in rows for key in row if key is not None))
        chosen = self.options.column
        if chosen is None:
            lengths = {key: sum(len(row[key]) for row in rows if isinstance(row.get(key), str)) for key in columns}
            usual = [key for key in columns if key.lower() in USUAL_COLUMNS and lengths[key]]
            chosen = usual[0] if usual else max(columns, key=lambda key: lengths[key], default=None)
            if chosen is None or not lengths[chosen]:
                cause = f"no column with text; columns: {', '.join(columns)}"
                raise BadText(cause, place=name, remedy="name it with --column", code="no-text-column")
            self.stats.columns[name] = chosen
        elif chosen not in columns:
            raise BadText(
                f"no column {chosen!r}", place=name, remedy=f"columns: {', '.join(columns)}", code="missing-column"
            )
        return chosen

    def bad_row(self, cause: str, place: str, code: str = "bad-row") -> None:
        if not self.options.skip_bad:
            raise BadText(cause, place=place, remedy=SKIP_BAD, code=code)
        self.stats.bad_rows += 1

    def bad_characters(self, count: int, cause: str, place: str, code: str = "not-utf8") -> None:
        if not self.options.skip_bad:
            raise BadText(cause, place=place, remedy=SKIP_BAD, code=code)
        self.stats.replaced += count


def _walk(folder: Path) -> Iterator[Path]:
    """The files below a folder but for hidden ones; a folder that cannot be looked into is an error, not nothing."""

    def refuse(error: OSError) -> None:
        raise error

    for here, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(here) / name for name in files if not name.startswith("."))


def _printable(path: object) -> str:
    """A name that can be printed and written, whatever its bytes are."""
    return os.fsencode(str(path)).decode("utf-8", "replace")


def _kind(path: Path) -> str | None:
    return table_format(path) or ("text" if inner_suffix(path) in TEXT_SUFFIXES else None)
