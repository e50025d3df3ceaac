"""Corruption: what an objective does to a sequence before the model sees it. Nothing, masking, masking with a random
number per target to sample its replacement with, or a random order of prediction.

A corruption depends only on the sequence and on its own random numbers, so any process can apply it at any time. It
declares which fields of the config it uses; setting another one is an error.
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
TARGET_OPTIONS = frozenset({"masking", "mask_rate", "mask_epochs"})


@dataclass(frozen=True)
class TokenSequence:
    """One sequence as the model would see it uncorrupted."""

    ids: Numbers
    segments: Numbers
    maskable: NDArray[np.bool_]  # False for special tokens, which are never targets
    word_starts: NDArray[np.bool_]
    label: int  # of a sentence pair: 0 in order, 1 random or swapped, -1 no pair


@dataclass(frozen=True)
class Corrupted:
    """A sequence after its corruption."""

    ids: Numbers
    targets: Numbers  # positions to predict
    ranks: Numbers | None = None  # permuted: order of prediction
    uniforms: NDArray[np.float64] | None = None  # replaced: a number in [0, 1) per target


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
    """The ids that masking puts into a sequence."""

    mask_id: int  # -1: no mask token
    ordinary_ids: Numbers  # all ids but those of special tokens


class Corruption(ABC):
    """Base class; stateless, and pickled to the workers."""

    uses: ClassVar[frozenset[str]] = frozenset()  # fields of `DataConfig`
    needs_mask_token: ClassVar[bool] = False

    @abstractmethod
    def __call__(
        self, sequence: TokenSequence, draws: Draws, config: DataConfig, vocabulary: Vocabulary
    ) -> Corrupted: ...


class NoCorruption(Corruption):
    """Tokens stay unchanged; the objective decides what is predicted."""

    def __call__(self, sequence: TokenSequence, draws: Draws, config: DataConfig, vocabulary: Vocabulary) -> Corrupted:
        return Corrupted(sequence.ids, np.empty(0, np.int64))


class MaskTokens(Corruption):
    """Masked language modelling: a target becomes the mask token, a random token, or stays unchanged."""

    uses = TARGET_OPTIONS | {"mask_share", "random_share"}
    needs_mask_token = True

    def __call__(self, sequence: TokenSequence, draws: Draws, config: DataConfig, vocabulary: Vocabulary) -> Corrupted:
        targets = _choose_targets(sequence, draws, config)
        ids = mask_targets(
            draws(Stream.REPLACEMENTS),
            sequence.ids,
            targets,
            vocabulary.mask_id,
            vocabulary.ordinary_ids,
            config.mask_share,
            config.random_share,
        )
        return Corrupted(ids, targets)


class MaskForReplacement(MaskTokens):
    """ELECTRA: the same, with a random number per target to sample the generator's replacement with."""

    def __call__(self, sequence: TokenSequence, draws: Draws, config: DataConfig, vocabulary: Vocabulary) -> Corrupted:
        masked = super().__call__(sequence, draws, config, vocabulary)
        return Corrupted(masked.ids, masked.targets, uniforms=draws(Stream.UNIFORM).random(len(masked.targets)))


class PermuteTargets(Corruption):
    """XLNet: nothing is masked; targets are predicted in a random order."""

    uses = TARGET_OPTIONS

    def __call__(self, sequence: TokenSequence, draws: Draws, config: DataConfig, vocabulary: Vocabulary) -> Corrupted:
        targets = _choose_targets(sequence, draws, config)
        return Corrupted(sequence.ids, targets, ranks=prediction_order(draws(Stream.RANKS), targets, len(sequence.ids)))


def _choose_targets(sequence: TokenSequence, draws: Draws, config: DataConfig) -> Numbers:
    return choose_targets(
        draws(Stream.TARGETS), config.masking, config.mask_rate, sequence.maskable, sequence.word_starts
    )
