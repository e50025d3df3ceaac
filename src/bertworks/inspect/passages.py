"""Passages of a corpus for an atlas: pairs of neighbours, as models were pre-trained on them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec

import numpy as np

from bertworks.inspect.units import SPECIAL, Numbers, Spans, Units, WordTypes
from bertworks.text.cached_encoder import HAN
from bertworks.text.sentences import split_sentences
from bertworks.text.tokenizer import Pieces, Tokenizer

WORD = re.compile(rf"{HAN.pattern.removesuffix('+')}|(?:(?!{HAN.pattern})\w)+|[^\w\s]")  # a Chinese character is one
MAX_COUNTED_CHARACTERS = 20_000_000  # of the corpus, for the frequencies of words
MAX_TOKENS = 128  # of a pair; masses of attention hold for this length
MAX_PER_DOCUMENT = 8
MIN_SENTENCE_WORDS, MAX_SENTENCE_WORDS = 8, 24  # of single sentences


@dataclass(frozen=True)
class Passage:
    """A text, or a pair of neighbouring ones, with its tokens."""

    texts: tuple[str, ...]
    tokens: Pieces
    document: int
    spans: tuple[Spans, ...] | None = None  # the words, if they are known

    @cached_property
    def units(self) -> Units:
        return Units.of(self.tokens, self.texts, self.spans)


@dataclass(frozen=True)
class Passages:
    passages: list[Passage]
    foreign: list[Passage]  # first texts of some, with second texts of other documents
    sentences: list[Passage]  # single ones, of different documents
    words: WordTypes  # of the corpus
    n_documents: int  # that were read
    n_dropped: int  # pairs that have a sentence in common


def read_passages(
    documents: Iterable[str],
    tokenizer: Tokenizer,
    *,
    n: int,
    pairs: bool,
    max_tokens: int = MAX_TOKENS,
    n_foreign: int = 100,
    n_sentences: int = 60,
) -> Passages:
    """From each of `n` documents a pair of neighbouring passages, or a single one; from fewer documents, several of
    each, in turn."""
    counts: Counter[str] = Counter()
    n_characters = n_documents = n_dropped = 0
    by_document: list[list[Passage]] = []
    sentences: list[Passage] = []
    for document in documents:
        if n_characters > MAX_COUNTED_CHARACTERS:
            break
        n_characters += len(document)
        counts.update(WORD.findall(document.lower()))
        if len(by_document) < n:
            split = _split(document)
            of_document = list(_passages(split, n_documents, tokenizer, pairs, max_tokens))
            n_dropped += sum(passage is None for passage in of_document)
            kept = [passage for passage in of_document if passage is not None]
            by_document += [kept] if kept else []
            if len(sentences) < n_sentences:
                sentences += _single_sentence(split, n_documents, tokenizer, max_tokens)
        n_documents += 1
    turns = max(map(len, by_document), default=0)
    chosen = [of_document[turn] for turn in range(turns) for of_document in by_document if len(of_document) > turn][:n]
    foreign = _foreign_pairs(chosen[:n_foreign], tokenizer, max_tokens) if pairs else []
    words = WordTypes(with_own_words(counts, [*chosen, *foreign, *sentences]))
    return Passages(chosen, foreign, sentences, words, n_documents, n_dropped)


def with_own_words(counts: Counter[str], passages: Iterable[Passage]) -> Counter[str]:
    """Also those that the tokenizer splits otherwise."""
    own = Counter(word for passage in passages for word in passage.units.words if word)
    return Counter({**own, **counts})


def _split(document: str) -> list[str]:
    return [sentence for paragraph in document.split("\n") for sentence in split_sentences(paragraph)]


def _passages(
    sentences: Sequence[str], number: int, tokenizer: Tokenizer, pairs: bool, max_tokens: int
) -> Iterator[Passage | None]:
    """Some of a document, from its beginning, none overlapping; None for pairs with a sentence in common. Only a
    document that has none of full length gives a shorter one."""
    room = max_tokens - (tokenizer.pair_template if pairs else tokenizer.template).n_special
    n_texts = 2 if pairs else 1
    texts: list[list[str]] = []
    n_found = 0
    stretches = list(_stretches(sentences, tokenizer, room // n_texts))
    for stretch, is_full in stretches:
        if not stretch:  # a sentence that fits nowhere: neighbours would not be neighbours
            texts = []
            continue
        texts.append(stretch)
        if len(texts) == n_texts:
            if is_full or not n_found:
                n_found += 1
                yield _passage(texts, tokenizer, number, max_tokens)
            texts = []
        if n_found == MAX_PER_DOCUMENT:
            return
    if pairs and not n_found and len(stretches) == 1 and len(stretches[0][0]) > 1:  # a short document
        (stretch, _) = stretches[0]
        yield _passage([stretch[: len(stretch) // 2], stretch[len(stretch) // 2 :]], tokenizer, number, max_tokens)


def _stretches(sentences: Sequence[str], tokenizer: Tokenizer, size: int) -> Iterator[tuple[list[str], bool]]:
    """Sentences that fit into `size` tokens together, and whether no other would; none in place of one that is too
    long."""
    taken: list[str] = []
    n_tokens = 0
    for start in range(0, len(sentences), 64):
        part = sentences[start : start + 64]  # of a long document, most is never asked for
        for sentence, ids in zip(part, tokenizer.encode(part), strict=True):
            if n_tokens + len(ids) > size and taken:
                yield taken, True
                taken, n_tokens = [], 0
            if len(ids) > size:
                yield [], True
            else:
                taken.append(sentence)
                n_tokens += len(ids)
    if taken:
        yield taken, False


def _passage(texts: Sequence[Sequence[str]], tokenizer: Tokenizer, number: int, max_tokens: int) -> Passage | None:
    """None, if a sentence is in both texts: its words would all recur."""
    normalised = [{sentence.lower() for sentence in text} for text in texts]
    if len(texts) == 2 and normalised[0] & normalised[1]:
        return None
    joined = tuple(_joined(text) for text in texts)
    pieces = tokenizer.pieces(*joined)
    return Passage(joined, pieces, number) if len(pieces.ids) <= max_tokens else None


def _joined(sentences: Sequence[str]) -> str:
    """With a space between them, but not in Chinese."""
    text = sentences[0]
    for sentence in sentences[1:]:
        text += sentence if ord(text[-1]) > 0x2E80 else f" {sentence}"
    return text


def _single_sentence(sentences: Sequence[str], number: int, tokenizer: Tokenizer, max_tokens: int) -> list[Passage]:
    """One of a document, from its middle; none, if it has none of fitting length."""
    order = [*sentences[len(sentences) // 2 :], *sentences[: len(sentences) // 2]]
    for sentence in order[:50]:
        if MIN_SENTENCE_WORDS <= len(WORD.findall(sentence)) <= MAX_SENTENCE_WORDS:
            pieces = tokenizer.pieces(sentence)
            if len(pieces.ids) <= max_tokens:
                return [Passage((sentence,), pieces, number)]
    return []


def _foreign_pairs(passages: Sequence[Passage], tokenizer: Tokenizer, max_tokens: int) -> list[Passage]:
    """The first text of each with the second of another document."""
    foreign = []
    for index, passage in enumerate(passages):
        others = (passages[(index + step) % len(passages)] for step in range(1, len(passages)))
        other = next((item for item in others if item.document != passage.document), None)
        if other is not None:
            pieces = tokenizer.pieces(passage.texts[0], other.texts[1])
            if len(pieces.ids) <= max_tokens:
                foreign.append(Passage((passage.texts[0], other.texts[1]), pieces, passage.document))
    return foreign


# ---------------------------------------------------------------------- words of several pieces


def piece_words(passage: Passage) -> tuple[Numbers, list[str]]:
    """The word of each piece, (T,), SPECIAL for special tokens; and the words. Of Chinese, by rjieba: to a tokenizer
    each character is a word."""
    units = passage.units
    owners = np.repeat(np.where(units.is_word, np.arange(len(units)), SPECIAL), units.n_pieces)
    words = list(units.words)
    if not any(map(HAN.search, passage.texts)) or not can_segment_chinese():
        return owners, words
    segmenter = import_module("rjieba")
    for number, text in enumerate(passage.texts):
        for run in HAN.finditer(text):
            end = run.start()
            for word in segmenter.cut(run.group()):
                start, end = end, end + len(word)
                places = zip(passage.tokens.texts, passage.tokens.offsets, strict=True)
                members = [index for index, (of, (at, _)) in enumerate(places) if of == number and start <= at < end]
                owners[members] = len(words)
                words.append(word)
    return owners, words


def can_segment_chinese() -> bool:
    return find_spec("rjieba") is not None
