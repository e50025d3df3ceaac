"""An example: the texts and the answer of a row of a data set, before tokenization."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import category

from bertworks.text.tokenizer import MAX_TOKEN_CHARACTERS
from bertworks.text.words import SPACELESS

OVERLONG_WORD = re.compile(rf"[^\s{SPACELESS}]{{{MAX_TOKEN_CHARACTERS + 1},}}")


@dataclass(frozen=True)
class Span:
    """A part of a text; `start` is a character index."""

    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class Example:
    """Texts and, where it is known, the correct answer; the types of the two depend on the task's shape."""

    texts: tuple[str, ...]
    answer: Any = None  # None: unlabelled
    place: str = ""  # file and row, for messages
    name: str = ""  # its id in the data set
    group: str = ""  # a document, a dialogue: a split keeps examples of one group together
    source_text: str = ""  # where `texts` are words: the text that they were split from
    word_starts: tuple[int, ...] = ()  # in `source_text`, of each word

    @property
    def labels(self) -> tuple[str, ...]:
        """Its classes or tags; numbers, spans and choices have none."""
        if isinstance(self.answer, str):
            return (self.answer,)
        return tuple(label for label in self.answer if isinstance(label, str)) if isinstance(self.answer, tuple) else ()


class InvalidRow(Exception):
    """A row cannot be read as an example."""

    def __init__(self, cause: str, code: str) -> None:
        self.cause = cause
        self.code = code
        super().__init__(cause)


def is_blank(text: str) -> bool:
    """Whether it has nothing but spaces, control characters, accents without a letter, and replacement characters for
    invalid UTF-8."""
    return all(category(character)[0] in "ZCM" or character == "\ufffd" for character in text)


def check_readable(texts: Sequence[str], *, allow_some_blank: bool = False) -> None:
    """An `InvalidRow` if a text is blank (if `allow_some_blank`, only if all are) or has a word of absurd length."""
    if all(map(is_blank, texts)) if allow_some_blank else any(map(is_blank, texts)):
        raise InvalidRow("empty text", "empty-text")
    matches = (OVERLONG_WORD.search(text) for text in texts if len(text) > MAX_TOKEN_CHARACTERS)
    word = next((match[0] for match in matches if match), None)
    if word is not None:
        raise InvalidRow(f"{len(word):,} characters without a space are not text: {word[:20]}...", "no-spaces")
