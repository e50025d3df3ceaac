"""Files of examples that are no tables: SQuAD's JSON, CoNLL's columns, DREAM's dialogues."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertworks.data.tables import Row, inner_suffix, repair_surrogates
from bertworks.datasets.example import Example, InvalidRow, Span
from bertworks.datasets.report import ReadReport
from bertworks.datasets.schema import ExampleReader, Schema
from bertworks.datasets.tables import open_stream, read_lines
from bertworks.errors import BadText, Remark

NEARLY_ALL = 0.9
WORD_RANGE = re.compile(r"\d+[-.]\d+")


@dataclass(frozen=True)
class FormatReader:
    """Reads a file in a format of its own; examples without anything to read in them are reported."""

    read: ExampleReader
    schema: Schema

    def __call__(self, path: Path, report: ReadReport, *, labelled: bool = True) -> list[Example]:
        return self.schema.readable(self.read(path, report, labelled=labelled), report)


def read_json_file(path: Path, report: ReadReport) -> Any:
    """All of a file: SQuAD's are one long line."""
    try:
        with open_stream(path) as stream:
            return repair_surrogates(json.loads(stream.read()), str(path), report)
    except (ValueError, RecursionError) as error:
        raise BadText(f"not JSON: {str(error)[:100]}", place=str(path), code="not-json") from None


# ---------------------------------------------------------------------- SQuAD


def is_squad(path: Path) -> bool:
    """Whether a file has articles with paragraphs."""
    try:
        found = read_json_file(path, ReadReport()) if inner_suffix(path) == ".json" else None
    except BadText:
        return False
    articles = found.get("data") if isinstance(found, dict) else None
    return isinstance(articles, list) and all(
        isinstance(article, dict) and "paragraphs" in article for article in articles[:1]
    )


def read_squad(path: Path, report: ReadReport, *, labelled: bool = True) -> list[Example]:
    """SQuAD 1.1 and 2.0."""
    found = []
    try:
        for article in read_json_file(path, report)["data"]:
            asked = (
                (paragraph["context"], question) for paragraph in article["paragraphs"] for question in paragraph["qas"]
            )
            for passage, question in asked:
                place = f"{path}, question {question['id']}"
                try:
                    answer = _answers(question, passage) if labelled else None
                except InvalidRow as error:
                    report.bad_row(error.cause, place, error.code)
                    continue
                texts = question["question"].strip(), passage
                found.append(Example(texts, answer, place, question["id"], group=article.get("title") or passage))
    except (KeyError, TypeError, AttributeError) as error:
        remedy = "known: SQuAD 1.1 and 2.0; or a table with columns for question, context and answer"
        raise BadText(f"not a SQuAD file: {error!r}", place=str(path), remedy=remedy, code="not-squad") from None
    return found


def _answers(question: Row, passage: str) -> tuple[Span, ...]:
    if "answers" not in question:
        raise InvalidRow("no answers, not even an empty list", "no-answer-list")
    listed = question["answers"]
    spans = listed_spans([answer["answer_start"] for answer in listed], [answer["text"] for answer in listed])
    for span in spans:
        check_span(span, passage)
    return tuple(spans)


def listed_spans(starts: Sequence[Any], texts: Sequence[Any]) -> list[Span]:
    if len(starts) != len(texts):
        raise InvalidRow(f"{len(texts)} answers, {len(starts)} starts", "wrong-answer-count")
    for start, text in zip(starts, texts, strict=True):
        if type(start) is not int or not isinstance(text, str):
            raise InvalidRow(
                f"the answer {str(text)[:60]!r} at {start!r}: a text and a whole number are expected", "bad-answer"
            )
    return [Span(start, text) for start, text in zip(starts, texts, strict=True)]


def check_span(span: Span, passage: str) -> None:
    if span.start < 0 or passage[span.start : span.end] != span.text:
        raise InvalidRow(f"the answer {span.text[:60]!r} is not at character {span.start}", "answer-not-at-start")


# ---------------------------------------------------------------------- CoNLL


def read_conll(path: Path, report: ReadReport, *, labelled: bool = True, column: int | None = None) -> list[Example]:
    """A word and its tag on a line, first and last of its columns; a blank line ends a sentence. In CoNLL-U they are
    the second and the fourth of ten. Or a sentence and its tags on a line, between them a tab. `column`: of the tag,
    counted from 1."""
    lines = list(read_lines(path, report))
    if inner_suffix(path) == ".conllu":
        columns = _word_and_tag(path, (2, 4 if column is None else column), 10, report, labelled=labelled)
        found = _sentences(_universal(lines), columns, 10, report)
    elif _are_sentences(line for _, line in lines):
        found = _one_per_line(lines, report)
    else:
        split = list(_without_comments(lines))
        width, _ = _usual_width(parts for _, parts in split)
        columns = _word_and_tag(path, (1, width if column is None else column), width, report, labelled=labelled)
        found = _sentences(split, columns, width, report, labelled=labelled)
    return found if labelled else [replace(example, answer=None) for example in found]


def _word_and_tag(
    path: Path, columns: tuple[int, int], width: int, report: ReadReport, *, labelled: bool
) -> tuple[int, int]:
    """Their columns, counted from 0; which they are is said."""
    word, tag = columns
    if not 1 <= tag <= max(1, width):
        remedy = "--label names another, counted from 1"
        raise BadText(f"no column {tag}: there are {width}", place=str(path), remedy=remedy, code="missing-column")
    if labelled and width > 1:
        report.notes.append(Remark("tag-column", f"words are in column {word}, tags in column {tag} of {width}"))
    return word - 1, tag - 1


def _one_per_line(lines: Iterable[tuple[str, str]], report: ReadReport) -> list[Example]:
    found = []
    for place, line in lines:
        words, tags = (part.split() for part in line.partition("\t")[::2])
        if len(words) != len(tags):
            report.bad_row(f"{len(words)} words, {len(tags)} tags", place, "wrong-tag-count")
        elif words:
            found.append(Example(tuple(words), tuple(tags), place))
    return found


def _sentences(
    lines: Iterable[tuple[str, list[str]]],
    columns: tuple[int, int],
    width: int,
    report: ReadReport,
    *,
    labelled: bool = True,
) -> list[Example]:
    """`columns`: where word and tag stand, of so many. A sentence with a line that cannot be read is no sentence any
    more."""
    found: list[Example] = []
    words: list[str] = []
    tags: list[str] = []
    start, is_whole = "", True
    for place, parts in [*lines, ("", [])]:
        if not parts or parts[0] == "-DOCSTART-":
            if words and is_whole:
                found.append(Example(tuple(words), tuple(tags), start))
            words, tags, is_whole = [], [], True
        elif len(parts) == width and (width > 1 or not labelled):
            start = start if words else place
            words.append(parts[columns[0]])
            tags.append(parts[columns[1]])
        else:
            if len(parts) == 1:
                report.bad_row("a word without a tag", place, "word-without-tag")
            else:
                report.bad_row(f"{len(parts)} columns, {width} expected", place, "wrong-field-count")
            is_whole = False
    return found


def _usual_width(split: Iterable[list[str]]) -> tuple[int, int]:
    """The usual number of columns, and how many lines have so many."""
    counts = Counter(len(parts) for parts in split if parts and parts[0] != "-DOCSTART-")
    return max(counts.items(), key=lambda item: item[1], default=(0, 0))


def _columns(line: str) -> list[str]:
    """Between tabs, if there are any, so that a word may have spaces in it; else between spaces. Nothing else divides:
    other blanks may be words."""
    parts = line.split("\t" if "\t" in line else " ") if line.strip() else []
    return [part.strip(" ") for part in parts if part.strip(" ")]


def _without_comments(lines: Sequence[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """A comment stands before a sentence, begins with a hash and a space, and ends like no word's line: its last column
    is no tag."""
    split = [(place, _columns(line), line.startswith("# ")) for place, line in lines]
    ends = {parts[-1] for _, parts, hashed in split if parts and not hashed}
    before: list[str] = []
    for place, parts, hashed in split:
        if not (hashed and not before and len(parts) > 1 and parts[-1] not in ends):
            yield place, parts
            before = parts


def are_tagged(lines: Sequence[str], tags: Collection[str]) -> bool:
    """Whether lines are sentences with their tags, or words with theirs: nearly all have the same number of columns,
    and nearly all end in one of these tags."""
    if _are_sentences(lines):
        return True
    words = [parts for line in lines if (parts := _columns(line)) and parts[0] != "-DOCSTART-"]
    width, n_usual = _usual_width(words)
    n_known = sum(parts[-1] in tags for parts in words)
    return width > 1 and min(n_usual, n_known) >= NEARLY_ALL * len(words)


def _universal(lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """The columns of CoNLL-U, without comments, words written together, which follow one by one, and words that are not
    there."""
    for place, line in lines:
        parts = line.split("\t") if line.strip() else []
        if not line.startswith("#") and not (parts and WORD_RANGE.fullmatch(parts[0])):
            yield place, parts


def _are_sentences(lines: Iterable[str]) -> bool:
    """Whether nearly all lines have as many words before their tab as tags behind it, and some have several."""
    halves = [[part.split() for part in line.split("\t")] for line in lines if line.strip()]
    equal = [pair for pair in halves if len(pair) == 2 and len(pair[0]) == len(pair[1])]
    return len(equal) >= NEARLY_ALL * len(halves) and any(len(pair[0]) > 1 for pair in equal)


# ---------------------------------------------------------------------- multiple choice


def second_sentences(row: Row) -> Row:
    """SWAG's second sentence begins the same in all endings."""
    endings = [f"ending{at}" for at in range(4)]
    return {**row, **{name: f"{row.get('sent2') or ''} {row[name] or ''}".strip() for name in endings if name in row}}


def read_dream(path: Path, report: ReadReport, *, labelled: bool = True) -> list[Example]:
    """Questions about dialogues."""
    found = []
    try:
        for turns, questions, name in read_json_file(path, report):
            for at, question in enumerate(questions):
                choices = tuple(f"{question['question']} {choice}" for choice in question["choice"])
                answer = question["choice"].index(question["answer"]) if labelled else None
                place = f"{path}, dialogue {name}, question {at + 1}"
                found.append(Example(("\n".join(turns), *choices), answer, place, f"{name}-{at}", group=name))
    except (KeyError, TypeError, ValueError) as error:
        remedy = "or a table with the choices in columns"
        raise BadText(f"not a DREAM file: {error!r}", place=str(path), remedy=remedy, code="not-dream") from None
    return found
