"""A vocabulary extended by the frequent words of a text, inside its model and not as added tokens.

Each kind has its own way. WordPiece: an entry. It takes the longest entry first, so a new word can change how longer
ones split (with "strawb", "strawberries" becomes strawb ##er ##ries); what changes is counted, and a word that would
give more occurrences more pieces than it gives fewer is left out. Unigram: an entry scored just above its best split,
so that only that split changes. Byte-level BPE: merges after all others, which can only join pieces that were left
apart.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bertworks.errors import BadConfig, Unsupported
from bertworks.text.aliases import kept_together
from bertworks.text.coverage import Coverage, WordUse, normalized, split_cost
from bertworks.text.tokenizer import Tokenizer
from bertworks.text.words import split_words

ABOVE = 0.001  # of a unigram entry's score over its split
Layout = dict[str, Any]


@dataclass
class Extension:
    tokenizer: Tokenizer
    rows: dict[int, tuple[int, ...]]  # each new id, and the old ones it stands for
    words: list[str]  # that got an entry
    forms: list[str]  # of aliases, that got an entry
    skipped: list[str]  # that would have done more harm than good
    freed: int  # entries that no text leads to any more: their string is now an alias
    aliases: int


@dataclass
class SplitChanges:
    """What an extension did to the words of a text, those with a new entry apart."""

    words: int = 0
    occurrences: int = 0
    shorter: int = 0  # occurrences
    longer: int = 0
    examples: list[str] = field(default_factory=list)


def extend(tokenizer: Tokenizer, found: Coverage, add: int, aliases: dict[str, str] | None = None) -> Extension:
    """Give the `add` words whose splitting costs most an entry of their own, and the aliases their forms' ids."""
    if aliases and tokenizer.kind != "WordPiece":
        raise Unsupported(
            f"aliases need a WordPiece vocabulary, in which two strings can have one id; this one is {tokenizer.kind}",
            remedy="replace the variants in the text, or leave --aliases out",
            code="needs-wordpiece",
        )
    # The library writes one string per id, and newer merges than some files have: it is asked unless there are aliases.
    layout = json.loads(tokenizer.files["tokenizer.json"] if tokenizer.alias_forms else tokenizer.backend.to_str())
    taken = {normalized(tokenizer, name) for name in aliases or ()}
    model, start = layout["model"], tokenizer.vocab_size
    worthy = [word for word, use in found.uses.items() if word not in taken and _worth_an_entry(word, use, found)]
    candidates = sorted(worthy, key=lambda word: (-split_cost(found.uses[word]), word))
    result = Extension(tokenizer, {}, [], [], [], 0, 0)
    grow = {"WordPiece": _grow_word_piece, "Unigram": _grow_unigram, "BPE": _grow_bpe}[tokenizer.kind]
    result.words, result.skipped, result.rows = grow(model, candidates, found, add, start)
    if aliases:
        _alias(tokenizer, layout, aliases, start + len(result.rows), result)
    config = {key: value for key, value in tokenizer.config.items() if key != "added_tokens_decoder"}
    result.tokenizer = Tokenizer.from_layout(layout, config)
    return result


def compare(before: Coverage, after: Coverage, new: Iterable[str]) -> SplitChanges:
    """How words split that did not get an entry."""
    changes, own = SplitChanges(), set(new)
    for word, use in before.uses.items():
        other = after.uses.get(word)
        if word in own or other is None or other.ids == use.ids:
            continue
        changes.words += 1
        changes.occurrences += use.count
        changes.shorter += use.count * (len(other.ids) < len(use.ids))
        changes.longer += use.count * (len(other.ids) > len(use.ids))
        changes.examples.append(word)
    changes.examples.sort(key=lambda word: (-before.uses[word].count, word))
    return changes


def _worth_an_entry(word: str, use: WordUse, found: Coverage) -> bool:
    return (len(use.ids) > 1 or found.is_unknown(use)) and 1 < len(word) <= 50 and any(map(str.isalpha, word))


Grown = tuple[list[str], list[str], dict[int, tuple[int, ...]]]


def _grow_word_piece(model: Layout, candidates: list[str], found: Coverage, add: int, start: int) -> Grown:
    vocab, prefix = model["vocab"], model["continuing_subword_prefix"]
    words = sorted(
        word for word in found.uses if len(word) <= model["max_input_chars_per_word"]
    )  # longer ones are unknown anyway
    accepted: list[str] = []
    skipped: list[str] = []
    rows: dict[int, tuple[int, ...]] = {}
    for candidate in candidates:
        if len(accepted) == add:
            break
        if candidate in vocab:
            continue
        longer = list(_starting_with(words, candidate))
        before = [len(_pieces(word, vocab, prefix)) for word in longer]
        vocab[candidate] = start + len(accepted)
        helped, harmed = found.uses[candidate].count, 0
        for word, size in zip(longer, before, strict=True):
            difference = len(_pieces(word, vocab, prefix)) - size
            helped += found.uses[word].count * (difference < 0)
            harmed += found.uses[word].count * (difference > 0)
        if harmed > helped:
            del vocab[candidate]
            skipped.append(candidate)
        else:
            rows[start + len(accepted)] = found.uses[candidate].ids
            accepted.append(candidate)
    return accepted, skipped, rows


def _starting_with(words: list[str], start: str) -> Iterator[str]:
    """The longer ones among sorted words."""
    at = bisect_left(words, start)
    while at < len(words) and words[at].startswith(start):
        if words[at] != start:
            yield words[at]
        at += 1


def _pieces(word: str, vocab: dict[str, int], prefix: str) -> list[str]:
    """Longest entry first, as WordPiece does it; a word with a gap is one unknown piece."""
    pieces, at = [], 0
    while at < len(word):
        lead = prefix if at else ""
        end = next((end for end in range(len(word), at, -1) if lead + word[at:end] in vocab), None)
        if end is None:
            return [word]
        pieces.append(lead + word[at:end])
        at = end
    return pieces


def _grow_unigram(model: Layout, candidates: list[str], found: Coverage, add: int, start: int) -> Grown:
    vocab = model["vocab"]
    if len(vocab) != start:
        raise Unsupported("this unigram vocabulary has tokens outside its list", remedy="it cannot be extended")
    known, lowest = {piece for piece, _ in vocab}, min(score for _, score in vocab)
    accepted: list[str] = []
    rows: dict[int, tuple[int, ...]] = {}
    for candidate in candidates:
        if len(accepted) == add:
            break
        piece, use = candidate, found.uses[candidate]  # SPACED is the sign that unigram vocabularies use themselves
        if piece in known:
            continue
        split = lowest if found.is_unknown(use) else sum(vocab[id][1] for id in use.ids)
        rows[len(vocab)] = use.ids
        vocab.append([piece, split + ABOVE])
        known.add(piece)
        accepted.append(candidate)
    return accepted, [], rows


def _grow_bpe(model: Layout, candidates: list[str], found: Coverage, add: int, start: int) -> Grown:
    vocab, merges = model["vocab"], model["merges"]
    pieces = {id: piece for piece, id in vocab.items()}
    joined = {(left, right): number for number, (left, right) in enumerate(merges)}
    accepted: list[str] = []
    rows: dict[int, tuple[int, ...]] = {}
    old: dict[str, tuple[int, ...]] = {piece: (id,) for piece, id in vocab.items()}
    for candidate in candidates:
        if len(accepted) == add:
            break
        parts = _joined([pieces[id] for id in found.uses[candidate].ids], joined)
        while len(parts) > 1:
            pair = (parts[0], parts[1])
            whole = pair[0] + pair[1]
            merges.append(list(pair))
            joined[pair] = len(joined)
            if whole not in vocab:
                vocab[whole] = start + len(rows)
                old[whole] = old[pair[0]] + old[pair[1]]
                rows[vocab[whole]] = old[whole]
            parts = _joined([whole, *parts[2:]], joined)
        accepted.append(candidate)
    return accepted, [], rows


def _joined(parts: list[str], joined: dict[tuple[str, str], int]) -> list[str]:
    """All merges applied that can be, the first one first."""
    while True:
        places = [(joined[pair], at) for at, pair in enumerate(pairwise(parts)) if pair in joined]
        if not places:
            return parts
        _, at = min(places)
        parts = [*parts[:at], parts[at] + parts[at + 1], *parts[at + 2 :]]


def _alias(tokenizer: Tokenizer, layout: Layout, aliases: dict[str, str], next_id: int, result: Extension) -> None:
    """Variants get the ids of their forms; a form that is no entry yet becomes one."""
    if layout["pre_tokenizer"] != {"type": "BertPreTokenizer"}:
        raise Unsupported("aliases need BERT's own way of splitting words", remedy="leave --aliases out")
    vocab = layout["model"]["vocab"]
    keys = {name: normalized(tokenizer, name) for name in {*aliases, *aliases.values()}}
    _check_aliases(tokenizer, aliases, keys, layout["model"]["max_input_chars_per_word"])
    for form in sorted(set(aliases.values())):
        if keys[form] not in vocab:
            old = tuple(tokenizer.backend.encode(form, add_special_tokens=False).ids)
            vocab[keys[form]], result.rows[next_id] = next_id, old
            result.forms.append(form)
            next_id += 1
    for variant, form in sorted(aliases.items()):
        if keys[variant] == keys[form]:
            continue
        result.freed += keys[variant] in vocab and vocab[keys[variant]] != vocab[keys[form]]
        vocab.pop(keys[variant], None)  # the first string of an id is its name: variants come last
        vocab[keys[variant]] = vocab[keys[form]]
        result.aliases += 1
    several = sorted({key for key in keys.values() if len(split_words(tokenizer.backend, key)) > 1})
    if several:
        layout["pre_tokenizer"] = kept_together(several)


def _check_aliases(tokenizer: Tokenizer, aliases: dict[str, str], keys: dict[str, str], longest: int) -> None:
    """What is written differently may be one to the tokenizer: names are compared as it sees them."""
    added = {token.content for token in tokenizer.backend.get_added_tokens_decoder().values()}
    forms: dict[str, str] = {}
    for variant, form in sorted(aliases.items()):
        for name in (variant, form):
            if not keys[name]:
                raise BadConfig(f"the alias {variant!r} of {form!r} is empty to this tokenizer", code="no-tokens")
            if len(keys[name]) > longest:
                cause = (
                    f"{name[:20]!r}... is longer than {longest} characters, more than a word of this tokenizer may have"
                )
                raise BadConfig(cause, code="word-too-long")
            if any(token in name or token in keys[name] for token in added):
                raise BadConfig(
                    f"{name!r} has a special token in it, which must stay what it is", code="special-token-in-alias"
                )
        if forms.setdefault(keys[variant], keys[form]) != keys[form]:
            raise BadConfig(
                f"{variant!r} has two forms, {forms[keys[variant]]!r} and {keys[form]!r}", code="conflicting-alias"
            )
    for variant, form in forms.items():
        if form in forms and forms[form] != form:
            raise BadConfig(
                f"the form {form!r} of {variant!r} is itself a variant, of {forms[form]!r}", code="chained-alias"
            )
