"""Multiple choice (Devlin et al. 2019, section 4.4): each choice is read after the context and gets a score."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
from bertworks.datasets.schema import Schema, as_strings, id_cell
from bertworks.measure import metrics
from bertworks.measure.metrics import Floats, MetricValues
from bertworks.model.loss import Loss, Term, accuracy
from bertworks.model.model import Model
from bertworks.tasks.features import Array, Features, Numbers, TaskBatch
from bertworks.tasks.sequence import encode_texts, mean_of_windows, summary_windows
from bertworks.tasks.task import Outputs, Prediction, Score, Task, pad_rows
from bertworks.tasks.windows import SlidingWindows

NUMBERED_COLUMN = re.compile(r"(ending|choice|option)s?_?(\d+|[a-e])", re.IGNORECASE)
LETTER_COLUMNS = ("A", "B", "C", "D", "E")
LIST_COLUMNS = ("choices", "endings", "options")
CONTEXT_NAMES = ("context", "passage", "paragraph", "document", "text", *TEXT_NAMES, "question", "query", "prompt")
MANY_ROWS = 5  # per choice: then the first choice would have been correct at least once


@dataclass(frozen=True)
class ChoicePrediction(Prediction):
    choice: int | str | None  # number or letter, as in the training examples; None: not confident enough
    text: str | None
    confidence: float
    scores: list[float]

    @property
    def abstained(self) -> bool:
        return self.choice is None

    def abstain_below(self, confidence: float) -> ChoicePrediction:
        return self if self.confidence >= confidence else replace(self, choice=None, text=None)


class ChoiceSchema(Schema):
    """A context, and the choices."""

    shape = "choice"
    synonyms = ("multiple-choice",)
    column_options = ("text", "choices", "label")
    label_names = ("answer", "label")
    table_help = (
        ("choice", "text, choice0, choice1, ..., label: number, letter or text", "He opened the, door, moon, 0"),
    )
    input_help = "a text and a list of at least two choices"

    def text_columns(self, table: TableSample, named: NamedColumns, *, paired: bool) -> tuple[str, ...]:
        choices = named.choices or tuple(name for name in table.columns if NUMBERED_COLUMN.fullmatch(name))
        choices = choices or tuple(name for name in table.columns if name.lower() in LIST_COLUMNS)[:1]
        choices = choices or tuple(name for name in table.columns if name in LETTER_COLUMNS)
        if not choices:
            raise MissingColumn("the choices", "choices")
        return named.text or table.without(choices).require(CONTEXT_NAMES, "the text", "text"), *choices

    def named_columns(self, columns: Columns) -> NamedColumns:
        text, *choices = columns.texts
        return NamedColumns(text=text, choices=tuple(choices), label=columns.labels)

    def legacy_named_columns(self, text: str | None, pair: Sequence[str], label: str | None) -> NamedColumns:
        return NamedColumns(text=text, choices=tuple(pair), label=(label,) if label else ())

    def label_format(self, rows: Sequence[Row], columns: Columns) -> Columns:
        """Detect how labels name the correct choice: by its text, its letter, or its number from 0 or from 1. Where
        neither 0 nor the highest number occurs, numbers begin as those of the columns do; without such columns at 1, if
        there are so many rows that the first choice must have been correct in one of them."""
        is_text = []
        is_letter = []
        numbers = []  # with the number of choices
        for row in rows:
            try:
                choices = self.texts(row, columns)[1:]
            except InvalidRow:
                continue
            value = row.get(columns.labels[0])
            if value not in (None, ""):
                is_text.append(value in choices)
                is_letter.append(re.fullmatch("[A-Za-z]", str(value).strip()) is not None)
            if str(value).isdecimal():
                numbers.append((int(str(value)), len(choices)))
        by_text = _mostly(is_text)
        if _mostly(is_letter) and not by_text:
            return replace(columns, counted_from="A")
        if not numbers:
            return replace(columns, by_text=by_text, counted_from=None)
        matches = [NUMBERED_COLUMN.fullmatch(name) for name in columns.texts]
        column_numbers = [int(match[2]) for match in matches if match and match[2].isdecimal()]
        has_highest = any(number == n_choices for number, n_choices in numbers)
        has_many_rows = len(numbers) >= MANY_ROWS * max(n_choices for _, n_choices in numbers)
        starts_at_one = has_highest or (min(column_numbers) == 1 if column_numbers else has_many_rows)
        from_one = starts_at_one and all(number >= 1 for number, _ in numbers)
        return replace(columns, by_text=by_text, counted_from=1 if from_one else 0)

    def check_columns(self, columns: Columns, pairs: bool | None, place: str) -> None:
        """Any number of choices is allowed."""

    def texts(self, row: Row, columns: Columns) -> tuple[str, ...]:
        """The context and the choices; a row may have fewer choices than the table has columns for them."""
        context, *names = columns.texts
        while len(names) > 2 and is_missing(row.get(names[-1])):
            names.pop()
        listed = parse_list(cell(row, names[0]))
        choices = (
            tuple(listed)
            if len(names) == 1 and isinstance(listed, list)
            else tuple(text_cell(row, name) for name in names)
        )
        if len(choices) < 2 or not all(isinstance(choice, str) and not is_blank(choice) for choice in choices):
            raise InvalidRow("fewer than two choices", "too-few-choices")
        return (text_cell(row, context), *choices)

    def answer(self, row: Row, texts: tuple[str, ...], columns: Columns) -> int:
        """The index of the correct choice, from its number, letter or text. The text is tried first where most labels
        of the table are texts of choices."""
        value = row[columns.labels[0]]
        choices = texts[1:]
        if columns.by_text and value in choices:
            return choices.index(value)
        letters = {chr(ord("A") + i): i for i in range(len(choices))}
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

    def parse(self, value: object, pairs: bool | None) -> Example | None:
        if not isinstance(value, list | tuple) or len(value) < 2:
            return None
        choices = value[1] if len(value) == 2 and isinstance(value[1], list | tuple) else value[1:]
        texts = as_strings([value[0], *choices])
        return Example(texts) if texts is not None and len(texts) > 2 else None

    def splits_lines(self, pairs: bool | None) -> bool:
        return True

    def input_columns(self, pairs: bool | None) -> tuple[str, ...]:
        return "context", "choices"

    def as_row(self, example: Example, pairs: bool | None) -> Row:
        context, *choices = example.texts
        return {**id_cell(example), "context": context, "choices": choices}


def _mostly(flags: Sequence[bool]) -> bool:
    return sum(flags) > 0.5 * len(flags)


class Choice(Task[int, ChoicePrediction]):
    """Examples may have different numbers of choices."""

    schema = ChoiceSchema()
    terms = {"choice": ("choices", "选项")}
    head = "choice"
    metrics = (metrics.ACCURACY,)
    loop_defaults = {
        "batch_size": 8
    }  # an example is read once per choice: with four, as many texts as in batches of 32

    def __init__(self, model: Model, config: TaskConfig) -> None:
        super().__init__(model, config)
        self.counted_from = config.counted_from

    @classmethod
    def describe(cls, data: TaskData, labels: tuple[str, ...]) -> dict[str, object]:
        return {"counted_from": (data.columns.counted_from or 0) if data.columns is not None else 0}

    def features(self, examples: Sequence[Example], windows: SlidingWindows) -> list[Features]:
        reads_first = self.model.config.heads.summary == "first"
        features = []
        for example, (context, *choices) in zip(examples, encode_texts(examples, windows), strict=True):
            pairs = [
                summary_windows((context, choice), example, windows, reads_first=reads_first, choice=i)
                for i, choice in enumerate(choices)
            ]
            target = np.array(-1 if example.answer is None else example.answer, np.int64)
            # The context is counted once; lost are the tokens that are cut off beside every choice.
            context_counts = min((counts[0] for _, counts in pairs), key=lambda counts: counts.lost)
            tokens = sum((counts[1] for _, counts in pairs), context_counts)
            all_windows = tuple(window for choice_windows, _ in pairs for window in choice_windows)
            features.append(Features(all_windows, tokens, windows.capacity(2), target, n_choices=len(choices)))
        return features

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
        return self.example_logits(outputs, features)[None]

    def example_logits(self, outputs: Outputs, features: Features) -> Array:
        """Of each choice."""
        logits = np.concatenate(outputs)[:, 0]
        choices = np.array([window.choice for window in features.windows])
        return np.array([logits[choices == choice].mean(dtype=np.float64) for choice in range(features.n_choices)])

    def targets(self, features: Features) -> Numbers:
        return np.array([features.target])

    def baseline(self, train: Sequence[Example]) -> Callable[[Features], Outputs]:
        """By how often each position is the right one."""
        counts = Counter(example.answer for example in train)
        return lambda item: [np.array([[float(counts[window.choice])]]) for window in item.windows]

    def score(self, prediction: ChoicePrediction, answer: int, texts: tuple[str, ...]) -> Score:
        is_correct = prediction.choice == self._name(answer)
        return Score(
            values=(float(is_correct),),
            is_wrong=not is_correct,
            severity=prediction.confidence,
            expected=texts[1 + answer],
            predicted=str(prediction.text),
            confidences=((prediction.confidence, is_correct),),
        )

    def metric_values(self, scores: Floats) -> MetricValues:
        return {"accuracy": float(scores.mean())}

    def shown_texts(self, example: Example) -> tuple[str, ...]:
        context, *choices = example.texts
        return context, *(f"{number}. {choice}" for number, choice in enumerate(choices, start=1))

    def _name(self, choice: int) -> int | str:
        """The number or letter of a choice, as the training examples have it."""
        return chr(ord("A") + choice) if self.counted_from == "A" else self.counted_from + choice
