"""Which columns of a table hold what: those that the user names, and usual names for the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from bertworks.config import Shape, TaskConfig
from bertworks.data.tables import Row
from bertworks.errors import BadText, nearest
from bertworks.tasks.example import SIGN, Unreadable
from bertworks.tasks.rows import SEPARATORS, SET, UNSET, Columns, label_columns, unwritten, ways_of

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
FIRST_LABELS: dict[Shape, tuple[str, ...]] = {
    "regress": ("score", "rating"),
    "multilabel": ("labels", "tags"),
    "tag": ("tags", "ner_tags", "ner", "labels"),
    "span": ("answers", "answer"),
    "choice": ("answer", "label"),
}
PASSAGE_NAMES = ("context", "passage", "paragraph", "document", "text")
QUESTION_NAMES = ("question", "query", "prompt")
CHOICES = re.compile(r"(ending|choice|option)s?_?(\d+|[a-e])", re.IGNORECASE)
LETTERS = ("A", "B", "C", "D", "E")
CHOICE_LISTS = ("choices", "endings", "options")
GUESSED_FROM = 1000  # rows
MOSTLY = 0.5
STRAY = 0.1  # as often as the usual one: less is a slip
SEVERAL = re.compile(rf"[{SIGN}]|[^\s{SIGN}]+")
MANY = 5  # rows for each way to go on
LONGEST_NAME = 40  # of a column, in a message
MOST_CLASSES = 0.2  # of the rows, in a column that is guessed to be the label


def guess_columns(
    rows: Sequence[Row], shape: Shape, *, text: str | None, pair: Sequence[str], label: str | None, paired: bool, place: str
) -> Columns:
    """Those that the user named, and usual names for the others; what is guessed is for the caller to say."""
    known = list(dict.fromkeys(key for row in rows for key in row if key is not None))
    labels = label_columns(label, shape) if label else []
    for name in (text, *pair, *labels):
        if name and name not in known:
            raise BadText(f"no column {name!r}", place=place, remedy=nearest(name, known), code="missing-column")
    if {text, *pair} & set(labels):
        raise BadText(f"column {label!r} cannot be both a text and the label", place=place, remedy="name another", code="given-twice")
    if shape == "tag" and (pair or paired):
        raise BadText("a sentence is in one column", place=place, remedy="leave --pair out", code="too-many-columns")
    if shape != "choice" and len(pair) > 1:
        cause = f"{len(pair)} columns named by --pair; {shape} reads two texts together"
        raise BadText(cause, place=place, remedy="name one", code="too-many-columns")
    free = [name for name in known if name not in (text, *pair, *labels)]
    try:
        if shape == "span":
            texts = _question_and_passage(free, text, pair)
        elif shape == "choice":
            texts = _text_and_ways(free, text, pair)
        else:
            texts = _one_or_two(rows, free, shape, text, pair, paired=paired)
        if label is None:  # "": there is none
            label = _label(rows, [name for name in free if name not in texts], shape)
            _check_header(rows, label, place)
    except Missing as missing:
        what, option = missing.args
        shown = ", ".join(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..." for name in known)
        remedy = f"name it with {option}; the first line, which should name the columns, has: {shown}"
        code = "no-label-column" if option == "--label" else "no-text-column"
        raise BadText(f"no column that looks like {what}", place=place, remedy=remedy, code=code) from None
    unused = tuple(name for name in known if name not in (*texts, *label_columns(label, shape)))
    columns = Columns(texts, label or None, unused=unused)
    if shape == "multilabel" and label:
        return replace(columns, separator=_separator(rows, label))
    return _with_choices(rows, columns) if shape == "choice" and label else columns


def check_texts(columns: Columns, task: TaskConfig, place: str) -> None:
    """Whether there are as many as a fine-tuned model reads together."""
    if task.shape != "choice" and len(columns.texts) not in task.n_texts:
        taken = "two texts" if task.n_texts == (2,) else "one text"
        raise BadText(
            f"columns of text: {', '.join(columns.texts)}; this model takes {taken}",
            place=place,
            remedy="name them with --text" + (" and --pair" if task.n_texts == (2,) else ""),
            code="wrong-text-count",
        )


def _with_choices(rows: Sequence[Row], columns: Columns) -> Columns:
    """How the right one is named: by its text, its letter, or its number from 0 or from 1. Where neither 0 nor the highest occurs, as the
    columns are numbered; or from 1, if there are so many rows that a first one would have been right by now."""
    by_text, numbers, lettered = [], [], []
    for row in rows:
        try:
            ways, value = ways_of(row, columns)[1:], row.get(str(columns.label))
        except Unreadable:
            continue
        if value not in (None, ""):
            by_text.append(value in ways)
            lettered.append(re.fullmatch("[A-Za-z]", str(value).strip()) is not None)
        if str(value).isdecimal():
            numbers.append((int(str(value)), len(ways)))
    highest = any(number == count for number, count in numbers)
    many = len(numbers) >= MANY * max((count for _, count in numbers), default=0)
    named = [int(found[2]) for name in columns.texts if (found := CHOICES.fullmatch(name)) and found[2].isdecimal()]
    from_one = all(number >= 1 for number, _ in numbers) and (highest or (min(named) == 1 if named else many))
    if _mostly(lettered) and not _mostly(by_text):
        return replace(columns, counted_from="A")
    return replace(columns, by_text=_mostly(by_text), counted_from=(1 if from_one else 0) if numbers else None)


def _mostly(flags: Sequence[bool]) -> bool:
    return sum(flags) > MOSTLY * len(flags)


def _separator(rows: Sequence[Row], label: str) -> str | None:
    """None: each class has a column, or cells hold lists or one class."""
    cells = [row[label] for row in rows if isinstance(row.get(label), str) and isinstance(unwritten(row[label]), str)]
    counts = {sign: sum(sign in cell for cell in cells) for sign in SEPARATORS}
    return next((sign for sign, count in counts.items() if count and count >= STRAY * max(counts.values())), None)


def _flags(rows: Sequence[Row], names: Sequence[str]) -> str | None:
    """Columns with nothing but 0 and 1 in them, or the like, if there are several: one for each class."""
    found = [name for name in names if {str(row.get(name)).strip().lower() for row in rows} <= {*SET, *UNSET}]
    return ",".join(found) if len(found) > 1 else None


def _wordy(rows: Sequence[Row], names: Sequence[str]) -> str | None:
    """The column with the longest texts, if it is one of texts: several words in a cell, and hardly any twice."""
    cells = {name: [row[name] for row in rows if isinstance(row.get(name), str)] for name in names}
    wordy = {
        name: sum(map(len, found)) / len(found)
        for name, found in cells.items()
        if found and len(set(found)) > MOSTLY * len(rows) and sum(len(SEVERAL.findall(cell)) > 1 for cell in found) > MOSTLY * len(rows)
    }
    return max(wordy, key=lambda name: wordy[name], default=None)


def _check_header(rows: Sequence[Row], label: str, place: str) -> None:
    """Where the label's column has the name of one of its labels, the first line names no columns; or it comes again further down."""
    if any(str(row.get(label)).strip() == label.strip() for row in rows):
        remedy = "the first line, and only that, names the columns, such as text,label; if it does, say --label and --text"
        raise BadText(f"{label!r} is the name of the label's column and a label", place=place, remedy=remedy, code="no-header")


class Missing(Exception):
    """What no column looks like, and the option that names it."""


def _question_and_passage(free: Sequence[str], text: str | None, pair: Sequence[str]) -> tuple[str, ...]:
    passage = text or _usual(free, PASSAGE_NAMES, "the passage", "--text")
    rest = [name for name in free if name != passage]
    return pair[0] if pair else _usual(rest, (*QUESTION_NAMES, *PAIR_NAMES), "the question", "--pair"), passage


def _text_and_ways(free: Sequence[str], text: str | None, pair: Sequence[str]) -> tuple[str, ...]:
    ways = tuple(pair) or tuple(n for n in free if CHOICES.fullmatch(n)) or tuple(n for n in free if n.lower() in CHOICE_LISTS)[:1]
    ways = ways or tuple(n for n in free if n in LETTERS)
    if not ways:
        raise Missing("choices", "--pair")
    rest = [name for name in free if name not in ways]
    return text or _usual(rest, (*PASSAGE_NAMES, *TEXT_NAMES, *QUESTION_NAMES), "the text", "--text"), *ways


def _one_or_two(
    rows: Sequence[Row], free: Sequence[str], shape: Shape, text: str | None, pair: Sequence[str], *, paired: bool
) -> tuple[str, ...]:
    usual = ("words", "tokens", *TEXT_NAMES) if shape == "tag" else TEXT_NAMES
    by_name = any(name.lower() in usual for name in free)
    first = text or (None if by_name or shape == "tag" else _wordy(rows, free)) or _usual(free, usual, "the text", "--text")
    rest = [name for name in free if name != first]
    partner = [name for name in rest if name.lower() == PARTNERS.get(first.lower())] if text is None and shape != "tag" else []
    if paired and not pair and not partner:
        partner = [_usual(rest, PAIR_NAMES, "the second text", "--pair")]
    return first, *(pair or partner)


def _usual(free: Sequence[str], names: Sequence[str], what: str, option: str) -> str:
    found = [name for usual in names for name in free if name.lower() == usual]
    if not found:
        raise Missing(what, option)
    return found[0]


def _label(rows: Sequence[Row], free: Sequence[str], shape: Shape) -> str:
    names = (*FIRST_LABELS.get(shape, ()), *LABEL_NAMES)
    found = next((name for usual in names for name in free if name.lower() == usual), None)
    found = found or (_flags(rows, free) if shape == "multilabel" else None) or _repetitive(rows, free)
    if found is None:
        raise Missing("labels", "--label")
    return found


def _repetitive(rows: Sequence[Row], names: Sequence[str]) -> str | None:
    """The column with fewest different values, if they are few."""
    counts = {name: len({str(row.get(name)) for row in rows}) for name in names}
    few = [name for name, count in counts.items() if 2 <= count <= max(2.0, MOST_CLASSES * len(rows))]
    return min(few, key=lambda name: counts[name], default=None)
