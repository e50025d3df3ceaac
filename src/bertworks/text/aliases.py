"""Aliases: variants of a form that get the form's token, read from a file and put into a WordPiece vocabulary.

`colour<tab>color`, one per line. In the vocabulary the variant's string gets the id of the form, so tokenising costs
nothing more and offsets point at what the user wrote. A variant of several words ("New York City", 北大) is not split
by the pre-tokenizer, which is BERT's own written as one pattern, with these variants tried first; it must be written
with single spaces.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tokenizers.pre_tokenizers import BertPreTokenizer

from bertworks.errors import BadConfig
from bertworks.files import read_file

Trie = dict[str, "Trie"]  # by the next character; an empty key where a string ends


def read_aliases(path: Path) -> dict[str, str]:
    """A dict from variant to form."""
    try:
        lines = read_file(path).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise BadConfig(f"not UTF-8 at byte {error.start}", place=str(path), code="not-utf8") from None
    aliases: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("# "):
            continue
        variant, _, form = (part.strip(" \r") for part in line.partition("\t"))
        if not variant or not form or "\t" in form:
            cause = "expected a variant, a tab and a form"
            raise BadConfig(cause, place=f"{path}, line {number}", remedy="colour<tab>color", code="bad-line")
        if aliases.setdefault(variant, form) != form:
            cause = f"{variant!r} has two forms, {aliases[variant]!r} and {form!r}"
            raise BadConfig(cause, place=f"{path}, line {number}", code="conflicting-alias")
    return aliases


def pre_tokenizer_keeping(strings: Iterable[str]) -> dict[str, object]:
    """The JSON of a pre-tokenizer that splits as BERT's does, but never inside these strings."""
    punctuation = _punctuation()
    # A string that ends with a letter must be followed by a word boundary; after punctuation anything may follow.
    end_in_word: list[str] = []
    end_in_punctuation: list[str] = []
    for string in strings:
        ends_in_word = string[-1].isalnum() or unicodedata.category(string[-1])[0] == "M"
        (end_in_word if ends_in_word else end_in_punctuation).append(string)
    branches = [rf"{_pattern(_trie(end_in_word))}(?![^\s{punctuation}])"] if end_in_word else []
    branches += [_pattern(_trie(end_in_punctuation))] if end_in_punctuation else []
    pattern = "|".join([*branches, rf"[{punctuation}]", rf"[^\s{punctuation}]+"])
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": True}


@cache
def _punctuation() -> str:
    """The characters that BERT's pre-tokenizer treats as punctuation, as ranges for a regex. They are found by running
    it on every character, since its Unicode tables differ from those of the regex."""
    all_characters = "".join(f"a{chr(code)}" for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    code_points = sorted(
        ord(piece)
        for piece, _ in BertPreTokenizer().pre_tokenize_str(all_characters)
        if len(piece) == 1 and not piece.isalnum()
    )
    ranges: list[list[int]] = []
    for code_point in code_points:
        if ranges and ranges[-1][1] == code_point - 1:
            ranges[-1][1] = code_point
        else:
            ranges.append([code_point, code_point])
    return "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges)


def _trie(strings: Iterable[str]) -> Trie:
    root: Trie = {}
    for string in strings:
        node = root
        for character in string:
            node = node.setdefault(character, {})
        node[""] = {}  # a string ends here
    return root


def _pattern(node: Trie) -> str:
    """The regex of a trie: one branch per next character, so that matching never backtracks; longest string first."""
    branches = [re.escape(character) + _pattern(child) for character, child in sorted(node.items()) if character]
    branches += [""] if "" in node else []
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
