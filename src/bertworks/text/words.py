"""The words of a text and how often they occur, as a tokenizer sees words: normalised, and split where it splits."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tokenizers import Tokenizer as Backend

LONGEST_WORD = 1000  # characters
# Scripts that are written without spaces (Thai to Khmer, Chinese, Japanese, Korean) have no such limit.
SPACELESS = (
    r"\u0e00-\u109f\u1780-\u17ff\u2e80-\ud7ff\U00020000-\U0003ffff"  # for patterns: scripts that set none between words
)
# for patterns: Chinese and Japanese, written without spaces, each a word
CJK = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
ENDLESS = re.compile(rf"[^\s{SPACELESS}]{{{LONGEST_WORD},}}")


@dataclass
class Sample:
    """Texts in bounded memory: all of them, or a fair choice that depends only on the seed and on how many there are
    before."""

    budget: int  # characters
    seed: int = 0
    texts: list[str] = field(default_factory=list)
    seen: int = 0  # characters
    kept: int = 0
    endless: int = 0  # stretches without a space that are no words, left out
    whole: bool = True  # no text was left out

    @classmethod
    def of(cls, texts: Iterable[str], budget: int, seed: int = 0) -> Sample:
        """A text is kept if the hash of its number is below a bar, and the bar is lowered by half whenever the budget
        is full."""
        sample = cls(budget, seed)
        key, bar = seed.to_bytes(16, "little"), 2**64
        hashes: list[int] = []
        for index, text in enumerate(texts):
            sample.seen += len(text)
            if len(text) > LONGEST_WORD:
                text, count = ENDLESS.subn(" ", text)
                sample.endless += count
            number = int.from_bytes(
                hashlib.blake2b(index.to_bytes(8, "little"), digest_size=8, key=key).digest(), "little"
            )
            if number >= bar:
                continue
            sample.texts.append(text)
            hashes.append(number)
            sample.kept += len(text)
            while sample.kept > budget and len(sample.texts) > 1:
                bar, sample.whole = bar // 2, False
                below = [number < bar for number in hashes]
                sample.texts = [text for text, keep in zip(sample.texts, below, strict=True) if keep]
                hashes = [number for number in hashes if number < bar]
                sample.kept = sum(map(len, sample.texts))
        return sample

    def __str__(self) -> str:
        left_out = (
            f", {self.endless:,} stretches of {LONGEST_WORD:,} characters and more without a space left out"
            if self.endless
            else ""
        )
        if self.whole:
            return f"all {self.seen:,} characters{left_out}"
        return f"a sample of {self.kept:,} of {self.seen:,} characters (seed {self.seed}){left_out}"


def count_chunks(texts: Iterable[str]) -> Counter[str]:
    """How often each stretch between white space occurs, so that what follows looks at each only once."""
    stretches: Counter[str] = Counter()
    for text in texts:
        stretches.update(text.split())
    return stretches


def count_words(backend: Backend, texts: Iterable[str]) -> Counter[str]:
    """How often each word occurs."""
    words: Counter[str] = Counter()
    for stretch, count in count_chunks(texts).items():
        for word in split_words(backend, stretch):
            words[word] += count
    return words


def split_words(backend: Backend, text: str) -> list[str]:
    normal = backend.normalizer.normalize_str(text) if backend.normalizer is not None else text
    return (
        [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normal)]
        if backend.pre_tokenizer is not None
        else [normal]
    )
