"""Which columns of a table hold what: those that the user names, and usual names for the others; and how cells are
read.

`find_columns` is what all shapes share; what differs between them is in their `Schema`.
"""

from __future__ import annotations

import json
import math
import re
from ast import literal_eval
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import Field

from bertworks.config import CountedFrom, Frozen
from bertworks.data.tables import Row
from bertworks.datasets.example import InvalidRow, is_blank
from bertworks.errors import BadText, nearest
from bertworks.text.words import CJK

if TYPE_CHECKING:
    from bertworks.datasets.schema import Schema

TEXT_NAMES = (
    *"text sentence sentence1 text_a question1 premise review content document body comment comment_text message".split(),
    *("words", "word", "tokens", "文本", "内容", "句子"),
)
SECOND_TEXTS = {
    "sentence1": "sentence2",
    "text_a": "text_b",
    "question1": "question2",
    "premise": "hypothesis",
}  # read together
LABEL_NAMES = (
    *"label labels class category target sentiment score rating tags ner_tags ner answers answer".split(),
    "标签",
    "类别",
)
SAMPLED_ROWS = 1000  # of a table, to guess from
MOSTLY = 0.5
SEVERAL_WORDS = re.compile(rf"[{CJK}]|[^\s{CJK}]+")
LONGEST_NAME = 40  # of a column, in a message
UNUSED_SHOWN = 5
MOST_CLASSES = 0.2  # of the rows, in a column that is guessed to be the label
ELEMENT = re.compile(r"""'([^']*)'|"([^"]*)"|(-?\d+)""")
ARRAY = re.compile(rf"\[\s*(?:{ELEMENT.pattern})(?:\s+(?:{ELEMENT.pattern}))+\s*\]")


class NamedColumns(Frozen):
    """What the user named. Which of these a shape knows is in its `Schema.column_options`."""

    text: str | None = Field(None, description="column of the text")
    text2: str | None = Field(None, description="column of the second text")
    question: str | None = Field(None, description="column of the question")
    context: str | None = Field(None, description="column of the passage that holds the answer")
    choices: tuple[str, ...] = Field((), description="columns of the choices, or the one that lists them")
    label: tuple[str, ...] = Field((), description="column of the labels; several: one for each class")

    def by_option(self) -> dict[str, tuple[str, ...]]:
        """The options that were given, and the columns they name."""
        values = {name: (value,) if isinstance(value, str) else tuple(value or ()) for name, value in self}
        return {name: columns for name, columns in values.items() if columns}


@dataclass(frozen=True)
class Columns:
    """`texts` in the order in which the model reads them; several columns or one list for the choices."""

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()  # none: not known; several: a column for each class
    label_map: Mapping[str, str] = field(default_factory=dict)  # what the data set's own labels are called here
    by_text: bool = False  # choice: the label is the text of the right one
    separator: str | None = None  # multilabel: what lies between the classes of a cell
    counted_from: CountedFrom | None = None  # choice: the first one's number or letter; None: they have none
    unused: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = ", ".join(self.texts) + (f" -> {', '.join(self.labels)}" if self.labels else "")
        text += f" (choices are counted from {self.counted_from})" if self.counted_from is not None else ""
        text += f" (classes are separated by {self.separator!r})" if self.separator is not None else ""
        return text + (f"; not used: {', '.join(self.unused[:UNUSED_SHOWN])}" if self.unused else "")

    def without_labels(self) -> Columns:
        return replace(self, labels=())


class MissingColumn(Exception):
    """What no column looks like, and the option that names it."""

    def __init__(self, what: str, option: str) -> None:
        self.what, self.option = what, option
        super().__init__(what)


@dataclass(frozen=True)
class Table:
    """The first rows of a table, and those of its columns that the user has not named."""

    rows: Sequence[Row]
    free: tuple[str, ...]

    def without(self, names: Sequence[str]) -> Table:
        return replace(self, free=tuple(name for name in self.free if name not in names))

    def usual(self, names: Sequence[str], what: str, option: str) -> str:
        """The first of the usual names that is there."""
        found = self.first(names)
        if found is None:
            raise MissingColumn(what, option)
        return found

    def first(self, names: Sequence[str]) -> str | None:
        return next((name for usual in names for name in self.free if name.lower() == usual), None)

    def wordiest(self) -> str | None:
        """The column with the longest texts, if it is one of texts: several words in a cell, and hardly any twice."""
        cells = {name: [row[name] for row in self.rows if isinstance(row.get(name), str)] for name in self.free}
        most = MOSTLY * len(self.rows)
        wordy = {
            name: sum(map(len, texts)) / len(texts)
            for name, texts in cells.items()
            if texts and len(set(texts)) > most and sum(len(SEVERAL_WORDS.findall(cell)) > 1 for cell in texts) > most
        }
        return max(wordy, key=lambda name: wordy[name], default=None)

    def most_repetitive(self) -> str | None:
        """The column with fewest different values, if they are few."""
        counts = {name: len({str(row.get(name)) for row in self.rows}) for name in self.free}
        few = [name for name, count in counts.items() if 2 <= count <= max(2.0, MOST_CLASSES * len(self.rows))]
        return min(few, key=lambda name: counts[name], default=None)


def find_columns(
    schema: Schema, rows: Sequence[Row], named: NamedColumns, place: str, *, paired: bool = False, labelled: bool = True
) -> Columns:
    """The columns that the user named, and usual names for the others; what is guessed is for the caller to say."""
    check_options(schema, named, place)
    known = tuple(dict.fromkeys(key for row in rows for key in row if key is not None))
    options = named.by_option()
    for name in (name for columns in options.values() for name in columns):
        if name not in known:
            raise BadText(f"no column {name!r}", place=place, remedy=nearest(name, known), code="missing-column")
    texts_named = [name for option, columns in options.items() if option != "label" for name in columns]
    if both := set(texts_named) & set(named.label):
        raise BadText(
            f"column {min(both)!r} cannot be both a text and the label",
            place=place,
            remedy="name another",
            code="given-twice",
        )
    table = Table(rows, tuple(name for name in known if name not in (*texts_named, *named.label)))
    try:
        texts = schema.text_columns(table, named, paired=paired)
        labels = named.label
        if labelled and not labels:
            labels = schema.label_columns(table.without(texts))
            _check_header(rows, labels, place)
    except MissingColumn as missing:
        shown = ", ".join(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..." for name in known)
        remedy = f"name it with --{missing.option}; the first line, which should name the columns, has: {shown}"
        code = "no-label-column" if missing.option == "label" else "no-text-column"
        raise BadText(f"no column that looks like {missing.what}", place=place, remedy=remedy, code=code) from None
    unused = tuple(name for name in known if name not in (*texts, *labels))
    columns = Columns(texts, labels, unused=unused)
    return schema.label_format(rows, columns) if labels else columns


def check_options(schema: Schema, named: NamedColumns, place: str | None = None) -> None:
    """Options that name columns which this shape does not have."""
    idle = [f"--{option}" for option in named.by_option() if option not in schema.column_options]
    if idle:
        remedy = f"{schema.shape} has {', '.join(f'--{option}' for option in schema.column_options)}"
        raise BadText(f"no effect with {schema.shape}: {', '.join(idle)}", place=place, remedy=remedy, code="no-effect")
    if len(named.label) > 1 and not schema.takes_several_labels:
        cause = f"--label names {len(named.label)} columns; {schema.shape} has its labels in one"
        raise BadText(cause, place=place, remedy="name one", code="too-many-columns")


def _check_header(rows: Sequence[Row], labels: Sequence[str], place: str) -> None:
    """Where the label's column has the name of one of its labels, the first line names no columns; or it comes again
    further down."""
    if len(labels) == 1 and any(str(row.get(labels[0])).strip() == labels[0].strip() for row in rows):
        remedy = (
            "the first line, and only that, names the columns, such as text,label; if it does, say --label and --text"
        )
        raise BadText(
            f"{labels[0]!r} is the name of the label's column and a label", place=place, remedy=remedy, code="no-header"
        )


# ---------------------------------------------------------------------- cells


def cell(row: Row, name: str) -> Any:
    if name not in row:
        raise InvalidRow(f"no column {name!r}, but {', '.join(map(str, row))}", "missing-column")
    return row[name]


def text_cell(row: Row, name: str) -> str:
    value = cell(row, name)
    if value is None or is_nan(value):
        raise InvalidRow(f"no text in column {name!r}", "no-text")
    if not isinstance(value, str):
        raise InvalidRow(f"no text in column {name!r}, but a {type(value).__name__}", "not-text")
    if is_blank(value):
        raise InvalidRow(f"empty text in column {name!r}", "empty-text")
    return value


def is_nan(value: Any) -> bool:
    """What a column of numbers has where there is none."""
    return isinstance(value, float) and math.isnan(value)


def is_missing(value: Any) -> bool:
    return value is None or is_nan(value) or (isinstance(value, str) and is_blank(value))


def word_list(value: Any, name: str) -> tuple[str, ...]:
    """A list, or words between spaces."""
    value = parse_list(value)
    if isinstance(value, str):
        return tuple(value.split())
    if not isinstance(value, list) or not all(isinstance(one, str | int) for one in value):
        raise InvalidRow(f"no list of words in column {name!r}", "not-a-word-list")
    if not all(str(one).strip() for one in value):
        raise InvalidRow(f"an empty word in the list in column {name!r}", "empty-word")
    return tuple(map(str, value))


def parse_list(value: Any) -> Any:
    """A list that was written into a cell, as JSON or as Python shows it, or as numpy does, without commas; anything
    else as it is."""
    if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
        if ARRAY.fullmatch(value):
            return [double or single or number for single, double, number in ELEMENT.findall(value)]
        for read in (json.loads, literal_eval):
            try:
                parsed = read(value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            return parsed if isinstance(parsed, list) else value
    return value
