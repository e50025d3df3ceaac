"""A tag for each word. The first piece of a word speaks for it (Devlin et al. 2019, section 5.3).

Words are set one space apart, and pieces are found again by their characters, so any tokenizer will do. In a sentence longer than the
model each word is read once, in the window that shows most of its surroundings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from bertworks.errors import BadText
from bertworks.model.loss import Loss, Term
from bertworks.model.model import Model
from bertworks.tasks import metrics
from bertworks.tasks.example import Batch, Example, Features, Numbers, TokenCounts, Values, Window
from bertworks.tasks.task import Outputs, Task, Verdict
from bertworks.tasks.transitions import Transition, Ways
from bertworks.tasks.windows import Cut, Reader

OUTSIDE = "O"


@dataclass(frozen=True)
class Entity:
    kind: str
    text: str
    first: int  # word
    last: int
    confidence: float  # of the least sure of its words
    start: int | None = None  # character, where the words were found in a text
    end: int | None = None


@dataclass(frozen=True)
class Tagged:
    words: list[str]
    tags: list[str | None]  # None: not sure enough, or not read
    confidences: list[float]
    entities: list[Entity]

    @property
    def unsure(self) -> bool:
        return None in self.tags


class Tag(Task):
    head = "token"

    def __init__(self, model: Model, labels: Sequence[str], *, transitions: Sequence[Transition] = (), smoothing: float = 0.0) -> None:
        super().__init__(model)
        self.labels, self.smoothing = tuple(labels), smoothing
        self.ways = Ways(labels, transitions) if transitions else None

    def features(self, examples: Sequence[Example], reader: Reader) -> list[Features]:
        encodings = reader.tokenizer.encodings([" ".join(example.texts) for example in examples])
        return [
            self._features(example, np.array(encoding.ids, np.int64), np.array(encoding.offsets).reshape(-1, 2), reader)
            for example, encoding in zip(examples, encodings, strict=True)
        ]

    def _features(self, example: Example, ids: Numbers, offsets: Numbers, reader: Reader) -> Features:
        if not len(ids):
            cause = "a sentence that is empty to this tokenizer: it has no token for any of it"
            raise BadText(cause, place=example.place, code="no-tokens")
        lengths = np.array([len(word) for word in example.texts])
        begins = np.cumsum(lengths + 1) - lengths - 1
        # The first piece that ends behind the word's first character; a word without a piece is judged by what follows it.
        pieces = np.minimum(np.searchsorted(offsets[:, 1], begins, side="right"), len(ids) - 1)
        targets = [self.labels.index(tag) for tag in example.answer] if isinstance(example.answer, tuple) else [-1] * len(pieces)
        cuts = reader.cut((len(ids),), example.place)
        home, windows = nearest_middle(pieces, cuts, len(ids)), []
        for at, cut in enumerate(cuts):
            framed, segments, (start,) = reader.frame((ids,), cut)
            words = np.flatnonzero(home == at)
            read = pieces[words] - cut.parts[0][0] + start
            windows.append(Window(framed, segments, read, about=words, targets=np.array(targets, np.int64)[words]))
        return Features(tuple(windows), sum(reader.count((ids,), cuts), TokenCounts()))

    def room(self, example: Example, reader: Reader) -> int:
        return reader.room(1)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"tag": len(batch.read), "tag_accuracy": len(batch.read)}

    def loss(self, logits: Tensor, batch: Batch) -> Loss:
        targets = self.tensor(batch.targets)
        total = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=self.smoothing if self.training else 0.0)
        return Term("tag", total), Term("tag_accuracy", (logits.detach().argmax(1) == targets).sum(), 0.0)

    def decode(self, outputs: Outputs, features: Features, example: Example) -> Tagged:
        words = np.concatenate([window.about for window in features.windows])
        order = np.argsort(words)
        logits, chances, words = (rows[order] for rows in (self.beliefs(outputs, features), self.chances(outputs, features), words))
        chosen = self.ways.best(logits) if self.ways is not None else logits.argmax(1)
        tags: list[str | None] = [None] * len(example.texts)  # of what was cut off nothing is known
        sure = np.zeros(len(tags))
        sure[words] = chances[np.arange(len(words)), chosen]
        for word, at in zip(words.tolist(), chosen.tolist(), strict=True):
            tags[word] = self.labels[at]
        stretches = metrics.entities(_strings(tags))
        found = [_entity(example, kind, first, last, float(sure[first : last + 1].min())) for kind, first, last in stretches]
        return Tagged(list(example.texts), tags, sure.tolist(), found)

    def beliefs(self, outputs: Outputs, features: Features) -> Values:
        rows: Values = np.concatenate(outputs).astype(np.float64)
        return rows

    def truth(self, features: Features) -> Numbers:
        return np.concatenate([window.targets for window in features.windows])

    def sureness(self, prediction: Tagged, example: Example) -> list[tuple[float, bool]]:
        said = zip(prediction.confidences, prediction.tags, _strings(example.answer), strict=True)
        return [(sure, tag == right) for sure, tag, right in said if tag is not None]

    def unless_unsure(self, prediction: Tagged, least: float) -> Tagged:
        tags = [tag if sure >= least else None for tag, sure in zip(prediction.tags, prediction.confidences, strict=True)]
        return replace(prediction, tags=tags, entities=[one for one in prediction.entities if one.confidence >= least])

    def evidence(self, prediction: Tagged, example: Example) -> tuple[float, ...]:
        return metrics.entity_counts(_strings(example.answer), _strings(prediction.tags))

    def verdict(self, prediction: Tagged, example: Example) -> Verdict:
        """As sure as of the surest wrong tag; entities that are in one and not in the other."""
        tags, given = _strings(example.answer), _strings(prediction.tags)
        wrong = [sure for tag, other, sure in zip(tags, given, prediction.confidences, strict=True) if tag != other]
        right, said = metrics.entities(tags), metrics.entities(given)
        if right == said or not metrics.mark_stretches(self.labels):  # word by word
            right, said = _one_by_one(tags), _one_by_one(given)
        missed, invented = ([one for one in a if one not in b] for a, b in ((right, said), (said, right)))
        return Verdict(bool(wrong), max(wrong, default=0.0), _named(example.texts, missed), _named(example.texts, invented))

    def by_class(self, predictions: Sequence[Tagged], examples: Sequence[Example]) -> dict[str, metrics.Counts]:
        found = metrics.entities if metrics.mark_stretches(self.labels) else _one_by_one
        tags = ((_strings(example.answer), _strings(said.tags)) for example, said in zip(examples, predictions, strict=True))
        pairs = ((set(found(right)), set(found(said))) for right, said in tags)
        return metrics.count_classes(pairs, lambda entity: str(entity[0]))

    def measure(self, rows: metrics.Floats) -> metrics.Measures:
        found = metrics.of_entities(rows)
        return found if metrics.mark_stretches(self.labels) else {"tag_accuracy": found["tag_accuracy"]}


def _entity(example: Example, kind: str, first: int, last: int, confidence: float) -> Entity:
    if not example.begins:
        return Entity(kind, " ".join(example.texts[first : last + 1]), first, last, confidence)
    start, end = example.begins[first], example.begins[last] + len(example.texts[last])
    return Entity(kind, example.whole[start:end], first, last, confidence, start, end)


def _strings(tags: Any) -> list[str]:
    """What has no tag is outside of everything."""
    return [OUTSIDE if tag is None else str(tag) for tag in tags]


def _one_by_one(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Each word for itself, as entities have it."""
    return [(tag, at, at) for at, tag in enumerate(tags)]


def _named(words: Sequence[str], found: Sequence[tuple[str, int, int]]) -> str:
    """Entities, for people."""
    return ", ".join(f"{' '.join(words[first : last + 1])} ({kind})" for kind, first, last in found) or "–"


def nearest_middle(pieces: Numbers, cuts: Sequence[Cut], length: int) -> Numbers:
    """For each piece of a text of this length the window that shows most of what is around it; -1 for those in no window."""
    begins, ends = np.array([cut.parts[0] for cut in cuts]).T
    left = np.where(begins == 0, length, pieces[:, None] - begins)  # at the ends of the text there is nothing to miss
    right = np.where(ends == length, length, ends - 1 - pieces[:, None])
    scarcer = np.minimum(left, right)
    return np.where(scarcer.max(1) >= 0, scarcer.argmax(1), -1)
