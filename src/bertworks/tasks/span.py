"""An answer that is a part of a passage (Devlin et al. 2019, sections 4.2 and 4.3).

The passage is read in windows, each behind the question. Every window has a position that means "no answer here", its
[CLS], or its end where a token sees only what is before it; in a window without the answer that is the right one. The
best span of all windows is the answer, unless the best "no answer" is better by `no_answer`.

    R  tokens of a window that the head reads: "no answer", then the passage
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

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
    ErrorTable,
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

MAX_ANSWER_TOKENS = 64  # windows share as many, so that an answer is whole in one of them
CONTEXT_NAMES = ("context", "passage", "paragraph", "document", "text")
QUESTION_NAMES = ("question", "query", "prompt")
START_NAMES = ("answer_start", "start")


@dataclass(frozen=True)
class SpanPrediction(Prediction):
    answer: str | None  # "": the passage does not say; None: not confident enough
    start: int  # character of the passage; -1 without an answer
    confidence: float  # of its first and its last token
    score: float  # logits of first and last token
    no_answer_score: float  # the same of "no answer"
    best_span: str = ""  # whether it is the answer or not

    @property
    def margin(self) -> float:
        """By how much "no answer" is better."""
        return self.no_answer_score - self.score

    @property
    def abstained(self) -> bool:
        return self.answer is None

    def abstain_below(self, confidence: float) -> SpanPrediction:
        return self if self.confidence >= confidence else replace(self, answer=None, start=-1)

    def cells(self) -> dict[str, Any]:
        # An empty cell is an answer: the passage does not say.
        return {
            "answer": "?" if self.answer is None else self.answer,
            "start": self.start,
            "confidence": self.confidence,
        }


class SpanSchema(Schema):
    """A question and a passage; all right answers."""

    shape = "span"
    column_options = ("question", "context", "label")
    label_names = ("answers", "answer")
    table_help = (
        ("span", "question, context, answer [, answer_start]; or SQuAD", "Who sleeps?, A man sleeps., A man"),
    )
    input_help = "a question and a passage"

    def text_columns(self, table: TableSample, named: NamedColumns, *, paired: bool) -> tuple[str, ...]:
        context = named.context or table.require(CONTEXT_NAMES, "the passage", "context")
        rest = table.without([context])
        return named.question or rest.require(
            (*QUESTION_NAMES, *SECOND_TEXT_NAMES), "the question", "question"
        ), context

    def named_columns(self, columns: Columns) -> NamedColumns:
        question, context = columns.texts
        return NamedColumns(question=question, context=context, label=columns.labels)

    def legacy_named_columns(self, text: str | None, pair: Sequence[str], label: str | None) -> NamedColumns:
        return NamedColumns(context=text, question=single_pair_column(pair), label=(label,) if label else ())

    def answer(self, row: Row, texts: tuple[str, ...], columns: Columns) -> tuple[Span, ...]:
        """A text to be found in the passage, or the lists of texts and starts that SQuAD has; nothing: there is no
        answer."""
        value, passage = row[columns.labels[0]], texts[1]
        start = next((row[name] for name in START_NAMES if name in row), None)
        if isinstance(value, str) and value and start not in (None, ""):
            try:
                value = {"text": [value], "answer_start": [int(start)]}
            except (TypeError, ValueError):
                raise InvalidRow(f"the answer starts at {start!r}, which is not a number", "bad-answer-start") from None
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
            raise InvalidRow("an answer that is no text", "bad-answer")
        return (_find(value, passage),) if value else ()

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
        self, train: Sequence[Example], labels: Set[str], n_rows: int, *, place: str | None, first: int | None
    ) -> None:
        if not any(example.answer for example in train):
            remedy = f"{NOTHING_TO_LEARN}; is it the right column?"
            raise BadText("no question has an answer", place=place, remedy=remedy, code="no-answers")

    def data_remarks(self, train: Sequence[Example], dev: Sequence[Example], labels: Set[str]) -> list[Remark]:
        """Whether a model learns that some questions have no answer."""
        n_train, n_dev = (sum(example.answer == () for example in examples) for examples in (train, dev))
        if n_dev and not n_train:
            cause = f"{n_dev:,} of {len(dev):,} questions of dev have no answer, and none of train"
            return [Remark("unanswered-in-dev", f"{cause}: the model learns to answer always, and is wrong there")]
        text = f"{n_train:,} of {len(train):,} questions have no answer: the model learns to say so"
        return [Remark("unanswered", text)] if n_train else []

    def groups(self, examples: Sequence[Example]) -> Iterator[tuple[list[Hashable], float]]:
        yield from super().groups(examples)
        yield [example.texts[1] for example in examples], 2


def _find(answer: str, passage: str) -> Span:
    """Where it stands as words of its own, or else at all. What is written without spaces has no such ends."""
    before, behind = ("" if re.match(f"[{CJK}]", end) else r"\w" for end in (answer[0], answer[-1]))
    words = re.search(
        (f"(?<!{before})" if before else "") + re.escape(answer) + (f"(?!{behind})" if behind else ""), passage
    )
    start = words.start() if words else passage.find(answer)
    if start < 0:
        raise InvalidRow(f"the answer {answer[:60]!r} is not in the passage", "answer-not-in-passage")
    return Span(start, answer)


class TokenSpan(NamedTuple):
    """Of a window: its first and last token among those that the head reads, and the sum of their logits."""

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
    errors = ErrorTable(severity=("confidence x error", "置信度×错误程度"))

    def __init__(self, model: Model, config: TaskConfig) -> None:
        super().__init__(model, config)
        self.no_answer = 0.0 if config.no_answer else inf  # how much better "no answer" must be than the best span

    @classmethod
    def describe(cls, data: TaskData, labels: tuple[str, ...]) -> dict[str, Any]:
        return {"no_answer": any(example.answer == () for example in data.train)}

    def restore(self, artifact: TaskArtifact) -> None:
        super().restore(artifact)
        if self.no_answer != inf:
            self.no_answer = artifact.no_answer

    def features(self, examples: Sequence[Example], windows: SlidingWindows) -> list[Features]:
        windows = windows.with_overlap(MAX_ANSWER_TOKENS, final_token=self._is_causal)
        questions = windows.tokenizer.encode([example.texts[0] for example in examples])
        passages = list(dict.fromkeys(example.texts[1] for example in examples))  # one passage has many questions
        encodings = windows.tokenizer.encodings(passages)
        known = {
            text: (np.array(e.ids, np.int64), np.array(e.offsets).reshape(-1, 2))
            for text, e in zip(passages, encodings, strict=True)
        }
        return [
            self._features(example, question.astype(np.int64), *known[example.texts[1]], windows)
            for example, question in zip(examples, questions, strict=True)
        ]

    def _features(
        self, example: Example, question: Numbers, passage: Numbers, offsets: Numbers, windows: SlidingWindows
    ) -> Features:
        if not len(question) or not len(passage):
            raise BadText(
                "the tokenizer has no token for any of a question or a passage", place=example.place, code="no-tokens"
            )
        ranges, made = windows.ranges((len(question), len(passage)), example.place), []
        answer = _answer_tokens(example.answer, offsets)
        for one in ranges:
            ids, segments, (_, start) = windows.with_special_tokens((question, passage), one)
            begin, end = one.texts[1]
            no_answer = len(ids) - 1 if self._is_causal else _cls_position(ids, windows)
            positions = np.concatenate([[no_answer], np.arange(start, start + end - begin)])
            origins = np.concatenate([[[-1, -1]], offsets[begin:end]])
            made.append(Window(ids, segments, positions, origins, _targets(answer, one)))
        tokens = sum(windows.count((question, passage), ranges), TokenCounts())
        return Features(tuple(made), tokens, windows.capacity(2))

    @property
    def _is_causal(self) -> bool:
        return self.model.config.encoder.causal

    def counts(self, batch: TaskBatch) -> dict[str, int]:
        n = len(batch.lengths)
        return {"start": n, "end": n, "span_accuracy": n}

    def loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        rows = pad_rows(logits, batch.n_positions)
        targets = self.tensor(batch.targets.reshape(-1, 2))
        start, end = (F.cross_entropy(rows[:, :, at], targets[:, at], reduction="sum") for at in (0, 1))
        n_right = (rows.detach().argmax(1) == targets).all(1).sum()
        return Term("start", start, 0.5), Term("end", end, 0.5), accuracy("span", n_right)

    def decode(self, outputs: Outputs, features: Features, example: Example) -> SpanPrediction:
        best, no_answer, is_silent = self._best(outputs)
        origins = features.windows[best.window].origins
        start, end = int(origins[best.first, 0]), int(origins[best.last, 1])
        text = example.texts[1][start:end]
        best_text, start = text.strip(), start + len(text) - len(text.lstrip())
        predicted = no_answer if is_silent else best
        ends = softmax(outputs[predicted.window].astype(np.float64) / self.temperature, axis=0)
        confidence = float(ends[predicted.first, 0] * ends[predicted.last, 1])
        answer, start = ("", -1) if is_silent else (best_text, start)
        return SpanPrediction(answer, start, confidence, best.score, no_answer.score, best_text)

    def _best(self, outputs: Outputs) -> tuple[TokenSpan, TokenSpan, bool]:
        """Of all windows the best span, and "no answer" where it is least likely; and whether that is what is
        predicted."""
        best = max((best_span(table, at) for at, table in enumerate(outputs)), key=lambda span: span.score)
        no_answer = min(
            (TokenSpan(at, 0, 0, float(table[0].sum())) for at, table in enumerate(outputs)),
            key=lambda span: span.score,
        )
        return best, no_answer, no_answer.score - best.score > self.no_answer

    def tune(
        self, outputs: Sequence[Outputs], features: Sequence[Features], examples: Sequence[Example]
    ) -> dict[str, float]:
        """From where on a model that may be silent is best silent."""
        if self.no_answer == inf:
            return {}
        self.no_answer = self.best_threshold(self.decode_all(outputs, features, examples), examples)
        return {"no_answer": self.no_answer}

    def best_threshold(self, predictions: Sequence[SpanPrediction], examples: Sequence[Example]) -> float:
        """How much better "no answer" must be for most F1: tried between any two margins that occur."""
        answered = [replace(one, answer=one.best_span) for one in predictions]
        answered_f1 = score_table(self.scores(answered, examples))[:, 0]
        silent_f1 = np.array([float(not example.answer) for example in examples])
        margins = np.array([one.margin for one in predictions])
        order = np.argsort(margins)
        # The first k by margin are answered, the others are silent.
        first_answered = np.concatenate([[0.0], np.cumsum(answered_f1[order])])
        rest_silent = np.concatenate([np.cumsum(silent_f1[order][::-1])[::-1], [0.0]])
        edges = np.concatenate(
            [[margins[order[0]] - 1], (margins[order][1:] + margins[order][:-1]) / 2, [margins[order[-1]] + 1]]
        )
        return float(edges[int((first_answered + rest_silent).argmax())])

    def calibration_loss(
        self,
        outputs: Sequence[Outputs],
        predictions: Sequence[SpanPrediction],
        features: Sequence[Features],
        examples: Sequence[Example],
    ) -> CalibrationLoss:
        """How unlikely it makes that just the answers which are exact are so: first and last token of several spans may
        be right."""
        predicted = [no_answer if is_silent else best for best, no_answer, is_silent in map(self._best, outputs)]
        tables = [
            softmax(windows[one.window].astype(np.float64), axis=0)
            for windows, one in zip(outputs, predicted, strict=True)
        ]
        places = np.array([[one.first, one.last] for one in predicted])
        parts = [(pad_columns([table[None, :, end] for table in tables]), places[:, end]) for end in (0, 1)]
        return answer_calibration_loss(parts, score_table(self.scores(predictions, examples))[:, 1] > 0)

    def score(self, prediction: SpanPrediction, answer: tuple[Span, ...], texts: tuple[str, ...]) -> Score:
        right = [span.text for span in answer]
        f1, exact = metrics.answer_scores(right, prediction.answer or "")
        return Score(
            values=(f1, exact),
            is_wrong=not exact,
            severity=(1 - f1) * prediction.confidence,
            expected=" / ".join(dict.fromkeys(right)) or "–",
            predicted=prediction.answer or "–",
            confidences=((prediction.confidence, bool(exact)),),
        )

    def metric_values(self, scores: Floats) -> MetricValues:
        return {"f1": float(scores[:, 0].mean()), "exact": float(scores[:, 1].mean())}


def best_span(table: Array, window: int = 0) -> TokenSpan:
    """By the logits of first and last token, (R, 2)."""
    size = len(table) - 1
    sums = table[1:, 0, None] + table[None, 1:, 1]
    ahead = np.arange(size)[None, :] - np.arange(size)[:, None]
    sums = np.where((ahead >= 0) & (ahead < MAX_ANSWER_TOKENS), sums, -np.inf)
    first, last = divmod(int(sums.argmax()), size)
    return TokenSpan(window, 1 + first, 1 + last, float(sums[first, last]))


def _answer_tokens(answer: tuple[Span, ...] | None, offsets: Numbers) -> tuple[int, int] | None:
    """The first and last token of the first right answer; None: there is none."""
    if not answer:
        return None
    first = int(np.searchsorted(offsets[:, 1], answer[0].start, side="right"))
    last = int(np.searchsorted(offsets[:, 0], answer[0].end, side="left")) - 1
    return (first, last) if first <= last < len(offsets) else None


def _targets(answer: tuple[int, int] | None, ranges: WindowRanges) -> Numbers:
    """Which of the tokens that are read are the answer's first and last; 0, "no answer", for windows that do not hold
    all of it."""
    begin, end = ranges.texts[1]
    if answer is None or answer[0] < begin or answer[1] >= end:
        return np.zeros(2, np.int64)
    return np.array([1 + answer[0] - begin, 1 + answer[1] - begin])


def _cls_position(ids: Numbers, windows: SlidingWindows) -> int:
    if "cls" not in windows.tokenizer.special:
        return 0
    found = np.flatnonzero(ids == windows.tokenizer.id_of("cls"))
    return int(found[0]) if len(found) else 0
