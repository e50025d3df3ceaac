"""Samples of texts, and counts of their words as a tokenizer's normalizer and pre-tokenizer see them."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tokenizers import Tokenizer as Backend

MAX_WORD_CHARACTERS = 1000  # in scripts with spaces between words
# Character ranges for regexes. Scripts without spaces between words: Thai to Khmer, Chinese, Japanese, Korean.
SPACELESS = r"\u0e00-\u109f\u1780-\u17ff\u2e80-\ud7ff\U00020000-\U0003ffff"
# Chinese and Japanese characters, each counted as a word.
CJK = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
OVERLONG_WORD = re.compile(rf"[^\s{SPACELESS}]{{{MAX_WORD_CHARACTERS},}}")


@dataclass
class Sample:
    """Texts in bounded memory: all of them, or a uniform random sample, which depends only on the seed, the order of
    the texts and their sizes."""

    budget: int  # characters
    seed: int = 0
    texts: list[str] = field(default_factory=list)
    seen: int = 0  # characters of all texts
    sampled: int = 0  # characters of the sampled texts
    overlong_words: int = 0  # removed: too long to be words
    is_complete: bool = True  # every text was sampled

    @classmethod
    def of(cls, texts: Iterable[str], budget: int, seed: int = 0) -> Sample:
        """Keep a text if the hash of its index is below a threshold, and halve the threshold whenever the budget is
        exceeded."""
        sample = cls(budget, seed)
        key = seed.to_bytes(16, "little")
        threshold = 2**64
        hashes: list[int] = []  # of the sampled texts
        for index, text in enumerate(texts):
            sample.seen += len(text)
            if len(text) > MAX_WORD_CHARACTERS:
                text, n_removed = OVERLONG_WORD.subn(" ", text)
                sample.overlong_words += n_removed
            digest = hashlib.blake2b(index.to_bytes(8, "little"), digest_size=8, key=key).digest()
            text_hash = int.from_bytes(digest, "little")
            if text_hash >= threshold:
                continue
            sample.texts.append(text)
            hashes.append(text_hash)
            sample.sampled += len(text)
            while sample.sampled > budget and len(sample.texts) > 1:
                threshold //= 2
                sample.is_complete = False
                sample.texts = [text for text, value in zip(sample.texts, hashes, strict=True) if value < threshold]
                hashes = [value for value in hashes if value < threshold]
                sample.sampled = sum(map(len, sample.texts))
        return sample

    def __str__(self) -> str:
        summary = f"all {self.seen:,} characters"
        if not self.is_complete:
            summary = f"a sample of {self.sampled:,} of {self.seen:,} characters (seed {self.seed})"
        if self.overlong_words:
            summary += f", without {self.overlong_words:,} words of {MAX_WORD_CHARACTERS:,} characters or more"
        return summary


def count_chunks(texts: Iterable[str]) -> Counter[str]:
    """Counts of the chunks between white space, so that each has to be tokenised only once."""
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(text.split())
    return chunks


def count_words(backend: Backend, texts: Iterable[str]) -> Counter[str]:
    """Counts of the words as the tokenizer's normalizer and pre-tokenizer see them."""
    words: Counter[str] = Counter()
    for chunk, count in count_chunks(texts).items():
        for word in split_words(backend, chunk):
            words[word] += count
    return words


def split_words(backend: Backend, text: str) -> list[str]:
    """A text normalised and pre-tokenised."""
    normalized = backend.normalizer.normalize_str(text) if backend.normalizer is not None else text
    if backend.pre_tokenizer is None:
        return [normalized]
    return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normalized)]
