"""Texts split into words as the training words are: how many words of held-out sentences are found.

    python benchmarks/words.py TRAIN [HELD_OUT]     CoNLL files; without the second, the last fifth of the first

Files of words do not tell where spaces were, so the held-out sentences are written as people write them: no space
before a closing sign, an ending such as 's and n't, or after an opening sign; none at all in Chinese.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bertworks.datasets.readers import read_conll
from bertworks.datasets.report import ReadReport
from bertworks.text.word_splitter import HAN, Words, WordSplitter, character_kind, words_with_starts

BEFORE = re.compile(r"[.,;:!?)\]}%…]|\.\.\.|''|['’](s|m|re|ve|ll|d)?|n['’]t", re.IGNORECASE)  # no space before these
AFTER = re.compile(r"[(\[{$£#]|``")  # and none after these


def write(words: Sequence[str]) -> tuple[str, set[tuple[int, str]]]:
    """A text, and its words with their starts."""
    is_chinese = sum(character_kind(word[0]) == HAN for word in words) > len(words) / 4
    text = ""
    placed = set()
    in_quotes = False
    sticks = True
    for word in words:
        closes = word == '"' and in_quotes
        opens = word == '"' and not in_quotes
        in_quotes ^= word == '"'
        if not (sticks or is_chinese or closes or BEFORE.fullmatch(word)):
            text += " "
        placed.add((len(text), word))
        text += word
        sticks = opens or AFTER.fullmatch(word) is not None
    return text, placed


def measure(split: Callable[[str], Words], sentences: Sequence[tuple[str, set[tuple[int, str]]]]) -> str:
    found = [(set(split(text)), words) for text, words in sentences]
    hits = sum(len(predicted & words) for predicted, words in found)
    n_words = sum(len(predicted) + len(words) for predicted, words in found)
    exact = sum(predicted == words for predicted, words in found) / len(found)
    return f"{2 * hits / n_words:.1%} of the words (F1), {exact:.1%} of {len(found):,} sentences without an error"


def main(train_file: str, held_out_file: str | None = None) -> None:
    train = read_conll(Path(train_file), ReadReport())
    n_train = len(train) if held_out_file else len(train) * 4 // 5
    held_out = read_conll(Path(held_out_file), ReadReport()) if held_out_file else train[n_train:]
    sentences = [write([part for word in example.texts for part in word.split()]) for example in held_out]
    splitter = WordSplitter.learn(example.texts for example in train[:n_train])
    print(f"by the rule: {measure(words_with_starts, sentences)}")
    print(f"learned:     {measure(splitter.split, sentences)}")
    print(f"             {len(splitter.trigrams):,} trigrams and {len(splitter.words):,} words stored")


if __name__ == "__main__":
    main(*sys.argv[1:])
