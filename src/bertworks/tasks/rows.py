"""From rows to examples: what texts and answers look like in each shape, and what is wrong with a row."""

from __future__ import annotations

import json
import math
import re
from ast import literal_eval
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bertworks.config import CountedFrom, Shape
from bertworks.data.tables import Row
from bertworks.errors import BadText, Remark
from bertworks.tasks.example import SIGN, Answer, Example, Span, Unreadable, is_blank, why_no_text

SET, UNSET = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")  # in a column for one class
START_NAMES = ("answer_start", "start")
ELEMENT = re.compile(r"""'([^']*)'|"([^"]*)"|(-?\d+)""")
ARRAY = re.compile(rf"\[\s*(?:{ELEMENT.pattern})(?:\s+(?:{ELEMENT.pattern}))+\s*\]")
SEPARATORS = "|;,"  # between the classes of a cell; the first of these that is no slip: commas are in names, too
SHOWN = 5  # rows named in a message
FEW_DAMAGED, MOST_DAMAGED = 5, 0.1  # lines with damaged signs: so many may be, or so many for each example


@dataclass(frozen=True)
class Columns:
    """`texts` in the order in which the model reads them; several columns or one list for the ways of a choice."""

    texts: tuple[str, ...]
    label: str | None
    names: Mapping[str, str] = field(default_factory=dict)  # what the data set's own labels are called here
    by_text: bool = False  # choice: the label is the text of the right one
    separator: str | None = None  # multilabel: what lies between the classes of a cell
    counted_from: CountedFrom | None = None  # choice: the first one's number or letter; None: they have none
    unused: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = ", ".join(self.texts) + (f" -> {self.label}" if self.label is not None else "")
        said += f" (choices are counted from {self.counted_from})" if self.counted_from is not None else ""
        said += f" (classes lie between {self.separator!r})" if self.separator is not None else ""
        return said + (f"; not used: {', '.join(self.unused[:SHOWN])}" if self.unused else "")


@dataclass(frozen=True)
class BadRow:
    """A row that is no example, and why."""

    code: str
    cause: str
    place: str


class BadRows(BadText):
    """Rows that are no examples; none, where there was nothing to read."""

    code = "bad-rows"

    def __init__(
        self, cause: str, rows: Sequence[BadRow], *, place: str | None = None, remedy: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(cause, place=place, remedy=remedy, code=code)
        self.rows = list(rows)


@dataclass
class Findings:
    """What reading a data set found: rows that are no examples, and signs that were not whole. A `data.tables.Reader`."""

    bad: list[BadRow] = field(default_factory=list)
    torn: list[BadRow] = field(default_factory=list)  # of official files: all leave them out
    damaged: list[str] = field(default_factory=list)  # places with signs that are not UTF-8
    replaced: int = 0
    notes: list[Remark] = field(default_factory=list)  # how it was read

    def bad_row(self, cause: str, place: str, code: str = "bad-row") -> None:
        self.bad.append(BadRow(code, cause, place))

    def torn_row(self, cause: str, place: str, code: str = "bad-row") -> None:
        self.torn.append(BadRow(code, cause, place))

    def bad_signs(self, count: int, cause: str, place: str, code: str = "not-utf8") -> None:
        self.replaced += count
        if code == "not-utf8":
            self.damaged.append(place)

    def remarks(self) -> list[Remark]:
        found = list(dict.fromkeys(self.notes))
        if self.bad:
            found.append(Remark("bad-rows", f"left out: {self.said()}"))
        if self.torn:
            first = self.torn[0]
            found.append(Remark("torn-rows", f"{len(self.torn):,} rows left out, the first: {first.place}: {first.cause}"))
        if self.replaced:
            where = f", the first in {self.damaged[0]}" if self.damaged else ""
            found.append(Remark("replaced-signs", f"{self.replaced:,} signs were not whole and became U+FFFD{where}"))
        return found

    def check_rows(self, *, skip: bool) -> None:
        """Rows that are no examples are an error, unless they may be left out."""
        if self.bad and not skip:
            raise BadRows(self.said(), self.bad, remedy="put them right, or --skip-bad goes on without them")

    def check_encoding(self, n_examples: int) -> None:
        """A few damaged signs are a remark; a file in another encoding is an error."""
        if len(self.damaged) > max(FEW_DAMAGED, MOST_DAMAGED * n_examples):
            remedy = "is it in another encoding? convert it: iconv -f CP1252 -t UTF-8 FILE > NEW (Excel's CSV), or -f GB18030 (Chinese)"
            raise BadText(f"{self.replaced:,} signs that are not UTF-8", place=self.damaged[0], remedy=remedy, code="not-utf8")

    def said(self) -> str:
        """The bad rows: where the first of them are and why, and if there are many, how many for which reason."""
        lines = [f"{row.place}: {row.cause}" for row in self.bad[:SHOWN]]
        if len(self.bad) > SHOWN:
            causes = Counter(row.cause for row in self.bad).most_common(SHOWN)
            lines.append(f"and {len(self.bad) - SHOWN:,} more; most often: " + "; ".join(f"{cause} ({n:,})" for cause, n in causes))
        are = "row is no example" if len(self.bad) == 1 else "rows are no examples"
        return f"{len(self.bad):,} {are}:" + "".join(f"\n  {line}" for line in lines)


def make_examples(rows: Iterator[tuple[str, Row]], columns: Columns, shape: Shape, findings: Findings) -> list[Example]:
    """The examples among the rows; what the others are is in the findings."""
    found = []
    for place, row in rows:
        try:
            texts = TEXTS[shape](row, columns)
            if (reason := why_no_text(texts, shape)) is not None:
                raise reason
            known = columns.label is not None and all(name in row for name in label_columns(columns.label, shape))
            answer = ANSWERS[shape](_label(row, columns, shape), texts, columns) if known else None
            found.append(Example(texts, answer, place, str(row.get("id", ""))))
        except Unreadable as error:
            findings.bad_row(error.cause, place, error.code)
    return found


def label_columns(label: str, shape: Shape) -> list[str]:
    """One, or for classes that have a column each, all of them."""
    return label.split(",") if shape == "multilabel" else [label]


def _label(row: Row, columns: Columns, shape: Shape) -> Any:
    names = label_columns(str(columns.label), shape)
    if len(names) > 1:
        return [name for name in names if _is_set(row[name], name)]
    value = row[names[0]]
    start = next((row[name] for name in START_NAMES if name in row), None)
    if shape == "span" and value and isinstance(value, str) and start not in (None, ""):
        try:
            return {"text": [value], "answer_start": [int(start)]}
        except (TypeError, ValueError):
            raise Unreadable(f"the answer begins at {start!r}, which is not a number", "bad-answer-start") from None
    return value


def _is_set(value: Any, name: str) -> bool:
    if str(value).strip().lower() in SET:
        return True
    if str(value).strip().lower() in (*UNSET, ""):
        return False
    raise Unreadable(f"{value!r} in column {name!r}, where 0 or 1 should be", "not-a-flag")


# ---------------------------------------------------------------------- texts


def _plain(row: Row, columns: Columns) -> tuple[str, ...]:
    return tuple(_text(row, name) for name in columns.texts)


def _text(row: Row, name: str) -> str:
    value = _cell(row, name)
    if value is None:
        raise Unreadable(f"no text in column {name!r}", "no-text")
    if not isinstance(value, str):
        raise Unreadable(f"no text in column {name!r}, but a {type(value).__name__}", "not-text")
    if is_blank(value):
        raise Unreadable(f"an empty text in column {name!r}", "empty-text")
    return value


def _is_missing(value: Any) -> bool:
    """Nothing, a blank, or what a column of numbers has in its place."""
    return value is None or (isinstance(value, str) and is_blank(value)) or (isinstance(value, float) and math.isnan(value))


def _cell(row: Row, name: str) -> Any:
    if name not in row:
        raise Unreadable(f"no column {name!r}, but {', '.join(map(str, row))}", "missing-column")
    return row[name]


def _words(row: Row, columns: Columns) -> tuple[str, ...]:
    (name,) = columns.texts
    words = _listed(_cell(row, name), name)
    if all(map(is_blank, words)):
        raise Unreadable(f"no words in column {name!r}", "empty-text")
    return words


def _listed(value: Any, name: str) -> tuple[str, ...]:
    """A list, or words between spaces."""
    value = unwritten(value)
    if isinstance(value, str):
        return tuple(value.split())
    if not isinstance(value, list) or not all(isinstance(one, str | int) for one in value):
        raise Unreadable(f"no list of words in column {name!r}", "not-a-word-list")
    if not all(str(one).strip() for one in value):
        raise Unreadable(f"an empty word in the list in column {name!r}", "empty-word")
    return tuple(map(str, value))


def unwritten(value: Any) -> Any:
    """A list that was written into a cell, as JSON or as Python shows it, or as numpy does, without commas."""
    if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
        if ARRAY.fullmatch(value):
            return [double or single or number for single, double, number in ELEMENT.findall(value)]
        for read in (json.loads, literal_eval):
            try:
                found = read(value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            return found if isinstance(found, list) else value
    return value


def ways_of(row: Row, columns: Columns) -> tuple[str, ...]:
    """What comes first, and the ways to go on, of which a row may have fewer than the table has columns for them."""
    first, *others = columns.texts
    while len(others) > 2 and _is_missing(row.get(others[-1])):
        others.pop()
    listed = unwritten(_cell(row, others[0]))
    ways = tuple(listed) if len(others) == 1 and isinstance(listed, list) else tuple(_text(row, name) for name in others)
    if len(ways) < 2 or not all(isinstance(way, str) and not is_blank(way) for way in ways):
        raise Unreadable("a choice needs two texts to choose from", "too-few-choices")
    return (_text(row, first), *ways)


TEXTS: dict[Shape, Callable[[Row, Columns], tuple[str, ...]]] = {
    "classify": _plain,
    "regress": _plain,
    "multilabel": _plain,
    "tag": _words,
    "span": _plain,
    "choice": ways_of,
}


# ---------------------------------------------------------------------- answers


def _class(value: Any, texts: tuple[str, ...], columns: Columns) -> Answer:
    if _is_missing(value):
        raise Unreadable("no label", "no-label")
    if not isinstance(value, str | int | float | bool):
        raise Unreadable(f"a label that is a {type(value).__name__}", "bad-label")
    name = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    if columns.names and name not in columns.names:
        raise Unreadable(f"label {name!r}, known are {', '.join(columns.names)}", "unknown-label")
    return columns.names.get(name, name)


def _number(value: Any, texts: tuple[str, ...], columns: Columns) -> Answer:
    try:
        number = float(value)
    except (TypeError, ValueError):
        if isinstance(value, str) and "," in value:
            raise Unreadable(f"{value!r} is not a number; a decimal comma?", "decimal-comma") from None
        raise Unreadable(f"{value!r} is not a number", "not-a-number") from None
    if not math.isfinite(number):
        raise Unreadable(f"{value!r} is not a finite number", "not-finite")
    return number


def _classes(value: Any, texts: tuple[str, ...], columns: Columns) -> Answer:
    if value is None:
        raise Unreadable("no labels", "no-label")
    value = unwritten(value)
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(columns.separator or SEPARATORS[-1]) if name.strip())
    if isinstance(value, list) and all(isinstance(one, str | int) for one in value):
        if len(set(value)) < len(value):
            raise Unreadable(f"{str(value)[:60]}: the names of its classes are wanted, each once", "repeated-label")
        return tuple(name for one in value if (name := str(one)).strip())
    raise Unreadable("labels that are neither a list nor names between commas", "bad-label")


def _tags(value: Any, texts: tuple[str, ...], columns: Columns) -> Answer:
    tags = _listed(value, str(columns.label))
    if len(tags) != len(texts):
        raise Unreadable(f"{len(texts)} words, {len(tags)} tags", "wrong-tag-count")
    return tags


def _spans(value: Any, texts: tuple[str, ...], columns: Columns) -> Answer:
    """A text to be found in the passage, or the lists of texts and places that SQuAD has; nothing: there is no answer."""
    passage = texts[1]
    placed = isinstance(value, dict) and isinstance(value.get("text"), list) and isinstance(value.get("answer_start"), list)
    if placed:
        found = listed_spans(value["answer_start"], value["text"])
    elif value is None or isinstance(value, str):
        found = [Span(_find(value, passage), value)] if value else []
    else:
        raise Unreadable("an answer that is no text", "bad-answer")
    for span in found:
        if span.start < 0 or passage[span.start : span.end] != span.text:
            if placed:
                raise Unreadable(f"the answer {span.text[:60]!r} is not at character {span.start}", "answer-not-at-start")
            raise Unreadable(f"the answer {span.text[:60]!r} is not in the passage", "answer-not-in-passage")
    return tuple(found)


def listed_spans(starts: Sequence[Any], texts: Sequence[Any]) -> list[Span]:
    if len(starts) != len(texts):
        raise Unreadable(f"{len(texts)} answers, {len(starts)} places", "wrong-answer-count")
    for start, text in zip(starts, texts, strict=True):
        if type(start) is not int or not isinstance(text, str):
            raise Unreadable(f"the answer {str(text)[:60]!r} at {start!r}: a text and a whole number are wanted", "bad-answer")
    return [Span(start, text) for start, text in zip(starts, texts, strict=True)]


def _find(answer: str, passage: str) -> int:
    """Where it stands as words of its own, or else at all. What is written without spaces has no such ends."""
    before, behind = ("" if re.match(f"[{SIGN}]", end) else r"\w" for end in (answer[0], answer[-1]))
    words = re.search((f"(?<!{before})" if before else "") + re.escape(answer) + (f"(?!{behind})" if behind else ""), passage)
    return words.start() if words else passage.find(answer)


def _which(value: Any, texts: tuple[str, ...], columns: Columns) -> Answer:
    """Its number, its letter, or its text; the text first, where most labels of the table are texts to choose from."""
    ways = texts[1:]
    if columns.by_text and value in ways:
        return ways.index(value)
    letters = {chr(ord("A") + at): at for at in range(len(ways))}
    if isinstance(value, str) and value.strip().upper() in letters:
        return letters[value.strip().upper()]
    try:
        number = int(value)
        if isinstance(value, float) and value != number:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        if value in ways:
            return ways.index(value)
        raise Unreadable(f"{value!r} is none of the choices", "unknown-choice") from None
    first = 1 if columns.counted_from == 1 else 0
    if not first <= number < first + len(ways):
        raise Unreadable(f"choice {number} of {len(ways)}; they are counted from {first}", "choice-out-of-range")
    return number - first


ANSWERS: dict[Shape, Callable[[Any, tuple[str, ...], Columns], Answer]] = {
    "classify": _class,
    "regress": _number,
    "multilabel": _classes,
    "tag": _tags,
    "span": _spans,
    "choice": _which,
}
