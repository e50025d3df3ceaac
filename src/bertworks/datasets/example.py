"""An example: what a row of a data set says, before any tokenizer sees it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import category

from bertworks.text.tokenizer import LONGEST_WORD
from bertworks.text.words import SPACELESS

ENDLESS = re.compile(rf"[^\s{SPACELESS}]{{{LONGEST_WORD + 1},}}")


@dataclass(frozen=True)
class Span:
    """A part of a text, in characters."""

    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class Example:
    """Texts and, where it is known, the right answer; what the two look like is a matter of the task's shape."""

    texts: tuple[str, ...]
    answer: Any = None  # None: not known
    place: str = ""  # file and row, for messages
    name: str = ""  # what the data set calls it
    group: str = ""  # what it has in common with others, so that a split keeps them together: an article, a dialogue
    source_text: str = ""  # of words: the text that they were found in, and where each of them begins
    word_starts: tuple[int, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Classes and tags; numbers and spans have none."""
        if isinstance(self.answer, str):
            return (self.answer,)
        return tuple(one for one in self.answer if isinstance(one, str)) if isinstance(self.answer, tuple) else ()


class InvalidRow(Exception):
    """Why a row is no example."""

    def __init__(self, cause: str, code: str) -> None:
        self.cause, self.code = cause, code
        super().__init__(cause)


def is_blank(text: str) -> bool:
    """Whether there is nothing in it to be read: only spaces, control characters, accents without a letter, and what
    was not UTF-8."""
    return all(category(character)[0] in "ZCM" or character == "\ufffd" for character in text)


def check_readable(texts: Sequence[str], *, all_blank: bool = False) -> None:
    """None of the texts is blank (or, of the words of a sentence, not all are), and nothing in them is no text."""
    if all(map(is_blank, texts)) if all_blank else any(map(is_blank, texts)):
        raise InvalidRow("empty text", "empty-text")
    endless = (ENDLESS.search(text) for text in texts if len(text) > LONGEST_WORD)
    found = next((match[0] for match in endless if match), None)
    if found is not None:
        raise InvalidRow(f"{len(found):,} characters without a space, which is no text: {found[:20]}...", "no-spaces")
