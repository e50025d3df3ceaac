"""How the texts of a data set are split into words: decided on train, and the same for dev, evaluation and prediction.

Words of texts with spans have to begin and end where spans do, so these are split finely, by a `WordRule`. Where words
were given, by tags or by a tool's tokens, a `WordSplitter` learns from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice, pairwise

from bertworks.config import WordCounts, WordRule
from bertworks.datasets.columns import SAMPLED_ROWS
from bertworks.datasets.example import Example
from bertworks.text.word_splitter import (
    ALPHANUMERIC,
    HAN,
    Words,
    WordSplitter,
    character_kind,
    is_digit_edge,
    split_finely,
    words_with_starts,
)


def learn_words(train: Sequence[Example]) -> WordCounts | WordRule:
    """The rule by which the texts were split, or what their words tell."""
    split_texts = [example for example in train if example.source_text]
    rule = _rule(split_texts)
    split = splitter(rule)
    if split_texts and all(split(example.source_text) == _words(example) for example in split_texts):
        return rule
    learned = WordSplitter.learn(example.texts for example in train)
    return WordCounts(trigrams=learned.trigrams, words=learned.words, from_texts=bool(split_texts))


def _rule(examples: Sequence[Example]) -> WordRule:
    meets = (
        is_digit_edge(example.source_text, start)
        for example in examples
        for (before, word), (start, _) in pairwise(_words(example))
        if before + len(word) == start
    )
    return WordRule(by_character=is_mostly_han(example.source_text for example in examples), digits_apart=any(meets))


def _words(example: Example) -> Words:
    return list(zip(example.word_starts, example.texts, strict=True))


def splitter(words: WordCounts | WordRule | None) -> Callable[[str], Words]:
    """None: of older models, which have learned nothing of words."""
    if words is None:
        return words_with_starts
    if isinstance(words, WordRule):
        return partial(split_finely, by_character=words.by_character, digits_apart=words.digits_apart)
    return WordSplitter(words.trigrams, words.words).split


def is_mostly_han(texts: Iterable[str]) -> bool:
    """Of its letters and digits, in the first texts."""
    kinds = [character_kind(character) for text in islice(texts, SAMPLED_ROWS) for character in text]
    return kinds.count(HAN) > sum(kind in ALPHANUMERIC for kind in kinds)
