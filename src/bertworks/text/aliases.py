"""Variants that mean one form: the alias file, and how a WordPiece vocabulary says it.

`colour<tab>color`, one per line. In the vocabulary the variant's own string gets the form's id, so tokenising costs nothing more
and offsets point at what the user wrote. A variant of several words ("New York City", 北大) is kept together by the
pre-tokenizer, which is BERT's own written as one pattern, with these variants tried first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bertworks.errors import BadConfig
from bertworks.files import read_file

PUNCTUATION = r"!-/:-@\[-`{-~\p{P}"  # as BERT has it: ASCII signs and Unicode's punctuation


def read_aliases(path: Path) -> dict[str, str]:
    """Variant to form."""
    try:
        lines = read_file(path).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise BadConfig(f"not UTF-8 at byte {error.start}", place=str(path)) from None
    aliases: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        variant, _, form = (part.strip(" \r") for part in line.partition("\t"))
        if not variant or not form or "\t" in form:
            raise BadConfig("not a variant, a tab and a form", place=f"{path}, line {number}", remedy="colour<tab>color")
        if aliases.setdefault(variant, form) != form:
            raise BadConfig(f"{variant!r} has two forms, {aliases[variant]!r} and {form!r}", place=f"{path}, line {number}")
    return aliases


def kept_together(strings: Iterable[str]) -> dict[str, Any]:
    """A pre-tokenizer that splits as BERT's does, but for these strings."""
    branches = [_pattern(_trie(strings)), rf"[{PUNCTUATION}]", rf"[^\s{PUNCTUATION}]+"]
    return {"type": "Split", "pattern": {"Regex": "|".join(branches)}, "behavior": "Removed", "invert": True}


def _trie(strings: Iterable[str]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for string in strings:
        node = root
        for sign in string:
            node = node.setdefault(sign, {})
        node[""] = {}
    return root


def _pattern(node: dict[str, Any], last: str = "") -> str:
    """One branch per next character, so that matching looks at each only once; the longest string first."""
    branches = [re.escape(sign) + _pattern(inner, sign) for sign, inner in sorted(node.items()) if sign]
    if "" in node:
        # A word must end here; after a mark or a Chinese character anything may follow.
        branches.append(rf"(?![^\s{PUNCTUATION}])" if last.isalnum() else "")
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
