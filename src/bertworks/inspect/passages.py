"""Passages of a corpus for an atlas: pairs of neighbours, as models were pre-trained on them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from bertworks.inspect.units import Units, WordTypes
from bertworks.text.sentences import split_sentences
from bertworks.text.tokenizer import Pieces, Tokenizer

WORD = re.compile(r"\w+|[^\w\s]")
MAX_COUNTED_CHARACTERS = 20_000_000  # of the corpus, for the frequencies of words
MAX_TOKENS = 128  # of a pair; masses of attention hold for this length


@dataclass(frozen=True)
class Passage:
    """A text, or a pair of neighbouring ones, with its tokens."""

    texts: tuple[str, ...]
    tokens: Pieces
    document: int

    @cached_property
    def units(self) -> Units:
        return Units.of(self.tokens, self.texts)


@dataclass(frozen=True)
class Passages:
    passages: list[Passage]
    words: WordTypes  # of the corpus
    n_documents: int  # that were read


def read_passages(
    documents: Iterable[str], tokenizer: Tokenizer, *, n: int, pairs: bool, max_tokens: int = MAX_TOKENS
) -> Passages:
    """From each of `n` documents a pair of neighbouring passages, or a single one; from fewer documents, several of
    each, in turn."""
    counts: Counter[str] = Counter()
    n_characters = 0
    by_document: list[list[Passage]] = []
    n_documents = 0
    for document in documents:
        if n_characters > MAX_COUNTED_CHARACTERS:
            break
        n_characters += len(document)
        counts.update(WORD.findall(document.lower()))
        if len(by_document) < n:
            found = list(_passages(document, n_documents, tokenizer, pairs, max_tokens))
            by_document += [found] if found else []
        n_documents += 1
    chosen: list[Passage] = []
    turn = 0
    while len(chosen) < n and any(len(found) > turn for found in by_document):
        chosen += [found[turn] for found in by_document if len(found) > turn]
        turn += 1
    chosen = chosen[:n]
    own = Counter(word for passage in chosen for word in passage.units.words if word)
    for word, count in own.items():  # those that the tokenizer splits otherwise
        counts.setdefault(word, count)
    return Passages(chosen, WordTypes(counts), n_documents)


def _passages(
    document: str, number: int, tokenizer: Tokenizer, pairs: bool, max_tokens: int, limit: int = 8
) -> Iterator[Passage]:
    """Up to `limit` of a document, from its beginning, none overlapping."""
    sentences = [sentence for paragraph in document.split("\n") for sentence in split_sentences(paragraph)]
    room = max_tokens - (tokenizer.pair_template if pairs else tokenizer.template).n_special
    size = room // 2 if pairs else room
    lengths = [len(ids) for ids in tokenizer.encode(sentences)] if sentences else []
    texts: list[str] = []
    taken: list[str] = []
    n_tokens = 0
    n_yielded = 0
    for sentence, length in zip(sentences, lengths, strict=True):
        if length > size:
            taken, n_tokens, texts = [], 0, []  # it fits nowhere: neighbours would not be neighbours
            continue
        if n_tokens + length > size:
            texts.append(" ".join(taken))
            taken, n_tokens = [], 0
        taken.append(sentence)
        n_tokens += length
        if len(texts) == (2 if pairs else 1):
            if not pairs or texts[0] != texts[1]:
                pieces = tokenizer.pieces(*texts)
                if len(pieces.ids) <= max_tokens:
                    yield Passage(tuple(texts), pieces, number)
                    n_yielded += 1
            texts = []
            if n_yielded == limit:
                return
