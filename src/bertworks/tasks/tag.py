"""A tag for each word. The first piece of a word stands for it (Devlin et al. 2019, section 5.3).

Words are set one space apart, and pieces are found again by their characters, so any tokenizer will do. In a sentence
longer than the model each word is read once, in the window that shows most of its surroundings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from unicodedata import category

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from bertworks.config import TaskConfig
from bertworks.data.tables import Row, inner_suffix
from bertworks.datasets.checks import TaskData
from bertworks.datasets.columns import (
    SAMPLED_ROWS,
    TEXT_NAMES,
    Columns,
    NamedColumns,
    TableSample,
    cell,
    parse_list,
    word_list,
)
from bertworks.datasets.example import Example, InvalidRow, check_readable, is_blank
from bertworks.datasets.readers import FormatReader, looks_like_conll, read_conll
from bertworks.datasets.report import ReadReport
from bertworks.datasets.schema import ExampleReader, Schema, as_strings, one_label_error
from bertworks.datasets.tables import is_table, read_lines
from bertworks.errors import BadText, Remark
from bertworks.measure import metrics
from bertworks.measure.metrics import Floats, Metric, MetricValues
from bertworks.model.loss import Loss, Term, accuracy
from bertworks.model.model import Model
from bertworks.tasks.features import Array, Features, Numbers, TaskBatch, TokenCounts, Window
from bertworks.tasks.task import Outputs, Prediction, Score, Task
from bertworks.tasks.viterbi import ViterbiDecoder, observed_transitions
from bertworks.tasks.windows import SlidingWindows, WindowRanges
from bertworks.text.words import CJK

OUTSIDE = "O"
CONLL_SUFFIXES = (".conll", ".conllu", ".bio", ".bmes")
WORD = re.compile(rf"[{CJK}]|[^\W{CJK}]+(?:[-'’.][^\W{CJK}]+)*|[^\w\s]")
JOINING = ("Mn", "Mc", "Me", "Cf")  # categories of Unicode: accents and joiners go with the character before them
Entity3 = tuple[str, int, int]  # type, first and last word


@dataclass(frozen=True)
class Entity:
    type: str
    text: str
    first: int  # word
    last: int
    confidence: float  # the lowest of its words
    start: int | None = None  # character, where the words were found in a text
    end: int | None = None


@dataclass(frozen=True)
class TagPrediction(Prediction):
    words: list[str]
    tags: list[str | None]  # None: not confident enough, or not read
    confidences: list[float]
    entities: list[Entity]

    @property
    def abstained(self) -> bool:
        return None in self.tags

    def abstain_below(self, confidence: float) -> TagPrediction:
        tags = [tag if sure >= confidence else None for tag, sure in zip(self.tags, self.confidences, strict=True)]
        return replace(
            self, tags=tags, entities=[entity for entity in self.entities if entity.confidence >= confidence]
        )

    def cells(self) -> dict[str, Any]:
        return {"words": " ".join(self.words), "tags": " ".join("?" if tag is None else tag for tag in self.tags)}


class TagSchema(Schema):
    """The words of a sentence, and a tag for each."""

    shape = "tag"
    column_options = ("text", "label")
    label_names = ("tags", "ner_tags", "ner", "labels")
    table_help = (
        ("tag", "words, tags: lists, or with spaces between; or CoNLL", "Anna lives in Bonn, B-PER O O B-LOC"),
    )
    input_help = "a text, or a list of words"

    def text_columns(self, table: TableSample, named: NamedColumns, *, paired: bool) -> tuple[str, ...]:
        return (named.text or table.require(("words", "tokens", *TEXT_NAMES), "the text", "text"),)

    def texts(self, row: Row, columns: Columns) -> tuple[str, ...]:
        (name,) = columns.texts
        words = word_list(cell(row, name), name)
        if all(map(is_blank, words)):
            raise InvalidRow(f"no words in column {name!r}", "empty-text")
        return words

    def check_texts(self, texts: Sequence[str]) -> None:
        check_readable(texts, allow_some_blank=True)

    def answer(self, row: Row, texts: tuple[str, ...], columns: Columns) -> tuple[str, ...]:
        (name,) = columns.labels
        tags = word_list(row[name], name)
        if len(tags) != len(texts):
            raise InvalidRow(f"{len(texts)} words, {len(tags)} tags", "wrong-tag-count")
        return tags

    def file_reader(self, path: Path, label: str | None) -> ExampleReader | None:
        if is_table(path):
            return None
        if label is not None and not label.isdecimal():
            remedy = "the column of the tags by its number, from 1"
            raise BadText(
                f"--label {label}: these columns have no names", place=str(path), remedy=remedy, code="no-named-columns"
            )
        return FormatReader(read_conll if label is None else partial(read_conll, column=int(label)), self)

    def input_reader(self, path: Path, labels: Sequence[str]) -> ExampleReader | None:
        """Words in columns are known by what is in them, not by a name such as test.txt."""
        if is_table(path):
            return None
        lines = [line for _, line in islice(read_lines(path, ReadReport()), SAMPLED_ROWS)]
        is_conll = inner_suffix(path) in CONLL_SUFFIXES or looks_like_conll(lines, labels)
        return FormatReader(read_conll, self) if is_conll else None

    def expects(self, pairs: bool | None) -> str:
        return self.input_help

    def parse(self, given: object, pairs: bool | None) -> Example | None:
        if isinstance(given, str):
            found = split_words(given)
            starts = tuple(start for start, _ in found)
            return Example(tuple(word for _, word in found), source_text=given, word_starts=starts) if found else None
        words = as_strings(given)
        return Example(words) if words else None

    def from_cell(self, example: Example, row: Row, columns: Columns, *, as_trained: bool) -> Example:
        """The words of a cell, if that is plain text, as those of a plain file are found."""
        (name,) = columns.texts
        value = row[name]
        if as_trained or not isinstance(value, str) or isinstance(parse_list(value), list):
            return example
        parsed = self.parse(value, None)
        return example if parsed is None else replace(parsed, place=example.place, name=example.name)

    def input_remarks(self, *, as_trained: bool) -> list[Remark]:
        if as_trained:
            return [Remark("words-between-spaces", "words are separated by spaces, as in training")]
        return [Remark("words-divided", "texts are split into words, lists are taken as they are")]

    def input_columns(self, pairs: bool | None) -> tuple[str, ...]:
        return ("text",)

    def as_row(self, example: Example, pairs: bool | None) -> Row:
        text = example.source_text or " ".join(example.texts)
        return {**({"id": example.name} if example.name else {}), "text": text}

    def check_learnable(
        self, train: Sequence[Example], labels: Set[str], n_rows: int, *, place: str | None, first: int | None
    ) -> None:
        if all(len(example.texts) == 1 for example in train):
            remedy = "one word in each row? CoNLL's columns have that, with a blank line behind a sentence; in a table a row is a sentence"
            raise BadText("every sentence is a single word", place=place, remedy=remedy, code="one-word-sentences")
        if len(labels) < 2:
            raise one_label_error(labels, n_rows, place=place, first=first)


def split_words(text: str) -> list[tuple[int, str]]:
    """Each word and where it begins. What belongs to the character before it, an accent or a joiner, goes with it."""
    found: list[tuple[int, str]] = []
    is_joined = False
    for match in WORD.finditer(text):
        touches = bool(found) and match.start() == found[-1][0] + len(found[-1][1])
        joins = category(match[0][0]) in JOINING
        if touches and (joins or (is_joined and match[0][0].isalnum())):
            found[-1] = found[-1][0], found[-1][1] + match[0]
            is_joined = category(match[0][-1]) in JOINING or is_joined
        else:
            found.append((match.start(), match[0]))
            is_joined = False
    return found


class Tag(Task[tuple[str, ...], TagPrediction]):
    schema = TagSchema()
    terms = {"tag": ("tags", "标签")}
    head = "token"
    metrics = (metrics.ENTITY_F1, metrics.PRECISION, metrics.RECALL, metrics.TAG_ACCURACY)
    options = frozenset({"label_smoothing", "transitions"})
    confidence_of = (" in the tag of a word", "（每个词的标签）")
    abstained_help = "with words below a confidence of {}: their tag is ?"

    def __init__(self, model: Model, config: TaskConfig) -> None:
        super().__init__(model, config)
        self.label_smoothing = config.label_smoothing
        self.viterbi = ViterbiDecoder(config.labels, config.transitions) if config.transitions else None
        self.marks_entities = metrics.has_entity_tags(config.labels)

    @classmethod
    def describe(cls, data: TaskData, labels: tuple[str, ...]) -> dict[str, Any]:
        is_marked = metrics.has_entity_tags(labels)
        return {"transitions": observed_transitions(example.labels for example in data.train) if is_marked else ()}

    @classmethod
    def metrics_for(cls, labels: Sequence[str]) -> tuple[Metric, ...]:
        return cls.metrics if metrics.has_entity_tags(labels) else (metrics.TAG_ACCURACY,)

    def features(self, examples: Sequence[Example], windows: SlidingWindows) -> list[Features]:
        encodings = windows.tokenizer.encodings([" ".join(example.texts) for example in examples])
        return [
            self._features(
                example, np.array(encoding.ids, np.int64), np.array(encoding.offsets).reshape(-1, 2), windows
            )
            for example, encoding in zip(examples, encodings, strict=True)
        ]

    def _features(self, example: Example, ids: Numbers, offsets: Numbers, windows: SlidingWindows) -> Features:
        if not len(ids):
            raise BadText("the tokenizer has no token for any of a sentence", place=example.place, code="no-tokens")
        lengths = np.array([len(word) for word in example.texts])
        begins = np.cumsum(lengths + 1) - lengths - 1
        # The first piece that ends behind the word's first character; a word without a piece is tagged by what follows
        # it.
        pieces = np.minimum(np.searchsorted(offsets[:, 1], begins, side="right"), len(ids) - 1)
        targets = np.array([self.labels.index(tag) for tag in example.answer or ()] or [-1] * len(pieces), np.int64)
        ranges = windows.ranges((len(ids),), example.place)
        home, made = nearest_middle(pieces, ranges, len(ids)), []
        for at, one in enumerate(ranges):
            framed, segments, (start,) = windows.with_special_tokens((ids,), one)
            words = np.flatnonzero(home == at)
            positions = pieces[words] - one.texts[0][0] + start
            made.append(Window(framed, segments, positions, origins=words, targets=targets[words]))
        return Features(tuple(made), sum(windows.count((ids,), ranges), TokenCounts()), windows.capacity(1))

    def counts(self, batch: TaskBatch) -> dict[str, int]:
        return {"tag": len(batch.positions), "tag_accuracy": len(batch.positions)}

    def loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        targets = self.tensor(batch.targets)
        smoothing = self.label_smoothing if self.training else 0.0
        total = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
        return Term("tag", total), accuracy("tag", (logits.detach().argmax(1) == targets).sum())

    def decode(self, outputs: Outputs, features: Features, example: Example) -> TagPrediction:
        words = np.concatenate([window.origins for window in features.windows])
        order = np.argsort(words)
        logits, probabilities = (
            self.class_logits(outputs, features)[order],
            self.probabilities(outputs, features)[order],
        )
        words = words[order]
        chosen = self.viterbi.decode(logits) if self.viterbi is not None else logits.argmax(1)
        tags: list[str | None] = [None] * len(example.texts)  # of what was cut off nothing is known
        confidences = np.zeros(len(tags))
        confidences[words] = probabilities[np.arange(len(words)), chosen]
        for word, at in zip(words.tolist(), chosen.tolist(), strict=True):
            tags[word] = self.labels[at]
        found = [
            entity_of(example, *one, float(confidences[one[1] : one[2] + 1].min()))
            for one in metrics.entities(_known(tags))
        ]
        return TagPrediction(list(example.texts), tags, confidences.tolist(), found)

    def class_logits(self, outputs: Outputs, features: Features) -> Array:
        rows: Array = np.concatenate(outputs).astype(np.float64)
        return rows

    def targets(self, features: Features) -> Numbers:
        return np.concatenate([window.targets for window in features.windows])

    def score(self, prediction: TagPrediction, answer: tuple[str, ...], texts: tuple[str, ...]) -> Score:
        """As severe as the most confident wrong tag; shown are entities that are in one and not in the other."""
        right, predicted = _known(answer), _known(prediction.tags)
        wrong = [
            sure for tag, other, sure in zip(right, predicted, prediction.confidences, strict=True) if tag != other
        ]
        expected_entities, predicted_entities = metrics.entities(right), metrics.entities(predicted)
        by_word = not self.marks_entities
        shown = (expected_entities, predicted_entities)
        if by_word or expected_entities == predicted_entities:
            shown = _word_by_word(right), _word_by_word(predicted)
        missed, invented = ([one for one in a if one not in b] for a, b in (shown, shown[::-1]))
        counted = (
            (_word_by_word(right), _word_by_word(predicted)) if by_word else (expected_entities, predicted_entities)
        )
        items = [frozenset((kind, (first, last)) for kind, first, last in found) for found in counted]
        judged = zip(prediction.confidences, prediction.tags, right, strict=True)
        return Score(
            values=metrics.entity_counts(right, predicted),
            is_wrong=bool(wrong),
            severity=max(wrong, default=0.0),
            expected=_named(texts, missed),
            predicted=_named(texts, invented),
            confidences=tuple((sure, tag == other) for sure, tag, other in judged if tag is not None),
            expected_items=items[0],
            predicted_items=items[1],
        )

    def metric_values(self, scores: Floats) -> MetricValues:
        values = metrics.entity_metrics(scores)
        return values if self.marks_entities else {"tag_accuracy": values["tag_accuracy"]}

    def shown_texts(self, example: Example) -> tuple[str, ...]:
        return (" ".join(example.texts),)


def entity_of(example: Example, kind: str, first: int, last: int, confidence: float) -> Entity:
    if not example.word_starts:
        return Entity(kind, " ".join(example.texts[first : last + 1]), first, last, confidence)
    start, end = example.word_starts[first], example.word_starts[last] + len(example.texts[last])
    return Entity(kind, example.source_text[start:end], first, last, confidence, start, end)


def _known(tags: Sequence[str | None]) -> list[str]:
    """What has no tag is outside of everything."""
    return [OUTSIDE if tag is None else str(tag) for tag in tags]


def _word_by_word(tags: Sequence[str]) -> list[Entity3]:
    """Each word for itself, as entities have it."""
    return [(tag, at, at) for at, tag in enumerate(tags)]


def _named(words: Sequence[str], found: Sequence[Entity3]) -> str:
    """Entities, for people."""
    return ", ".join(f"{' '.join(words[first : last + 1])} ({kind})" for kind, first, last in found) or "–"


def nearest_middle(pieces: Numbers, ranges: Sequence[WindowRanges], length: int) -> Numbers:
    """For each piece of a text of this length the window that shows most of what is around it; -1 for those in no
    window."""
    begins, ends = np.array([one.texts[0] for one in ranges]).T
    left = np.where(begins == 0, length, pieces[:, None] - begins)  # at the ends of the text there is nothing to miss
    right = np.where(ends == length, length, ends - 1 - pieces[:, None])
    scarcer = np.minimum(left, right)
    return np.where(scarcer.max(1) >= 0, scarcer.argmax(1), -1)
