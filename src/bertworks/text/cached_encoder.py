"""A fast encoder of sentences into token ids and word starts, with a cache of the tokens of each word.

Most words of a text were seen before. If no step of a tokenizer looks across a space, which is so for nearly all, the
tokens of a sentence are the tokens of its words, and looking words up in a dictionary is several times faster than
tokenising again. A tokenizer that does look across spaces encodes whole sentences.

White space between words becomes one space: `encode` gives what the tokenizer gives for `" ".join(sentence.split())`.
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
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from bertworks.errors import Unsupported
from bertworks.files import JsonObject
from bertworks.text.tokenizer import Tokenizer

Words = Literal["auto", "char"]  # how Chinese words are found: by the segmenter, or every character is one
HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+")
INSTALL_SEGMENTER = "pip install 'bertworks[zh]', or --words char to mask single characters"
CACHE_SIZE = 400_000  # words; a full cache is cleared, so that memory stays bounded
MAX_CACHED_CHARACTERS = 32  # of a word
WORD_PARTS = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]")
# Normalizers and pre-tokenizers that never look across a space.
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
    """The tokens of sentences, concatenated."""

    ids: NDArray[np.uint32]  # (tokens,)
    word_starts: NDArray[np.bool_]  # (tokens,) whether a word begins here
    lengths: NDArray[np.int64]  # (sentences,)


class CachedEncoder:
    """Encodes sentences word by word. The cache is flat: the tokens of the words one after the other, where each word's
    begin, and an index from words to their rows."""

    def __init__(self, tokenizer: Tokenizer, words: Words = "auto") -> None:
        tokenizer_json = json.loads(tokenizer.backend.to_str())
        self.tokenizer = tokenizer
        self.words = words
        self.by_word = _is_local(tokenizer_json)
        step_types = {step["type"] for step in _steps(tokenizer_json["pre_tokenizer"], "pretokenizers")}
        self.space_in_word = "ByteLevel" in step_types  # the space before a word is part of it
        self.splits_punctuation = bool(step_types & {"BertPreTokenizer", "Punctuation"})
        self.added_characters = {token["content"][0] for token in tokenizer_json["added_tokens"]}  # first characters
        self.segmenter: str | None = None  # name and version, once there was Chinese text
        self._clear()

    def encode(self, sentences: Sequence[str], starts_document: Sequence[bool]) -> EncodedSentences:
        """The tokens of consecutive sentences; `starts_document` flags those that no other sentence precedes."""
        words = []
        word_counts = []
        for sentence, is_first in zip(sentences, starts_document, strict=True):
            sentence_words = sentence.split()
            if self.space_in_word:
                spaced = [" " + word for word in sentence_words]
                sentence_words = [*sentence_words[:1], *spaced[1:]] if is_first else spaced
            words += sentence_words
            word_counts.append(len(sentence_words))
        if len(self.index) > CACHE_SIZE:
            self._clear()
        new_words = [word for word in dict.fromkeys(words) if word not in self.index]
        if not self.by_word:
            return self._encode_sentences(sentences, starts_document)
        n_cached = self._add([word for word in new_words if len(word) <= MAX_CACHED_CHARACTERS])
        self._add([word for word in new_words if len(word) > MAX_CACHED_CHARACTERS])
        index = self.index
        rows = np.array([index[word] for word in words], dtype=np.int64)
        encoded = self._look_up(rows, np.array(word_counts, dtype=np.int64))
        self._evict(n_cached, new_words)
        return encoded

    def _look_up(self, rows: NDArray[np.int64], word_counts: NDArray[np.int64]) -> EncodedSentences:
        """Gather the tokens of cached words; `word_counts` are words per sentence."""
        row_offsets = np.frombuffer(self.row_offsets, dtype=np.int64)
        lengths = row_offsets[rows + 1] - row_offsets[rows]
        ends = np.cumsum(lengths)
        positions = np.arange(lengths.sum()) + np.repeat(row_offsets[rows] - (ends - lengths), lengths)
        sentence_edges = np.concatenate([[0], ends])[np.concatenate([[0], np.cumsum(word_counts)])]
        if not len(positions):
            return EncodedSentences(np.empty(0, np.uint32), np.empty(0, np.bool_), np.diff(sentence_edges))
        ids = np.frombuffer(self.ids, dtype=np.uint32)
        is_start = np.frombuffer(self.is_start, dtype=np.bool_)
        return EncodedSentences(ids[positions], is_start[positions], np.diff(sentence_edges))

    def _clear(self) -> None:
        self.index: dict[str, int] = {}  # word -> row
        self.row_offsets = array("q", [0])  # of the rows, in tokens; and the end
        self.ids = array("I")
        self.is_start = array("B")

    def _add(self, words: list[str]) -> int:
        """Encode words and cache them; returns the number of cached rows."""
        composed = {word: parts for word in words if len(parts := self._parts(word)) > 1}
        new_parts = dict.fromkeys(part for parts in composed.values() for part in parts if part not in self.index)
        to_encode = [*new_parts, *(word for word in words if word not in composed and word not in new_parts)]
        for word, encoding in zip(to_encode, self.tokenizer.encodings(to_encode), strict=True):
            self._store(word, encoding.ids, self.word_starts(word, encoding))
        for word, parts in composed.items():
            ids = array("I")
            is_start = array("B")
            for row in map(self.index.__getitem__, parts):
                begin, end = self.row_offsets[row], self.row_offsets[row + 1]
                ids += self.ids[begin:end]
                is_start += self.is_start[begin:end]
            self._store(word, ids, is_start)
        return len(self.row_offsets) - 1

    def _parts(self, word: str) -> list[str]:
        """A word split into letters and single punctuation characters, if the tokenizer splits there anyway: the same
        few words occur with many kinds of punctuation."""
        # The parts of a word that is not cached would be evicted with it.
        can_split = self.splits_punctuation and len(word) <= MAX_CACHED_CHARACTERS
        is_plain = word.isascii() and word.isprintable() and self.added_characters.isdisjoint(word)
        return WORD_PARTS.findall(word) if can_split and is_plain else [word]

    def _store(self, word: str, ids: Iterable[int], is_start: Iterable[int]) -> None:
        self.index[word] = len(self.row_offsets) - 1
        self.ids.extend(ids)
        self.is_start.extend(is_start)
        self.row_offsets.append(len(self.ids))

    def _evict(self, n_cached: int, new_words: list[str]) -> None:
        """Remove the rows after the first `n_cached`: those of long words, which hardly occur again."""
        n_tokens = self.row_offsets[n_cached]
        del self.row_offsets[n_cached + 1 :], self.ids[n_tokens:], self.is_start[n_tokens:]
        for word in new_words:
            if len(word) > MAX_CACHED_CHARACTERS:
                del self.index[word]

    def _encode_sentences(self, sentences: Sequence[str], starts_document: Sequence[bool]) -> EncodedSentences:
        texts = [" ".join(sentence.split()) for sentence in sentences]
        if self.space_in_word:
            pairs = zip(texts, starts_document, strict=True)
            texts = [text if is_first or not text else " " + text for text, is_first in pairs]
        encodings = self.tokenizer.encodings(texts)
        is_start = [
            np.array(self.word_starts(text, encoding), np.bool_)
            for text, encoding in zip(texts, encodings, strict=True)
        ]
        ids = [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]
        lengths = np.array([len(sentence_ids) for sentence_ids in ids], dtype=np.int64)
        return EncodedSentences(
            np.concatenate([np.empty(0, np.uint32), *ids]), np.concatenate([np.empty(0, np.bool_), *is_start]), lengths
        )

    def word_starts(self, text: str, encoding: Encoding) -> list[bool]:
        """For each token, whether a word begins there: the tokenizer's words, with punctuation as separate words, and
        Chinese words as the segmenter finds them."""
        words = encoding.word_ids
        is_start = [True, *map(ne, words, words[1:])][: len(words)]
        if text.isascii() and (self.splits_punctuation or text.lstrip(" ").isalpha()):
            return is_start
        offsets = encoding.offsets
        after_punctuation = False
        for i, (begin, end) in enumerate(offsets):
            is_punctuation = not any(map(str.isalnum, text[begin:end]))
            if i and (is_punctuation or after_punctuation) and begin >= offsets[i - 1][1]:
                is_start[i] = True
            after_punctuation = is_punctuation
        han_starts = {begin: is_start for run in HAN.finditer(text) for begin, is_start in self._han_starts(run)}
        for i, (begin, _) in enumerate(offsets if han_starts else ()):
            if begin in han_starts:
                is_start[i] = han_starts[begin] and (i == 0 or offsets[i - 1][0] != begin)
        return is_start

    def _han_starts(self, run: re.Match[str]) -> Iterator[tuple[int, bool]]:
        """The offset of each character in a run of Chinese ones, and whether a word begins there."""
        offset = run.start()
        for word in run[0] if self.words == "char" else self._segment(run[0]):
            for i in range(len(word)):
                yield offset + i, i == 0
            offset += len(word)
        yield offset, True  # a word that follows the run is another one

    def _segment(self, text: str) -> list[str]:
        if self.segmenter is None:
            try:
                self._jieba = import_module("rjieba")
            except ImportError:
                cause = f"finding the words of Chinese text ({text[:10]!r}) needs the package rjieba"
                raise Unsupported(cause, remedy=INSTALL_SEGMENTER, code="missing-extra") from None
            self.segmenter = segmenter_version()
        words: list[str] = self._jieba.cut(text)
        return words


def segmenter_version() -> str | None:
    """Name and version of the Chinese word segmenter, if it is installed."""
    try:
        return f"rjieba {version('rjieba')}"
    except PackageNotFoundError:
        return None


def _is_local(tokenizer_json: JsonObject) -> bool:
    """Whether no normalizer, pre-tokenizer or added token of this tokenizer looks across a space."""
    normalizers = _steps(tokenizer_json["normalizer"], "normalizers")
    pre_tokenizers = _steps(tokenizer_json["pre_tokenizer"], "pretokenizers")
    types = {step["type"] for step in normalizers}
    if "Precompiled" in types and "StripAccents" not in types:
        return False  # it treats a space and an accent after it as one character
    for step in normalizers:
        is_local_replace = step["type"] == "Replace" and not any(map(str.isspace, step["pattern"].get("String", " ")))
        if step["type"] not in LOCAL_NORMALIZERS and not is_local_replace:
            return False
    for step in pre_tokenizers:
        if step["type"] not in LOCAL_PRE_TOKENIZERS or step.get("split") is False or step.get("use_regex") is False:
            return False
        if step.get("prepend_scheme") == "never":
            return False
    added_tokens = tokenizer_json["added_tokens"]
    return bool(pre_tokenizers) and not any(
        token["rstrip"] or any(map(str.isspace, token["content"])) for token in added_tokens
    )


def _steps(component: JsonObject | None, key: str) -> list[JsonObject]:
    """The steps of a normalizer or pre-tokenizer in tokenizer.json, without the sequences that hold them."""
    if component is None:
        return []
    if component["type"] == "Sequence":
        return [step for child in component[key] for step in _steps(child, key)]
    return [component]
