"""Entities as character spans, as annotation tools write them, read as words with tags.

    [start, end, label]                 doccano, in a column `label`, `labels` or `entities`
    {start, end, label}                 Prodigy (`spans`), doccano, Label Studio's short form
    {label: {surface: [[first, last]]}} CLUENER, whose ends are inclusive
    tasks with annotations              Label Studio
    .txt beside .ann                    brat, a folder

Tags belong to words, so texts are split such that spans begin and end at words: at every character that is neither a
letter nor a digit; in Chinese and Japanese at every character; between letters and digits, if a span begins or ends
there. That is decided once, for all texts of train: words that depended on the spans of their own text would tell the
model where entities are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from bertworks.config import WordCounts, WordRule
from bertworks.data.tables import Row, inner_suffix
from bertworks.datasets.columns import is_missing
from bertworks.datasets.example import Example, InvalidRow
from bertworks.datasets.report import ReadReport
from bertworks.datasets.tables import open_table, read_text
from bertworks.datasets.words import is_mostly_han, splitter
from bertworks.errors import NotFound, Remark, counted
from bertworks.measure.metrics import OUTSIDE
from bertworks.text.word_splitter import Words, is_digit_edge

START_KEYS = ("start", "start_offset")
END_KEYS = ("end", "end_offset")
LABEL_KEYS = ("label", "labels", "type")
MAX_PLACES_SHOWN = 3  # of spans that were changed
# How an entity of several words goes on after B and ends, and the prefix of a single word.
BIOES, BMES, BILOU, BIO = "IES", "MES", "ILU", "IIB"
TEXT_BOUND = re.compile(r"T\S+\t(\S+) (\d+ \d+(?:;\d+ \d+)*)\t(.*)")  # a line of brat's .ann


@dataclass(frozen=True)
class LabelledSpan:
    start: int
    end: int  # exclusive
    label: str


@dataclass(frozen=True)
class AnnotatedText:
    text: str
    spans: list[LabelledSpan] | None  # None: unlabelled
    place: str
    name: str = ""
    group: str = ""  # of `Example`
    tokens: tuple[tuple[int, int], ...] = ()  # start and end of each word, where the tool has split the text


# ---------------------------------------------------------------------- spans in a cell


def is_span_cell(value: object) -> bool:
    """Whether a cell holds at least one span, in any of the formats."""
    try:
        return any(True for _ in _span_fields(_parse_json(value)))
    except InvalidRow:
        return False


def parse_spans(value: object, text: str) -> list[LabelledSpan] | None:
    """The spans of a cell; None if it is empty: there may be entities that nobody has marked."""
    if is_missing(value):
        return None
    return [_checked_span(*fields, text) for fields in _span_fields(_parse_json(value))]


def _parse_json(value: object) -> Any:
    """A cell of a CSV file holds JSON."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            raise InvalidRow("the spans are not JSON", "bad-spans") from None
    return value


def _span_fields(value: object) -> Iterator[tuple[object, object, object, object]]:
    """Start, end, label and, where it is written, the surface of each span."""
    if isinstance(value, Mapping):
        for label, surfaces in value.items():
            if not isinstance(surfaces, Mapping):
                raise InvalidRow("spans are lists, or positions by label and surface", "bad-spans")
            for surface, ranges in surfaces.items():
                for start, last in _pairs(ranges):
                    yield start, last, label, surface
        return
    for item in value if isinstance(value, list | tuple) else [value]:
        if isinstance(item, Mapping):
            start, end, label = (_first_value(item, keys) for keys in (START_KEYS, END_KEYS, LABEL_KEYS))
            label = label[0] if isinstance(label, list) and len(label) == 1 else label
            yield start, end, label, item.get("text")
        elif isinstance(item, list | tuple) and len(item) == 3:
            yield *item, None
        else:
            raise InvalidRow(f"not a span: {str(item)[:60]}", "bad-spans")


def _first_value(item: Mapping[str, object], keys: Sequence[str]) -> object:
    return next((item[key] for key in keys if key in item), None)


def _pairs(ranges: object) -> list[Sequence[object]]:
    pairs = ranges if isinstance(ranges, list) else []
    if not pairs or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise InvalidRow("positions are lists of two numbers", "bad-spans")
    return pairs


def _checked_span(start: object, end: object, label: object, surface: object, text: str) -> LabelledSpan:
    """The surface, where there is one, decides whether the end is inclusive."""
    if type(start) is not int or type(end) is not int or not isinstance(label, str) or not label.strip():
        raise InvalidRow(f"a span needs a start, an end and a label: {start!r}, {end!r}, {label!r}", "bad-spans")
    if isinstance(surface, str) and text[start:end] != surface and text[start : end + 1] == surface:
        end += 1
    if not 0 <= start < end <= len(text):
        raise InvalidRow(f"span {start} to {end} is not in the text of {len(text)} characters", "span-outside-text")
    if not text[start:end].strip():
        raise InvalidRow(f"span {start} to {end} has nothing but spaces", "span-outside-text")
    if isinstance(surface, str) and text[start:end] != surface:
        cause = f"at {start} to {end} the text has {text[start:end][:40]!r}, not {surface[:40]!r}"
        raise InvalidRow(cause, "span-not-its-text")
    return LabelledSpan(start, end, label.strip())


def token_ranges(value: object) -> tuple[tuple[int, int], ...]:
    """The words that Prodigy has split a text into: objects with start and end."""
    if not isinstance(value, list) or not value or not all(isinstance(token, Mapping) for token in value):
        return ()
    ranges = tuple((token.get("start"), token.get("end")) for token in value)
    return tuple((start, end) for start, end in ranges if isinstance(start, int) and isinstance(end, int))


# ---------------------------------------------------------------------- Label Studio


def is_label_studio(path: Path) -> bool:
    """Whether the rows of a JSON file are tasks with annotations."""
    if inner_suffix(path) not in (".json", ".jsonl", ".ndjson"):
        return False
    with open_table(path, ReadReport()) as rows:
        first = next((row for _, row in rows), {})
    return isinstance(first.get("data"), dict) and isinstance(first.get("annotations"), list)


def read_label_studio(
    path: Path, report: ReadReport, *, labelled: bool = True, words: WordCounts | WordRule | None = None
) -> list[Example]:
    """Label Studio's JSON export. Of several annotations of a task the first is read; tasks without one, and those
    that the annotator has skipped, are left out. `words`: of `tagged_examples`."""
    report.notes.append(format_remark("Label Studio's tasks with annotations", " Label Studio 的标注任务"))
    annotated = []
    n_several = 0
    with open_table(path, report) as rows:
        for place, row in rows:
            try:
                text = _task_text(row)
                annotations = [item for item in row.get("annotations") or [] if not item.get("was_cancelled")]
                n_several += len(annotations) > 1
                if labelled and not annotations:
                    report.malformed_row("not annotated, or skipped by the annotator", place, "not-accepted")
                    continue
                results = annotations[0].get("result", []) if annotations else []
                values = [result["value"] for result in results if "labels" in result.get("value", {})]
                annotated.append(AnnotatedText(text, parse_spans(values, text), place, str(row.get("id", ""))))
            except InvalidRow as error:
                report.bad_row(error.cause, place, error.code)
            except (AttributeError, TypeError):
                report.bad_row("not a task of Label Studio", place, "not-label-studio")
    if n_several:
        text = f"{n_several:,} tasks have several annotations: the first of each is read"
        report.notes.append(Remark("several-annotations", text, f"{n_several:,} 个任务有多份标注：只读第一份"))
    return tagged_examples(annotated, report, words)


def _task_text(row: Row) -> str:
    texts = {name: value for name, value in row["data"].items() if isinstance(value, str)}
    text = texts.get("text", next(iter(texts.values()), None) if len(texts) == 1 else None)
    if text is None:
        raise InvalidRow(f"no text among the data of the task: {', '.join(row['data'])}", "no-text")
    return text


# ---------------------------------------------------------------------- brat


def read_brat(
    path: Path, report: ReadReport, *, labelled: bool = True, words: WordCounts | WordRule | None = None
) -> list[Example]:
    """A folder of .txt files, each with its entities in the .ann file beside it. A line of a text is an example, unless
    an entity goes on in the next. `words`: of `tagged_examples`."""
    files = sorted(file for file in path.rglob("*.txt") if not file.name.startswith("."))
    if not any(file.with_suffix(".ann").is_file() for file in files):
        remedy = "brat's folders have a .ann file beside each .txt file; of other formats, name a file"
        raise NotFound("no .ann files in this folder", place=str(path), remedy=remedy, code="missing-file")
    report.notes.append(format_remark("brat's .txt and .ann files", " brat 的 .txt 与 .ann 文件"))
    annotated: list[AnnotatedText] = []
    fragmented: list[str] = []
    for file in files:
        if not file.with_suffix(".ann").is_file():
            report.bad_row("no .ann file beside it", str(file), "no-annotations")
            continue
        text = read_text(file, report)
        spans = list(_text_bounds(file.with_suffix(".ann"), text, report, fragmented))
        annotated += _lines(text, spans, file)
    if fragmented:
        n, shown = len(fragmented), _first(fragmented)
        text = f"{n:,} discontinuous spans are read from their first to their last character, the first: {shown}"
        chinese = f"{n:,} 个不连续的片段按首尾字符读取，例如：{shown}"
        report.notes.append(Remark("discontinuous-spans", text, chinese))
    return tagged_examples(annotated, report, words)


def _text_bounds(file: Path, text: str, report: ReadReport, fragmented: list[str]) -> Iterator[LabelledSpan]:
    """Entities; relations, events, attributes and notes are other lines."""
    for number, line in enumerate(read_text(file, report).split("\n"), start=1):  # U+2028 may be part of an entity
        place = f"{file}, line {number}"
        if not line.startswith("T"):
            continue
        match = TEXT_BOUND.fullmatch(line)
        if match is None:
            report.bad_row("not a text-bound annotation of brat", place, "bad-spans")
            continue
        label, positions, surface = match.groups()
        parts = [tuple(map(int, part.split())) for part in positions.split(";")]
        start, end = parts[0][0], parts[-1][1]
        written = " ".join(text[begin:stop] for begin, stop in parts)
        if len(parts) > 1:
            fragmented.append(place)
        if "".join(written.split()) != "".join(surface.split()):  # a line break is a space there
            report.bad_row(f"the text has {written[:40]!r}, not {surface[:40]!r}", place, "span-not-its-text")
        elif not written.strip():
            report.bad_row(f"span {start} to {end} has nothing but spaces", place, "span-outside-text")
        else:
            yield LabelledSpan(start, end, label)


def _lines(text: str, spans: Sequence[LabelledSpan], file: Path) -> Iterator[AnnotatedText]:
    start = 0
    number = 1
    for line_break in [*(match.start() for match in re.finditer("\n", text)), len(text)]:
        if any(span.start <= line_break < span.end for span in spans):
            continue
        part = text[start:line_break]
        inside = [span for span in spans if start <= span.start < line_break]
        if part.strip():
            moved = [LabelledSpan(span.start - start, span.end - start, span.label) for span in inside]
            yield AnnotatedText(part, moved, f"{file}, line {number}", group=str(file))
        number += part.count("\n") + 1
        start = line_break + 1


# ---------------------------------------------------------------------- from spans to tags


@dataclass
class ChangedSpans:
    """Spans that could not be read as they are, by their places."""

    widened: list[str] = field(default_factory=list)
    overlapping: list[str] = field(default_factory=list)

    def remarks(self) -> list[Remark]:
        remarks = []
        if self.widened:
            n, shown = len(self.widened), _first(self.widened)
            spans = counted(n, "entity span")
            text = f"{spans} that began or ended inside of a word widened to all of it, the first: {shown}"
            chinese = f"{n:,} 个片段的边界落在词内，已扩展到整个词，例如：{shown}"
            remarks.append(Remark("spans-cut-words", text, chinese))
        if self.overlapping:
            n, shown = len(self.overlapping), _first(self.overlapping)
            spans = counted(n, "entity span")
            text = f"{spans} that overlapped with a longer or an earlier one left out, the first: {shown}"
            chinese = f"{n:,} 个片段与更长或更早的片段重叠，已舍去，例如：{shown}"
            remarks.append(Remark("overlapping-spans", text, chinese))
        return remarks


def tagged_examples(
    annotated: Sequence[AnnotatedText], report: ReadReport, words: WordCounts | WordRule | None
) -> list[Example]:
    """Words with tags; what was changed is noted in the report. `words`: how the texts of train are split; None: these
    are the texts that decide it."""
    split = splitter(words or _rule(annotated))
    changed = ChangedSpans()
    examples = []
    for item in annotated:
        item_words = [] if isinstance(words, WordRule) else _token_words(item)
        item_words = item_words or split(item.text)
        if not item_words:
            report.bad_row("empty text", item.place, "empty-text")
            continue
        tags = None if item.spans is None else _tags(item, item.spans, item_words, changed)
        starts, texts = zip(*item_words, strict=True)
        examples.append(Example(texts, tags, item.place, item.name, item.group, item.text, starts))
    report.notes += changed.remarks()
    return examples


def _rule(annotated: Sequence[AnnotatedText]) -> WordRule:
    cuts = (
        is_digit_edge(item.text, position)
        for item in annotated
        for span in item.spans or ()
        for position in (span.start, span.end)
    )
    return WordRule(by_character=is_mostly_han(item.text for item in annotated), digits_apart=any(cuts))


def _token_words(item: AnnotatedText) -> Words:
    """The words that the tool has split the text into, if nothing of it would be lost."""
    words = [(start, item.text[start:end]) for start, end in item.tokens]
    is_ordered = all(end <= start for (_, end), (start, _) in pairwise([(0, 0), *item.tokens]))
    is_complete = "".join("".join(word.split()) for _, word in words) == "".join(item.text.split())
    return [(start, word) for start, word in words if word.strip()] if is_ordered and is_complete else []


def _tags(item: AnnotatedText, spans: Sequence[LabelledSpan], words: Words, changed: ChangedSpans) -> tuple[str, ...]:
    tags = [OUTSIDE] * len(words)
    longest_first = sorted(dict.fromkeys(spans), key=lambda span: (span.start - span.end, span.start))
    for span in longest_first:
        # At least one word: words leave out nothing but spaces, and spans have more than these.
        inside = [i for i, (start, word) in enumerate(words) if start < span.end and span.start < start + len(word)]
        description = f"{item.place}: {item.text[span.start : span.end][:40]!r} ({span.label})"
        if any(tags[i] != OUTSIDE for i in inside):
            changed.overlapping.append(description)
            continue
        first, last = words[inside[0]], words[inside[-1]]
        surface = item.text[first[0] : last[0] + len(last[1])]
        if surface != item.text[span.start : span.end].strip():
            changed.widened.append(f"{description} -> {surface[:40]!r}")
        tags[inside[0] : inside[-1] + 1] = entity_tags(span.label, len(inside), BIOES)
    return tuple(tags)


def entity_tags(entity_type: str, n_words: int, scheme: str) -> list[str]:
    """The tags of an entity, in a scheme such as `BIOES`."""
    inside, end, single = tuple(scheme)
    prefixes = single if n_words == 1 else f"B{inside * (n_words - 2)}{end}"
    return [f"{prefix}-{entity_type}" for prefix in prefixes]


def format_remark(text: str, chinese: str) -> Remark:
    return Remark("span-format", f"entities are read from {text}", f"实体读自{chinese}")


def _first(places: Sequence[str]) -> str:
    return "; ".join(places[:MAX_PLACES_SHOWN])
