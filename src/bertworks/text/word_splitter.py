"""Texts split into words: by rules, or as the words of some training data are split (`Apple 's`, `U.N.`, `2 0 0 9`).

The learned splitter is a generative model. A text between two spaces is a sequence of independent words. A word that is
known has the probability of its count. Any other is a second-order Markov chain over kinds of characters, from one
word boundary to the next; within its kind every character is equally likely. The Viterbi algorithm (1967) finds the
most probable words. Both are learned from words alone, since files of tagged words do not tell where spaces were.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from math import inf, log
from unicodedata import category

from bertworks.text.words import CJK

WORD = re.compile(rf"[{CJK}]|[^\W{CJK}]+(?:[-'’.][^\W{CJK}]+)*|[^\w\s]")
COMBINING_CATEGORIES = ("Mn", "Mc", "Me", "Cf")  # of Unicode: accents and joiners
CHUNK = re.compile(r"\S+")
IS_CJK = re.compile(f"[{CJK}]")
BOUNDARY = " "  # stands before the first and after the last character of a word
UPPER, LOWER, CASELESS, DIGIT, HAN = "X", "x", "a", "0", "字"  # kinds of characters; all others are their own kind
ALPHANUMERIC = (LOWER, UPPER, CASELESS, DIGIT)
ANY = "\t"  # in counts: all kinds together
KIND_SIZES = {UPPER: 26, LOWER: 26, CASELESS: 50, DIGIT: 10, HAN: 3000}  # about, and as used
VARIANTS = str.maketrans("‘’“”", "''\"\"")
MISSING_SPACES = 0.001  # how often people leave out the space between two words that meet in letters or digits
BACKOFF_WEIGHT = 0.5  # pseudo-counts that the shorter context has
MAX_KNOWN_WORDS = 10_000
Words = list[tuple[int, str]]
"""Words of a text, each after the index of its first character."""


def words_with_starts(text: str) -> Words:
    """By the rule: characters of Chinese and Japanese, runs of letters and digits, which hyphens, apostrophes and dots
    may join, and any other character alone. Combining characters do not split a word."""
    words: Words = []
    has_combining = False
    for match in WORD.finditer(text):
        is_adjacent = bool(words) and match.start() == words[-1][0] + len(words[-1][1])
        is_combining = category(match[0][0]) in COMBINING_CATEGORIES
        if is_adjacent and (is_combining or (has_combining and match[0][0].isalnum())):
            words[-1] = words[-1][0], words[-1][1] + match[0]
            has_combining = category(match[0][-1]) in COMBINING_CATEGORIES or has_combining
        else:
            words.append((match.start(), match[0]))
            has_combining = False
    return words


def split_finely(text: str, *, by_character: bool, digits_apart: bool) -> Words:
    """Runs of letters and digits, and every other character alone; if `by_character`, these too; if `digits_apart`,
    letters and digits are runs of their own."""
    words: Words = []
    previous = ""  # kind of the character before
    position = 0
    for unit in units_of(text):
        kind = character_kind(unit[0])
        is_cut = by_character or (digits_apart and _is_digit_edge(previous, kind))
        if previous in ALPHANUMERIC and kind in ALPHANUMERIC and not is_cut:
            words[-1] = words[-1][0], words[-1][1] + unit
        elif not unit.isspace():
            words.append((position, unit))
        previous = kind
        position += len(unit)
    return words


def is_digit_edge(text: str, position: int) -> bool:
    """Whether a letter and a digit meet there."""
    return 0 < position < len(text) and _is_digit_edge(*map(character_kind, text[position - 1 : position + 1]))


def _is_digit_edge(before: str, after: str) -> bool:
    return before in ALPHANUMERIC and after in ALPHANUMERIC and (before == DIGIT) != (after == DIGIT)


@lru_cache(maxsize=4096)
def character_kind(character: str) -> str:
    if IS_CJK.match(character):
        return HAN
    if character.isdigit():
        return DIGIT
    if character.isalpha():
        return UPPER if character.isupper() else LOWER if character.islower() else CASELESS
    return character.translate(VARIANTS)


def units_of(chunk: str) -> list[str]:
    """Characters, each with the combining ones that follow it."""
    units: list[str] = []
    for character in chunk:
        if units and category(character) in COMBINING_CATEGORIES:
            units[-1] += character
        else:
            units.append(character)
    return units


def _is_mixed(word: str) -> bool:
    """Whether it has letters or digits and others, such as n't, 's, U.N. and 3.14."""
    return len({character_kind(unit[0]) in ALPHANUMERIC for unit in units_of(word)}) > 1


class WordSplitter:
    """`trigrams`: how often three successive kinds, boundaries included, occur in the training words; `words`: counts
    of those that the trigrams alone may split, or take for parts of others."""

    def __init__(self, trigrams: Mapping[str, int], words: Mapping[str, int]) -> None:
        self.trigrams = dict(trigrams)
        self.words = dict(words)
        self._counts: Counter[str] = Counter(trigrams)
        for trigram, count in trigrams.items():
            for shorter in (trigram[:2] + ANY, trigram[1:], trigram[1] + ANY, trigram[2], ANY):
                self._counts[shorter] += count
        self._kinds = self._known_kinds()
        self._missing_space = self._missing_space_cost()
        self._sorted_words = sorted(words)
        self._cost = lru_cache(maxsize=65536)(self._trigram_cost)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled without its cache, which cannot be."""
        return WordSplitter, (self.trigrams, self.words)

    @classmethod
    def learn(cls, sentences: Iterable[Iterable[str]]) -> WordSplitter:
        counts = Counter(part.translate(VARIANTS) for words in sentences for word in words for part in word.split())
        trigrams: Counter[str] = Counter()
        for word, count in counts.items():
            kinds = BOUNDARY * 2 + "".join(character_kind(unit[0]) for unit in units_of(word)) + BOUNDARY
            for start in range(len(kinds) - 2):
                trigrams[kinds[start : start + 3]] += count
        by_kinds = cls(trigrams, {})
        known = (
            (word, count)
            for word, count in counts.most_common()
            if (count > 1 and _is_mixed(word)) or len(by_kinds.split(word)) > 1
        )
        return cls(trigrams, dict(islice(known, MAX_KNOWN_WORDS)))

    def split(self, text: str) -> Words:
        return [
            (match.start() + start, word) for match in CHUNK.finditer(text) for start, word in self._split(match[0])
        ]

    def _split(self, chunk: str) -> Words:
        """The most probable words of a text without spaces."""
        units = units_of(chunk)
        kinds = BOUNDARY * 2 + "".join(self._kinds.get(kind, kind) for kind in (character_kind(u[0]) for u in units))
        # Paths over the first `end` units: the cheapest that ends a word there, with the start of that word; and the
        # cheapest that is inside of a word of one unit, or of several.
        ended = [(0.0, 0)] + [(inf, 0)] * len(units)
        single_unit, several_units = (inf, 0), (inf, 0)
        for end in range(len(units) + 1):
            first = BOUNDARY + kinds[end + 1]
            context = kinds[end : end + 2]
            if end:
                ended[end] = min(
                    ended[end],
                    (single_unit[0] + self._cost(first, BOUNDARY), single_unit[1]),
                    (several_units[0] + self._cost(context, BOUNDARY), several_units[1]),
                )
            if end < len(units):
                kind = kinds[end + 2]
                several_units = min(
                    (single_unit[0] + self._cost(first, kind), single_unit[1]),
                    (several_units[0] + self._cost(context, kind), several_units[1]),
                )
                is_run = kind in ALPHANUMERIC and kinds[end + 1] in ALPHANUMERIC
                single_unit = (ended[end][0] + self._cost(BOUNDARY * 2, kind) + is_run * self._missing_space, end)
                self._read_known_words(units, end, ended)
        return _words_between(units, ended)

    def _read_known_words(self, units: Sequence[str], start: int, ended: list[tuple[float, int]]) -> None:
        """Improve the paths that end with a known word which starts here. Words are looked up by their beginnings, so
        that a long one costs nothing where it does not occur."""
        beginning = ""
        for end in range(start + 1, len(units) + 1):
            beginning += units[end - 1].translate(VARIANTS)
            index = bisect_left(self._sorted_words, beginning)
            if index == len(self._sorted_words) or not self._sorted_words[index].startswith(beginning):
                return
            if self._sorted_words[index] == beginning:
                cost = log(self._counts[BOUNDARY] / self.words[beginning])
                ended[end] = min(ended[end], (ended[start][0] + cost, start))

    def _trigram_cost(self, context: str, kind: str) -> float:
        """The negative log probability of a kind after two others, and of a character of that kind."""
        if kind not in self._counts or context[1] not in self._counts:
            return 0.0 if BOUNDARY in (kind, context[1]) else inf  # characters that training did not have stand alone
        counts = self._counts
        probability = (counts[kind] + 1) / (counts[ANY] + len(self._counts))
        for known in (context[1], context):
            total = counts[known + ANY] + BACKOFF_WEIGHT
            probability = (counts[known + kind] + BACKOFF_WEIGHT * probability) / total
        return log(KIND_SIZES.get(kind, 1) / probability)

    def _missing_space_cost(self) -> float:
        """Of two words that meet in letters or digits: none, where training words have no runs of these, as in Chinese
        data sets of characters."""
        followers = [(kinds[2], n) for kinds, n in self.trigrams.items() if kinds[1] in ALPHANUMERIC]
        n_in_runs = sum(n for kind, n in followers if kind in ALPHANUMERIC)
        return log(1 + n_in_runs / max(1, sum(n for _, n in followers)) / MISSING_SPACES)

    def _known_kinds(self) -> dict[str, str]:
        """Letters and digits of a kind that training did not have are read as those of another."""
        seen = [kind for kind in ALPHANUMERIC if kind in self._counts]
        return {kind: seen[0] for kind in ALPHANUMERIC if kind not in seen and seen}


def _words_between(units: Sequence[str], ended: Sequence[tuple[float, int]]) -> Words:
    """The words of the cheapest path, from its end back to its beginning."""
    edges = [len(units)]
    while edges[-1]:
        edges.append(ended[edges[-1]][1])
    edges.reverse()
    words: Words = []
    position = 0
    for start, end in pairwise(edges):
        word = "".join(units[start:end])
        words.append((position, word))
        position += len(word)
    return words
