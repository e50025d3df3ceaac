"""Which columns of a table hold texts and labels: named by the user, or guessed from common names; and how cells are
parsed.

`find_columns` is the same for all task shapes; what differs is in each shape's `Schema`.
"""

from __future__ import annotations

import json
import math
import re
from ast import literal_eval
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import Field

from bertworks.config import CountedFrom, Frozen
from bertworks.data.tables import Row
from bertworks.datasets.example import InvalidRow, is_blank
from bertworks.errors import BadText, Remark, nearest, with_article
from bertworks.text.words import CJK

if TYPE_CHECKING:
    from bertworks.datasets.schema import Schema

TEXT_NAMES = (
    *"text sentence sentence1 text_a question1 premise review content document body comment comment_text".split(),
    *("message", "words", "word", "tokens", "文本", "内容", "句子"),
)
# Columns of the two texts of a pair, by the name of the first.
PAIR_COLUMNS = {
    "sentence1": "sentence2",
    "text_a": "text_b",
    "question1": "question2",
    "premise": "hypothesis",
}
LABEL_NAMES = (
    *"label labels class category target sentiment score rating tags ner_tags ner answers answer".split(),
    "标签",
    "类别",
)
SAMPLED_ROWS = 1000  # of a table, to guess its columns from
MIN_TEXT_SHARE = 0.5  # of the rows: with a different text of several words, in a column that is guessed to be the text
WORD = re.compile(rf"[{CJK}]|[^\s{CJK}]+")
MAX_NAME_SHOWN = 40  # characters of a column's name in a message
MAX_UNUSED_SHOWN = 5  # unused columns named in a message
MAX_CLASS_SHARE = 0.2  # different values per row in a column that is guessed to be the label
NUMBER = re.compile(r"\s*[-+]?(\d+([.,]\d*)?|[.,]\d+)(e[-+]?\d+)?\s*", re.IGNORECASE)  # a decimal comma is said later
LIST_ELEMENT = re.compile(r"""'([^']*)'|"([^"]*)"|(-?\d+)""")
NUMPY_LIST = re.compile(rf"\[\s*(?:{LIST_ELEMENT.pattern})(?:\s+(?:{LIST_ELEMENT.pattern}))+\s*\]")


class NamedColumns(Frozen):
    """Columns that the user named. `Schema.column_options` lists which of these a task shape has."""

    text: str | None = Field(None, description="column of the text")
    text2: str | None = Field(None, description="column of the second text")
    question: str | None = Field(None, description="column of the question")
    context: str | None = Field(None, description="column of the passage that holds the answer")
    choices: tuple[str, ...] = Field((), description="columns of the choices, or one column with a list of them")
    label: tuple[str, ...] = Field((), description="column of the labels; several columns: one per class")

    def by_option(self) -> dict[str, tuple[str, ...]]:
        """The options that are set, with their columns."""
        values = {name: (value,) if isinstance(value, str) else tuple(value or ()) for name, value in self}
        return {name: columns for name, columns in values.items() if columns}


@dataclass(frozen=True)
class Columns:
    """The columns of a table that hold texts and labels, and how labels are written."""

    texts: tuple[str, ...]  # in the order in which the model reads them; choices: several columns, or one with a list
    labels: tuple[str, ...] = ()  # empty: unlabelled; several: one column per class
    label_map: Mapping[str, str] = field(default_factory=dict)  # labels as written in the data set -> our names
    by_text: bool = False  # choice: the label is the text of the correct choice
    separator: str | None = None  # multilabel: between the classes of a cell
    spans: bool = False  # tag: labels are spans of characters
    counted_from: CountedFrom | None = None  # choice: number or letter of the first one; None: labels are not numbered
    unused: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self._describe(" (choices are counted from {})", " (classes are separated by {!r})", "; not used: {}")

    def as_remark(self, code: str = "columns", of: tuple[str, str] = ("", "")) -> Remark:
        """`of`: whose columns, in English and Chinese."""
        chinese = self._describe("（选项从 {} 开始编号）", "（类别以 {!r} 分隔）", "；未使用：{}")
        return Remark(code, f"columns{of[0]}: {self}", f"{of[1]}列：{chinese}")

    def _describe(self, counted_from: str, separator: str, unused: str) -> str:
        text = ", ".join(self.texts) + (f" -> {', '.join(self.labels)}" if self.labels else "")
        text += counted_from.format(self.counted_from) if self.counted_from is not None else ""
        text += separator.format(self.separator) if self.separator is not None else ""
        return text + (unused.format(", ".join(self.unused[:MAX_UNUSED_SHOWN])) if self.unused else "")

    def without_labels(self) -> Columns:
        return replace(self, labels=())


class MissingColumn(Exception):
    """No column could be guessed for `content`, such as "the text"; `option` is the one that names it."""

    def __init__(self, content: str, option: str) -> None:
        self.content = content
        self.option = option
        super().__init__(content)


@dataclass(frozen=True)
class TableSample:
    """The first rows of a table, and its columns that are not assigned yet."""

    rows: Sequence[Row]
    columns: tuple[str, ...]

    def without(self, names: Sequence[str]) -> TableSample:
        return replace(self, columns=tuple(name for name in self.columns if name not in names))

    def find(self, names: Sequence[str]) -> str | None:
        """The column that has the first of these lower-case names."""
        return next((column for name in names for column in self.columns if column.lower() == name), None)

    def require(self, names: Sequence[str], content: str, option: str) -> str:
        column = self.find(names)
        if column is None:
            raise MissingColumn(content, option)
        return column

    def longest_text_column(self) -> str | None:
        """The column with the longest texts on average; text columns have several words in a cell, and mostly different
        values."""
        cells = {name: [row[name] for row in self.rows if isinstance(row.get(name), str)] for name in self.columns}
        min_rows = MIN_TEXT_SHARE * len(self.rows)
        mean_lengths = {
            name: sum(map(len, texts)) / len(texts)
            for name, texts in cells.items()
            if texts and len(set(texts)) > min_rows and sum(len(WORD.findall(cell)) > 1 for cell in texts) > min_rows
        }
        return max(mean_lengths, key=lambda name: mean_lengths[name], default=None)

    def numeric(self) -> TableSample:
        """With columns only that mostly hold numbers; whole numbers that are all different rather count the rows."""
        cells = {name: [str(row[name]) for row in self.rows if not is_missing(row.get(name))] for name in self.columns}
        n_numbers = {name: sum(map(bool, map(NUMBER.fullmatch, values))) for name, values in cells.items()}
        counts_rows = {
            name for name, values in cells.items() if len(set(values)) == len(self.rows) and "".join(values).isdigit()
        }
        names = (name for name in self.columns if 2 * n_numbers[name] > len(cells[name]) and name not in counts_rows)
        return replace(self, columns=tuple(names))

    def fewest_values_column(self) -> str | None:
        """The column with the fewest different values, if they are few enough to be classes."""
        counts = {name: len({str(row.get(name)) for row in self.rows}) for name in self.columns}
        max_classes = max(2.0, MAX_CLASS_SHARE * len(self.rows))
        candidates = [name for name, count in counts.items() if 2 <= count <= max_classes]
        return min(candidates, key=lambda name: counts[name], default=None)


def find_columns(
    schema: Schema, rows: Sequence[Row], named: NamedColumns, place: str, *, paired: bool = False, labelled: bool = True
) -> Columns:
    """The columns that the user named; the others are guessed from common names. The caller tells the user."""
    check_options(schema, named, place)
    all_columns = tuple(dict.fromkeys(key for row in rows for key in row if key is not None))
    options = named.by_option()
    for name in (name for columns in options.values() for name in columns):
        if name not in all_columns:
            raise BadText(f"no column {name!r}", place=place, remedy=nearest(name, all_columns), code="missing-column")
    named_texts = [name for option, columns in options.items() if option != "label" for name in columns]
    if overlap := set(named_texts) & set(named.label):
        raise BadText(
            f"column {min(overlap)!r} cannot be both a text and the label",
            place=place,
            remedy="name another",
            code="given-twice",
        )
    table = TableSample(rows, tuple(name for name in all_columns if name not in (*named_texts, *named.label)))
    try:
        texts = schema.text_columns(table, named, paired=paired)
        labels = named.label
        if labelled and not labels:
            labels = schema.label_columns(table.without(texts))
            _check_header(rows, labels, place)
    except MissingColumn as missing:
        remedy = f"name it with --{missing.option}; the header line has: {shown_names(all_columns)}"
        code = "no-label-column" if missing.option == "label" else "no-text-column"
        raise BadText(f"no column found for {missing.content}", place=place, remedy=remedy, code=code) from None
    unused = tuple(name for name in all_columns if name not in (*texts, *labels))
    columns = Columns(texts, labels, unused=unused)
    return schema.label_format(rows, columns) if labels else columns


def shown_names(names: Iterable[str]) -> str:
    return ", ".join(name if len(name) <= MAX_NAME_SHOWN else f"{name[:MAX_NAME_SHOWN]}..." for name in names)


def check_options(schema: Schema, named: NamedColumns, place: str | None = None) -> None:
    """An error for options that name columns which this task shape does not have."""
    unsupported = [f"--{option}" for option in named.by_option() if option not in schema.column_options]
    if unsupported:
        remedy = f"{schema.shape} has {', '.join(f'--{option}' for option in schema.column_options)}"
        raise BadText(
            f"no effect with {schema.shape}: {', '.join(unsupported)}", place=place, remedy=remedy, code="no-effect"
        )
    if len(named.label) > 1 and not schema.takes_several_labels:
        cause = f"--label names {len(named.label)} columns; {schema.shape} has its labels in one"
        raise BadText(cause, place=place, remedy="name one", code="too-many-columns")


def _check_header(rows: Sequence[Row], labels: Sequence[str], place: str) -> None:
    """An error where a label equals the name of its column: either the table has no header line, or the header is
    repeated further down."""
    if len(labels) == 1 and any(str(row.get(labels[0])).strip() == labels[0].strip() for row in rows):
        remedy = "the first line, and no other, must be a header such as text,label; if it is, give --label and --text"
        raise BadText(
            f"{labels[0]!r} is both the label column's name and a label", place=place, remedy=remedy, code="no-header"
        )


# ---------------------------------------------------------------------- cells


def cell(row: Row, name: str) -> Any:
    if name not in row:
        raise InvalidRow(f"no column {name!r}; the row has {', '.join(map(str, row))}", "missing-column")
    return row[name]


def text_cell(row: Row, name: str) -> str:
    value = cell(row, name)
    if value is None or is_nan(value):
        raise InvalidRow(f"no text in column {name!r}", "no-text")
    if not isinstance(value, str):
        raise InvalidRow(f"column {name!r} holds {with_article(type(value).__name__)}, not a text", "not-text")
    if is_blank(value):
        raise InvalidRow(f"empty text in column {name!r}", "empty-text")
    return value


def is_nan(value: object) -> bool:
    """What pandas has for an empty cell."""
    return isinstance(value, float) and math.isnan(value)


def is_missing(value: object) -> bool:
    return value is None or is_nan(value) or (isinstance(value, str) and is_blank(value))


def word_list(value: object, name: str) -> tuple[str, ...]:
    """The words of a cell: a list, or a text whose words are separated by spaces."""
    value = parse_list(value)
    if isinstance(value, str):
        return tuple(value.split())
    if not isinstance(value, list) or not all(isinstance(word, str | int) for word in value):
        raise InvalidRow(f"no list of words in column {name!r}", "not-a-word-list")
    if not all(str(word).strip() for word in value):
        raise InvalidRow(f"an empty word in the list in column {name!r}", "empty-word")
    return tuple(map(str, value))


def parse_list(value: object) -> Any:
    """A list written into a cell as JSON, as Python's repr, or as numpy prints it, without commas; any other value
    unchanged."""
    if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
        if NUMPY_LIST.fullmatch(value):
            return [double or single or number for single, double, number in LIST_ELEMENT.findall(value)]
        for read in (json.loads, literal_eval):
            try:
                parsed = read(value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            return parsed if isinstance(parsed, list) else value
    return value
