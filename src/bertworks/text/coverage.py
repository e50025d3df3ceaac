"""How well a vocabulary fits a text: pieces per word, unknown words, the words that split worst, script by script."""

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

SPACED = "▁"  # before a word that follows a space, where that makes a difference
LONG_WORD = 100  # characters; BERT's tokenizer gives up on longer ones
WORDS_AT_ONCE = 4096  # stretches tokenised in one go


@dataclass(frozen=True)
class WordUse:
    """A word of the text: how often, and as which tokens."""

    count: int
    ids: tuple[int, ...]


@dataclass
class ScriptCoverage:
    """The words of one script."""

    words: int = 0  # different ones
    occurrences: int = 0
    pieces: int = 0
    unknown: int = 0  # occurrences with an unknown token
    worst: list[tuple[str, WordUse]] = field(default_factory=list)

    @property
    def pieces_per_word(self) -> float:
        return self.pieces / max(1, self.occurrences)


@dataclass
class Coverage:
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
        """By script, the most frequent first; with the words whose splitting costs most tokens."""
        found: dict[str, ScriptCoverage] = defaultdict(ScriptCoverage)
        words: dict[str, list[tuple[str, WordUse]]] = defaultdict(list)
        for word, use in self.uses.items():
            script = found[script_of(word)]
            script.words += 1
            script.occurrences += use.count
            script.pieces += use.count * len(use.ids)
            script.unknown += use.count * self.is_unknown(use)
            if len(use.ids) > 1 or self.is_unknown(use):
                words[script_of(word)].append((word, use))
        for name, entries in words.items():
            found[name].worst = sorted(entries, key=lambda entry: (-cost(entry[1]), entry[0]))[:worst]
        return dict(sorted(found.items(), key=lambda entry: -entry[1].occurrences))

    def unknown_kinds(self) -> Counter[Remark]:
        """What is left as unknown, by kind."""
        kinds: Counter[Remark] = Counter()
        for word, use in self.uses.items():
            if self.is_unknown(use):
                kinds[_kind_of_unknown(word)] += use.count
        return kinds


def cost(use: WordUse) -> int:
    """Tokens that an entry of its own would save, or one per occurrence of an unknown word."""
    return use.count * max(1, len(use.ids) - 1)


def measure_coverage(tokenizer: Tokenizer, texts: Iterable[str]) -> Coverage:
    """Every word of the texts with its tokens."""
    stretches = count_chunks(texts)
    counts: Counter[str] = Counter()
    ids: dict[str, tuple[int, ...]] = {}
    for stretch, words in _tokenised(tokenizer, list(stretches)):
        for word, tokens in words:
            counts[word] += stretches[stretch]
            ids[word] = tokens
    return Coverage({word: WordUse(count, ids[word]) for word, count in counts.items()}, tokenizer.unknown_id)


def _tokenised(tokenizer: Tokenizer, stretches: list[str]) -> Iterator[tuple[str, list[tuple[str, tuple[int, ...]]]]]:
    speller = CachedEncoder(tokenizer, "char")
    lead = " " if speller.spaced else ""
    for start in range(0, len(stretches), WORDS_AT_ONCE):
        portion = [lead + stretch for stretch in stretches[start : start + WORDS_AT_ONCE]]
        for stretch, encoding in zip(portion, tokenizer.encodings(portion), strict=True):
            begins = [at for at, first in enumerate(speller.word_starts(stretch, encoding)) if first]
            words = []
            for begin, end in zip(begins, [*begins[1:], len(encoding.ids)], strict=True):
                text = normalized(tokenizer, stretch[encoding.offsets[begin][0] : encoding.offsets[end - 1][1]])
                words.append(
                    (SPACED + text if _spaced(encoding, begin, tokenizer) else text, tuple(encoding.ids[begin:end]))
                )
            yield stretch[len(lead) :], words


def _spaced(encoding: Encoding, at: int, tokenizer: Tokenizer) -> bool:
    """To BPE and unigram a word after a space is another one than the same after a bracket."""
    return tokenizer.kind != "WordPiece" and (at == 0 or encoding.tokens[at][0] in "Ġ▁")


def normalized(tokenizer: Tokenizer, text: str) -> str:
    """A text as the tokenizer's normalizer leaves it, without space around."""
    normalizer = tokenizer.backend.normalizer
    return (str(normalizer.normalize_str(text)) if normalizer is not None else text).strip()


@lru_cache(maxsize=100_000)
def script_of(word: str) -> str:
    """latin, cjk, cyrillic, ...; digits; signs."""
    letter = next((sign for sign in word if sign.isalpha()), None)
    if letter is None:
        return "digits" if any(map(str.isdigit, word)) else "signs"
    return unicodedata.name(letter, "other").split()[0].split("-")[0].lower()


def _kind_of_unknown(word: str) -> Remark:
    if len(word) > LONG_WORD:
        return Remark("long-words", f"words of more than {LONG_WORD} characters")
    signs = [sign for sign in word if not sign.isspace()]
    if any(unicodedata.category(sign) == "So" for sign in signs):
        return Remark("emoji", "emoji and pictures")
    if any(unicodedata.category(sign) in ("Co", "Cn", "Cs") for sign in signs):
        return Remark("unnamed-characters", "characters that Unicode does not name")
    script = script_of(word)
    return Remark(script, script if script in ("signs", "digits") else f"{script} words")
