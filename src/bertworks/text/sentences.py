"""A sentence splitter for Western and Chinese text.

A Western sentence ends with . ! ? or … (and closing quotes or brackets) before a space and a capital, a digit or an
opening quote; not after an initial (J. Smith) or a common abbreviation. A Chinese sentence ends at any 。！？ or ……
All patterns take linear time: a text may be a million dots.
"""

from __future__ import annotations

import re

MAX_SENTENCE_CHARACTERS = 10_000  # longer ones are split, at a space if there is one
CLOSERS = "\"'”’)\\]»」』）】》〉"
OPENERS = "\"'“‘([«¿¡「『（【《〈—-"
ENDS = re.compile(rf"[.!?…。！？]++[{CLOSERS}]*+")
LAST_WORD = re.compile(r"[^\s(\[\"'“‘]+$")
CHINESE_ENDS = "。！？"
ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st jr sr rev gen col capt lt sgt maj hon gov sen rep messrs mme mlle "
    "vs etc e.g i.e cf al ca approx ed eds dept est inc ltd co corp bros mt ft u.s u.k a.m p.m bzw z.b d.h usw".split()
)
ABBREVIATIONS_BEFORE_NUMBERS = frozenset(
    "no nos nr vol p pp fig figs eq sec ch jan feb mar apr jun jul aug sept oct nov dec".split()
)
SPLITTER_VERSION = 1  # version, raised when the same text is split differently


def split_sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph, stripped; nothing but white space is lost."""
    sentences = _sentences(paragraph)
    if all(len(sentence) <= MAX_SENTENCE_CHARACTERS for sentence in sentences):
        return sentences
    return [part for sentence in sentences for part in split_long(sentence)]


def cut_words(paragraph: str) -> list[str]:
    """The words that are longer than a sentence may be, so that `split_sentences` cuts them."""
    if len(paragraph) <= MAX_SENTENCE_CHARACTERS or max(map(len, paragraph.split(" "))) <= MAX_SENTENCE_CHARACTERS:
        return []
    words = (word for sentence in _sentences(paragraph) for word in sentence.split(" "))
    return [word for word in words if len(word) > MAX_SENTENCE_CHARACTERS]


def _sentences(paragraph: str) -> list[str]:
    """Sentences of any length."""
    sentences = []
    start = 0
    for match in ENDS.finditer(paragraph):
        end = _sentence_end(paragraph, start, match)
        if end:
            sentences.append(paragraph[start:end])
            start = end
    sentences.append(paragraph[start:])
    return [sentence for sentence in map(str.strip, sentences) if sentence]


def split_long(sentence: str) -> list[str]:
    """A sentence in parts of bounded length, split at spaces where there are any."""
    parts = []
    start = 0
    while len(sentence) - start > MAX_SENTENCE_CHARACTERS:
        space = sentence.rfind(" ", start + 1, start + MAX_SENTENCE_CHARACTERS)
        end = space if space > 0 else start + MAX_SENTENCE_CHARACTERS
        parts.append(sentence[start:end])
        start = end
    return [part for part in map(str.strip, [*parts, sentence[start:]]) if part]


def _sentence_end(text: str, start: int, match: re.Match[str]) -> int:
    """The end of the sentence if it ends at this punctuation, else 0."""
    marks = match[0]
    end = match.end()
    after = text[end : end + 1]
    if not after.isspace():
        if marks[0] in CHINESE_ENDS or (marks[0] == "…" and "\u2e80" <= after <= "\u9fff"):
            return match.start() + len(marks.rstrip("\"'"))  # a straight quote may open the next sentence
        return 0
    if marks[0] in CHINESE_ENDS:
        return end
    following = text[end : end + 8].lstrip()
    next_character = following.lstrip(OPENERS)[:1]
    is_only_openers = not next_character and bool(following)
    starts_sentence = next_character.isupper() or next_character.isdigit() or "\u2e80" <= next_character <= "\u9fff"
    if not starts_sentence and not is_only_openers:
        return 0
    if not marks.startswith(".") or marks.startswith(".."):
        return end
    last_word = LAST_WORD.search(text, max(start, match.start() - 20), match.start())
    if last_word is None:
        return end
    word = last_word[0]
    is_abbreviation = word.lower() in ABBREVIATIONS
    is_before_number = next_character.isdigit() and word.lower() in ABBREVIATIONS_BEFORE_NUMBERS
    return 0 if _is_initial(word) or is_abbreviation or is_before_number else end


def _is_initial(word: str) -> bool:
    return len(word) == 1 and word.isupper() and word != "I"
