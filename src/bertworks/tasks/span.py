"""Extractive question answering (Devlin et al. 2019, sections 4.2 and 4.3): the answer is a part of a passage.

The passage is read in windows, each after the question. In each window one position stands for "no answer here": [CLS],
or the last token of a causal model. It is the target in windows without the answer. The best span of all windows is
predicted, unless the score of "no answer" exceeds its score by more than the threshold `no_answer`.

    R  tokens of a window that the head reads: "no answer", then the passage
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from bertworks.config import TaskArtifact, TaskConfig
from bertworks.data.tables import Row
from bertworks.datasets.checks import TaskData
from bertworks.datasets.columns import Columns, NamedColumns, TableSample
from bertworks.datasets.example import Example, InvalidRow, Span
from bertworks.datasets.readers import FormatReader, check_span, is_squad, listed_spans, read_squad
from bertworks.datasets.schema import NOTHING_TO_LEARN, SECOND_TEXT_NAMES, ExampleReader, Schema, single_pair_column
from bertworks.errors import BadText, Remark
from bertworks.measure import metrics
from bertworks.measure.calibration import CalibrationLoss, answer_calibration_loss
from bertworks.measure.metrics import Floats, MetricValues
from bertworks.model.loss import Loss, Term, accuracy
from bertworks.model.model import Model
from bertworks.tasks.features import Array, Features, Numbers, TaskBatch, TokenCounts, Window
from bertworks.tasks.task import (
    ErrorTableFormat,
    Outputs,
    Prediction,
    Score,
    Task,
    pad_columns,
    pad_rows,
    score_table,
    softmax,
)
from bertworks.tasks.windows import SlidingWindows, WindowRanges
from bertworks.text.words import CJK

MAX_ANSWER_TOKENS = 64  # also the overlap of windows, so that each answer is in one of them completely
CONTEXT_NAMES = ("context", "passage", "paragraph", "document", "text")
QUESTION_NAMES = ("question", "query", "prompt")
START_NAMES = ("answer_start", "start")


@dataclass(frozen=True)
class SpanPrediction(Prediction):
    answer: str | None  # "": the passage has no answer; None: not confident enough
    start: int  # character in the passage; -1 without an answer
    confidence: float  # product over the first and the last token
    score: float  # of the best span: the sum of the logits of its first and last token
    no_answer_score: float  # the same for "no answer"
    best_span: str = ""  # even where "no answer" is predicted

    @property
    def margin(self) -> float:
        """By how much the score of "no answer" exceeds that of the best span."""
        return self.no_answer_score - self.score

    @property
    def abstained(self) -> bool:
        return self.answer is None

    def abstain_below(self, confidence: float) -> SpanPrediction:
        return self if self.confidence >= confidence else replace(self, answer=None, start=-1)

    def cells(self) -> dict[str, object]:
        # An empty cell means that the passage has no answer.
        return {
            "answer": "?" if self.answer is None else self.answer,
            "start": self.start,
            "confidence": self.confidence,
        }


class SpanSchema(Schema):
    """A question and a passage; the answer is a tuple of all correct spans."""

    shape = "span"
    synonyms = ("qa", "question-answering", "reading-comprehension")
    column_options = ("question", "context", "label")
    label_names = ("answers", "answer")
    table_help = (
        ("span", "question, context, answer [, answer_start]; or SQuAD", "Who sleeps?, A man sleeps., A man"),
    )
    input_help = "a question and a passage"

    def text_columns(self, table: TableSample, named: NamedColumns, *, paired: bool) -> tuple[str, ...]:
        context = named.context or table.require(CONTEXT_NAMES, "the passage", "context")
        candidates = table.without([context])
        return named.question or candidates.require(
            (*QUESTION_NAMES, *SECOND_TEXT_NAMES), "the question", "question"
        ), context

    def named_columns(self, columns: Columns) -> NamedColumns:
        question, context = columns.texts
        return NamedColumns(question=question, context=context, label=columns.labels)

    def legacy_named_columns(self, text: str | None, pair: Sequence[str], label: str | None) -> NamedColumns:
        return NamedColumns(context=text, question=single_pair_column(pair), label=(label,) if label else ())

    def answer(self, row: Row, texts: tuple[str, ...], columns: Columns) -> tuple[Span, ...]:
        """From a text that is in the passage, or from lists of texts and starts as in SQuAD; empty: no answer."""
        value = row[columns.labels[0]]
        passage = texts[1]
        start = next((row[name] for name in START_NAMES if name in row), None)
        if isinstance(value, str) and value and start not in (None, ""):
            try:
                value = {"text": [value], "answer_start": [int(start)]}
            except (TypeError, ValueError):
                raise InvalidRow(f"the start {start!r} of the answer is not a number", "bad-answer-start") from None
        if (
            isinstance(value, dict)
            and isinstance(value.get("text"), list)
            and isinstance(value.get("answer_start"), list)
        ):
            spans = listed_spans(value["answer_start"], value["text"])
            for span in spans:
                check_span(span, passage)
            return tuple(spans)
        if value is not None and not isinstance(value, str):
            raise InvalidRow("the answer is not a text", "bad-answer")
        return (_locate(value, passage),) if value else ()

    def file_reader(self, path: Path, label: str | None) -> ExampleReader | None:
        return FormatReader(read_squad, self) if is_squad(path) else None

    def input_reader(self, path: Path, labels: Sequence[str]) -> ExampleReader | None:
        return self.file_reader(path, None)

    def n_texts(self, pairs: bool | None) -> tuple[int, ...]:
        return (2,)

    def expects(self, pairs: bool | None) -> str:
        return self.input_help

    def input_columns(self, pairs: bool | None) -> tuple[str, ...]:
        return "question", "context"

    def check_learnable(
        self, train: Sequence[Example], labels: Set[str], n_rows: int, *, place: str | None, max_rows: int | None
    ) -> None:
        if not any(example.answer for example in train):
            remedy = f"{NOTHING_TO_LEARN}; is it the right column?"
            raise BadText("no question has an answer", place=place, remedy=remedy, code="no-answers")

    def data_remarks(self, train: Sequence[Example], dev: Sequence[Example], labels: Set[str]) -> list[Remark]:
        """A remark on unanswerable questions."""
        n_train, n_dev = (sum(example.answer == () for example in examples) for examples in (train, dev))
        if n_dev and not n_train:
            cause = f"{n_dev:,} of {len(dev):,} questions of dev have no answer, but none of train"
            text = f"{cause}: the model always answers, and is wrong on these"
            chinese = f"开发集 {len(dev):,} 个问题中有 {n_dev:,} 个无答案，训练集则没有：模型总会作答，这些必错"
            return [Remark("unanswered-in-dev", text, chinese)]
        text = f"{n_train:,} of {len(train):,} questions have no answer: the model learns to predict that"
        chinese = f"{len(train):,} 个问题中有 {n_train:,} 个无答案：模型会学习判断何时不作答"
        return [Remark("unanswered", text, chinese)] if n_train else []

    def groups(self, examples: Sequence[Example]) -> Iterator[tuple[list[Hashable], float]]:
        yield from super().groups(examples)
        yield [example.texts[1] for example in examples], 2


def _locate(answer: str, passage: str) -> Span:
    """The first occurrence at word boundaries, else the first of all. There are no boundaries at CJK characters."""
    before = "" if re.match(f"[{CJK}]", answer[0]) else r"(?<!\w)"
    after = "" if re.match(f"[{CJK}]", answer[-1]) else r"(?!\w)"
    match = re.search(before + re.escape(answer) + after, passage)
    start = match.start() if match else passage.find(answer)
    if start < 0:
        raise InvalidRow(f"the answer {answer[:60]!r} is not in the passage", "answer-not-in-passage")
    return Span(start, answer)


class TokenSpan(NamedTuple):
    """A span in a window: first and last token among those that the head reads, and the sum of their logits."""

    window: int
    first: int
    last: int
    score: float


class SpanTask(Task[tuple[Span, ...], SpanPrediction]):
    schema = SpanSchema()
    terms = {
        "start": ("first token of the answer", "答案首词元"),
        "end": ("last token of the answer", "答案末词元"),
        "span": ("answers", "答案"),
    }
    head = "span"
    metrics = (metrics.F1, metrics.EXACT)
    options = frozenset({"no_answer"})
    confidence_of = (" in an answer, right if it is exact,", "（回答，完全匹配才算正确）")
    errors = ErrorTableFormat(severity=("confidence x error", "置信度×错误程度"))

    def __init__(self, model: Model, config: TaskConfig) -> None:
        super().__init__(model, config)
        self.no_answer = 0.0 if config.no_answer else inf  # threshold of the margin; inf: always answer

    @classmethod
    def describe(cls, data: TaskData, labels: tuple[str, ...]) -> dict[str, object]:
        return {"no_answer": any(example.answer == () for example in data.train)}

    def restore(self, artifact: TaskArtifact) -> None:
        super().restore(artifact)
        if self.no_answer != inf:
            self.no_answer = artifact.no_answer

    def move_temperature_to_head(self, artifact: TaskArtifact) -> TaskArtifact:
        """The threshold is a difference of logits."""
        artifact = artifact.model_copy(update={"no_answer": artifact.no_answer / self.temperature})
        self.no_answer /= self.temperature
        return super().move_temperature_to_head(artifact)

    def features(self, examples: Sequence[Example], windows: SlidingWindows) -> list[Features]:
        windows = windows.with_overlap(MAX_ANSWER_TOKENS, final_token=self._is_causal)
        places = [example.place for example in examples]
        questions = windows.tokenizer.encode([example.texts[0] for example in examples], places)
        passages = list(dict.fromkeys(example.texts[1] for example in examples))  # a passage has many questions
        encodings = windows.tokenizer.encodings(passages)
        encoded = {
            passage: (np.array(encoding.ids, np.int64), np.array(encoding.offsets).reshape(-1, 2))
            for passage, encoding in zip(passages, encodings, strict=True)
        }
        return [
            self._features(example, question.astype(np.int64), *encoded[example.texts[1]], windows)
            for example, question in zip(examples, questions, strict=True)
        ]

    def _features(
        self, example: Example, question: Numbers, passage: Numbers, offsets: Numbers, windows: SlidingWindows
    ) -> Features:
        if not len(question) or not len(passage):
            cause = "the tokenizer finds no token in the question or the passage"
            raise BadText(cause, place=example.place, code="no-tokens")
        ranges = windows.ranges((len(question), len(passage)), example.place)
        answer = _answer_tokens(example.answer, offsets)
        example_windows = []
        for window_range in ranges:
            ids, segments, (_, start) = windows.with_special_tokens((question, passage), window_range)
            begin, end = window_range.texts[1]
            no_answer = len(ids) - 1 if self._is_causal else _cls_position(ids, windows)
            positions = np.concatenate([[no_answer], np.arange(start, start + end - begin)])
            origins = np.concatenate([[[-1, -1]], offsets[begin:end]])
            example_windows.append(Window(ids, segments, positions, origins, _targets(answer, window_range)))
        tokens = sum(windows.count((question, passage), ranges), TokenCounts())
        return Features(tuple(example_windows), tokens, windows.capacity(2))

    @property
    def _is_causal(self) -> bool:
        return self.model.config.encoder.causal

    def counts(self, batch: TaskBatch) -> dict[str, int]:
        n = len(batch.lengths)
        return {"start": n, "end": n, "span_accuracy": n}

    def loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        rows = pad_rows(logits, batch.n_positions)
        targets = self.tensor(batch.targets.reshape(-1, 2))
        start, end = (F.cross_entropy(rows[:, :, i], targets[:, i], reduction="sum") for i in (0, 1))
        n_correct = (rows.detach().argmax(1) == targets).all(1).sum()
        return Term("start", start, 0.5), Term("end", end, 0.5), accuracy("span", n_correct)

    def decode(self, outputs: Outputs, features: Features, example: Example) -> SpanPrediction:
        best, no_answer, is_unanswered = self._best(outputs)
        origins = features.windows[best.window].origins
        start = int(origins[best.first, 0])
        end = int(origins[best.last, 1])
        text = example.texts[1][start:end]
        best_text = text.strip()
        start += len(text) - len(text.lstrip())
        predicted = no_answer if is_unanswered else best
        probabilities = softmax(outputs[predicted.window].astype(np.float64) / self.temperature, axis=0)
        confidence = float(probabilities[predicted.first, 0] * probabilities[predicted.last, 1])
        answer, start = ("", -1) if is_unanswered else (best_text, start)
        return SpanPrediction(answer, start, confidence, best.score, no_answer.score, best_text)

    def _best(self, outputs: Outputs) -> tuple[TokenSpan, TokenSpan, bool]:
        """The best span of all windows, the "no answer" of the window where its score is lowest, and whether the latter
        is predicted."""
        best = max((best_span(logits, i) for i, logits in enumerate(outputs)), key=lambda span: span.score)
        no_answer = min(
            (TokenSpan(i, 0, 0, float(logits[0].sum())) for i, logits in enumerate(outputs)),
            key=lambda span: span.score,
        )
        return best, no_answer, no_answer.score - best.score > self.no_answer

    def tune(
        self, outputs: Sequence[Outputs], features: Sequence[Features], examples: Sequence[Example]
    ) -> dict[str, float]:
        """The threshold of "no answer"."""
        if self.no_answer == inf:
            return {}
        self.no_answer = self.best_threshold(self.decode_all(outputs, features, examples), examples)
        return {"no_answer": self.no_answer}

    def best_threshold(self, predictions: Sequence[SpanPrediction], examples: Sequence[Example]) -> float:
        """The threshold of the margin that maximises F1. Candidates are the midpoints between successive margins."""
        answered = [replace(prediction, answer=prediction.best_span) for prediction in predictions]
        answered_f1 = score_table(self.scores(answered, examples))[:, 0]
        unanswered_f1 = np.array([float(not example.answer) for example in examples])
        margins = np.array([prediction.margin for prediction in predictions])
        order = np.argsort(margins)
        # With the k-th candidate, the k examples of smallest margin are answered, the others are not.
        f1_of_answered = np.concatenate([[0.0], np.cumsum(answered_f1[order])])
        f1_of_unanswered = np.concatenate([np.cumsum(unanswered_f1[order][::-1])[::-1], [0.0]])
        candidates = np.concatenate(
            [[margins[order[0]] - 1], (margins[order][1:] + margins[order][:-1]) / 2, [margins[order[-1]] + 1]]
        )
        return float(candidates[int((f1_of_answered + f1_of_unanswered).argmax())])

    def calibration_loss(
        self,
        outputs: Sequence[Outputs],
        predictions: Sequence[SpanPrediction],
        features: Sequence[Features],
        examples: Sequence[Example],
    ) -> CalibrationLoss:
        """From whether each predicted answer is an exact match, not from its tokens: there may be several correct
        spans."""
        spans = [no_answer if is_unanswered else best for best, no_answer, is_unanswered in map(self._best, outputs)]
        probabilities = [
            softmax(example_outputs[span.window].astype(np.float64), axis=0)
            for example_outputs, span in zip(outputs, spans, strict=True)
        ]
        predicted = np.array([[span.first, span.last] for span in spans])
        parts = [(pad_columns([table[None, :, i] for table in probabilities]), predicted[:, i]) for i in (0, 1)]
        return answer_calibration_loss(parts, score_table(self.scores(predictions, examples))[:, 1] > 0)

    def example_logits(self, outputs: Outputs, features: Features) -> Array:
        """Of the first and the last token of the answer, (rows, 2). Each window has a row for "no answer", then one for
        each of its tokens of the passage; one window after the other."""
        rows: Array = np.concatenate(outputs).astype(np.float64)
        return rows

    def score(self, prediction: SpanPrediction, answer: tuple[Span, ...], texts: tuple[str, ...]) -> Score:
        expected = [span.text for span in answer]
        f1, exact = metrics.answer_scores(expected, prediction.answer or "")
        return Score(
            values=(f1, exact),
            is_wrong=not exact,
            severity=(1 - f1) * prediction.confidence,
            expected=" / ".join(dict.fromkeys(expected)) or "–",
            predicted=prediction.answer or "–",
            confidences=((prediction.confidence, bool(exact)),),
        )

    def metric_values(self, scores: Floats) -> MetricValues:
        return {"f1": float(scores[:, 0].mean()), "exact": float(scores[:, 1].mean())}


def best_span(logits: Array, window: int = 0) -> TokenSpan:
    """The best span of a window, from the logits of first and last tokens, (R, 2)."""
    size = len(logits) - 1
    sums = logits[1:, 0, None] + logits[None, 1:, 1]
    distance = np.arange(size)[None, :] - np.arange(size)[:, None]
    sums = np.where((distance >= 0) & (distance < MAX_ANSWER_TOKENS), sums, -np.inf)
    first, last = divmod(int(sums.argmax()), size)
    return TokenSpan(window, 1 + first, 1 + last, float(sums[first, last]))


def _answer_tokens(answer: tuple[Span, ...] | None, offsets: Numbers) -> tuple[int, int] | None:
    """The first and last token of the first correct answer; None: there is none."""
    if not answer:
        return None
    first = int(np.searchsorted(offsets[:, 1], answer[0].start, side="right"))
    last = int(np.searchsorted(offsets[:, 0], answer[0].end, side="left")) - 1
    return (first, last) if first <= last < len(offsets) else None


def _targets(answer: tuple[int, int] | None, ranges: WindowRanges) -> Numbers:
    """The first and last position of the answer among those that the head reads; 0, "no answer", for windows that do
    not contain it completely."""
    begin, end = ranges.texts[1]
    if answer is None or answer[0] < begin or answer[1] >= end:
        return np.zeros(2, np.int64)
    return np.array([1 + answer[0] - begin, 1 + answer[1] - begin])


def _cls_position(ids: Numbers, windows: SlidingWindows) -> int:
    if "cls" not in windows.tokenizer.special:
        return 0
    positions = np.flatnonzero(ids == windows.tokenizer.id_of("cls"))
    return int(positions[0]) if len(positions) else 0
