"""What an objective does to a sequence before the model sees it: nothing, masks, masks with numbers to draw
replacements by, or an order.

A corruption is a function of the sequence and of its own random numbers, so that it can be made by any process, at any
time. It says which fields of the config it uses; the others are refused where a user sets them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bertworks.config import DataConfig
from bertworks.data.masking import choose_targets, mask_targets, prediction_order
from bertworks.data.rng import Stream, rng

Numbers = NDArray[np.int64]
CHOICE_OF_TARGETS = frozenset({"masking", "mask_rate", "mask_epochs"})


@dataclass(frozen=True)
class TokenSequence:
    """One sequence as the model would see it uncorrupted."""

    ids: Numbers
    segments: Numbers
    maskable: NDArray[np.bool_]  # not special: may be predicted
    word_starts: NDArray[np.bool_]
    label: int  # 0 in order, 1 other, -1 no pair


@dataclass(frozen=True)
class Corrupted:
    """What was done to a sequence."""

    ids: Numbers
    targets: Numbers
    ranks: Numbers | None = None
    uniforms: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Draws:
    """The random numbers of one example in one epoch."""

    seed: int
    epoch: int
    example: int

    def __call__(self, stream: Stream) -> np.random.Generator:
        return rng(self.seed, stream, self.epoch, self.example)


@dataclass(frozen=True)
class Vocabulary:
    mask_id: int  # -1: there is none
    ordinary_ids: Numbers  # not special


class Corruption(ABC):
    uses: ClassVar[frozenset[str]] = frozenset()  # fields of `DataConfig`
    needs_mask_token: ClassVar[bool] = False

    @abstractmethod
    def __call__(
        self, sequence: TokenSequence, draws: Draws, config: DataConfig, vocabulary: Vocabulary
    ) -> Corrupted: ...


class NoCorruption(Corruption):
    """Every token is seen as it is; what is predicted is the objective's matter."""

    def __call__(self, sequence: TokenSequence, draws: Draws, config: DataConfig, vocabulary: Vocabulary) -> Corrupted:
        return Corrupted(sequence.ids, np.empty(0, np.int64))


class MaskTokens(Corruption):
    """Targets become the mask token, a random token, or stay."""

    uses = CHOICE_OF_TARGETS | {"mask_share", "random_share"}
    needs_mask_token = True

    def __call__(self, sequence: TokenSequence, draws: Draws, config: DataConfig, vocabulary: Vocabulary) -> Corrupted:
        targets = _targets(sequence, draws, config)
        shares = config.mask_share, config.random_share
        ids = mask_targets(
            draws(Stream.WHAT), sequence.ids, targets, vocabulary.mask_id, vocabulary.ordinary_ids, *shares
        )
        return Corrupted(ids, targets)


class MaskForReplacement(MaskTokens):
    """The same, with a number for each target to draw its replacement by."""

    def __call__(self, sequence: TokenSequence, draws: Draws, config: DataConfig, vocabulary: Vocabulary) -> Corrupted:
        masked = super().__call__(sequence, draws, config, vocabulary)
        return Corrupted(masked.ids, masked.targets, uniforms=draws(Stream.UNIFORM).random(len(masked.targets)))


class PermuteTargets(Corruption):
    """Nothing is masked; targets are predicted in a random order."""

    uses = CHOICE_OF_TARGETS

    def __call__(self, sequence: TokenSequence, draws: Draws, config: DataConfig, vocabulary: Vocabulary) -> Corrupted:
        targets = _targets(sequence, draws, config)
        return Corrupted(sequence.ids, targets, ranks=prediction_order(draws(Stream.RANKS), targets, len(sequence.ids)))


def _targets(sequence: TokenSequence, draws: Draws, config: DataConfig) -> Numbers:
    return choose_targets(
        draws(Stream.WHERE), config.masking, config.mask_rate, sequence.maskable, sequence.word_starts
    )
