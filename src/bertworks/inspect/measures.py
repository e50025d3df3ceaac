"""What a model is measured by: its own loss, on texts with fixed masks; or, of a model without a language head, how far
the vector of a text moves.

M  scored tokens
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertworks.data.masking import choose_targets
from bertworks.inspect.passages import Passage
from bertworks.inspect.running import BATCH_TOKENS
from bertworks.model.layout import Tokens
from bertworks.model.model import Model
from bertworks.model.pooling import Pooling
from bertworks.tasks.inference import token_batches
from bertworks.text.tokenizer import Tokenizer

MASK_RATE = 0.15
LOGIT_ROWS = 256  # of the vocabulary's size, at once


@dataclass(frozen=True)
class ScoredText:
    """A text as a model reads it, and the tokens that are scored."""

    ids: Sequence[int]
    segments: Sequence[int]
    targets: Sequence[int]  # positions
    labels: Sequence[int]
    document: int


@dataclass(frozen=True)
class ScoredBatch:
    tokens: Tokens
    targets: Tensor  # (M,) flat positions
    n_targets: list[int]  # of each text
    labels: Tensor  # (M,)

    @classmethod
    def of(cls, texts: Sequence[ScoredText], device: torch.device) -> ScoredBatch:
        lengths = [len(text.ids) for text in texts]
        starts = np.cumsum([0, *lengths[:-1]]).tolist()
        targets = [start + target for start, text in zip(starts, texts, strict=True) for target in text.targets]
        ids, segments, labels = (
            torch.tensor([value for text in texts for value in getattr(text, name)], device=device)
            for name in ("ids", "segments", "labels")
        )
        n_targets = [len(text.targets) for text in texts]
        return cls(Tokens.ragged(ids, lengths, segments), torch.tensor(targets, device=device), n_targets, labels)


def scored_batches(texts: Sequence[ScoredText], device: torch.device) -> Iterator[tuple[list[int], ScoredBatch]]:
    """Indices of texts, with these as a batch."""
    for members in token_batches([len(text.ids) for text in texts], BATCH_TOKENS):
        yield members.tolist(), ScoredBatch.of([texts[member] for member in members], device)


class Measure(ABC):
    """What is read off a model, and how it differs from what is read off the whole model."""

    title: str
    is_distance = False  # from the whole model: never below 0

    @abstractmethod
    def scored_text(self, passage: Passage, rng: np.random.Generator) -> ScoredText | None:
        """None: nothing of it can be scored."""

    @abstractmethod
    def read(self, model: Model, states: Tensor, batch: ScoredBatch) -> Tensor:
        """Of the states (M, hidden) at the targets: a row for each of them, or for each text."""

    def states(self, model: Model, batch: ScoredBatch) -> Tensor:
        """At the targets, (M, hidden)."""
        return model.encoder.states_at(batch.tokens, batch.targets, batch.n_targets)

    def change(self, read: Tensor, whole: Tensor) -> Tensor:
        """(rows,): what was read, against what was read off the whole model."""
        return read - whole


class LanguageLoss(Measure):
    """Of tokens that are to be predicted; here, without a change to the text."""

    def scored_text(self, passage: Passage, rng: np.random.Generator) -> ScoredText | None:
        targets = _targets(passage, rng)
        return self.predicted(passage, targets) if targets else None

    def predicted(self, passage: Passage, targets: Sequence[int]) -> ScoredText:
        """The tokens at these positions are to be predicted."""
        ids = passage.tokens.ids
        return ScoredText(ids, passage.tokens.segments, targets, [ids[target] for target in targets], passage.document)

    def read(self, model: Model, states: Tensor, batch: ScoredBatch) -> Tensor:
        parts = zip(torch.split(states, LOGIT_ROWS), torch.split(batch.labels, LOGIT_ROWS), strict=True)
        return torch.cat([F.cross_entropy(model.read("lm", part), labels, reduction="none") for part, labels in parts])


class MaskedLoss(LanguageLoss):
    """Whole words are masked, 15 % of the tokens."""

    title = "masked loss"

    def __init__(self, mask_id: int) -> None:
        self.mask_id = mask_id

    def predicted(self, passage: Passage, targets: Sequence[int]) -> ScoredText:
        text = super().predicted(passage, targets)
        ids = list(text.ids)
        for target in targets:
            ids[target] = self.mask_id
        return replace(text, ids=ids)


class QueryStreamLoss(LanguageLoss):
    """XLNet's: each target from all tokens that are no targets."""

    title = "loss of the query stream"

    def states(self, model: Model, batch: ScoredBatch) -> Tensor:
        ranks = torch.full_like(batch.tokens.ids, -1).index_fill(0, batch.targets, 0)
        return model.encoder.two_stream(batch.tokens, ranks, batch.targets, batch.n_targets)


class LeftToRightLoss(LanguageLoss):
    """Every token but the first, from those before it."""

    title = "left-to-right loss"

    def scored_text(self, passage: Passage, rng: np.random.Generator) -> ScoredText | None:
        return self.predicted(passage, range(1, len(passage.tokens.ids))) if len(passage.tokens.ids) > 1 else None

    def predicted(self, passage: Passage, targets: Sequence[int]) -> ScoredText:
        text = super().predicted(passage, targets)
        return replace(text, targets=[target - 1 for target in targets])


class ReplacedLoss(Measure):
    """ELECTRA's discriminator: 15 % of the tokens are others of the same text, and every token is judged."""

    title = "loss on replaced tokens"

    def scored_text(self, passage: Passage, rng: np.random.Generator) -> ScoredText | None:
        targets = _targets(passage, rng)
        ordinary = [index for index, special in enumerate(passage.tokens.special) if not special]
        if not targets:
            return None
        ids = list(passage.tokens.ids)
        for target in targets:
            ids[target] = passage.tokens.ids[ordinary[rng.integers(len(ordinary))]]
        labels = [int(ids[index] != passage.tokens.ids[index]) for index in ordinary]
        return ScoredText(ids, passage.tokens.segments, ordinary, labels, passage.document)

    def read(self, model: Model, states: Tensor, batch: ScoredBatch) -> Tensor:
        logits = model.read("replaced", states)
        return F.binary_cross_entropy_with_logits(logits, batch.labels.to(logits.dtype), reduction="none")


class VectorDistance(Measure):
    """1 - cosine of a text's vectors, with and without a head."""

    title = "1 - cosine of text vectors"
    is_distance = True

    def __init__(self, pooling: Pooling) -> None:
        self.pooling = pooling

    def scored_text(self, passage: Passage, rng: np.random.Generator) -> ScoredText | None:
        ids = passage.tokens.ids
        return ScoredText(ids, passage.tokens.segments, range(len(ids)), ids, passage.document)

    def read(self, model: Model, states: Tensor, batch: ScoredBatch) -> Tensor:
        return self.pooling.pool(states, batch.tokens.layout)

    def change(self, read: Tensor, whole: Tensor) -> Tensor:
        return 1 - F.cosine_similarity(read.double(), whole.double(), dim=-1)


def _targets(passage: Passage, rng: np.random.Generator) -> list[int]:
    is_start = np.zeros(len(passage.tokens.ids), bool)
    is_start[passage.units.starts] = True
    targets: list[int] = choose_targets(rng, "word", MASK_RATE, ~np.array(passage.tokens.special), is_start).tolist()
    return targets


def own_measure(model: Model, tokenizer: Tokenizer, pooling: Pooling) -> Measure:
    """What a model was trained for, if it still has the head for it; else its vectors."""
    encoder = model.config.encoder
    if "lm" in model.heads and getattr(encoder, "causal", False):
        return LeftToRightLoss()
    if "lm" in model.heads and encoder.has_two_streams:
        return QueryStreamLoss()
    if "lm" in model.heads and "mask" in tokenizer.special:
        return MaskedLoss(tokenizer.id_of("mask"))
    return ReplacedLoss() if "replaced" in model.heads else VectorDistance(pooling)


def scored_texts(measure: Measure, passages: Sequence[Passage]) -> list[ScoredText]:
    """The same ones for the same passages."""
    texts = (measure.scored_text(passage, np.random.default_rng([0, index])) for index, passage in enumerate(passages))
    return [text for text in texts if text is not None]
