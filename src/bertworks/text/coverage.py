"""How well a vocabulary covers a text: pieces per word, unknown words and the worst split words, by script."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from tokenizers import Encoding

from bertworks.errors import Remark
from bertworks.text.cached_encoder import CachedEncoder
from bertworks.text.tokenizer import Tokenizer
from bertworks.text.words import count_chunks

SPACE_PREFIX = "▁"  # prefix of a word that follows a space, for tokenizers that treat it differently
MAX_BERT_WORD = 100  # characters; to BERT's tokenizer longer words are unknown
CHUNKS_AT_ONCE = 4096  # tokenised in one call


@dataclass(frozen=True)
class WordUse:
    """A word of the text: its count and its tokens."""

    count: int
    ids: tuple[int, ...]


@dataclass
class ScriptCoverage:
    """The coverage of one script."""

    words: int = 0  # distinct
    occurrences: int = 0
    pieces: int = 0
    unknown: int = 0  # occurrences with an unknown token
    worst: list[tuple[str, WordUse]] = field(default_factory=list)  # words whose splits cost most tokens

    @property
    def pieces_per_word(self) -> float:
        return self.pieces / max(1, self.occurrences)


@dataclass
class Coverage:
    """The words of a text with their tokens."""

    uses: dict[str, WordUse]
    unknown_id: int | None

    @property
    def occurrences(self) -> int:
        return sum(use.count for use in self.uses.values())

    @property
    def pieces_per_word(self) -> float:
        return sum(use.count * len(use.ids) for use in self.uses.values()) / max(1, self.occurrences)

    def is_unknown(self, use: WordUse) -> bool:
        return self.unknown_id is not None and self.unknown_id in use.ids

    def scripts(self, worst: int) -> dict[str, ScriptCoverage]:
        """Coverage by script, the most frequent first, each with its `worst` words: those whose splits cost most."""
        scripts: dict[str, ScriptCoverage] = defaultdict(ScriptCoverage)
        split_words: dict[str, list[tuple[str, WordUse]]] = defaultdict(list)
        for word, use in self.uses.items():
            script = scripts[script_of(word)]
            script.words += 1
            script.occurrences += use.count
            script.pieces += use.count * len(use.ids)
            script.unknown += use.count * self.is_unknown(use)
            if len(use.ids) > 1 or self.is_unknown(use):
                split_words[script_of(word)].append((word, use))
        for name, entries in split_words.items():
            scripts[name].worst = sorted(entries, key=lambda entry: (-split_cost(entry[1]), entry[0]))[:worst]
        return dict(sorted(scripts.items(), key=lambda entry: -entry[1].occurrences))

    def unknown_kinds(self) -> Counter[Remark]:
        """Occurrences of unknown words by kind."""
        kinds: Counter[Remark] = Counter()
        for word, use in self.uses.items():
            if self.is_unknown(use):
                kinds[_kind_of_unknown(word)] += use.count
        return kinds


def split_cost(use: WordUse) -> int:
    """Tokens that an entry for this word would save; for an unknown word, one per occurrence."""
    return use.count * max(1, len(use.ids) - 1)


def measure_coverage(tokenizer: Tokenizer, texts: Iterable[str]) -> Coverage:
    """Tokenise texts and count their words."""
    chunk_counts = count_chunks(texts)
    counts: Counter[str] = Counter()
    ids: dict[str, tuple[int, ...]] = {}
    for chunk, words in _tokenised_words(tokenizer, list(chunk_counts)):
        for word, word_ids in words:
            counts[word] += chunk_counts[chunk]
            ids[word] = word_ids
    return Coverage({word: WordUse(count, ids[word]) for word, count in counts.items()}, tokenizer.unknown_id)


def _tokenised_words(
    tokenizer: Tokenizer, chunks: list[str]
) -> Iterator[tuple[str, list[tuple[str, tuple[int, ...]]]]]:
    """Each chunk between white space, with the words in it and their tokens."""
    encoder = CachedEncoder(tokenizer, "char")
    space = " " if encoder.space_in_word else ""
    for first_chunk in range(0, len(chunks), CHUNKS_AT_ONCE):
        texts = [space + chunk for chunk in chunks[first_chunk : first_chunk + CHUNKS_AT_ONCE]]
        for text, encoding in zip(texts, tokenizer.encodings(texts), strict=True):
            begins = [i for i, is_start in enumerate(encoder.word_starts(text, encoding)) if is_start]
            words = []
            for begin, end in zip(begins, [*begins[1:], len(encoding.ids)], strict=True):
                word = normalized(tokenizer, text[encoding.offsets[begin][0] : encoding.offsets[end - 1][1]])
                prefix = SPACE_PREFIX if _follows_space(encoding, begin, tokenizer) else ""
                words.append((prefix + word, tuple(encoding.ids[begin:end])))
            yield text[len(space) :], words


def _follows_space(encoding: Encoding, token: int, tokenizer: Tokenizer) -> bool:
    """For BPE and unigram a word after a space is not the same as after a bracket. False for WordPiece."""
    return tokenizer.kind != "WordPiece" and (token == 0 or encoding.tokens[token][0] in "Ġ▁")


def normalized(tokenizer: Tokenizer, text: str) -> str:
    """A text after the tokenizer's normalizer, stripped."""
    normalizer = tokenizer.backend.normalizer
    return (str(normalizer.normalize_str(text)) if normalizer is not None else text).strip()


@lru_cache(maxsize=100_000)
def script_of(word: str) -> str:
    """The script of a word's first letter: latin, cjk, cyrillic, ...; else digits or signs."""
    letter = next((character for character in word if character.isalpha()), None)
    if letter is None:
        return "digits" if any(map(str.isdigit, word)) else "signs"
    return unicodedata.name(letter, "other").split()[0].split("-")[0].lower()


def _kind_of_unknown(word: str) -> Remark:
    if len(word) > MAX_BERT_WORD:
        return Remark("long-words", f"words of more than {MAX_BERT_WORD} characters")
    categories = {unicodedata.category(character) for character in word if not character.isspace()}
    if "So" in categories:
        return Remark("emoji", "emoji and pictures")
    if categories & {"Co", "Cn", "Cs"}:
        return Remark("unnamed-characters", "characters that Unicode does not name")
    script = script_of(word)
    return Remark(script, script if script in ("signs", "digits") else f"{script} words")
