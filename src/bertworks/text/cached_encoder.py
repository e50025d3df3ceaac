"""Sentences to token ids and word starts, fast: how a word is spelled in pieces is looked up once and remembered.

Text is full of words that were seen before. Where a tokenizer never looks across a space, and nearly none does, the
tokens of a sentence are the tokens of its words, and a dictionary of words is several times faster than tokenising
again. A tokenizer that does look across spaces is asked for whole sentences.

White space between words is one space: `spell` gives what the tokenizer gives for `" ".join(sentence.split())`.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from operator import ne
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from bertworks.errors import Unsupported
from bertworks.text.tokenizer import Tokenizer

Words = Literal["auto", "char"]
HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+")
INSTALL = "pip install 'bertworks[zh]', or --words char to mask single characters"
CACHE_SIZE = 400_000  # words; then it starts anew, so that memory stays flat
LONGEST_CACHED = 32  # characters
PARTS = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]")
LOCAL_NORMALIZERS = {"BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Precompiled", "Nmt"}
LOCAL_PRE_TOKENIZERS = {
    "BertPreTokenizer",
    "Whitespace",
    "WhitespaceSplit",
    "Metaspace",
    "ByteLevel",
    "Punctuation",
    "Digits",
}


@dataclass(frozen=True)
class EncodedSentences:
    """Sentences as tokens, one after the other."""

    ids: NDArray[np.uint32]  # (tokens,)
    word_starts: NDArray[np.bool_]  # (tokens,): a word begins here
    lengths: NDArray[np.int64]  # (sentences,)


class CachedEncoder:
    def __init__(self, tokenizer: Tokenizer, words: Words = "auto") -> None:
        layout = json.loads(tokenizer.backend.to_str())
        self.tokenizer, self.words = tokenizer, words
        self.by_word = _is_local(layout)
        kinds = {part["type"] for part in _parts(layout["pre_tokenizer"], "pretokenizers")}
        self.spaced = "ByteLevel" in kinds  # a word has its space before it
        self.splits_punctuation = bool(
            kinds & {"BertPreTokenizer", "Punctuation"}
        )  # marks are words of their own already
        self.added_characters = {token["content"][0] for token in layout["added_tokens"]}  # no such sign, no such token
        self.segmenter: str | None = None  # what found the words of Chinese text, once there was some
        self._clear()

    def encode(self, sentences: Sequence[str], opens: Sequence[bool]) -> EncodedSentences:
        """The tokens of sentences that follow each other; `opens` says which of them nothing stands before."""
        chunks, counts = [], []
        for sentence, first in zip(sentences, opens, strict=True):
            own = sentence.split()
            if self.spaced:
                own = [*own[:1], *(" " + chunk for chunk in own[1:])] if first else [" " + chunk for chunk in own]
            chunks += own
            counts.append(len(own))
        if len(self.index) > CACHE_SIZE:
            self._clear()
        new = [chunk for chunk in dict.fromkeys(chunks) if chunk not in self.index]
        if not self.by_word:
            return self._encode_sentences(sentences, opens)
        kept = self._add([chunk for chunk in new if len(chunk) <= LONGEST_CACHED])
        self._add([chunk for chunk in new if len(chunk) > LONGEST_CACHED])
        index = self.index
        spelled = self._look_up(
            np.array([index[chunk] for chunk in chunks], dtype=np.int64), np.array(counts, dtype=np.int64)
        )
        self._evict(kept, new)
        return spelled

    def _look_up(self, rows: NDArray[np.int64], counts: NDArray[np.int64]) -> EncodedSentences:
        """The tokens of remembered words, gathered; `counts` are words per sentence."""
        begins = np.frombuffer(self.begins, dtype=np.int64)
        lengths = begins[rows + 1] - begins[rows]
        ends = np.cumsum(lengths)
        take = np.arange(lengths.sum()) + np.repeat(begins[rows] - (ends - lengths), lengths)
        edges = np.concatenate([[0], ends])[np.concatenate([[0], np.cumsum(counts)])]
        if not len(take):
            return EncodedSentences(np.empty(0, np.uint32), np.empty(0, np.bool_), np.diff(edges))
        ids, starts = np.frombuffer(self.ids, dtype=np.uint32), np.frombuffer(self.starts, dtype=np.bool_)
        return EncodedSentences(ids[take], starts[take], np.diff(edges))

    def _clear(self) -> None:
        self.index: dict[str, int] = {}
        self.begins, self.ids, self.starts = array("q", [0]), array("I"), array("B")

    def _add(self, chunks: list[str]) -> int:
        """Spell words and remember them; returns how many are known then."""
        joined = {chunk: parts for chunk in chunks if len(parts := self._parts(chunk)) > 1}
        inside = dict.fromkeys(part for parts in joined.values() for part in parts if part not in self.index)
        new = [*inside, *(chunk for chunk in chunks if chunk not in joined and chunk not in inside)]
        for chunk, encoding in zip(new, self.tokenizer.encodings(new), strict=True):
            self._store(chunk, encoding.ids, self.word_starts(chunk, encoding))
        for chunk, parts in joined.items():
            ids, starts = array("I"), array("B")
            for row in map(self.index.__getitem__, parts):
                begin, end = self.begins[row], self.begins[row + 1]
                ids += self.ids[begin:end]
                starts += self.starts[begin:end]
            self._store(chunk, ids, starts)
        return len(self.begins) - 1

    def _parts(self, chunk: str) -> list[str]:
        """Letters and single marks, where the tokenizer divides there anyway: few words, met with many marks."""
        short = (
            self.splits_punctuation and len(chunk) <= LONGEST_CACHED
        )  # the parts of long ones would be forgotten with them
        plain = short and chunk.isascii() and chunk.isprintable() and self.added_characters.isdisjoint(chunk)
        return PARTS.findall(chunk) if plain else [chunk]

    def _store(self, chunk: str, ids: Iterable[int], starts: Iterable[int]) -> None:
        self.index[chunk] = len(self.begins) - 1
        self.ids.extend(ids)
        self.starts.extend(starts)
        self.begins.append(len(self.ids))

    def _evict(self, kept: int, new: list[str]) -> None:
        """Forget the long ones, which will hardly come again."""
        del self.begins[kept + 1 :], self.ids[self.begins[kept] :], self.starts[self.begins[kept] :]
        for chunk in new:
            if len(chunk) > LONGEST_CACHED:
                del self.index[chunk]

    def _encode_sentences(self, sentences: Sequence[str], opens: Sequence[bool]) -> EncodedSentences:
        texts = [" ".join(sentence.split()) for sentence in sentences]
        if self.spaced:
            texts = [text if first or not text else " " + text for text, first in zip(texts, opens, strict=True)]
        encodings = self.tokenizer.encodings(texts)
        starts = [
            np.array(self.word_starts(text, encoding), np.bool_)
            for text, encoding in zip(texts, encodings, strict=True)
        ]
        ids = [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]
        lengths = np.array([len(one) for one in ids], dtype=np.int64)
        return EncodedSentences(
            np.concatenate([np.empty(0, np.uint32), *ids]), np.concatenate([np.empty(0, np.bool_), *starts]), lengths
        )

    def word_starts(self, text: str, encoding: Encoding) -> list[bool]:
        """Where words begin: the tokenizer's own words, marks as words of their own, Chinese by its segmenter."""
        words = encoding.word_ids
        starts = [True, *map(ne, words, words[1:])][: len(words)]
        if text.isascii() and (self.splits_punctuation or text.lstrip(" ").isalpha()):
            return starts
        offsets, after_mark = encoding.offsets, False
        for at, (begin, end) in enumerate(offsets):
            mark = not any(map(str.isalnum, text[begin:end]))
            if at and (mark or after_mark) and begin >= offsets[at - 1][1]:
                starts[at] = True
            after_mark = mark
        edges = {begin: first for run in HAN.finditer(text) for begin, first in self._han_words(run)}
        for at, (begin, _) in enumerate(offsets if edges else ()):
            if begin in edges:
                starts[at] = edges[begin] and (at == 0 or offsets[at - 1][0] != begin)
        return starts

    def _han_words(self, run: re.Match[str]) -> Iterator[tuple[int, bool]]:
        """Each character of a run of Chinese, and whether a word begins there."""
        at = run.start()
        for word in run[0] if self.words == "char" else self._cut(run[0]):
            for inside in range(len(word)):
                yield at + inside, inside == 0
            at += len(word)
        yield at, True  # what follows is no part of the run

    def _cut(self, text: str) -> list[str]:
        if self.segmenter is None:
            try:
                self._jieba = import_module("rjieba")
            except ImportError:
                cause = f"Chinese text ({text[:10]!r}), and no rjieba to find its words"
                raise Unsupported(cause, remedy=INSTALL, code="missing-extra") from None
            self.segmenter = segmenter_version()
        words: list[str] = self._jieba.cut(text)
        return words


def segmenter_version() -> str | None:
    """What finds the words of Chinese text here, if anything does."""
    try:
        return f"rjieba {version('rjieba')}"
    except PackageNotFoundError:
        return None


def _is_local(layout: dict[str, Any]) -> bool:
    """No normalizer, pre-tokenizer or added token of this tokenizer looks across a space."""
    normalizers, pre_tokenizers = (
        _parts(layout["normalizer"], "normalizers"),
        _parts(layout["pre_tokenizer"], "pretokenizers"),
    )
    kinds = {part["type"] for part in normalizers}
    if "Precompiled" in kinds and "StripAccents" not in kinds:
        return False  # it looks at a space together with an accent that follows it
    for part in normalizers:
        literal = part["type"] == "Replace" and not any(map(str.isspace, part["pattern"].get("String", " ")))
        if part["type"] not in LOCAL_NORMALIZERS and not literal:
            return False
    for part in pre_tokenizers:
        if part["type"] not in LOCAL_PRE_TOKENIZERS or part.get("split") is False or part.get("use_regex") is False:
            return False
        if part.get("prepend_scheme") == "never":
            return False
    added = layout["added_tokens"]
    return bool(pre_tokenizers) and not any(
        token["rstrip"] or any(map(str.isspace, token["content"])) for token in added
    )


def _parts(part: dict[str, Any] | None, inner: str) -> list[dict[str, Any]]:
    if part is None:
        return []
    return [leaf for step in part[inner] for leaf in _parts(step, inner)] if part["type"] == "Sequence" else [part]
