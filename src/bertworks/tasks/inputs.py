"""What users hand to a fine-tuned model, as examples without an answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from unicodedata import category

from bertworks.config import LearnedConfig, TaskConfig
from bertworks.data.tables import Row, suffix_of
from bertworks.errors import BadConfig, BadText, Remark
from bertworks.tasks.columns import GUESSED_FROM, check_texts, guess_columns
from bertworks.tasks.datasets import TASKS
from bertworks.tasks.example import SIGN, Example, why_no_text
from bertworks.tasks.formats import (
    OfTable,
    Read,
    are_tagged,
    check_file,
    conll,
    first_rows,
    is_squad,
    lines_of,
    squad,
    table_kind,
)
from bertworks.tasks.rows import Columns, Findings, unwritten

T = TypeVar("T")
Input = str | Sequence[str] | tuple[str, Sequence[str]]
WORD = re.compile(rf"[{SIGN}]|[^\W{SIGN}]+(?:[-'’.][^\W{SIGN}]+)*|[^\w\s]")
CONLL = (".conll", ".conllu", ".bio", ".bmes")
CLINGING = ("Mn", "Mc", "Me", "Cf")  # categories of Unicode
PART = 1024  # examples of a file that are read, answered and written together
EXPECTED = {
    "classify": "a text",
    "regress": "a text",
    "multilabel": "a text",
    "tag": "a text, or a list of words",
    "span": "a question and a passage",
    "choice": "a text and a list of at least two ways to go on",
}


@dataclass(frozen=True)
class Asked:
    """A part of what a file asks a model, line by line or row by row, and its rows: as they stand there, where it is a table."""

    places: list[Example | None]  # None: nothing that could be answered
    rows: list[Row]

    @property
    def examples(self) -> list[Example]:
        return [example for example in self.places if example is not None]


class Inputs:
    """What a file asks a model: a table, SQuAD's JSON, sentences as CoNLL has them, or else a text on each line; several texts of a line
    lie between tabs. It is read a part at a time, so it may be of any size. A file is gone through once before, so that what is wrong with
    it is said before there is an answer; standard input cannot be."""

    def __init__(self, file: str, learned: LearnedConfig, *, text: str | None, pair: Sequence[str], skip_bad: bool) -> None:
        self.file, self.task, self.skip_bad, path = file, learned.task, skip_bad, Path(file)
        self.findings = Findings()
        self.total: int | None = None  # examples, if that is known
        self.header: dict[str, None] = {}  # columns of the rows
        if file != "-":
            check_file(path)
        is_table = file != "-" and table_kind(path) is not None
        if (text is not None or pair) and not is_table:
            cause = "--text and --pair name columns, and this is no table"
            raise BadConfig(cause, place=file, remedy="leave them out", code="no-named-columns")
        self._read: Read | None = None  # of a file that is no plain text
        self._as_trained = False  # a table with the columns that it was trained on
        if file != "-":
            row = TASKS.get(learned.dataset or "")
            # Words in columns are known by what is in them, not by a name such as test.txt.
            official = row is not None and row.shape != "tag" and text is None and not pair and row.has(path, answered=False)
            self._read = row.read if row is not None and official else _special(path, self.task)
            if self._read is None and is_table:
                self._read = OfTable(_columns(path, learned, text, pair), self.task.shape)
                self._as_trained = self._read.columns.texts == learned.columns
            self.total = 0
            for part in self._parts(self.findings):
                self.total += len(part.examples)
                self.header |= dict.fromkeys(name for row in part.rows for name in row)
            self.findings.check_encoding(self.total)
            self._check(self.total)
        self.header = self.header or dict.fromkeys(_text_columns(self.task))

    def __iter__(self) -> Iterator[Asked]:
        if self.total is not None:
            yield from self._parts(Findings())
            return
        count = 0
        for part in self._parts(self.findings):
            count += len(part.examples)
            self.findings.check_encoding(count)
            self.findings.check_rows(skip=self.skip_bad)
            yield part
        self._check(count)

    @property
    def remarks(self) -> list[Remark]:
        said = [Remark("columns", f"columns: {', '.join(self._read.columns.texts)}")] if isinstance(self._read, OfTable) else []
        if said and self.task.shape == "tag":
            said.append(
                Remark("words-between-spaces", "words lie between spaces, as in training")
                if self._as_trained
                else Remark("words-divided", "texts are divided into words, lists are taken as they are")
            )
        return [*said, *self.findings.remarks()]

    def _check(self, count: int) -> None:
        self.findings.check_rows(skip=self.skip_bad)
        if not count:
            raise BadText("nothing to answer", place=self.file, code="nothing-to-answer")

    def _parts(self, findings: Findings) -> Iterator[Asked]:
        path = Path(self.file)
        if isinstance(self._read, OfTable):
            with self._read.opened(path, findings) as rows:
                for part in _in_parts(rows):
                    found = {example.place: example for example in self._read.examples(iter(part), findings, answered=False)}
                    if self.task.shape == "tag" and not self._as_trained:
                        (name,) = self._read.columns.texts
                        found = {place: _in_words(found[place], row[name], self.task) for place, row in part if place in found}
                    yield Asked([found.get(place) for place, _ in part], [row for _, row in part])
        elif self._read is not None:
            for examples in _in_parts(self._read(path, findings, answered=False)):
                yield Asked(list(examples), [_as_row(example, self.task) for example in examples])
        else:
            lines = lines_of(path if self.file != "-" else None, findings)
            for read in _in_parts(_of_lines(lines, self.task, findings)):
                yield Asked([example for example, _ in read], [row for _, row in read])


def _text_columns(task: TaskConfig) -> tuple[str, ...]:
    """What the texts of an example are called in a table."""
    columns = {"tag": ("text",), "span": ("question", "context"), "choice": ("context", "choices")}
    return columns.get(task.shape, ("text", "pair")[: max(task.n_texts)])


def _as_row(example: Example, task: TaskConfig) -> Row:
    """An example that does not come from a table, as a row of one."""
    named = {"id": example.name} if example.name else {}
    if task.shape == "tag":
        return {**named, "text": example.whole or " ".join(example.texts)}
    first, *others = example.texts
    texts: list[Any] = [first, others] if task.shape == "choice" else [first, *others]
    return {**named, **dict(zip(_text_columns(task), texts, strict=False))}


def as_example(given: Input, task: TaskConfig, at: int) -> Example:
    place, texts = f"input {at}", _texts(given, task)
    if texts is None:
        raise BadText(f"not what this model takes: {_wanted(task)}", place=place, code="wrong-input")
    if (reason := why_no_text(texts, task.shape)) is not None:
        raise BadText(reason.cause, place=place, remedy="leave it out", code=reason.code)
    if task.shape == "tag" and isinstance(given, str):
        return Example(texts, None, place, whole=given, begins=tuple(start for start, _ in words_of(given)))
    return Example(texts, None, place)


def _in_words(example: Example, cell: Any, task: TaskConfig) -> Example:
    """The words of a cell, if that is plain text, as those of a plain file are found."""
    if isinstance(cell, str) and not isinstance(unwritten(cell), list):
        return replace(as_example(cell, task, 0), place=example.place, name=example.name)
    return example


def words_of(text: str) -> list[tuple[int, str]]:
    """Each word and where it begins. What belongs to the sign before it, an accent or a joiner, goes with it."""
    found: list[tuple[int, str]] = []
    joined = False
    for match in WORD.finditer(text):
        touches = bool(found) and match.start() == found[-1][0] + len(found[-1][1])
        clings = category(match[0][0]) in CLINGING
        if touches and (clings or (joined and match[0][0].isalnum())):
            found[-1] = found[-1][0], found[-1][1] + match[0]
            joined = category(match[0][-1]) in CLINGING or joined
        else:
            found.append((match.start(), match[0]))
            joined = False
    return found


def _wanted(task: TaskConfig) -> str:
    return "two texts" if task.pairs else "a text, or two" if task.pairs is None else EXPECTED[task.shape]


def _special(path: Path, task: TaskConfig) -> Read | None:
    """How a file is read that is neither a table nor plain text."""
    if task.shape == "span" and is_squad(path):
        return squad
    if task.shape != "tag" or table_kind(path) is not None:
        return None
    lines = [line for _, line in islice(lines_of(path, Findings()), GUESSED_FROM)]
    return conll if suffix_of(path) in CONLL or are_tagged(lines, task.labels) else None


def _in_parts(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while part := list(islice(rest, PART)):
        yield part


def _columns(path: Path, learned: LearnedConfig, text: str | None, pair: Sequence[str]) -> Columns:
    """The columns that the user names, or those of the table it was trained on, or usual names."""
    task, place = learned.task, str(path)
    rows = first_rows(path)
    if text is None and not pair and learned.columns and all(name in rows[0] for name in learned.columns):
        columns = Columns(learned.columns, None)
    else:
        columns = guess_columns(rows, task.shape, text=text, pair=pair, label="", paired=bool(task.pairs), place=place)
    check_texts(columns, task, place)
    return columns


def _of_lines(lines: Iterator[tuple[str, str]], task: TaskConfig, findings: Findings) -> Iterator[tuple[Example | None, Row]]:
    """Each line as an example, None if it is blank or bad, and as a row of a table."""
    several = task.shape == "choice" or 2 in task.n_texts
    for place, line in lines:
        example = None
        row: Row = {_text_columns(task)[0]: line}
        if line.strip():
            given = line.split("\t") if several and "\t" in line else line
            try:
                example = replace(as_example(given, task, 0), place=place)
                row = _as_row(example, task)
            except BadText as reason:
                findings.bad_row(reason.cause, place, reason.code)
        yield example, row


def _texts(given: Input, task: TaskConfig) -> tuple[str, ...] | None:
    """None: these are not the texts that the task takes."""
    if task.shape == "tag":
        words = tuple(word for _, word in words_of(given)) if isinstance(given, str) else _strings(given)
        return words or None
    if task.shape == "choice":
        if not isinstance(given, list | tuple) or len(given) < 2:
            return None
        first, rest = given[0], given[1] if len(given) == 2 and isinstance(given[1], list | tuple) else given[1:]
        found = _strings([first, *rest])
        return found if found is not None and len(found) > 2 else None
    found = (given,) if isinstance(given, str) else _strings(given)
    return found if found is not None and len(found) in task.n_texts else None


def _strings(given: object) -> tuple[str, ...] | None:
    if not isinstance(given, list | tuple):
        return None
    found = tuple(one for one in given if isinstance(one, str))
    return found if len(found) == len(given) else None
