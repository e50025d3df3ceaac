"""Files that examples come in: tables, GLUE's rows between tabs, SQuAD's JSON, CoNLL's columns, and what single data sets have."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import IO, Any, Protocol

from bertworks.config import Shape
from bertworks.data.packed import Damaged, unpacked
from bertworks.data.tables import Row, decoded, kind_of, rows_of, suffix_of, whole
from bertworks.errors import BadText, NotFound, Remark
from bertworks.tasks.columns import GUESSED_FROM
from bertworks.tasks.example import Example, Span, Unreadable, is_blank, why_no_text
from bertworks.tasks.rows import BadRows, Columns, Findings, listed_spans, make_examples

Rows = Iterator[tuple[str, Row]]
NEARLY_ALL = 0.9


class Read(Protocol):
    """Reads the examples of a file; if not `answered`, without their answers, which may be missing or wrong."""

    def __call__(self, path: Path, findings: Findings, *, answered: bool = True) -> list[Example]: ...


@contextmanager
def opened(path: Path | None) -> Iterator[IO[bytes]]:
    """Without a path, standard input."""
    try:
        with unpacked(path) as (stream, _):
            yield stream
    except Damaged as error:
        cause = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise NotFound(cause, place=_name(path), code="unreadable") from None


def _name(path: Path | None) -> str:
    return str(path) if path is not None else "standard input"


def lines_of(path: Path | None, findings: Findings) -> Iterator[tuple[str, str]]:
    """Each line with its place."""
    with opened(path) as stream:
        for number, line in enumerate(decoded(stream, _name(path), findings), start=1):
            yield f"{_name(path)}, line {number}", line


def table_kind(path: Path) -> str | None:
    return kind_of(path) or ("json" if suffix_of(path) == ".json" else None)


@contextmanager
def opened_table(path: Path, findings: Findings) -> Iterator[Rows]:
    """The rows of a table, each with its place."""
    with opened(path) as stream:
        yield rows_of(stream, str(table_kind(path)), str(path), findings, all_columns=True)


def check_file(path: Path) -> None:
    if path.is_dir():
        raise NotFound("this is a folder", place=str(path), remedy="name a file in it", code="is-a-folder")
    if not path.exists():
        raise NotFound("no such file", place=str(path))
    if not path.is_file():
        remedy = "write it into one first, or give it to `predict RUN -`"
        raise NotFound("not a file that can be read twice", place=str(path), remedy=remedy, code="not-a-file")


def first_rows(path: Path) -> list[Row]:
    """Of a table, to guess from."""
    findings = Findings()
    with opened_table(path, findings) as found:
        rows = [row for _, row in islice(found, GUESSED_FROM)]
    if not rows:
        if findings.bad:
            raise BadRows(findings.said(), findings.bad, place=str(path))
        raise BadText("no rows in this table", place=str(path), code="no-rows")
    return rows


class OfTable:
    """Reads examples off the columns of a table."""

    def __init__(self, columns: Columns, shape: Shape) -> None:
        self.columns, self.shape = columns, shape

    def opened(self, path: Path, findings: Findings) -> AbstractContextManager[Rows]:
        """Its rows as they stand there."""
        return opened_table(path, findings)

    def examples(self, rows: Rows, findings: Findings, *, answered: bool = True) -> list[Example]:
        return make_examples(rows, self.columns if answered else replace(self.columns, label=None), self.shape, findings)

    def __call__(self, path: Path, findings: Findings, *, answered: bool = True) -> list[Example]:
        with self.opened(path, findings) as rows:
            return self.examples(rows, findings, answered=answered)

    def fits(self, path: Path, *, answered: bool) -> bool:
        """Whether the first row of a file has its texts and, if `answered`, its label."""
        with self.opened(path, Findings()) as rows:
            _, row = next(rows, ("", {}))
        label, known = self.columns.label, self.columns.names
        if not all(name in row for name in self.columns.texts) or (answered and label not in row):
            return False
        return not known or str(row.get(str(label)) or "").strip() in ("", *known)


class Tabbed(OfTable):
    """Rows between tabs as GLUE has them: quotes are signs like any other. `header`: for files that have none; `torn`: the official file
    has rows of another width, or with an empty text, and all leave them out."""

    def __init__(
        self,
        *texts: str,
        label: str,
        names: Mapping[str, str] | None = None,
        header: Sequence[str] | None = None,
        shape: Shape = "classify",
        torn: bool = False,
    ) -> None:
        super().__init__(Columns(texts, label, names or {}), shape)
        self.header, self.torn = header, torn

    @contextmanager
    def opened(self, path: Path, findings: Findings) -> Iterator[Rows]:
        yield self._rows(path, findings)

    def _rows(self, path: Path, findings: Findings) -> Rows:
        header: Sequence[str] = ()
        for place, line in lines_of(path, findings):
            fields = line.split("\t")
            if not header:
                is_header = self.header is None or all(name in fields for name in self.columns.texts)
                header = fields if is_header else self.header or ()
                if is_header:
                    continue
            if line and len(fields) != len(header):
                report = findings.torn_row if self.torn else findings.bad_row
                report(f"{len(fields)} fields, {len(header)} are usual", place, "wrong-field-count")
            elif line:
                yield place, dict(zip(header, fields, strict=True))

    def examples(self, rows: Rows, findings: Findings, *, answered: bool = True) -> list[Example]:
        return super().examples(self._filled(rows, findings) if self.torn and answered else rows, findings, answered=answered)

    def _filled(self, rows: Rows, findings: Findings) -> Rows:
        for place, row in rows:
            if any(is_blank(row.get(name, "")) for name in self.columns.texts):
                findings.torn_row("an empty text", place, "empty-text")
            else:
                yield place, row


class Changed(OfTable):
    """Rows of any table that are changed before they are read."""

    def __init__(self, *texts: str, label: str, change: Callable[[Row], Row], shape: Shape = "classify") -> None:
        super().__init__(Columns(texts, label), shape)
        self.change = change

    def examples(self, rows: Rows, findings: Findings, *, answered: bool = True) -> list[Example]:
        return super().examples(((place, self.change(row)) for place, row in rows), findings, answered=answered)


class Reviews(Changed):
    """The folders pos/ and neg/ of aclImdb, or rows with text and label."""

    def __init__(self) -> None:
        super().__init__("text", label="label", change=_with_lines)

    def __call__(self, path: Path, findings: Findings, *, answered: bool = True) -> list[Example]:
        if not path.is_dir():
            return super().__call__(path, findings, answered=answered)
        found = []
        sides = [sorted((path / name).glob("*.txt")) for name in ("neg", "pos")]
        for file in (file for pair in zip_longest(*sides) for file in pair if file is not None):  # in turn: the first ones are of both
            text = "\n".join(line for _, line in lines_of(file, findings))
            found.append(Example((text.replace("<br />", "\n"),), file.parent.name, str(file)))
        return _readable(found, "classify", findings)


def _with_lines(row: Row) -> Row:
    text = row.get("text")
    return {**row, "text": text.replace("<br />", "\n")} if isinstance(text, str) else row


def _readable(examples: Sequence[Example], shape: Shape, findings: Findings) -> list[Example]:
    """Those with something to read in them."""
    found = []
    for example in examples:
        if (reason := why_no_text(example.texts, shape)) is None:
            found.append(example)
        else:
            findings.bad_row(reason.cause, example.place, reason.code)
    return found


def is_squad(path: Path) -> bool:
    """Whether a file has articles with paragraphs."""
    try:
        found = _json(path, Findings()) if suffix_of(path) == ".json" else None
    except BadText:
        return False
    articles = found.get("data") if isinstance(found, dict) else None
    return isinstance(articles, list) and all(isinstance(article, dict) and "paragraphs" in article for article in articles[:1])


def squad(path: Path, findings: Findings, *, answered: bool = True) -> list[Example]:
    """SQuAD 1.1 and 2.0."""
    found = []
    try:
        for article in _json(path, findings)["data"]:
            for passage, question in ((paragraph["context"], asked) for paragraph in article["paragraphs"] for asked in paragraph["qas"]):
                place = f"{path}, question {question['id']}"
                try:
                    answer = _answers(question, passage) if answered else None
                except Unreadable as reason:
                    findings.bad_row(reason.cause, place, reason.code)
                    continue
                texts = question["question"].strip(), passage
                found.append(Example(texts, answer, place, question["id"], group=article.get("title") or passage))
    except (KeyError, TypeError, AttributeError) as error:
        remedy = "known: SQuAD 1.1 and 2.0; or a table with columns for question, passage and answer"
        raise BadText(f"not a file of SQuAD's: {error!r}", place=str(path), remedy=remedy, code="not-squad") from None
    return _readable(found, "span", findings)


def _answers(question: Row, passage: str) -> tuple[Span, ...]:
    if "answers" not in question:
        raise Unreadable("no answers, not even an empty list", "no-answer-list")
    listed = question["answers"]
    spans = listed_spans([answer["answer_start"] for answer in listed], [answer["text"] for answer in listed])
    wrong = [span for span in spans if span.start < 0 or passage[span.start : span.end] != span.text]
    if wrong:
        raise Unreadable(f"the answer {wrong[0].text[:60]!r} is not at character {wrong[0].start}", "answer-not-at-start")
    return tuple(spans)


def _json(path: Path, findings: Findings) -> Any:
    """All of a file: SQuAD's are one long line."""
    try:
        with opened(path) as stream:
            return whole(json.loads(stream.read()), str(path), findings)
    except (ValueError, RecursionError) as error:
        raise BadText(f"not JSON: {str(error)[:100]}", place=str(path), code="not-json") from None


def conll(path: Path, findings: Findings, *, answered: bool = True, column: int | None = None) -> list[Example]:
    """A word and its tag on a line, first and last of its columns; a blank line ends a sentence. In CoNLL-U they are the second and
    the fourth of ten. Or a sentence and its tags on a line, between them a tab. `column`: of the tag, counted from 1."""
    lines = list(lines_of(path, findings))
    if suffix_of(path) == ".conllu":
        columns = _word_and_tag(path, (2, 4 if column is None else column), 10, findings, answered=answered)
        found = _sentences(_universal(lines), columns, 10, findings)
    elif _are_sentences(line for _, line in lines):
        found = _on_one_line(lines, findings)
    else:
        split = list(_without_comments(lines))
        width, _ = _width(parts for _, parts in split)
        columns = _word_and_tag(path, (1, width if column is None else column), width, findings, answered=answered)
        found = _sentences(split, columns, width, findings, answered=answered)
    return _readable(found if answered else [replace(one, answer=None) for one in found], "tag", findings)


def _word_and_tag(path: Path, columns: tuple[int, int], width: int, findings: Findings, *, answered: bool) -> tuple[int, int]:
    """Their columns, counted from 0; which they are is said."""
    word, tag = columns
    if not 1 <= tag <= max(1, width):
        remedy = "--label names another, counted from 1"
        raise BadText(f"no column {tag}: there are {width}", place=str(path), remedy=remedy, code="missing-column")
    if answered and width > 1:
        findings.notes.append(Remark("tag-column", f"words are in column {word}, tags in column {tag} of {width}"))
    return word - 1, tag - 1


def _on_one_line(lines: Iterable[tuple[str, str]], findings: Findings) -> list[Example]:
    found = []
    for place, line in lines:
        words, tags = (part.split() for part in line.partition("\t")[::2])
        if len(words) != len(tags):
            findings.bad_row(f"{len(words)} words, {len(tags)} tags", place, "wrong-tag-count")
        elif words:
            found.append(Example(tuple(words), tuple(tags), place))
    return found


def _sentences(
    lines: Iterable[tuple[str, list[str]]], columns: tuple[int, int], width: int, findings: Findings, *, answered: bool = True
) -> list[Example]:
    """`columns`: where word and tag stand, of so many. A sentence with a line that cannot be read is no sentence any more."""
    found: list[Example] = []
    words: list[str] = []
    tags: list[str] = []
    start, whole = "", True
    for place, parts in [*lines, ("", [])]:
        if not parts or parts[0] == "-DOCSTART-":
            if words and whole:
                found.append(Example(tuple(words), tuple(tags), start))
            words, tags, whole = [], [], True
        elif len(parts) == width and (width > 1 or not answered):
            start = start if words else place
            words.append(parts[columns[0]])
            tags.append(parts[columns[1]])
        else:
            if len(parts) == 1:
                findings.bad_row("a word without a tag", place, "word-without-tag")
            else:
                findings.bad_row(f"{len(parts)} columns, {width} are usual", place, "wrong-field-count")
            whole = False
    return found


def _width(split: Iterable[list[str]]) -> tuple[int, int]:
    """How many columns are usual, and how many lines have so many."""
    counts = Counter(len(parts) for parts in split if parts and parts[0] != "-DOCSTART-")
    return max(counts.items(), key=lambda one: one[1], default=(0, 0))


def _columns(line: str) -> list[str]:
    """Between tabs, if there are any, so that a word may have spaces in it; else between spaces. Nothing else divides: other blanks may be
    words."""
    parts = line.split("\t" if "\t" in line else " ") if line.strip() else []
    return [part.strip(" ") for part in parts if part.strip(" ")]


def _without_comments(lines: Sequence[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """A comment stands before a sentence, begins with a hash and a space, and ends like no word's line: its last column is no tag."""
    split = [(place, _columns(line), line.startswith("# ")) for place, line in lines]
    ends = {parts[-1] for _, parts, hashed in split if parts and not hashed}
    before: list[str] = []
    for place, parts, hashed in split:
        if not (hashed and not before and len(parts) > 1 and parts[-1] not in ends):
            yield place, parts
            before = parts


def are_tagged(lines: Sequence[str], tags: Collection[str]) -> bool:
    """Whether lines are sentences with their tags, or words with theirs: nearly all have the same number of columns, and nearly all end in
    one of these tags."""
    if _are_sentences(lines):
        return True
    words = [parts for line in lines if (parts := _columns(line)) and parts[0] != "-DOCSTART-"]
    width, usual = _width(words)
    known = sum(parts[-1] in tags for parts in words)
    return width > 1 and min(usual, known) >= NEARLY_ALL * len(words)


def _universal(lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """The columns of CoNLL-U, without comments, words written together, which follow one by one, and words that are not there."""
    for place, line in lines:
        parts = line.split("\t") if line.strip() else []
        if not line.startswith("#") and not (parts and re.fullmatch(r"\d+[-.]\d+", parts[0])):
            yield place, parts


def _are_sentences(lines: Iterable[str]) -> bool:
    """Whether nearly all lines have as many words before their tab as tags behind it, and some have several."""
    halves = [[part.split() for part in line.split("\t")] for line in lines if line.strip()]
    equal = [one for one in halves if len(one) == 2 and len(one[0]) == len(one[1])]
    return len(equal) >= NEARLY_ALL * len(halves) and any(len(one[0]) > 1 for one in equal)


def second_sentences(row: Row) -> Row:
    """SWAG's second sentence begins the same in all endings."""
    ways = [f"ending{at}" for at in range(4)]
    return {**row, **{way: f"{row.get('sent2') or ''} {row[way] or ''}".strip() for way in ways if way in row}}


def dream(path: Path, findings: Findings, *, answered: bool = True) -> list[Example]:
    """Questions about dialogues."""
    found = []
    try:
        for turns, asked, name in _json(path, findings):
            for at, question in enumerate(asked):
                ways = tuple(f"{question['question']} {choice}" for choice in question["choice"])
                answer = question["choice"].index(question["answer"]) if answered else None
                place = f"{path}, dialogue {name}, question {at + 1}"
                found.append(Example(("\n".join(turns), *ways), answer, place, f"{name}-{at}", group=name))
    except (KeyError, TypeError, ValueError) as error:
        remedy = "or a table with the choices in columns"
        raise BadText(f"not a file of DREAM's: {error!r}", place=str(path), remedy=remedy, code="not-dream") from None
    return _readable(found, "choice", findings)
