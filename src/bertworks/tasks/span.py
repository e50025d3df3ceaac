"""An answer that is a stretch of a passage (Devlin et al. 2019, sections 4.2 and 4.3).

The passage is read in windows, each after the question. Every window has a place that means "not here", its [CLS], or its end where a token
sees only what is before it; in a window without the answer that is the right one. The best stretch of all windows is the answer, unless the
best "not here" is better by `no_answer`.

    R  tokens of a window that may be read: "not here", then the passage
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from bertworks.errors import BadText
from bertworks.model.loss import Loss, Term
from bertworks.model.model import Model
from bertworks.tasks import metrics
from bertworks.tasks.calibration import Cost, cost_of_answers
from bertworks.tasks.example import Batch, Example, Features, Numbers, Span, TokenCounts, Values, Window
from bertworks.tasks.task import Outputs, Task, Verdict, padded, shares, widened
from bertworks.tasks.windows import Cut, Reader

LONGEST = 64  # tokens of an answer; windows share as many, so that it is whole in one of them


@dataclass(frozen=True)
class Answered:
    answer: str | None  # "": the passage does not say; None: not sure enough
    start: int  # character of the passage; -1 without an answer
    confidence: float  # of its first and its last token
    score: float  # logits of first and last token
    blank: float  # the same of "not here"
    best: str = ""  # the best stretch, whether it is the answer or not

    @property
    def margin(self) -> float:
        """By how much "not here" is better."""
        return self.blank - self.score

    @property
    def unsure(self) -> bool:
        return self.answer is None


class Stretch(NamedTuple):
    """Of a window: its first and last token among those read, and the sum of their logits."""

    window: int
    first: int
    last: int
    score: float


class SpanTask(Task):
    head = "span"

    def __init__(self, model: Model, *, no_answer: float = inf) -> None:
        """`no_answer`: how much better "not here" must be than the best stretch; infinity: there is always an answer."""
        super().__init__(model)
        self.no_answer = no_answer

    def features(self, examples: Sequence[Example], reader: Reader) -> list[Features]:
        reader = reader.sharing(LONGEST, closed=self.model.config.encoder.causal)
        questions = reader.tokenizer.encode([example.texts[0] for example in examples])
        passages = list(dict.fromkeys(example.texts[1] for example in examples))  # one passage has many questions
        encodings = reader.tokenizer.encodings(passages)
        known = {text: (np.array(e.ids, np.int64), np.array(e.offsets).reshape(-1, 2)) for text, e in zip(passages, encodings, strict=True)}
        return [
            self._features(example, question.astype(np.int64), *known[example.texts[1]], reader)
            for example, question in zip(examples, questions, strict=True)
        ]

    def _features(self, example: Example, question: Numbers, passage: Numbers, offsets: Numbers, reader: Reader) -> Features:
        if not len(question) or not len(passage):
            raise BadText("a question or a passage that is empty to this tokenizer", place=example.place, code="no-tokens")
        cuts, windows = reader.cut((len(question), len(passage)), example.place), []
        answer = _first_and_last(example, offsets)
        for cut in cuts:
            ids, segments, (_, start) = reader.frame((question, passage), cut)
            begin, end = cut.parts[1]
            blank = len(ids) - 1 if self.model.config.encoder.causal else _blank(ids, reader)
            read = np.concatenate([[blank], np.arange(start, start + end - begin)])
            about = np.concatenate([[[-1, -1]], offsets[begin:end]])
            windows.append(Window(ids, segments, read, about, _targets(answer, cut)))
        return Features(tuple(windows), sum(reader.count((question, passage), cuts), TokenCounts()))

    def counts(self, batch: Batch) -> dict[str, int]:
        n = len(batch.lengths)
        return {"start": n, "end": n, "span_accuracy": n}

    def loss(self, logits: Tensor, batch: Batch) -> Loss:
        rows = padded(logits, batch.n_read)
        targets = self.tensor(batch.targets.reshape(-1, 2))
        start, end = (F.cross_entropy(rows[:, :, at], targets[:, at], reduction="sum") for at in (0, 1))
        right = (rows.detach().argmax(1) == targets).all(1).sum()
        return Term("start", start, 0.5), Term("end", end, 0.5), Term("span_accuracy", right, 0.0)

    def decode(self, outputs: Outputs, features: Features, example: Example) -> Answered:
        best, blank, silent = self._best(outputs)
        about = features.windows[best.window].about
        start, end = int(about[best.first, 0]), int(about[best.last, 1])
        text = example.texts[1][start:end]
        stretch, start = text.strip(), start + len(text) - len(text.lstrip())
        said = blank if silent else best
        ends = shares(outputs[said.window].astype(np.float64) / self.temperature, axis=0)
        sure = float(ends[said.first, 0] * ends[said.last, 1])
        answer, start = ("", -1) if silent else (stretch, start)
        return Answered(answer, start, sure, best.score, blank.score, stretch)

    def _best(self, outputs: Outputs) -> tuple[Stretch, Stretch, bool]:
        """Of all windows the best stretch, and "not here" where it is least likely; and whether that is what is said."""
        best = max((best_stretch(table, at) for at, table in enumerate(outputs)), key=lambda one: one.score)
        blank = min((Stretch(at, 0, 0, float(table[0].sum())) for at, table in enumerate(outputs)), key=lambda one: one.score)
        return best, blank, blank.score - best.score > self.no_answer

    def cost(
        self, outputs: Sequence[Outputs], predictions: Sequence[Answered], features: Sequence[Features], examples: Sequence[Example]
    ) -> Cost:
        """How unlikely it makes that just the answers which are exact are so: first and last token of several stretches may be right."""
        said = [blank if silent else best for best, blank, silent in map(self._best, outputs)]
        tables = [shares(windows[one.window].astype(np.float64), axis=0) for windows, one in zip(outputs, said, strict=True)]
        places = np.array([[one.first, one.last] for one in said])
        parts = [(widened([table[None, :, end] for table in tables]), places[:, end]) for end in (0, 1)]
        right = np.array([self.sureness(*pair)[0][1] for pair in zip(predictions, examples, strict=True)])
        return cost_of_answers(parts, right)

    def sureness(self, prediction: Answered, example: Example) -> list[tuple[float, bool]]:
        _, exact = self.evidence(prediction, example)
        return [(prediction.confidence, bool(exact))]

    def unless_unsure(self, prediction: Answered, least: float) -> Answered:
        return prediction if prediction.confidence >= least else replace(prediction, answer=None, start=-1)

    def evidence(self, prediction: Answered, example: Example) -> tuple[float, ...]:
        return metrics.answer_scores([span.text for span in example.answer], prediction.answer or "")  # type: ignore[union-attr]

    def verdict(self, prediction: Answered, example: Example) -> Verdict:
        rights = [span.text for span in example.answer]  # type: ignore[union-attr]
        f1, exact = self.evidence(prediction, example)
        said = " / ".join(dict.fromkeys(rights)) or "–", prediction.answer or "–"
        return Verdict(not exact, (1 - f1) * prediction.confidence, *said)

    def measure(self, rows: metrics.Floats) -> metrics.Measures:
        return {"f1": float(rows[:, 0].mean()), "exact": float(rows[:, 1].mean())}


def best_stretch(table: Values, window: int = 0) -> Stretch:
    """By the logits of beginning and ending, (R, 2)."""
    size = len(table) - 1
    sums = table[1:, 0, None] + table[None, 1:, 1]
    ahead = np.arange(size)[None, :] - np.arange(size)[:, None]
    sums = np.where((ahead >= 0) & (ahead < LONGEST), sums, -np.inf)
    first, last = divmod(int(sums.argmax()), size)
    return Stretch(window, 1 + first, 1 + last, float(sums[first, last]))


def _first_and_last(example: Example, offsets: Numbers) -> tuple[int, int] | None:
    """The tokens that hold the first right answer; None: there is none."""
    if not isinstance(example.answer, tuple) or not example.answer:
        return None
    span = example.answer[0]
    assert isinstance(span, Span)
    first = int(np.searchsorted(offsets[:, 1], span.start, side="right"))
    last = int(np.searchsorted(offsets[:, 0], span.end, side="left")) - 1
    return (first, last) if first <= last < len(offsets) else None


def _targets(answer: tuple[int, int] | None, cut: Cut) -> Numbers:
    """Which of the tokens read begin and end the answer; 0, "not here", for windows that do not hold all of it."""
    begin, end = cut.parts[1]
    if answer is None or answer[0] < begin or answer[1] >= end:
        return np.zeros(2, np.int64)
    return np.array([1 + answer[0] - begin, 1 + answer[1] - begin])


def _blank(ids: Numbers, reader: Reader) -> int:
    special = reader.tokenizer.special
    found = np.flatnonzero(ids == reader.tokenizer.id_of("cls")) if "cls" in special else np.empty(0, np.int64)
    return int(found[0]) if len(found) else 0
