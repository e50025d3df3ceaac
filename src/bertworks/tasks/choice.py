"""One of several texts (Devlin et al. 2019, section 4.4): each is read behind what comes before it, and gets a
score."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from bertworks.config import TaskConfig
from bertworks.data.tables import Row
from bertworks.datasets.checks import TaskData
from bertworks.datasets.columns import (
    TEXT_NAMES,
    Columns,
    MissingColumn,
    NamedColumns,
    TableSample,
    cell,
    is_missing,
    parse_list,
    text_cell,
)
from bertworks.datasets.example import Example, InvalidRow, is_blank
from bertworks.datasets.schema import Schema, as_strings
from bertworks.measure import metrics
from bertworks.measure.metrics import Floats, MetricValues
from bertworks.model.loss import Loss, Term, accuracy
from bertworks.model.model import Model
from bertworks.tasks.features import Array, Features, Numbers, TaskBatch
from bertworks.tasks.sequence import encode_texts, mean_of_windows, summary_windows
from bertworks.tasks.task import Outputs, Prediction, Score, Task, pad_rows
from bertworks.tasks.windows import SlidingWindows

NUMBERED = re.compile(r"(ending|choice|option)s?_?(\d+|[a-e])", re.IGNORECASE)
LETTERS = ("A", "B", "C", "D", "E")
LISTS = ("choices", "endings", "options")
FIRST_TEXTS = ("context", "passage", "paragraph", "document", "text", *TEXT_NAMES, "question", "query", "prompt")
MOSTLY = 0.5
MANY = 5  # rows for each choice


@dataclass(frozen=True)
class ChoicePrediction(Prediction):
    choice: (
        int | str | None
    )  # its number or letter, as in the examples that it learned from; None: not confident enough
    text: str | None
    confidence: float
    scores: list[float]

    @property
    def abstained(self) -> bool:
        return self.choice is None

    def abstain_below(self, confidence: float) -> ChoicePrediction:
        return self if self.confidence >= confidence else replace(self, choice=None, text=None)


class ChoiceSchema(Schema):
    """What comes first, and each text to choose from."""

    shape = "choice"
    column_options = ("text", "choices", "label")
    label_names = ("answer", "label")
    table_help = (
        ("choice", "text, choice0, choice1, ..., label: number, letter or text", "He opened the, door, moon, 0"),
    )
    input_help = "a text and a list of at least two choices"

    def text_columns(self, table: TableSample, named: NamedColumns, *, paired: bool) -> tuple[str, ...]:
        choices = named.choices or tuple(name for name in table.columns if NUMBERED.fullmatch(name))
        choices = choices or tuple(name for name in table.columns if name.lower() in LISTS)[:1]
        choices = choices or tuple(name for name in table.columns if name in LETTERS)
        if not choices:
            raise MissingColumn("choices", "choices")
        return named.text or table.without(choices).require(FIRST_TEXTS, "the text", "text"), *choices

    def named_columns(self, columns: Columns) -> NamedColumns:
        text, *choices = columns.texts
        return NamedColumns(text=text, choices=tuple(choices), label=columns.labels)

    def legacy_named_columns(self, text: str | None, pair: Sequence[str], label: str | None) -> NamedColumns:
        return NamedColumns(text=text, choices=tuple(pair), label=(label,) if label else ())

    def label_format(self, rows: Sequence[Row], columns: Columns) -> Columns:
        """How the right one is named: by its text, its letter, or its number from 0 or from 1. Where neither 0 nor the
        highest occurs, as the columns are numbered; or from 1, if there are so many rows that a first one would have
        been right by now."""
        by_text, numbers, lettered = [], [], []
        for row in rows:
            try:
                choices, value = self.texts(row, columns)[1:], row.get(columns.labels[0])
            except InvalidRow:
                continue
            if value not in (None, ""):
                by_text.append(value in choices)
                lettered.append(re.fullmatch("[A-Za-z]", str(value).strip()) is not None)
            if str(value).isdecimal():
                numbers.append((int(str(value)), len(choices)))
        if _mostly(lettered) and not _mostly(by_text):
            return replace(columns, counted_from="A")
        has_highest = any(number == count for number, count in numbers)
        has_many = len(numbers) >= MANY * max((count for _, count in numbers), default=0)
        named = [
            int(found[2]) for name in columns.texts if (found := NUMBERED.fullmatch(name)) and found[2].isdecimal()
        ]
        from_one = all(number >= 1 for number, _ in numbers) and (
            has_highest or (min(named) == 1 if named else has_many)
        )
        return replace(columns, by_text=_mostly(by_text), counted_from=(1 if from_one else 0) if numbers else None)

    def check_columns(self, columns: Columns, pairs: bool | None, place: str) -> None:
        """Any number of choices will do."""

    def texts(self, row: Row, columns: Columns) -> tuple[str, ...]:
        """A row may have fewer choices than the table has columns for them."""
        first, *names = columns.texts
        while len(names) > 2 and is_missing(row.get(names[-1])):
            names.pop()
        listed = parse_list(cell(row, names[0]))
        choices = (
            tuple(listed)
            if len(names) == 1 and isinstance(listed, list)
            else tuple(text_cell(row, name) for name in names)
        )
        if len(choices) < 2 or not all(isinstance(choice, str) and not is_blank(choice) for choice in choices):
            raise InvalidRow("fewer than two texts to choose from", "too-few-choices")
        return (text_cell(row, first), *choices)

    def answer(self, row: Row, texts: tuple[str, ...], columns: Columns) -> int:
        """Its number, its letter, or its text; the text first, where most labels of the table are texts to choose
        from."""
        value, choices = row[columns.labels[0]], texts[1:]
        if columns.by_text and value in choices:
            return choices.index(value)
        letters = {chr(ord("A") + at): at for at in range(len(choices))}
        if isinstance(value, str) and value.strip().upper() in letters:
            return letters[value.strip().upper()]
        try:
            number = int(value)
            if isinstance(value, float) and value != number:
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            if value in choices:
                return choices.index(value)
            raise InvalidRow(f"{value!r} is none of the choices", "unknown-choice") from None
        first = 1 if columns.counted_from == 1 else 0
        if not first <= number < first + len(choices):
            raise InvalidRow(f"choice {number} of {len(choices)}; they are counted from {first}", "choice-out-of-range")
        return number - first

    def expects(self, pairs: bool | None) -> str:
        return self.input_help

    def parse(self, given: object, pairs: bool | None) -> Example | None:
        if not isinstance(given, list | tuple) or len(given) < 2:
            return None
        first, rest = given[0], given[1] if len(given) == 2 and isinstance(given[1], list | tuple) else given[1:]
        texts = as_strings([first, *rest])
        return Example(texts) if texts is not None and len(texts) > 2 else None

    def splits_lines(self, pairs: bool | None) -> bool:
        return True

    def input_columns(self, pairs: bool | None) -> tuple[str, ...]:
        return "context", "choices"

    def as_row(self, example: Example, pairs: bool | None) -> Row:
        first, *choices = example.texts
        return {**({"id": example.name} if example.name else {}), "context": first, "choices": choices}


def _mostly(flags: Sequence[bool]) -> bool:
    return sum(flags) > MOSTLY * len(flags)


class Choice(Task[int, ChoicePrediction]):
    """Examples may have different numbers of choices."""

    schema = ChoiceSchema()
    terms = {"choice": ("choices", "选项")}
    head = "choice"
    metrics = (metrics.ACCURACY,)
    loop_defaults = {"batch_size": 8}  # each is read with three or four choices: as many texts as of other examples

    def __init__(self, model: Model, config: TaskConfig) -> None:
        super().__init__(model, config)
        self.counted_from = config.counted_from

    @classmethod
    def describe(cls, data: TaskData, labels: tuple[str, ...]) -> dict[str, Any]:
        return {"counted_from": (data.columns.counted_from or 0) if data.columns is not None else 0}

    def features(self, examples: Sequence[Example], windows: SlidingWindows) -> list[Features]:
        of_first, made = self.model.config.heads.summary == "first", []
        for example, (common, *choices) in zip(examples, encode_texts(examples, windows), strict=True):
            read = [
                summary_windows((common, choice), example, windows, of_first=of_first, choice=at)
                for at, choice in enumerate(choices)
            ]
            target = np.array(-1 if example.answer is None else example.answer, np.int64)
            # What all choices have in common is one text: lost is what none of them shows.
            first = min((counts[0] for _, counts in read), key=lambda counts: counts.lost)
            tokens = sum((counts[1] for _, counts in read), first)
            flat = tuple(window for some, _ in read for window in some)
            made.append(Features(flat, tokens, windows.capacity(2), target, n_choices=len(choices)))
        return made

    def counts(self, batch: TaskBatch) -> dict[str, int]:
        return {"choice": len(batch.targets), "choice_accuracy": len(batch.targets)}

    def loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        rows = pad_rows(mean_of_windows(logits, self.tensor(batch.owners), batch.n_owners)[:, 0], batch.n_choices)
        targets = self.tensor(batch.targets)
        total = F.cross_entropy(rows, targets, reduction="sum")
        return Term("choice", total), accuracy("choice", (rows.detach().argmax(1) == targets).sum())

    def decode(self, outputs: Outputs, features: Features, example: Example) -> ChoicePrediction:
        (scores,) = self.probabilities(outputs, features)
        best = int(scores.argmax())
        return ChoicePrediction(self._name(best), example.texts[1 + best], float(scores[best]), scores.tolist())

    def class_logits(self, outputs: Outputs, features: Features) -> Array:
        logits, choices = np.concatenate(outputs)[:, 0], np.array([window.choice for window in features.windows])
        return np.array([[logits[choices == choice].mean(dtype=np.float64) for choice in range(features.n_choices)]])

    def targets(self, features: Features) -> Numbers:
        return np.array([features.target])

    def score(self, prediction: ChoicePrediction, answer: int, texts: tuple[str, ...]) -> Score:
        is_right = prediction.choice == self._name(answer)
        return Score(
            values=(float(is_right),),
            is_wrong=not is_right,
            severity=prediction.confidence,
            expected=texts[1 + answer],
            predicted=str(prediction.text),
            confidences=((prediction.confidence, is_right),),
        )

    def metric_values(self, scores: Floats) -> MetricValues:
        return {"accuracy": float(scores.mean())}

    def shown_texts(self, example: Example) -> tuple[str, ...]:
        first, *choices = example.texts
        return first, *(f"{at}. {choice}" for at, choice in enumerate(choices, start=1))

    def _name(self, choice: int) -> int | str:
        return chr(ord("A") + choice) if self.counted_from == "A" else self.counted_from + choice
