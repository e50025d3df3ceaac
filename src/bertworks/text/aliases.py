"""Variants that mean one form: the alias file, and how a WordPiece vocabulary says it.

`colour<tab>color`, one per line. In the vocabulary the variant's own string gets the form's id, so tokenising costs
nothing more and offsets point at what the user wrote. A variant of several words ("New York City", 北大) is kept together
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
from typing import Any

from tokenizers.pre_tokenizers import BertPreTokenizer

from bertworks.errors import BadConfig
from bertworks.files import read_file


def read_aliases(path: Path) -> dict[str, str]:
    """Variant to form."""
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
            cause = "not a variant, a tab and a form"
            raise BadConfig(cause, place=f"{path}, line {number}", remedy="colour<tab>color", code="bad-line")
        if aliases.setdefault(variant, form) != form:
            cause = f"{variant!r} has two forms, {aliases[variant]!r} and {form!r}"
            raise BadConfig(cause, place=f"{path}, line {number}", code="conflicting-alias")
    return aliases


def kept_together(strings: Iterable[str]) -> dict[str, Any]:
    """A pre-tokenizer that splits as BERT's does, but for these strings."""
    marks = _punctuation()
    # A word must end where the string does; after a mark anything may follow.
    words: list[str] = []
    others: list[str] = []
    for string in strings:
        (words if string[-1].isalnum() or unicodedata.category(string[-1])[0] == "M" else others).append(string)
    branches = [rf"{_pattern(_trie(words))}(?![^\s{marks}])"] if words else []
    branches += [_pattern(_trie(others))] if others else []
    pattern = "|".join([*branches, rf"[{marks}]", rf"[^\s{marks}]+"])
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": True}


@cache
def _punctuation() -> str:
    """What BERT's pre-tokenizer takes for a mark, asked of itself, as ranges of characters: its Unicode is not the
    regex's."""
    everything = "".join(f"a{chr(code)}" for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    marks = sorted(
        ord(piece)
        for piece, _ in BertPreTokenizer().pre_tokenize_str(everything)
        if len(piece) == 1 and not piece.isalnum()
    )
    ranges: list[list[int]] = []
    for mark in marks:
        if ranges and ranges[-1][1] == mark - 1:
            ranges[-1][1] = mark
        else:
            ranges.append([mark, mark])
    return "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges)


def _trie(strings: Iterable[str]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for string in strings:
        node = root
        for sign in string:
            node = node.setdefault(sign, {})
        node[""] = {}
    return root


def _pattern(node: dict[str, Any]) -> str:
    """One branch per next character, so that matching looks at each only once; the longest string first."""
    branches = [re.escape(sign) + _pattern(inner) for sign, inner in sorted(node.items()) if sign]
    branches += [""] if "" in node else []
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
