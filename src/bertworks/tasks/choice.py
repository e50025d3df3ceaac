"""One of several ways to go on (Devlin et al. 2019, section 4.4): each is read with what comes before it, and gets a score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from bertworks.config import CountedFrom
from bertworks.model.loss import Loss, Term
from bertworks.model.model import Model
from bertworks.tasks.example import Batch, Example, Features, Numbers, Values
from bertworks.tasks.metrics import Floats, Measures
from bertworks.tasks.sequence import pooled, spelled, windows_of
from bertworks.tasks.task import Outputs, Task, Verdict, padded
from bertworks.tasks.windows import Reader


@dataclass(frozen=True)
class Chosen:
    choice: int | str | None  # its number or letter, as in the examples that it learned from; None: not sure enough
    text: str | None
    confidence: float
    scores: list[float]

    @property
    def unsure(self) -> bool:
        return self.choice is None


class Choice(Task):
    """Examples may have different numbers of ways."""

    head = "choice"

    def __init__(self, model: Model, *, counted_from: CountedFrom = 0) -> None:
        super().__init__(model)
        self.counted_from = counted_from

    def features(self, examples: Sequence[Example], reader: Reader) -> list[Features]:
        of_first, found = self.model.config.heads.summary == "first", []
        for example, (common, *ways) in zip(examples, spelled(examples, reader), strict=True):
            read = [windows_of((common, way), example, reader, of_first=of_first, way=at) for at, way in enumerate(ways)]
            windows = tuple(window for windows, _ in read for window in windows)
            target = np.array(-1 if example.answer is None else example.answer, np.int64)
            # What all ways have in common is one text: lost is what no way shows.
            first = min((counts[0] for _, counts in read), key=lambda counts: counts.lost)
            tokens = sum((counts[1] for _, counts in read), first)
            found.append(Features(windows, tokens, target, n_ways=len(ways)))
        return found

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"choice": len(batch.targets), "choice_accuracy": len(batch.targets)}

    def loss(self, logits: Tensor, batch: Batch) -> Loss:
        rows = padded(pooled(logits, self.tensor(batch.owners), batch.n_owners)[:, 0], batch.n_ways)
        targets = self.tensor(batch.targets)
        total = F.cross_entropy(rows, targets, reduction="sum")
        return Term("choice", total), Term("choice_accuracy", (rows.detach().argmax(1) == targets).sum(), 0.0)

    def decode(self, outputs: Outputs, features: Features, example: Example) -> Chosen:
        (scores,) = self.chances(outputs, features)
        best = int(scores.argmax())
        return Chosen(self._name(best), example.texts[1 + best], float(scores[best]), scores.tolist())

    def beliefs(self, outputs: Outputs, features: Features) -> Values:
        logits, ways = np.concatenate(outputs)[:, 0], np.array([window.way for window in features.windows])
        return np.array([[logits[ways == way].mean(dtype=np.float64) for way in range(features.n_ways)]])

    def truth(self, features: Features) -> Numbers:
        return np.array([features.target])

    def sureness(self, prediction: Chosen, example: Example) -> list[tuple[float, bool]]:
        return [(prediction.confidence, self._is_right(prediction, example))]

    def evidence(self, prediction: Chosen, example: Example) -> tuple[float, ...]:
        return (float(self._is_right(prediction, example)),)

    def verdict(self, prediction: Chosen, example: Example) -> Verdict:
        right = int(example.answer)  # type: ignore[arg-type]
        return Verdict(not self._is_right(prediction, example), prediction.confidence, example.texts[1 + right], str(prediction.text))

    def _is_right(self, prediction: Chosen, example: Example) -> bool:
        return prediction.choice == self._name(int(example.answer))  # type: ignore[arg-type]

    def _name(self, way: int) -> int | str:
        return chr(ord("A") + way) if self.counted_from == "A" else self.counted_from + way

    def unless_unsure(self, prediction: Chosen, least: float) -> Chosen:
        return prediction if prediction.confidence >= least else replace(prediction, choice=None, text=None)

    def measure(self, rows: Floats) -> Measures:
        return {"accuracy": float(rows.mean())}
