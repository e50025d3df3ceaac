"""From rows to examples: which columns hold what, what an answer looks like in each shape, and what is wrong with a row."""

from __future__ import annotations

import json
import math
import re
from ast import literal_eval
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bertworks.config import Shape
from bertworks.data.tables import Row
from bertworks.errors import BadText, nearest
from bertworks.tasks.example import Answer, Example, Span, is_blank

TEXT_NAMES = (
    "text",
    "sentence",
    "sentence1",
    "text_a",
    "question1",
    "premise",
    "review",
    "content",
    "document",
    "body",
    "comment",
    "comment_text",
    "message",
    "words",
    "word",
    "tokens",
    "文本",
    "内容",
    "句子",
)
PARTNERS = {"sentence1": "sentence2", "text_a": "text_b", "question1": "question2", "premise": "hypothesis"}  # read together
PAIR_NAMES = ("pair", *PARTNERS.values(), "question")
LABEL_NAMES = (
    "label",
    "labels",
    "class",
    "category",
    "target",
    "sentiment",
    "score",
    "rating",
    "tags",
    "ner_tags",
    "ner",
    "answers",
    "answer",
    "标签",
    "类别",
)
NUMBER_NAMES = ("score", "rating")
PASSAGE_NAMES = ("context", "passage", "paragraph", "document", "text")
QUESTION_NAMES = ("question", "query", "prompt")
START_NAMES = ("answer_start", "start")
CHOICES = re.compile(r"(ending|choice|option)s?_?(\d+|[a-e])", re.IGNORECASE)
CHOICE_LISTS = ("choices", "endings", "options")
SEPARATORS = re.compile(r"\s*[;|,]\s*")
GUESSED_FROM = 1000  # rows
SHOWN = 5  # rows named in a message
MOST_DAMAGED = 0.05  # lines with damaged signs, for each example
MOST_CLASSES = 0.2  # of the rows, in a column that is guessed to be the label


@dataclass(frozen=True)
class Columns:
    """`texts` in the order in which the model reads them; several columns or one list for the ways of a choice."""

    texts: tuple[str, ...]
    label: str | None
    names: Mapping[str, str] = field(default_factory=dict)  # what the data set's own labels are called here
    by_text: bool = False  # choice: the label is the text of the right one
    counted_from: int = 0  # choice: the first one's number
    unused: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = ", ".join(self.texts) + (f" -> {self.label}" if self.label is not None else "")
        said += " (choices are counted from 1)" if self.counted_from else ""
        return said + (f"; not used: {', '.join(self.unused[:SHOWN])}" if self.unused else "")


class Unreadable(Exception):
    """Why a row is no example."""


@dataclass
class Findings:
    """What reading a data set found: rows that are no examples, and signs that were not whole. A `data.tables.Reader`."""

    bad: list[tuple[str, str]] = field(default_factory=list)  # cause, place
    torn: list[tuple[str, str]] = field(default_factory=list)  # rows of official files that all leave out
    damaged: list[str] = field(default_factory=list)  # places with signs that are not UTF-8
    replaced: int = 0

    def bad_row(self, cause: str, place: str) -> None:
        self.bad.append((cause, place))

    def torn_row(self, cause: str, place: str) -> None:
        self.torn.append((cause, place))

    def bad_signs(self, count: int, cause: str, place: str) -> None:
        self.replaced += count
        if cause.startswith("not UTF-8"):
            self.damaged.append(place)

    def remarks(self) -> list[str]:
        found = [f"{len(self.torn):,} rows left out, the first: {self.torn[0][1]}: {self.torn[0][0]}"] if self.torn else []
        where = f", the first in {self.damaged[0]}" if self.damaged else ""
        return [*found, *([f"{self.replaced:,} signs were not whole and became U+FFFD{where}"] if self.replaced else [])]

    def check_encoding(self, n_examples: int) -> None:
        """A few damaged signs are a remark; a file in another encoding is an error."""
        if len(self.damaged) > MOST_DAMAGED * n_examples:
            remedy = "is it in another encoding? convert it, for example: iconv -f GB18030 -t UTF-8 FILE (or -f LATIN1)"
            raise BadText(f"{self.replaced:,} signs that are not UTF-8", place=self.damaged[0], remedy=remedy)

    def said(self) -> str:
        """The bad rows: where the first of them are and why, and if there are many, how many for which reason."""
        lines = [f"{place}: {cause}" for cause, place in self.bad[:SHOWN]]
        if len(self.bad) > SHOWN:
            causes = Counter(cause for cause, _ in self.bad).most_common(SHOWN)
            lines.append(f"and {len(self.bad) - SHOWN:,} more; most often: " + "; ".join(f"{cause} ({n:,})" for cause, n in causes))
        are = "row is no example" if len(self.bad) == 1 else "rows are no examples"
        return f"{len(self.bad):,} {are}:" + "".join(f"\n  {line}" for line in lines)


def make_examples(rows: Iterator[tuple[str, Row]], columns: Columns, shape: Shape, findings: Findings) -> list[Example]:
    """The examples among the rows; what the others are is in the findings."""
    found = []
    for place, row in rows:
        try:
            texts = TEXTS[shape](row, columns)
            known = columns.label is not None and all(name in row for name in label_columns(columns.label, shape))
            answer = ANSWERS[shape](_label(row, columns, shape), texts, columns) if known else None
            found.append(Example(texts, answer, place, str(row.get("id", ""))))
        except Unreadable as reason:
            findings.bad_row(str(reason), place)
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
            raise Unreadable(f"the answer begins at {start!r}, which is not a number") from None
    return value


def _is_set(value: Any, name: str) -> bool:
    if str(value).strip().lower() in ("1", "1.0", "true", "yes"):
        return True
    if str(value).strip().lower() in ("0", "0.0", "false", "no", ""):
        return False
    raise Unreadable(f"{value!r} in column {name!r}, where 0 or 1 should be")


# ---------------------------------------------------------------------- texts


def _plain(row: Row, columns: Columns) -> tuple[str, ...]:
    return tuple(_text(row, name) for name in columns.texts)


def _text(row: Row, name: str) -> str:
    value = row.get(name)
    if value is None:
        raise Unreadable(f"no text in column {name!r}")
    if not isinstance(value, str):
        raise Unreadable(f"no text in column {name!r}, but a {type(value).__name__}")
    if is_blank(value):
        raise Unreadable(f"an empty text in column {name!r}")
    return value


def _words(row: Row, columns: Columns) -> tuple[str, ...]:
    (name,) = columns.texts
    words = _listed(row.get(name), name)
    if all(map(is_blank, words)):
        raise Unreadable(f"no words in column {name!r}")
    return words


def _listed(value: Any, name: str) -> tuple[str, ...]:
    """A list, or words between spaces."""
    value = _unwritten(value)
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, list) and all(isinstance(one, str | int) and str(one).strip() for one in value):
        return tuple(map(str, value))
    raise Unreadable(f"no list of words in column {name!r}")


def _unwritten(value: Any) -> Any:
    """A list that was written into a cell, as JSON or as Python shows it."""
    if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
        for read in (json.loads, literal_eval):
            try:
                found = read(value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
            return found if isinstance(found, list) else value
    return value


def _ways(row: Row, columns: Columns) -> tuple[str, ...]:
    first, *others = columns.texts
    listed = _unwritten(row.get(others[0]))
    ways = tuple(listed) if len(others) == 1 and isinstance(listed, list) else tuple(_text(row, name) for name in others)
    if len(ways) < 2 or not all(isinstance(way, str) and not is_blank(way) for way in ways):
        raise Unreadable("a choice needs two texts to choose from")
    return (_text(row, first), *ways)


TEXTS: dict[Shape, Callable[[Row, Columns], tuple[str, ...]]] = {
    "classify": _plain,
    "regress": _plain,
    "multilabel": _plain,
    "tag": _words,
    "span": _plain,
    "choice": _ways,
}


# ---------------------------------------------------------------------- answers


def _class(value: Any, texts: tuple[str, ...], columns: Columns) -> Answer:
    if value is None or (isinstance(value, str) and not value.strip()):
        raise Unreadable("no label")
    if not isinstance(value, str | int | float | bool):
        raise Unreadable(f"a label that is a {type(value).__name__}")
    name = str(value).strip()
    if columns.names and name not in columns.names:
        raise Unreadable(f"label {name!r}, known are {', '.join(columns.names)}")
    return columns.names.get(name, name)


def _number(value: Any, texts: tuple[str, ...], columns: Columns) -> Answer:
    try:
        number = float(value)
    except (TypeError, ValueError):
        comma = "; a decimal comma?" if isinstance(value, str) and "," in value else ""
        raise Unreadable(f"{value!r} is not a number{comma}") from None
    if not math.isfinite(number):
        raise Unreadable(f"{value!r} is not a finite number")
    return number


def _classes(value: Any, texts: tuple[str, ...], columns: Columns) -> Answer:
    if value is None:
        raise Unreadable("no labels")
    value = _unwritten(value)
    if isinstance(value, str):
        return tuple(name for name in SEPARATORS.split(value.strip()) if name)
    if isinstance(value, list) and all(isinstance(one, str | int) for one in value):
        if len(set(value)) < len(value):
            raise Unreadable(f"{str(value)[:60]}: the names of its classes are wanted, each once")
        return tuple(name for one in value if (name := str(one)).strip())
    raise Unreadable("labels that are neither a list nor names between commas")


def _tags(value: Any, texts: tuple[str, ...], columns: Columns) -> Answer:
    tags = _listed(value, str(columns.label))
    if len(tags) != len(texts):
        raise Unreadable(f"{len(texts)} words, {len(tags)} tags")
    return tags


def _spans(value: Any, texts: tuple[str, ...], columns: Columns) -> Answer:
    """A text to be found in the passage, or the lists of texts and places that SQuAD has; nothing: there is no answer."""
    passage = texts[1]
    if isinstance(value, dict) and isinstance(value.get("text"), list) and isinstance(value.get("answer_start"), list):
        found = [Span(start, text) for start, text in zip(value["answer_start"], value["text"], strict=False)]
    elif value is None or isinstance(value, str):
        found = [Span(_find(value, passage), value)] if value else []
    else:
        raise Unreadable("an answer that is no text")
    for span in found:
        if span.start < 0 or passage[span.start : span.end] != span.text:
            raise Unreadable(f"the answer {span.text[:60]!r} is not in the passage")
    return tuple(found)


def _find(answer: str, passage: str) -> int:
    """Where it stands as words of its own, or else at all."""
    words = re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", passage)
    return words.start() if words else passage.find(answer)


def _which(value: Any, texts: tuple[str, ...], columns: Columns) -> Answer:
    """Its number from 0, its letter, or its text; the text first, where all labels of the table are texts to choose from."""
    ways = texts[1:]
    if columns.by_text and value in ways:
        return ways.index(value)
    letters = {chr(ord("A") + at): at for at in range(len(ways))}
    if isinstance(value, str) and value.strip().upper() in letters:
        return letters[value.strip().upper()]
    try:
        number = int(value)
    except (TypeError, ValueError):
        if value in ways:
            return ways.index(value)
        raise Unreadable(f"{value!r} is none of the choices") from None
    if not columns.counted_from <= number < columns.counted_from + len(ways):
        raise Unreadable(f"choice {number} of {len(ways)}; they are counted from {columns.counted_from}")
    return number - columns.counted_from


ANSWERS: dict[Shape, Callable[[Any, tuple[str, ...], Columns], Answer]] = {
    "classify": _class,
    "regress": _number,
    "multilabel": _classes,
    "tag": _tags,
    "span": _spans,
    "choice": _which,
}


# ---------------------------------------------------------------------- which columns


def guess_columns(
    rows: Sequence[Row], shape: Shape, *, text: str | None, pair: Sequence[str], label: str | None, paired: bool, place: str
) -> Columns:
    """Those that the user named, and usual names for the others; what is guessed is for the caller to say."""
    known = list(dict.fromkeys(key for row in rows for key in row if key is not None))
    labels = label_columns(label, shape) if label else []
    for name in (text, *pair, *labels):
        if name and name not in known:
            raise BadText(f"no column {name!r}", place=place, remedy=nearest(name, known))
    if {text, *pair} & set(labels):
        raise BadText(f"column {label!r} cannot be both a text and the label", place=place, remedy="name another")
    if shape == "tag" and (pair or paired):
        raise BadText("a sentence is in one column", place=place, remedy="leave --pair out")
    if shape != "choice" and len(pair) > 1:
        raise BadText(f"{len(pair)} columns named by --pair; {shape} reads two texts together", place=place, remedy="name one")
    named = [name for name in (text, *pair, *labels) if name]
    free = [name for name in known if name not in named]
    if shape == "span":
        second = text or _usual(free, PASSAGE_NAMES, "the passage", "--text", known, place)
        first = pair[0] if pair else _usual([name for name in free if name != second], PAIR_NAMES, "the question", "--pair", known, place)
        texts: tuple[str, ...] = (first, second)
    elif shape == "choice":
        ways = tuple(pair) or tuple(n for n in free if CHOICES.fullmatch(n)) or tuple(n for n in free if n.lower() in CHOICE_LISTS)[:1]
        if not ways:
            raise BadText("no columns with choices", place=place, remedy=f"name them with --pair; columns: {', '.join(known)}")
        first = text or _usual(
            [name for name in free if name not in ways], (*PASSAGE_NAMES, *TEXT_NAMES, *QUESTION_NAMES), "the text", "--text", known, place
        )
        texts = (first, *ways)
    else:
        first = text or _usual(free, TEXT_NAMES, "the text", "--text", known, place)
        free = [name for name in free if name != first]
        partner = [name for name in free if name.lower() == PARTNERS.get(first.lower())] if text is None and shape != "tag" else []
        if paired and not pair and not partner:
            partner = [_usual(free, PAIR_NAMES, "the second text", "--pair", known, place)]
        texts = (first, *(pair or partner))
    if label is None:  # "": there is none
        rest = [name for name in free if name not in texts]
        usual = sorted(LABEL_NAMES, key=lambda name: name not in NUMBER_NAMES) if shape == "regress" else LABEL_NAMES
        label = next((name for known_name in usual for name in rest if name.lower() == known_name), None) or _repetitive(rows, rest)
        if label is None:
            raise BadText("no column that looks like labels", place=place, remedy=f"name it with --label; columns: {', '.join(known)}")
    unused = tuple(name for name in known if name not in (*texts, *label_columns(label, shape)))
    columns = Columns(texts, label or None, unused=unused)
    return _with_choices(rows, columns) if shape == "choice" and label else columns


def _with_choices(rows: Sequence[Row], columns: Columns) -> Columns:
    """How the right one is named: by its text, or by its number from 0 or from 1."""
    by_text, numbers = [], []
    for row in rows:
        try:
            ways, value = _ways(row, columns)[1:], row.get(str(columns.label))
        except Unreadable:
            continue
        by_text.append(value in ways)
        if str(value).isdecimal():
            numbers.append((int(str(value)), len(ways)))
    from_one = bool(numbers) and all(number >= 1 for number, _ in numbers) and any(number == count for number, count in numbers)
    return replace(columns, by_text=all(by_text), counted_from=int(from_one))


def _usual(free: Sequence[str], names: Sequence[str], what: str, option: str, known: Sequence[str], place: str) -> str:
    found = [name for usual in names for name in free if name.lower() == usual]
    if found:
        return found[0]
    raise BadText(f"no column that looks like {what}", place=place, remedy=f"name it with {option}; columns: {', '.join(known)}")


def _repetitive(rows: Sequence[Row], names: Sequence[str]) -> str | None:
    """The column with fewest different values, if they are few."""
    counts = {name: len({str(row.get(name)) for row in rows}) for name in names}
    best = min(counts, key=lambda name: counts[name], default=None)
    return best if best is not None and 2 <= counts[best] <= max(2.0, MOST_CLASSES * len(rows)) else None
