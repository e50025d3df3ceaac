"""Texts as words: the pieces of a word are one unit, and so is a special token.

T  pieces      U  units      H  heads
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bertworks.text.tokenizer import Pieces

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
SPECIAL = -1  # text and type of a special token


@dataclass(frozen=True)
class Units:
    """The words and special tokens of a text or a pair."""

    starts: Numbers  # (U,) the first piece of each
    words: tuple[str, ...]  # lower-case; empty for special tokens
    texts: Numbers  # (U,) 0 for the first text, 1 for the second, SPECIAL
    n_tokens: int

    @classmethod
    def of(cls, pieces: Pieces, texts: Sequence[str]) -> Units:
        """`texts`: those that the pieces were made of."""
        starts: list[int] = []
        owners: list[tuple[int | None, int | None]] = []
        ends: list[int] = []
        for index, owner in enumerate(zip(pieces.texts, pieces.words, strict=True)):
            if None not in owner and owners and owners[-1] == owner:
                ends[-1] = pieces.offsets[index][1]
                continue
            starts.append(index)
            owners.append(owner)
            ends.append(pieces.offsets[index][1])
        words = [
            "" if text is None else texts[text][pieces.offsets[start][0] : end].strip().lower()
            for start, end, (text, _) in zip(starts, ends, owners, strict=True)
        ]
        numbers = [SPECIAL if text is None else text for text, _ in owners]
        return cls(np.array(starts), tuple(words), np.array(numbers), len(pieces.ids))

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def n_pieces(self) -> Numbers:
        return np.diff(self.starts, append=self.n_tokens)

    @cached_property
    def is_word(self) -> Bools:
        """Not a special token."""
        is_word: Bools = self.texts != SPECIAL
        return is_word

    @cached_property
    def is_punctuation(self) -> Bools:
        return np.array([bool(word) and not any(map(_is_letter_or_digit, word)) for word in self.words])

    def attention(self, probabilities: Floats) -> Floats:
        """(H, T, T) of pieces to (H, U, U) of units: a word is attended to as much as all its pieces, and attends as
        they do on average. Rows still sum to 1."""
        to_words = np.add.reduceat(probabilities, self.starts, axis=2)
        from_words: Floats = np.add.reduceat(to_words, self.starts, axis=1) / self.n_pieces[:, None]
        return from_words


def _is_letter_or_digit(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN"


class WordTypes:
    """Words numbered, with their frequencies in a corpus."""

    def __init__(self, counts: Counter[str]) -> None:
        self.words = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
        self.index = {word: number for number, word in enumerate(self.words)}  # by frequency, the commonest is 0
        self.log_counts = np.log2([counts[word] for word in self.words]) if self.words else np.empty(0)

    @classmethod
    def count(cls, words: Iterable[str]) -> WordTypes:
        return cls(Counter(words))

    def of(self, units: Units) -> Numbers:
        """(U,); SPECIAL for special tokens."""
        return np.array([self.index[word] if word else SPECIAL for word in units.words])
