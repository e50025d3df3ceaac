"""Sentences with a word, drawn from a whole corpus in bounded memory."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

from bertworks.errors import BadText, NotFound
from bertworks.inspect.marking import common_words, context_words
from bertworks.text.sentences import split_sentences
from bertworks.text.tokenizer import Tokenizer
from bertworks.text.words import CJK

MAX_COUNTED = 2_000_000  # characters, to tell which words are common
SPACED = rf"[^\W{CJK}]"  # a character of words that have spaces between them


@dataclass(frozen=True)
class Context:
    """A sentence with the word in it, as a model reads it."""

    text: str
    start: int  # of the word, in characters
    end: int
    token_ids: tuple[int, ...]
    segments: tuple[int, ...]
    pieces: range  # of the word

    @property
    def ids(self) -> tuple[int, ...]:
        """Of the word's pieces."""
        return self.token_ids[self.pieces.start : self.pieces.stop]


@dataclass(frozen=True)
class Contexts:
    contexts: list[Context]
    n_sentences: int  # of the corpus that have the word, copies included
    n_unread: int  # drawn, but longer than the model reads, or with the word as a part of a longer piece
    common: frozenset[str]  # the corpus' words like "the"

    @property
    def ids(self) -> tuple[int, ...]:
        """The word's pieces, as they are in most of the sentences: at the start of one they may be others."""
        return Counter(context.ids for context in self.contexts).most_common(1)[0][0]


class SentenceSample:
    """Up to `n` different sentences: those whose hashes are the smallest. That is a random draw from all that are
    offered, whatever their order, and copies count once."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.n_offered = 0
        self._kept: dict[int, Context] = {}
        self._unread: set[int] = set()  # hashes
        self._largest: list[int] = []  # hashes of these, negative: a heap

    def offer(self, sentence: str, read: Callable[[], Context | None]) -> None:
        """`read` is called only if the sentence is to be kept; None: the model cannot read it."""
        self.n_offered += 1
        key = int.from_bytes(blake2b(sentence.encode(errors="replace"), digest_size=8).digest())
        if key in self._kept or key in self._unread or (len(self._kept) == self.n and key > -self._largest[0]):
            return
        context = read()
        if context is None:
            self._unread.add(key)
            return
        if len(self._kept) == self.n:
            del self._kept[-heapq.heappop(self._largest)]
        self._kept[key] = context
        heapq.heappush(self._largest, -key)

    @property
    def n_unread(self) -> int:
        """Those that were drawn, too: others took their place."""
        return sum(len(self._kept) < self.n or key < -self._largest[0] for key in self._unread)

    @property
    def contexts(self) -> list[Context]:
        return [self._kept[key] for key in sorted(self._kept)]


def find_contexts(tokenizer: Tokenizer, limit: int, word: str, texts: Iterable[str], n: int) -> Contexts:
    """Up to `n` different sentences with the word, the first occurrence in each, drawn from all of the corpus."""
    pattern = word_pattern(word)
    sample = SentenceSample(n)
    counts = Counter[str]()
    for sentence, match in _matches(_counted(texts, counts), pattern):
        sample.offer(sentence, partial(read_context, tokenizer, limit, sentence, match))
    if not counts:
        raise BadText("no text in this corpus", code="no-text")
    if not sample.contexts:
        seen = f"; {sample.n_unread} sentences have it, too long for the model or as a part of a longer piece"
        cause = f"{word!r} does not occur{seen if sample.n_unread else ''}"
        raise NotFound(cause, remedy="another word, or more text", code="no-such-word")
    return Contexts(sample.contexts, sample.n_offered, sample.n_unread, common_words(counts))


def _counted(texts: Iterable[str], counts: Counter[str]) -> Iterator[str]:
    """The texts as they are; the words of the first ones are counted."""
    n_characters = 0
    for text in texts:
        if n_characters < MAX_COUNTED:
            counts.update(context_words(text))
            n_characters += len(text)
        yield text


def _matches(texts: Iterable[str], pattern: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """Sentences with the word, and where it is first."""
    for text in texts:
        for paragraph in text.split("\n"):
            if pattern.search(paragraph) is not None:
                for sentence in split_sentences(paragraph):
                    match = pattern.search(sentence)
                    if match is not None:
                        yield sentence, match


def word_pattern(word: str) -> re.Pattern[str]:
    """The word in any case, not inside of a longer one; Chinese has no spaces, so there a word is found anywhere."""
    word = word.strip()
    if not word:
        raise BadText("no word is given", remedy="one word", code="empty-text")
    before = f"(?<!{SPACED})" if re.match(SPACED, word) else ""
    after = f"(?!{SPACED})" if re.match(SPACED, word[-1]) else ""
    return re.compile(before + re.escape(word) + after, re.IGNORECASE)


def read_context(tokenizer: Tokenizer, limit: int, sentence: str, match: re.Match[str]) -> Context | None:
    """None: longer than the model reads, or the word is a part of a longer piece."""
    pieces = tokenizer.pieces(sentence)
    if len(pieces.ids) > limit:
        return None
    start, end = match.span()
    members = [
        index
        for index, ((first, last), text) in enumerate(zip(pieces.offsets, pieces.texts, strict=True))
        if text is not None and first < end and last > start
    ]
    # A piece may begin with the space before the word.
    if not members or pieces.offsets[members[-1]][1] != end:
        return None
    if sentence[pieces.offsets[members[0]][0] : start].strip():
        return None
    own = range(members[0], members[-1] + 1)
    return Context(sentence, start, end, tuple(pieces.ids), tuple(pieces.segments), own)
