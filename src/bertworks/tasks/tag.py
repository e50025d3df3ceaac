"""Token classification: a tag for each word, from its first subword token (Devlin et al. 2019, section 5.3).

Words are joined by spaces and matched to tokens by character offsets, so it works with any tokenizer. In a sentence
longer than the model, each word is tagged in the window that has the most context around it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from bertworks.config import TaskArtifact, TaskConfig, WordCounts, WordRule
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
    text_cell,
    word_list,
)
from bertworks.datasets.example import Example, InvalidRow, check_readable, is_blank
from bertworks.datasets.readers import FormatReader, looks_like_conll, read_conll
from bertworks.datasets.report import ReadReport
from bertworks.datasets.schema import ExampleReader, Schema, as_strings, id_cell, one_label_error
from bertworks.datasets.spans import (
    BILOU,
    BIO,
    BIOES,
    BMES,
    AnnotatedText,
    entity_tags,
    format_remark,
    is_label_studio,
    is_span_cell,
    parse_spans,
    read_brat,
    read_label_studio,
    tagged_examples,
    token_ranges,
)
from bertworks.datasets.tables import is_table, read_lines
from bertworks.datasets.words import learn_words, splitter
from bertworks.errors import BadText, Remark
from bertworks.measure import metrics
from bertworks.measure.metrics import OUTSIDE, Floats, Metric, MetricValues
from bertworks.model.loss import Loss, Term, accuracy
from bertworks.model.model import Model
from bertworks.tasks.features import Array, Features, Numbers, TaskBatch, TokenCounts, Window
from bertworks.tasks.task import Outputs, Prediction, Score, Task, constant_outputs, log_frequencies
from bertworks.tasks.viterbi import ViterbiDecoder, observed_transitions
from bertworks.tasks.windows import SlidingWindows, WindowRanges

CONLL_SUFFIXES = (".conll", ".conllu", ".bio", ".bmes")
ACCEPTED, UNANSWERED = "accept", ("reject", "ignore")  # of Prodigy: what the annotator thinks of a row
EntityRange = tuple[str, int, int]  # type, first and last word


@dataclass(frozen=True)
class Entity:
    type: str
    text: str
    first: int  # word
    last: int
    confidence: float  # the lowest of its words, among sequences that are allowed
    start: int | None = None  # character, where the input was a text and not words
    end: int | None = None

    def __str__(self) -> str:
        place = f"{self.start}-{self.end} " if self.start is not None else ""
        return f"{self.type} {place}{self.text} ({self.confidence:.2f})"


@dataclass(frozen=True)
class TagPrediction(Prediction):
    words: list[str]
    tags: list[str | None]  # None: not confident enough, or cut off
    confidences: list[float]
    entities: list[Entity]

    @property
    def abstained(self) -> bool:
        return None in self.tags

    def abstain_below(self, confidence: float) -> TagPrediction:
        tags = [
            tag if tag_confidence >= confidence else None
            for tag, tag_confidence in zip(self.tags, self.confidences, strict=True)
        ]
        entities = [entity for entity in self.entities if entity.confidence >= confidence]
        return replace(self, tags=tags, entities=entities)

    def cells(self) -> dict[str, object]:
        return {"words": _cell(self.words), "tags": _cell(["?" if tag is None else tag for tag in self.tags])}


@dataclass(frozen=True)
class EntityPrediction(TagPrediction):
    """Of tags that mark entities."""

    def cells(self) -> dict[str, object]:
        names = ("type", "text", "start", "end", "confidence")
        entities = [{name: getattr(entity, name) for name in names} for entity in self.entities]
        return {**super().cells(), "entities": json.dumps(entities, ensure_ascii=False)}

    def shown(self) -> dict[str, object]:
        return {**super().cells(), "entities": "; ".join(map(str, self.entities))}


class TagSchema(Schema):
    """The words of a sentence, and a tag for each; or a text, and its entities as spans."""

    shape = "tag"
    synonyms = ("ner", "pos", "token-classification")
    column_options = ("text", "label")
    label_names = ("tags", "ner_tags", "ner", "labels", "spans", "entities")
    table_help = (
        ("tag", "words, tags: lists, or with spaces between; or CoNLL", "Anna lives in Bonn, B-PER O O B-LOC"),
        ("tag", "text, spans of characters; or Label Studio, brat", 'Anna lives in Bonn, [[14, 18, "LOC"]]'),
    )
    input_help = "a text, or a list of words"
    reads_folders = True  # brat's

    def __init__(self, words: WordCounts | WordRule | None = None) -> None:
        """`words`: how the texts of train are split into words; None: not known yet, or by an older model."""
        self.words = words
        self.split = splitter(words)
        self.trained_on_texts = isinstance(words, WordRule) or (words is not None and words.from_texts)

    def fitted(self, train: Sequence[Example]) -> TagSchema:
        return TagSchema(learn_words(train)) if train else self

    def text_columns(self, table: TableSample, named: NamedColumns, *, paired: bool) -> tuple[str, ...]:
        objects = [name for name in table.columns if token_ranges(table.rows[0].get(name))]  # Prodigy's tokens
        words_first = ("words", "tokens", *TEXT_NAMES)
        return (named.text or table.without(objects).require(words_first, "the text", "text"),)

    def label_format(self, rows: Sequence[Row], columns: Columns) -> Columns:
        (name,) = columns.labels
        cells = [row[name] for row in rows if row.get(name) and not isinstance(row.get(columns.texts[0]), list)]
        return replace(columns, spans=any(map(is_span_cell, cells)))

    def examples(self, rows: Iterable[tuple[str, Row]], columns: Columns, report: ReadReport) -> list[Example]:
        if not columns.spans or not columns.labels:
            return super().examples(rows, columns, report)
        report.notes.append(format_remark(f"spans in column {columns.labels[0]!r}", f" {columns.labels[0]!r} 列的片段"))
        annotated = []
        for place, row in rows:
            if row.get("answer") in UNANSWERED:
                report.malformed_row(f"answer: {row['answer']}", place, "not-accepted")
                continue
            try:
                text = text_cell(row, columns.texts[0])
                check_readable([text])
                spans = parse_spans(row.get(columns.labels[0]), text)
                if spans is None and row.get("answer") == ACCEPTED:
                    spans = []
                tokens = token_ranges(row.get("tokens"))
                annotated.append(AnnotatedText(text, spans, place, str(row.get("id", "")), tokens=tokens))
            except InvalidRow as error:
                report.bad_row(error.cause, place, error.code)
        return tagged_examples(annotated, report, self.words)

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
        if path.is_dir():
            return FormatReader(partial(read_brat, words=self.words), self)
        if is_table(path):
            read_tasks = partial(read_label_studio, words=self.words)
            return FormatReader(read_tasks, self) if is_label_studio(path) else None
        if label is not None and not label.isdecimal():
            cause = f"--label {label}: the columns of this file have no names"
            remedy = "give the number of the tag column, from 1"
            raise BadText(cause, place=str(path), remedy=remedy, code="no-named-columns")
        return FormatReader(read_conll if label is None else partial(read_conll, column=int(label)), self)

    def input_reader(self, path: Path, labels: Sequence[str]) -> ExampleReader | None:
        """CoNLL files are recognised by their content, since a name such as test.txt tells nothing."""
        if is_table(path):
            return None
        lines = [line for _, line in islice(read_lines(path, ReadReport()), SAMPLED_ROWS)]
        is_conll = inner_suffix(path) in CONLL_SUFFIXES or looks_like_conll(lines, labels)
        return FormatReader(read_conll, self) if is_conll else None

    def expects(self, pairs: bool | None) -> str:
        return self.input_help

    def parse(self, value: object, pairs: bool | None) -> Example | None:
        if isinstance(value, str):
            starts_and_words = self.split(value)
            if not starts_and_words:
                return None
            starts, words = zip(*starts_and_words, strict=True)
            return Example(words, source_text=value, word_starts=starts)
        listed = as_strings(value)
        return Example(listed) if listed else None

    def from_cell(self, example: Example, row: Row, columns: Columns, *, as_trained: bool) -> Example:
        """A cell with plain text is split into words like a line of a text file."""
        (name,) = columns.texts
        value = row[name]
        are_words = as_trained and not self.trained_on_texts
        if are_words or not isinstance(value, str) or isinstance(parse_list(value), list):
            return example
        parsed = self.parse(value, None)
        return example if parsed is None else replace(parsed, place=example.place, name=example.name)

    def input_remarks(self, *, as_trained: bool) -> list[Remark]:
        if as_trained and not self.trained_on_texts:
            return [Remark("words-between-spaces", "words are separated by spaces, as in training")]
        return [Remark("words-divided", "texts are split into words, lists are used as they are")]

    def input_columns(self, pairs: bool | None) -> tuple[str, ...]:
        return ("text",)

    def as_row(self, example: Example, pairs: bool | None) -> Row:
        text = example.source_text or " ".join(example.texts)
        return {**id_cell(example), "text": text}

    def labels(self, train: Sequence[Example], dev: Sequence[Example]) -> set[str]:
        """Tags of dev too, if entities of their type are in train: S-LOC, where train has only longer ones."""
        labels = super().labels(train, dev)
        if not metrics.has_entity_tags(labels):
            return labels
        types = _entity_types(labels)
        in_dev = {label for example in dev for label in example.labels}
        return labels | {label for label in in_dev if _entity_types([label]) & types}

    def shown_labels(self, example: Example, labels: Set[str]) -> tuple[str, ...]:
        """The types of its entities, if they have any: tags such as B-LOC may be ours, where users labelled spans."""
        if not metrics.has_entity_tags(labels) or _entity_types(labels) == {""}:
            return example.labels
        return tuple(entity_type for entity_type, _, _ in metrics.entities(example.labels))

    def to_tag_scheme(self, example: Example, labels: Set[str]) -> Example:
        """Entities whose tags are not among the labels are written in the scheme that these have."""
        if example.answer is None or labels >= set(example.answer):
            return example
        scheme = _tag_scheme(labels)
        types = _entity_types(labels)
        tags = list(example.answer)
        for entity_type, first, last in metrics.entities(tags):
            if entity_type in types and not labels >= set(tags[first : last + 1]):
                tags[first : last + 1] = entity_tags(entity_type, last + 1 - first, scheme)
        return replace(example, answer=tuple(tags))

    def check_learnable(
        self, train: Sequence[Example], labels: Set[str], n_rows: int, *, place: str | None, max_rows: int | None
    ) -> None:
        if all(len(example.texts) == 1 for example in train):
            remedy = (
                "in a table, a row is a sentence; "
                "one word per line is CoNLL's format, which has a blank line after each sentence"
            )
            raise BadText("every sentence has a single word", place=place, remedy=remedy, code="one-word-sentences")
        if len(labels) < 2:
            raise one_label_error(labels, n_rows, place=place, max_rows=max_rows)


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
    def describe(cls, data: TaskData, labels: tuple[str, ...]) -> dict[str, object]:
        has_entities = metrics.has_entity_tags(labels)
        return {"transitions": observed_transitions(example.labels for example in data.train) if has_entities else ()}

    def learned(self, train: Sequence[Example]) -> dict[str, object]:
        return {"words": learn_words(train)}

    def restore(self, artifact: TaskArtifact) -> None:
        super().restore(artifact)
        if artifact.words is not None:
            self.schema = TagSchema(artifact.words)

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
            raise BadText("the tokenizer finds no token in a sentence", place=example.place, code="no-tokens")
        lengths = np.array([len(word) for word in example.texts])
        starts = np.cumsum(lengths + 1) - lengths - 1
        # The first token that ends after the word's first character; a word without a token of its own is tagged by the
        # next one.
        first_tokens = np.minimum(np.searchsorted(offsets[:, 1], starts, side="right"), len(ids) - 1)
        targets = np.array([self.labels.index(tag) for tag in example.answer or ()] or [-1] * len(starts), np.int64)
        ranges = windows.ranges((len(ids),), example.place)
        window_of = most_context_window(first_tokens, ranges, len(ids))
        example_windows = []
        for i, window_range in enumerate(ranges):
            window_ids, segments, (offset,) = windows.with_special_tokens((ids,), window_range)
            words = np.flatnonzero(window_of == i)
            positions = first_tokens[words] - window_range.texts[0][0] + offset
            example_windows.append(Window(window_ids, segments, positions, origins=words, targets=targets[words]))
        tokens = sum(windows.count((ids,), ranges), TokenCounts())
        return Features(tuple(example_windows), tokens, windows.capacity(1))

    def counts(self, batch: TaskBatch) -> dict[str, int]:
        return {"tag": len(batch.positions), "tag_accuracy": len(batch.positions)}

    def loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        targets = self.tensor(batch.targets)
        smoothing = self.label_smoothing if self.training else 0.0
        total = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
        return Term("tag", total), accuracy("tag", (logits.detach().argmax(1) == targets).sum())

    def decode(self, outputs: Outputs, features: Features, example: Example) -> TagPrediction:
        words = _word_order(features)
        order = np.argsort(words)
        words = words[order]
        logits = self.class_logits(outputs, features)[order]
        probabilities = self.probabilities(outputs, features)[order]
        predicted = logits.argmax(1)
        if self.viterbi is not None:
            predicted = self.viterbi.decode(logits)
            probabilities = self.viterbi.marginals(probabilities)
        tags: list[str | None] = [None] * len(example.texts)  # words that were cut off have none
        confidences = np.zeros(len(tags))
        confidences[words] = probabilities[np.arange(len(words)), predicted]
        for word, label in zip(words.tolist(), predicted.tolist(), strict=True):
            tags[word] = self.labels[label]
        entities = [
            entity_of(example, entity_type, first, last, float(confidences[first : last + 1].min()))
            for entity_type, first, last in metrics.entities(_none_as_outside(tags))
        ]
        prediction = EntityPrediction if self.marks_entities else TagPrediction
        return prediction(list(example.texts), tags, confidences.tolist(), entities)

    def class_logits(self, outputs: Outputs, features: Features) -> Array:
        rows: Array = np.concatenate(outputs).astype(np.float64)
        return rows

    def example_logits(self, outputs: Outputs, features: Features) -> Array:
        """Of each word, (words, C), in their order; words that were cut off are not there."""
        return self.class_logits(outputs, features)[np.argsort(_word_order(features))]

    def targets(self, features: Features) -> Numbers:
        return np.concatenate([window.targets for window in features.windows])

    def baseline(self, train: Sequence[Example]) -> Callable[[Features], Outputs]:
        tags = np.array([self.labels.index(tag) for example in train for tag in example.labels])
        return constant_outputs(log_frequencies(tags, len(self.labels)))

    def score(self, prediction: TagPrediction, answer: tuple[str, ...], texts: tuple[str, ...]) -> Score:
        """The severity is the confidence of the most confident wrong tag; the entities that differ are displayed, or
        the words, if entities are the same or tags do not mark any."""
        expected_tags = _none_as_outside(answer)
        predicted_tags = _none_as_outside(prediction.tags)
        wrong_confidences = [
            confidence
            for expected, predicted, confidence in zip(
                expected_tags, predicted_tags, prediction.confidences, strict=True
            )
            if expected != predicted
        ]
        expected_words = _words_as_entities(expected_tags)
        predicted_words = _words_as_entities(predicted_tags)
        expected_items = metrics.entities(expected_tags) if self.marks_entities else expected_words
        predicted_items = metrics.entities(predicted_tags) if self.marks_entities else predicted_words
        is_same = expected_items == predicted_items
        expected_shown = expected_words if is_same else expected_items
        predicted_shown = predicted_words if is_same else predicted_items
        return Score(
            values=metrics.entity_counts(expected_tags, predicted_tags),
            is_wrong=bool(wrong_confidences),
            severity=max(wrong_confidences, default=0.0),
            expected=_format_entities(texts, [entity for entity in expected_shown if entity not in predicted_shown]),
            predicted=_format_entities(texts, [entity for entity in predicted_shown if entity not in expected_shown]),
            confidences=tuple(
                (confidence, tag == expected)
                for confidence, tag, expected in zip(
                    prediction.confidences, prediction.tags, expected_tags, strict=True
                )
                if tag is not None
            ),
            expected_items=frozenset((entity_type, (first, last)) for entity_type, first, last in expected_items),
            predicted_items=frozenset((entity_type, (first, last)) for entity_type, first, last in predicted_items),
        )

    def metric_values(self, scores: Floats) -> MetricValues:
        values = metrics.entity_metrics(scores)
        return values if self.marks_entities else {"tag_accuracy": values["tag_accuracy"]}

    def shown_texts(self, example: Example) -> tuple[str, ...]:
        return (" ".join(example.texts),)


def _cell(items: list[str]) -> str:
    """Separated by spaces; as JSON, where that would be read as other items."""
    text = " ".join(items)
    return text if text.split() == items and parse_list(text) == text else json.dumps(items, ensure_ascii=False)


def _entity_types(labels: Iterable[str]) -> set[str]:
    """The types of the entities that these tags mark with a prefix."""
    matches = (metrics.TAG.fullmatch(label) for label in labels)
    return {match[2] or "" for match in matches if match and match[1] != OUTSIDE}


def _tag_scheme(labels: Iterable[str]) -> str:
    prefixes = {label[0] for label in labels if metrics.TAG.fullmatch(label)}
    marks = {BMES: {"M"}, BILOU: {"L", "U"}, BIOES: {"E", "S"}}
    return next((scheme for scheme, marking in marks.items() if prefixes & marking), BIO)


def entity_of(example: Example, entity_type: str, first: int, last: int, confidence: float) -> Entity:
    """The entity from word `first` to word `last`."""
    if not example.word_starts:
        return Entity(entity_type, " ".join(example.texts[first : last + 1]), first, last, confidence)
    start = example.word_starts[first]
    end = example.word_starts[last] + len(example.texts[last])
    return Entity(entity_type, example.source_text[start:end], first, last, confidence, start, end)


def _word_order(features: Features) -> Numbers:
    """The word of each row of logits."""
    return np.concatenate([window.origins for window in features.windows])


def _none_as_outside(tags: Sequence[str | None]) -> list[str]:
    return [OUTSIDE if tag is None else str(tag) for tag in tags]


def _words_as_entities(tags: Sequence[str]) -> list[EntityRange]:
    """Each word as an entity of its own, whose type is its tag."""
    return [(tag, i, i) for i, tag in enumerate(tags)]


def _format_entities(words: Sequence[str], entities: Sequence[EntityRange]) -> str:
    texts = (f"{' '.join(words[first : last + 1])} ({entity_type})" for entity_type, first, last in entities)
    return ", ".join(texts) or "–"


def most_context_window(tokens: Numbers, ranges: Sequence[WindowRanges], length: int) -> Numbers:
    """For each of these tokens of a text the window with the most context on its shorter side; -1: in no window.
    `length`: tokens of the text."""
    begins, ends = np.array([window_range.texts[0] for window_range in ranges]).T
    left = np.where(begins == 0, length, tokens[:, None] - begins)  # the ends of the text do not limit the context
    right = np.where(ends == length, length, ends - 1 - tokens[:, None])
    context = np.minimum(left, right)
    return np.where(context.max(1) >= 0, context.argmax(1), -1)
