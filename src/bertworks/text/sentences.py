"""Paragraphs split into sentences, Western and Chinese.

A Western sentence ends with . ! ? or … (and what closes after it) before a space and a capital, a digit or an opening
quote; not after an initial (J. Smith) or a usual abbreviation. A Chinese one ends with 。！？ or …… wherever they stand.
All patterns look at each sign once: text may be a million dots.
"""

from __future__ import annotations

import re

LONGEST_SENTENCE = 10_000  # characters; longer ones are cut, at a space if there is one
CLOSERS = "\"'”’)\\]»」』）】》〉"
OPENERS = "\"'“‘([«¿¡「『（【《〈—-"
ENDS = re.compile(rf"[.!?…。！？]++[{CLOSERS}]*+")
LAST_WORD = re.compile(r"[^\s(\[\"'“‘]+$")
CHINESE_ENDS = "。！？"
ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st jr sr rev gen col capt lt sgt maj hon gov sen rep messrs mme mlle "
    "vs etc e.g i.e cf al ca approx ed eds dept est inc ltd co corp bros mt ft u.s u.k a.m p.m bzw z.b d.h usw".split()
)
BEFORE_NUMBERS = frozenset("no nos nr vol p pp fig figs eq sec ch jan feb mar apr jun jul aug sept oct nov dec".split())
RULES = 1  # raised when sentences come out differently


def split_sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph, stripped; joined again they are the paragraph but for spaces."""
    sentences, start = [], 0
    for match in ENDS.finditer(paragraph):
        end = _end(paragraph, start, match)
        if end:
            sentences.append(paragraph[start:end])
            start = end
    sentences.append(paragraph[start:])
    stripped = [sentence for sentence in map(str.strip, sentences) if sentence]
    if all(len(sentence) <= LONGEST_SENTENCE for sentence in stripped):
        return stripped
    return [part for sentence in stripped for part in cut_long(sentence)]


def cut_long(sentence: str) -> list[str]:
    """A sentence in parts of bounded length, cut at spaces where there are any."""
    parts, at = [], 0
    while len(sentence) - at > LONGEST_SENTENCE:
        space = sentence.rfind(" ", at + 1, at + LONGEST_SENTENCE)
        end = space if space > 0 else at + LONGEST_SENTENCE
        parts.append(sentence[at:end])
        at = end
    return [part for part in map(str.strip, [*parts, sentence[at:]]) if part]


def _end(text: str, start: int, match: re.Match[str]) -> int:
    """Where a sentence ends at these signs, 0 if it does not."""
    sign, end = match[0], match.end()
    after = text[end : end + 1]
    if not after.isspace():
        if sign[0] in CHINESE_ENDS or (sign[0] == "…" and "\u2e80" <= after <= "\u9fff"):
            return match.start() + len(sign.rstrip("\"'"))  # a straight quote may well open the next sentence
        return 0
    if sign[0] in CHINESE_ENDS:
        return end
    following = text[end : end + 8].lstrip()
    first = following.lstrip(OPENERS)[:1]
    if not (first.isupper() or first.isdigit() or "\u2e80" <= first <= "\u9fff" or (not first and following)):
        return 0
    if not sign.startswith(".") or sign.startswith(".."):
        return end
    word = LAST_WORD.search(text, max(start, match.start() - 20), match.start())
    if word is None:
        return end
    name = word[0].lower()
    abbreviated = _is_initial(word[0]) or name in ABBREVIATIONS or (first.isdigit() and name in BEFORE_NUMBERS)
    return 0 if abbreviated else end


def _is_initial(word: str) -> bool:
    return len(word) == 1 and word.isupper() and word != "I"
