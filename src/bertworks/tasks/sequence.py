"""A judgement on a whole text or pair: one of several classes, a number, or any number of classes.

A text longer than the model is read in windows; the logits of its windows are averaged, in training as in prediction.

    B  examples      C  classes
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertworks.config import TaskConfig
from bertworks.errors import BadText
from bertworks.model.heads import ClassHead
from bertworks.model.loss import Loss, Term
from bertworks.model.model import Model
from bertworks.tasks import metrics
from bertworks.tasks.example import Batch, Example, Features, Numbers, TokenCounts, Values, Window
from bertworks.tasks.task import Outputs, Task, Verdict, by_label
from bertworks.tasks.windows import Reader


@dataclass(frozen=True)
class Classified:
    label: str | None  # None: not sure enough
    confidence: float
    scores: dict[str, float]

    @property
    def unsure(self) -> bool:
        return self.label is None


@dataclass(frozen=True)
class Measured:
    value: float


@dataclass(frozen=True)
class Marked:
    labels: list[str]
    scores: dict[str, float]
    undecided: list[str] = field(default_factory=list)  # not sure enough whether they belong there or not

    @property
    def unsure(self) -> bool:
        return bool(self.undecided)


class OfSequence(Task):
    """What these three have in common: a row of logits for each window, whose mean is the text's."""

    head = "sequence"

    def features(self, examples: Sequence[Example], reader: Reader) -> list[Features]:
        return [self._features(*pair, reader) for pair in zip(examples, spelled(examples, reader), strict=True)]

    def _features(self, example: Example, texts: tuple[Numbers, ...], reader: Reader) -> Features:
        windows, counts = windows_of(texts, example, reader, of_first=self._of_first)
        return Features(windows, sum(counts, TokenCounts()), self._target(example))

    @property
    def _of_first(self) -> bool:
        return self.model.config.heads.summary == "first"

    def pooled(self, logits: Tensor, batch: Batch) -> Tensor:
        return pooled(logits, self.tensor(batch.owners), batch.n_owners)

    def beliefs(self, outputs: Outputs, features: Features) -> Values:
        mean: Values = np.concatenate(outputs).mean(0, keepdims=True, dtype=np.float64)
        return mean

    def _target(self, example: Example) -> Values:
        raise NotImplementedError


def spelled(examples: Sequence[Example], reader: Reader) -> list[tuple[Numbers, ...]]:
    """The tokens of each text of each example."""
    flat = iter(reader.tokenizer.encode([text for example in examples for text in example.texts]))
    found = [tuple(next(flat).astype(np.int64) for _ in example.texts) for example in examples]
    for example, texts in zip(examples, found, strict=True):
        if not all(map(len, texts)):
            raise BadText("a text that is empty to this tokenizer: it has no token for any of it", place=example.place, code="no-tokens")
    return found


def windows_of(
    texts: tuple[Numbers, ...], example: Example, reader: Reader, *, of_first: bool, way: int = 0
) -> tuple[tuple[Window, ...], list[TokenCounts]]:
    """Windows whose first or last token is read, and what there is in each text."""
    cuts, windows = reader.cut(tuple(map(len, texts)), example.place), []
    for cut in cuts:
        ids, segments, _ = reader.frame(texts, cut)
        windows.append(Window(ids, segments, read=np.array([0 if of_first else len(ids) - 1]), way=way))
    return tuple(windows), list(reader.count(texts, cuts))


def pooled(logits: Tensor, owners: Tensor, n_owners: int) -> Tensor:
    """(W, C) -> (n_owners, C): the mean of each owner's windows."""
    counts = torch.bincount(owners, minlength=n_owners).to(logits.dtype)
    sums = logits.new_zeros(n_owners, logits.shape[1]).index_add(0, owners, logits)
    return sums / counts[:, None]


class Classify(OfSequence):
    """One of several classes."""

    weights: Tensor | None

    def __init__(self, model: Model, labels: Sequence[str], *, smoothing: float = 0.0, weights: Sequence[float] | None = None) -> None:
        super().__init__(model)
        self.labels, self.smoothing = tuple(labels), smoothing
        self.register_buffer("weights", None if weights is None else torch.tensor(weights), persistent=False)

    def _target(self, example: Example) -> Values:
        return np.array(self.labels.index(str(example.answer)) if example.answer is not None else -1)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"class": len(batch.targets), "class_accuracy": len(batch.targets)}

    def loss(self, logits: Tensor, batch: Batch) -> Loss:
        rows, targets = self.pooled(logits, batch), self.tensor(batch.targets)
        weights, smoothing = (self.weights, self.smoothing) if self.training else (None, 0.0)
        total = F.cross_entropy(rows, targets, weights, reduction="sum", label_smoothing=smoothing)
        return Term("class", total), Term("class_accuracy", (rows.detach().argmax(1) == targets).sum(), 0.0)

    def decode(self, outputs: Outputs, features: Features, example: Example) -> Classified:
        (scores,) = self.chances(outputs, features)
        best = int(scores.argmax())
        return Classified(self.labels[best], float(scores[best]), dict(by_label(self.labels, scores)))

    def truth(self, features: Features) -> Numbers:
        return np.array([features.target])

    def sureness(self, prediction: Classified, example: Example) -> list[tuple[float, bool]]:
        return [(prediction.confidence, prediction.label == example.answer)]

    def evidence(self, prediction: Classified, example: Example) -> tuple[float, ...]:
        return self.labels.index(str(example.answer)), self.labels.index(str(prediction.label))

    def verdict(self, prediction: Classified, example: Example) -> Verdict:
        return Verdict(prediction.label != example.answer, prediction.confidence, str(example.answer), str(prediction.label))

    def by_class(self, predictions: Sequence[Classified], examples: Sequence[Example]) -> dict[str, metrics.Counts]:
        pairs = (({example.answer}, {said.label}) for example, said in zip(examples, predictions, strict=True))
        return metrics.count_classes(pairs, str)

    def unless_unsure(self, prediction: Classified, least: float) -> Classified:
        return prediction if prediction.confidence >= least else replace(prediction, label=None)

    def measure(self, rows: metrics.Floats) -> metrics.Measures:
        return metrics.of_classes(rows[:, 0], rows[:, 1], len(self.labels))


class Regress(OfSequence):
    """A number. It is learned in units of its spread around its mean; `shift` and `scale` turn them into the user's."""

    confident = False

    def __init__(self, model: Model, *, shift: float = 0.0, scale: float = 1.0) -> None:
        super().__init__(model)
        self.shift, self.scale = shift, scale

    def _target(self, example: Example) -> Values:
        return np.array(np.nan if example.answer is None else (float(example.answer) - self.shift) / self.scale, np.float32)  # type: ignore[arg-type]

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"square": len(batch.targets)}

    def loss(self, logits: Tensor, batch: Batch) -> Loss:
        return (Term("square", (self.pooled(logits, batch)[:, 0] - self.tensor(batch.targets)).square().sum()),)

    def decode(self, outputs: Outputs, features: Features, example: Example) -> Measured:
        return Measured(self.beliefs(outputs, features).item() * self.scale + self.shift)

    @torch.no_grad()
    def finished(self, config: TaskConfig) -> tuple[Model, TaskConfig]:
        model = copy.deepcopy(self.model)
        head = model.heads[self.head]
        assert isinstance(head, ClassHead)
        head.out.weight.mul_(self.scale)
        if head.out.bias is None:  # as GPT has it: the shift is left to who reads the logits
            return model, config.model_copy(update={"scale": 1.0})
        head.out.bias.mul_(self.scale).add_(self.shift)
        return model, config.model_copy(update={"scale": 1.0, "shift": 0.0})

    def evidence(self, prediction: Measured, example: Example) -> tuple[float, ...]:
        return float(example.answer), prediction.value  # type: ignore[arg-type]

    def verdict(self, prediction: Measured, example: Example) -> Verdict:
        right = float(example.answer)  # type: ignore[arg-type]
        return Verdict(True, abs(prediction.value - right), f"{right:.4g}", f"{prediction.value:.4g}")

    def measure(self, rows: metrics.Floats) -> metrics.Measures:
        return metrics.of_numbers(rows[:, 0], rows[:, 1])


class Multilabel(OfSequence):
    """Any number of classes, each for itself."""

    def __init__(self, model: Model, labels: Sequence[str]) -> None:
        super().__init__(model)
        self.labels = tuple(labels)

    def _target(self, example: Example) -> Values:
        marked = example.answer if isinstance(example.answer, tuple) else ()
        return np.array([label in marked for label in self.labels], np.float32)

    def counts(self, batch: Batch) -> dict[str, int]:
        n = batch.targets.size
        return {"mark": n, "mark_accuracy": n}

    def loss(self, logits: Tensor, batch: Batch) -> Loss:
        rows, targets = self.pooled(logits, batch), self.tensor(batch.targets)
        total = F.binary_cross_entropy_with_logits(rows, targets, reduction="sum")
        return Term("mark", total), Term("mark_accuracy", ((rows.detach() > 0) == (targets > 0)).sum(), 0.0)

    def decode(self, outputs: Outputs, features: Features, example: Example) -> Marked:
        scores = by_label(self.labels, self.chances(outputs, features)[:, 1])
        return Marked([label for label, score in scores.items() if score > 0.5], dict(scores))

    def beliefs(self, outputs: Outputs, features: Features) -> Values:
        """Of each class whether it does not belong there, or does."""
        (logits,) = super().beliefs(outputs, features)
        return np.stack([np.zeros_like(logits), logits], axis=1)

    def truth(self, features: Features) -> Numbers:
        return np.asarray(features.target).astype(np.int64)

    def sureness(self, prediction: Marked, example: Example) -> list[tuple[float, bool]]:
        marks = zip(prediction.scores.values(), self._target(example) > 0, strict=True)
        return [(max(score, 1 - score), bool((score > 0.5) == right)) for score, right in marks]

    def unless_unsure(self, prediction: Marked, least: float) -> Marked:
        undecided = [label for label, score in prediction.scores.items() if max(score, 1 - score) < least]
        return replace(prediction, labels=[label for label in prediction.labels if label not in undecided], undecided=undecided)

    def evidence(self, prediction: Marked, example: Example) -> tuple[float, ...]:
        return *self._target(example).tolist(), *(float(label in prediction.labels) for label in self.labels)

    def verdict(self, prediction: Marked, example: Example) -> Verdict:
        right = {str(label) for label in example.answer}  # type: ignore[union-attr]
        wrong = right ^ set(prediction.labels)
        sure = max((max(score, 1 - score) for label, score in prediction.scores.items() if label in wrong), default=0.0)
        return Verdict(bool(wrong), sure, ", ".join(sorted(right)) or "–", ", ".join(prediction.labels) or "–")

    def by_class(self, predictions: Sequence[Marked], examples: Sequence[Example]) -> dict[str, metrics.Counts]:
        pairs = ((set(example.answer), set(said.labels)) for example, said in zip(examples, predictions, strict=True))  # type: ignore[arg-type]
        return metrics.count_classes(pairs, str)

    def measure(self, rows: metrics.Floats) -> metrics.Measures:
        truth, said = np.split(rows > 0, 2, axis=1)
        return metrics.of_marks(truth, said)
