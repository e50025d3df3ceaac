"""Texts as words: the pieces of a word are one unit, and so is a special token.

T  pieces      U  units      H  heads
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertworks.text.tokenizer import Pieces

Numbers = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]
Spans = Sequence[tuple[int, int]]  # stretches of a text
SPECIAL = -1  # text and type of a special token


@dataclass(frozen=True)
class Units:
    """The words and special tokens of a text or a pair."""

    starts: Numbers  # (U,) the first piece of each
    words: tuple[str, ...]  # lower-case; empty for special tokens
    texts: Numbers  # (U,) 0 for the first text, 1 for the second, SPECIAL
    n_tokens: int

    @classmethod
    def of(cls, pieces: Pieces, texts: Sequence[str], spans: Sequence[Spans] | None = None) -> Units:
        """`texts`: those that the pieces were made of; `spans`: the words of each text, if others than those of the
        tokenizer. Signs are words of their own, also where a tokenizer joins them to the word before."""
        stretches = [
            "" if text is None else texts[text][start:end].strip()
            for text, (start, end) in zip(pieces.texts, pieces.offsets, strict=True)
        ]
        owners = _owners(pieces, stretches) if spans is None else _span_owners(pieces, spans)
        starts = [index for index, owner in enumerate(owners) if index == 0 or owner != owners[index - 1]]
        words, numbers = [], []
        for start, stop in zip(starts, [*starts[1:], len(owners)], strict=True):
            text = pieces.texts[start]
            numbers.append(SPECIAL if text is None else text)
            begin, end = pieces.offsets[start][0], max(pieces.offsets[index][1] for index in range(start, stop))
            words.append("" if text is None else texts[text][begin:end].strip().lower())
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
        return np.array([is_sign(word) for word in self.words])

    def reordered(self, order: Numbers) -> Units:
        """The same units in another order, their pieces together."""
        n_pieces = self.n_pieces[order]
        words = tuple(self.words[unit] for unit in order)
        return Units(np.cumsum(n_pieces) - n_pieces, words, self.texts[order], self.n_tokens)

    def attention(self, probabilities: Floats) -> Floats:
        """(H, T, T) of pieces to (H, U, U) of units: a word is attended to as much as all its pieces, and attends as
        they do on average. Rows still sum to 1."""
        if len(self) == self.n_tokens:
            return probabilities
        words: Floats = probabilities[:, :, self.starts]
        for number in range(1, int(self.n_pieces.max())):  # few words have many pieces
            members = np.flatnonzero(self.n_pieces > number)
            words[:, :, members] += probabilities[:, :, self.starts[members] + number]
        pieces, words = words, words[:, self.starts]
        for number in range(1, int(self.n_pieces.max())):
            members = np.flatnonzero(self.n_pieces > number)
            words[:, members] += pieces[:, self.starts[members] + number]
        words /= self.n_pieces[:, None].astype(words.dtype)
        return words


def is_sign(stretch: str) -> bool:
    return bool(stretch) and not any(map(_is_letter_or_digit, stretch))


def _is_letter_or_digit(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN"


def _owners(pieces: Pieces, stretches: Sequence[str]) -> list[tuple[int, ...]]:
    """Of each piece something that it shares with its neighbours of the same word alone."""
    owners: list[tuple[int, ...]] = []
    n_turns = 0  # from signs to letters and back
    was_sign: bool | None = None
    for index, (text, word, stretch) in enumerate(zip(pieces.texts, pieces.words, stretches, strict=True)):
        if text is None or word is None:
            owners.append((-1, index))
            continue
        if stretch:
            n_turns += was_sign is not None and was_sign != is_sign(stretch)
            was_sign = is_sign(stretch)
        owners.append((text, word, n_turns))
    return owners


def _span_owners(pieces: Pieces, spans: Sequence[Spans]) -> list[tuple[int, ...]]:
    owners: list[tuple[int, ...]] = []
    for index, (text, (_, end)) in enumerate(zip(pieces.texts, pieces.offsets, strict=True)):
        number = -1 if text is None else bisect_right(spans[text], end - 1, key=lambda span: span[0]) - 1
        if text is None or number < 0 or end > spans[text][number][1]:
            owners.append((-1, index))
        else:
            owners.append((text, number))
    return owners


class WordTypes:
    """Words numbered, with their frequencies in a corpus."""

    def __init__(self, counts: Counter[str]) -> None:
        self.counts = counts
        self.words = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
        self.index = {word: number for number, word in enumerate(self.words)}  # by frequency, the commonest is 0
        self.log_counts = np.log2([counts[word] for word in self.words]) if self.words else np.empty(0)

    @classmethod
    def count(cls, words: Iterable[str]) -> WordTypes:
        return cls(Counter(words))

    def of(self, units: Units) -> Numbers:
        """(U,); SPECIAL for special tokens."""
        return np.array([self.index[word] if word else SPECIAL for word in units.words])

    @property
    def n_tokens(self) -> int:
        """Of the corpus."""
        return int(self.counts.total())
