"""What a row of a data set says, and how the model reads it.

W  windows of a batch      M  tokens read      B  examples
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from bertworks.config import Shape
from bertworks.text.ledger import Ledger
from bertworks.text.tokenizer import LONGEST_WORD
from bertworks.text.words import SPACELESS

Numbers = NDArray[np.int64]
Values = NDArray[Any]
NONE: Numbers = np.empty(0, np.int64)
ENDLESS = re.compile(rf"[^\s{SPACELESS}]{{{LONGEST_WORD + 1},}}")
SIGN = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # for patterns: Chinese and Japanese, written without spaces, each a word


@dataclass(frozen=True)
class Span:
    """A stretch of a text, in characters."""

    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)


# classify: a class; regress: a number; multilabel: classes; tag: a tag for each word; span: all right answers; choice: which
Answer = str | float | int | tuple[str, ...] | tuple[Span, ...]


@dataclass(frozen=True)
class Example:
    """`texts` is a text or a pair (classify, regress, multilabel), the words of a sentence (tag), a question and a passage (span), or
    what comes first and each way to go on (choice)."""

    texts: tuple[str, ...]
    answer: Answer | None = None  # None: not known
    place: str = ""  # file and row, for messages
    name: str = ""  # what the data set calls it
    group: str = ""  # what it has in common with others, so that a split keeps them together: an article, a dialogue
    whole: str = ""  # tag: the text that the words were found in, and where each of them begins
    begins: tuple[int, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Classes and tags; numbers and stretches have none."""
        if isinstance(self.answer, str):
            return (self.answer,)
        return tuple(one for one in self.answer if isinstance(one, str)) if isinstance(self.answer, tuple) else ()


@dataclass(frozen=True)
class Window:
    """A stretch of an example that fits into the model, with its special tokens."""

    ids: Numbers
    segments: Numbers
    read: Numbers  # the positions from which something is read
    about: Numbers = field(default_factory=lambda: NONE)  # of each of them: its word (tag), its first and last character (span)
    targets: Numbers = field(default_factory=lambda: NONE)  # tag: the right tag of each; span: which are the answer's first and last
    way: int = 0  # choice: which way to go on this is


@dataclass(frozen=True)
class TokenCounts:
    """How many an example's texts have, special ones not counted."""

    total: int = 0
    lost: int = 0  # of these, in no window
    unknown: int = 0  # that stand for what has none of its own

    def __add__(self, other: TokenCounts) -> TokenCounts:
        return TokenCounts(self.total + other.total, self.lost + other.lost, self.unknown + other.unknown)


@dataclass(frozen=True)
class Features:
    """An example as the model reads it."""

    windows: tuple[Window, ...]
    tokens: TokenCounts
    target: Values | None = None  # the right answer, where the example has one and not each window; None: not known
    n_ways: int = 1  # choice

    @property
    def length(self) -> int:
        return sum(len(window.ids) for window in self.windows)

    def count_in(self, ledger: Ledger, room: int) -> None:
        ledger.limit = room
        windows = len(self.windows) > self.n_ways
        ledger.count(self.tokens.total, windows=windows, lost=self.tokens.lost, unknown=self.tokens.unknown)


@dataclass(frozen=True)
class Batch:
    """Windows of some examples, flat and sorted by length."""

    ids: Numbers  # (N,)
    segments: Numbers  # (N,)
    lengths: Numbers  # (W,)
    read: Numbers  # (M,) positions in ids
    n_read: Numbers  # (W,)
    owners: Numbers  # (W,) which example it is a window of, counted on through all ways of a choice
    n_owners: int
    targets: Values  # of windows or examples, as the shape has it
    order: Numbers  # (W,) place of each window among those of the examples as given
    examples: Numbers  # (B,)
    n_ways: Numbers  # (B,)


def is_blank(text: str) -> bool:
    """Whether there is nothing in it to be read: only spaces, control signs, accents without a letter, and what was not UTF-8."""
    return all(category(sign)[0] in "ZCM" or sign == "\ufffd" for sign in text)


class Unreadable(Exception):
    """Why a row is no example."""

    def __init__(self, cause: str, code: str) -> None:
        self.cause, self.code = cause, code
        super().__init__(cause)


def why_no_text(texts: Sequence[str], shape: Shape) -> Unreadable | None:
    """What is wrong with them: one of them is blank, of the words of a sentence all; or something in them is no text."""
    if all(map(is_blank, texts)) if shape == "tag" else any(map(is_blank, texts)):
        return Unreadable("an empty text", "empty-text")
    endless = (ENDLESS.search(text) for text in texts if len(text) > LONGEST_WORD)
    found = next((one[0] for one in endless if one), None)
    if found is None:
        return None
    return Unreadable(f"{len(found):,} characters without a space, which is no text: {found[:20]}...", "no-spaces")


def tokens_in(features: Sequence[Features]) -> Numbers:
    """Those that occur, each once."""
    return np.unique(np.concatenate([window.ids for one in features for window in one.windows]))


def gather(features: Sequence[Features], members: Numbers) -> Batch:
    """A batch of the examples `members`."""
    chosen = [features[member] for member in members]
    n_ways = np.array([one.n_ways for one in chosen], np.int64)
    first = np.cumsum(n_ways) - n_ways
    owned = [(int(first[at]) + window.way, window) for at, one in enumerate(chosen) for window in one.windows]
    order = np.argsort([len(window.ids) for _, window in owned], kind="stable")
    windows = [owned[at][1] for at in order]
    lengths = np.array([len(window.ids) for window in windows], np.int64)
    starts = np.cumsum(lengths) - lengths
    targets = [one.target for one in chosen if one.target is not None] or [window.targets for window in windows]
    return Batch(
        ids=np.concatenate([window.ids for window in windows]),
        segments=np.concatenate([window.segments for window in windows]),
        lengths=lengths,
        read=np.concatenate([window.read + start for window, start in zip(windows, starts, strict=True)]),
        n_read=np.array([len(window.read) for window in windows], np.int64),
        owners=np.array([owned[at][0] for at in order], np.int64),
        n_owners=int(n_ways.sum()),
        targets=np.stack(targets) if chosen[0].target is not None else np.concatenate(targets),
        order=order,
        examples=members,
        n_ways=n_ways,
    )
