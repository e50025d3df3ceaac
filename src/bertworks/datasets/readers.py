"""Readers of files that are not tables: SQuAD's JSON, CoNLL's columns, DREAM's dialogues; and SWAG's endings."""

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
from bertworks.measure.metrics import OUTSIDE, have_prefixes

NEARLY_ALL = 0.9
NON_WORD_ID = re.compile(r"\d+[-.]\d+")  # of CoNLL-U: multiword tokens (1-2) and empty nodes (1.1)
CONLLU_WIDTH = 10
UPOS_COLUMN = 4


@dataclass(frozen=True)
class FormatReader:
    """Reads a file that is not a table; blank texts are reported as invalid rows."""

    read: ExampleReader
    schema: Schema

    def __call__(self, path: Path, report: ReadReport, *, labelled: bool = True) -> list[Example]:
        return self.schema.without_blank_texts(self.read(path, report, labelled=labelled), report)


def read_json_file(path: Path, report: ReadReport) -> Any:
    """The whole file at once: SQuAD's are one long line."""
    try:
        with open_stream(path) as stream:
            return repair_surrogates(json.loads(stream.read()), str(path), report)
    except (ValueError, RecursionError) as error:
        raise BadText(f"not JSON: {str(error)[:100]}", place=str(path), code="not-json") from None


# ---------------------------------------------------------------------- SQuAD


def is_squad(path: Path) -> bool:
    """Whether a file has articles with paragraphs."""
    try:
        content = read_json_file(path, ReadReport()) if inner_suffix(path) == ".json" else None
    except BadText:
        return False
    articles = content.get("data") if isinstance(content, dict) else None
    return isinstance(articles, list) and all(
        isinstance(article, dict) and "paragraphs" in article for article in articles[:1]
    )


def read_squad(path: Path, report: ReadReport, *, labelled: bool = True) -> list[Example]:
    """SQuAD 1.1 and 2.0."""
    examples = []
    try:
        for article in read_json_file(path, report)["data"]:
            questions = (
                (paragraph["context"], question) for paragraph in article["paragraphs"] for question in paragraph["qas"]
            )
            for passage, question in questions:
                place = f"{path}, question {question['id']}"
                try:
                    answer = _answers(question, passage) if labelled else None
                except InvalidRow as error:
                    report.bad_row(error.cause, place, error.code)
                    continue
                texts = question["question"].strip(), passage
                examples.append(Example(texts, answer, place, question["id"], group=article.get("title") or passage))
    except (KeyError, TypeError, AttributeError) as error:
        remedy = "supported: SQuAD 1.1 and 2.0; or a table with the columns question, context and answer"
        raise BadText(f"not a SQuAD file: {error!r}", place=str(path), remedy=remedy, code="not-squad") from None
    return examples


def _answers(question: Row, passage: str) -> tuple[Span, ...]:
    if "answers" not in question:
        raise InvalidRow("the field answers is missing; unanswerable questions have an empty list", "no-answer-list")
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
                f"the answer {str(text)[:60]!r} at {start!r}: expected a text and an integer", "bad-answer"
            )
    return [Span(start, text) for start, text in zip(starts, texts, strict=True)]


def check_span(span: Span, passage: str) -> None:
    if span.start < 0 or passage[span.start : span.end] != span.text:
        raise InvalidRow(f"the answer {span.text[:60]!r} is not at character {span.start}", "answer-not-at-start")


# ---------------------------------------------------------------------- CoNLL


def read_conll(path: Path, report: ReadReport, *, labelled: bool = True, column: int | None = None) -> list[Example]:
    """Three formats. CoNLL: one word per line, the word in the first column and its tag in the last; a blank line ends
    a sentence. CoNLL-U: the same, the word in column 2 of 10, and the tag in the column that has entities, else in
    column 4. Or one sentence per line: words, a tab, tags. `column`: the number of the tag column, from 1."""
    lines = list(read_lines(path, report))
    if inner_suffix(path) == ".conllu" or _is_conllu(line for _, line in lines):
        rows = list(_conllu_rows(lines))
        tag_column = _conllu_tag_column(rows) if column is None else column
        columns = _word_and_tag(path, (2, tag_column), CONLLU_WIDTH, report, labelled=labelled)
        examples = _sentences(rows, columns, CONLLU_WIDTH, report)
    elif _is_sentence_per_line(line for _, line in lines):
        examples = _sentence_per_line(lines, report)
    else:
        rows = list(_without_comments(lines))
        width, _ = _most_common_width(fields for _, fields in rows)
        columns = _word_and_tag(path, (1, width if column is None else column), width, report, labelled=labelled)
        examples = _sentences(rows, columns, width, report, labelled=labelled)
    return examples if labelled else [replace(example, answer=None) for example in examples]


def _word_and_tag(
    path: Path, columns: tuple[int, int], width: int, report: ReadReport, *, labelled: bool
) -> tuple[int, int]:
    """The indices of both columns, from 0, after a remark which they are. `columns`: the same from 1."""
    word, tag = columns
    if not 1 <= tag <= max(1, width):
        remedy = "give the number of the tag column, from 1, with --label"
        raise BadText(f"no column {tag}: there are {width}", place=str(path), remedy=remedy, code="missing-column")
    if labelled and width > 1:
        text = f"words are in column {word}, tags in column {tag} of {width}"
        report.notes.append(Remark("tag-column", text, f"共 {width} 列：词在第 {word} 列，标签在第 {tag} 列"))
    return word - 1, tag - 1


def _sentence_per_line(lines: Iterable[tuple[str, str]], report: ReadReport) -> list[Example]:
    examples = []
    for place, line in lines:
        words, tags = (half.split() for half in line.partition("\t")[::2])
        if len(words) != len(tags):
            report.bad_row(f"{len(words)} words, {len(tags)} tags", place, "wrong-tag-count")
        elif words:
            examples.append(Example(tuple(words), tuple(tags), place))
    return examples


def _sentences(
    lines: Iterable[tuple[str, list[str]]],
    columns: tuple[int, int],
    width: int,
    report: ReadReport,
    *,
    labelled: bool = True,
) -> list[Example]:
    """Sentences from lines of `width` fields; `columns`: the indices of word and tag. A sentence with an invalid line
    is dropped."""
    examples: list[Example] = []
    words: list[str] = []
    tags: list[str] = []
    sentence_place = ""
    is_valid = True
    for place, fields in [*lines, ("", [])]:
        if not fields or fields[0] == "-DOCSTART-":
            if words and is_valid:
                examples.append(Example(tuple(words), tuple(tags), sentence_place))
            words, tags, is_valid = [], [], True
        elif len(fields) == width and (width > 1 or not labelled):
            sentence_place = sentence_place if words else place
            words.append(fields[columns[0]])
            tags.append(fields[columns[1]])
        else:
            if len(fields) == 1:
                report.bad_row("a word without a tag", place, "word-without-tag")
            else:
                report.bad_row(f"{len(fields)} columns, {width} expected", place, "wrong-field-count")
            is_valid = False
    return examples


def _most_common_width(rows: Iterable[list[str]]) -> tuple[int, int]:
    """The most common number of fields, and how many lines have it."""
    counts = Counter(len(fields) for fields in rows if fields and fields[0] != "-DOCSTART-")
    return max(counts.items(), key=lambda item: item[1], default=(0, 0))


def _fields(line: str) -> list[str]:
    """Separated by tabs, if there are any, so that a word may contain spaces; else by spaces. No other whitespace
    separates: it may be a word."""
    fields = line.split("\t" if "\t" in line else " ") if line.strip() else []
    return [field.strip(" ") for field in fields if field.strip(" ")]


def _without_comments(lines: Sequence[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """The fields of each line. A comment is a line before a sentence that begins with "# " and whose last field is not
    the last field of any other line, so not a tag."""
    rows = [(place, _fields(line), line.startswith("# ")) for place, line in lines]
    tags = {fields[-1] for _, fields, has_hash in rows if fields and not has_hash}
    previous: list[str] = []
    for place, fields, has_hash in rows:
        if not (has_hash and not previous and len(fields) > 1 and fields[-1] not in tags):
            yield place, fields
            previous = fields


def looks_like_conll(lines: Sequence[str], tags: Collection[str]) -> bool:
    """Whether lines are tagged sentences, or tagged words: nearly all have the same number of fields, and nearly all
    end in one of these tags."""
    if _is_sentence_per_line(lines):
        return True
    rows = [fields for line in lines if (fields := _fields(line)) and fields[0] != "-DOCSTART-"]
    width, n_of_width = _most_common_width(rows)
    n_tagged = sum(fields[-1] in tags for fields in rows)
    return width > 1 and min(n_of_width, n_tagged) >= NEARLY_ALL * len(rows)


def _conllu_rows(lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """The fields of CoNLL-U's lines, without comments, multiword tokens (their words follow) and empty nodes."""
    for place, line in lines:
        fields = line.split("\t") if line.strip() else []
        if not line.startswith("#") and not (fields and NON_WORD_ID.fullmatch(fields[0])):
            yield place, fields


def _is_conllu(lines: Iterable[str]) -> bool:
    """Whether nearly all lines have ten columns, of which the first counts the words of a sentence."""
    rows = [line.split("\t") for line in lines if line.strip() and not line.startswith("#")]
    n_counted = sum(len(fields) == CONLLU_WIDTH and fields[0][:1].isdecimal() for fields in rows)
    return bool(rows) and n_counted >= NEARLY_ALL * len(rows) and rows[0][0].partition("-")[0] == "1"


def _conllu_tag_column(rows: Iterable[tuple[str, list[str]]]) -> int:
    """The number of the first column, from the third on, in which words are marked as O, B-X and so on."""
    words = [fields for _, fields in rows if len(fields) == CONLLU_WIDTH]
    for number, values in enumerate(zip(*words, strict=True), start=1):
        if number > 2 and OUTSIDE in values and have_prefixes(values):
            return number
    return UPOS_COLUMN


def _is_sentence_per_line(lines: Iterable[str]) -> bool:
    """Whether nearly all lines have as many words before their tab as tags after it, and some have several."""
    halves = [[half.split() for half in line.split("\t")] for line in lines if line.strip()]
    equal = [pair for pair in halves if len(pair) == 2 and len(pair[0]) == len(pair[1])]
    return len(equal) >= NEARLY_ALL * len(halves) and any(len(pair[0]) > 1 for pair in equal)


# ---------------------------------------------------------------------- multiple choice


def with_full_endings(row: Row) -> Row:
    """A row of SWAG: the beginning of the second sentence, the same for all endings, is put before each of them."""
    endings = [f"ending{i}" for i in range(4)]
    return {**row, **{name: f"{row.get('sent2') or ''} {row[name] or ''}".strip() for name in endings if name in row}}


def read_dream(path: Path, report: ReadReport, *, labelled: bool = True) -> list[Example]:
    """DREAM: multiple-choice questions about dialogues."""
    examples = []
    try:
        for turns, questions, name in read_json_file(path, report):
            for i, question in enumerate(questions):
                choices = tuple(f"{question['question']} {choice}" for choice in question["choice"])
                answer = question["choice"].index(question["answer"]) if labelled else None
                place = f"{path}, dialogue {name}, question {i + 1}"
                examples.append(Example(("\n".join(turns), *choices), answer, place, f"{name}-{i}", group=name))
    except (KeyError, TypeError, ValueError) as error:
        remedy = "supported: DREAM's own files; or a table with the choices in columns"
        raise BadText(f"not a DREAM file: {error!r}", place=str(path), remedy=remedy, code="not-dream") from None
    return examples
