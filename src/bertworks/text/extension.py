"""Extend a vocabulary by the frequent words of a text, as entries of the tokenizer's model and not as added tokens.

WordPiece gets an entry per word. Since it matches the longest entry first, a new word can change the splits of longer
words (with "strawb", "strawberries" becomes strawb ##er ##ries); these changes are counted, and a word is skipped if it
would give more pieces to more occurrences than it would give fewer. Unigram gets an entry with a score just above that
of the word's best split, so that only this split changes. Byte-level BPE gets merges after all others, which can only
join pieces that were separate before.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from bertworks.errors import BadConfig, Unsupported
from bertworks.files import JsonObject
from bertworks.text.aliases import pre_tokenizer_keeping
from bertworks.text.coverage import Coverage, WordUse, normalized, split_cost
from bertworks.text.tokenizer import Tokenizer
from bertworks.text.words import split_words

SCORE_MARGIN = 0.001  # of a new unigram entry over the score of its split


@dataclass
class Extension:
    """An extended tokenizer, and what was changed."""

    tokenizer: Tokenizer
    rows: dict[int, tuple[int, ...]]  # new id -> the old ids that it replaces, to initialise its embedding
    words: list[str]  # with a new entry
    forms: list[str]  # of aliases, with a new entry
    skipped: list[str]  # words that would have made more splits worse than better
    freed: int  # old entries that are no longer used: their string is now an alias
    aliases: int


@dataclass
class SplitChanges:
    """How the words of a text split differently after an extension, without those that got an entry."""

    words: int = 0
    occurrences: int = 0
    shorter: int = 0  # occurrences with fewer pieces
    longer: int = 0  # occurrences with more pieces
    examples: list[str] = field(default_factory=list)


def extend(tokenizer: Tokenizer, coverage: Coverage, add: int, aliases: dict[str, str] | None = None) -> Extension:
    """Add entries for the `add` words whose splits cost most tokens, and give aliases the ids of their forms."""
    if aliases and tokenizer.kind != "WordPiece":
        raise Unsupported(
            f"aliases need a WordPiece vocabulary, in which two strings can have one id; this one is {tokenizer.kind}",
            remedy="replace the variants in the text, or leave --aliases out",
            code="needs-wordpiece",
        )
    # The backend writes merges in the current format, which the file may not have; but it writes one string per id, so
    # that a tokenizer with aliases is taken from its file.
    tokenizer_json = json.loads(
        tokenizer.files["tokenizer.json"] if tokenizer.alias_forms else tokenizer.backend.to_str()
    )
    variants = {normalized(tokenizer, variant) for variant in aliases or ()}
    first_id = tokenizer.vocab_size
    candidates = [
        word for word, use in coverage.uses.items() if word not in variants and _is_candidate(word, use, coverage)
    ]
    candidates.sort(key=lambda word: (-split_cost(coverage.uses[word]), word))
    extension = Extension(tokenizer, {}, [], [], [], 0, 0)
    add_words = {"WordPiece": _extend_word_piece, "Unigram": _extend_unigram, "BPE": _extend_bpe}[tokenizer.kind]
    additions = add_words(tokenizer_json["model"], candidates, coverage, add, first_id)
    extension.words, extension.skipped, extension.rows = additions
    if aliases:
        _add_aliases(tokenizer, tokenizer_json, aliases, first_id + len(extension.rows), extension)
    config = {key: value for key, value in tokenizer.config.items() if key != "added_tokens_decoder"}
    extension.tokenizer = Tokenizer.from_json(tokenizer_json, config)
    return extension


def compare_splits(before: Coverage, after: Coverage, new_words: Iterable[str]) -> SplitChanges:
    """The splits that changed, without those of `new_words`, which got an entry."""
    changes = SplitChanges()
    excluded = set(new_words)
    for word, use in before.uses.items():
        new_use = after.uses.get(word)
        if word in excluded or new_use is None or new_use.ids == use.ids:
            continue
        changes.words += 1
        changes.occurrences += use.count
        changes.shorter += use.count * (len(new_use.ids) < len(use.ids))
        changes.longer += use.count * (len(new_use.ids) > len(use.ids))
        changes.examples.append(word)
    changes.examples.sort(key=lambda word: (-before.uses[word].count, word))
    return changes


def _is_candidate(word: str, use: WordUse, coverage: Coverage) -> bool:
    """Whether an entry for this word would save tokens."""
    return (len(use.ids) > 1 or coverage.is_unknown(use)) and 1 < len(word) <= 50 and any(map(str.isalpha, word))


Additions = tuple[list[str], list[str], dict[int, tuple[int, ...]]]  # words added, words skipped, rows


def _extend_word_piece(
    model: JsonObject, candidates: list[str], coverage: Coverage, add: int, first_id: int
) -> Additions:
    vocab = model["vocab"]
    prefix = model["continuing_subword_prefix"]
    max_characters = model["max_input_chars_per_word"]  # longer words are unknown anyway
    words = sorted(word for word in coverage.uses if len(word) <= max_characters)
    accepted: list[str] = []
    skipped: list[str] = []
    rows: dict[int, tuple[int, ...]] = {}
    for candidate in candidates:
        if len(accepted) == add:
            break
        if candidate in vocab:
            continue
        longer_words = list(_starting_with(words, candidate))
        sizes_before = [len(_pieces(word, vocab, prefix)) for word in longer_words]
        vocab[candidate] = first_id + len(accepted)
        improved = coverage.uses[candidate].count  # occurrences
        worsened = 0
        for word, size_before in zip(longer_words, sizes_before, strict=True):
            difference = len(_pieces(word, vocab, prefix)) - size_before
            improved += coverage.uses[word].count * (difference < 0)
            worsened += coverage.uses[word].count * (difference > 0)
        if worsened > improved:
            del vocab[candidate]
            skipped.append(candidate)
        else:
            rows[first_id + len(accepted)] = coverage.uses[candidate].ids
            accepted.append(candidate)
    return accepted, skipped, rows


def _starting_with(sorted_words: list[str], prefix: str) -> Iterator[str]:
    """The words that start with a prefix and are longer than it."""
    i = bisect_left(sorted_words, prefix)
    while i < len(sorted_words) and sorted_words[i].startswith(prefix):
        if sorted_words[i] != prefix:
            yield sorted_words[i]
        i += 1


def _pieces(word: str, vocab: dict[str, int], prefix: str) -> list[str]:
    """WordPiece: match the longest entry first. A word that cannot be matched to its end is one unknown piece."""
    pieces = []
    start = 0
    while start < len(word):
        piece_prefix = prefix if start else ""
        end = next((end for end in range(len(word), start, -1) if piece_prefix + word[start:end] in vocab), None)
        if end is None:
            return [word]
        pieces.append(piece_prefix + word[start:end])
        start = end
    return pieces


def _extend_unigram(model: JsonObject, candidates: list[str], coverage: Coverage, add: int, first_id: int) -> Additions:
    vocab = model["vocab"]
    if len(vocab) != first_id:
        raise Unsupported("this unigram vocabulary has tokens outside of its list", remedy="it cannot be extended")
    pieces = {piece for piece, _ in vocab}
    lowest_score = min(score for _, score in vocab)
    accepted: list[str] = []
    rows: dict[int, tuple[int, ...]] = {}
    for candidate in candidates:
        if len(accepted) == add:
            break
        use = coverage.uses[candidate]
        if candidate in pieces:  # a piece as it is: the prefix of unigram vocabularies is that of `Coverage`
            continue
        split_score = lowest_score if coverage.is_unknown(use) else sum(vocab[id][1] for id in use.ids)
        rows[len(vocab)] = use.ids
        vocab.append([candidate, split_score + SCORE_MARGIN])
        pieces.add(candidate)
        accepted.append(candidate)
    return accepted, [], rows


def _extend_bpe(model: JsonObject, candidates: list[str], coverage: Coverage, add: int, first_id: int) -> Additions:
    vocab = model["vocab"]
    merges = model["merges"]
    pieces = {id: piece for piece, id in vocab.items()}
    merge_ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}
    accepted: list[str] = []
    rows: dict[int, tuple[int, ...]] = {}
    old_ids: dict[str, tuple[int, ...]] = {piece: (id,) for piece, id in vocab.items()}
    for candidate in candidates:
        if len(accepted) == add:
            break
        parts = _apply_merges([pieces[id] for id in coverage.uses[candidate].ids], merge_ranks)
        while len(parts) > 1:
            pair = (parts[0], parts[1])
            merged = pair[0] + pair[1]
            merges.append(list(pair))
            merge_ranks[pair] = len(merge_ranks)
            if merged not in vocab:
                vocab[merged] = first_id + len(rows)
                old_ids[merged] = old_ids[pair[0]] + old_ids[pair[1]]
                rows[vocab[merged]] = old_ids[merged]
            parts = _apply_merges([merged, *parts[2:]], merge_ranks)
        accepted.append(candidate)
    return accepted, [], rows


def _apply_merges(parts: list[str], merge_ranks: dict[tuple[str, str], int]) -> list[str]:
    """Byte-pair encoding: apply the merge of the lowest rank until none applies."""
    while True:
        applicable = [(merge_ranks[pair], i) for i, pair in enumerate(pairwise(parts)) if pair in merge_ranks]
        if not applicable:
            return parts
        _, i = min(applicable)
        parts = [*parts[:i], parts[i] + parts[i + 1], *parts[i + 2 :]]


def _add_aliases(
    tokenizer: Tokenizer, tokenizer_json: JsonObject, aliases: dict[str, str], next_id: int, extension: Extension
) -> None:
    """Give variants the ids of their forms; a form that has no entry gets one."""
    if tokenizer_json["pre_tokenizer"] != {"type": "BertPreTokenizer"}:
        raise Unsupported("aliases need BERT's pre-tokenizer", remedy="leave --aliases out")
    vocab = tokenizer_json["model"]["vocab"]
    keys = {name: normalized(tokenizer, name) for name in {*aliases, *aliases.values()}}
    _check_aliases(tokenizer, aliases, keys, tokenizer_json["model"]["max_input_chars_per_word"])
    for form in sorted(set(aliases.values())):
        if keys[form] not in vocab:
            vocab[keys[form]] = next_id
            extension.rows[next_id] = tuple(tokenizer.backend.encode(form, add_special_tokens=False).ids)
            extension.forms.append(form)
            next_id += 1
    for variant, form in sorted(aliases.items()):
        if keys[variant] == keys[form]:
            continue
        extension.freed += keys[variant] in vocab and vocab[keys[variant]] != vocab[keys[form]]
        vocab.pop(keys[variant], None)  # the first string of an id names it: variants have to come last
        vocab[keys[variant]] = vocab[keys[form]]
        extension.aliases += 1
    multi_word = sorted({key for key in keys.values() if len(split_words(tokenizer.backend, key)) > 1})
    if multi_word:
        tokenizer_json["pre_tokenizer"] = pre_tokenizer_keeping(multi_word)


def _check_aliases(tokenizer: Tokenizer, aliases: dict[str, str], keys: dict[str, str], max_characters: int) -> None:
    """Aliases are compared by their `keys`, as the tokenizer normalises them: different strings may be the same to
    it."""
    added_tokens = {token.content for token in tokenizer.backend.get_added_tokens_decoder().values()}
    forms: dict[str, str] = {}
    for variant, form in sorted(aliases.items()):
        for name in (variant, form):
            if not keys[name]:
                cause = f"the alias {variant!r} of {form!r} is empty after this tokenizer's normalization"
                raise BadConfig(cause, code="no-tokens")
            if len(keys[name]) > max_characters:
                cause = f"{name[:20]!r}... is longer than {max_characters} characters, the tokenizer's limit for a word"
                raise BadConfig(cause, code="word-too-long")
            if any(token in name or token in keys[name] for token in added_tokens):
                raise BadConfig(f"{name!r} contains a special token", code="special-token-in-alias")
        if forms.setdefault(keys[variant], keys[form]) != keys[form]:
            cause = f"{variant!r} has two forms, {forms[keys[variant]]!r} and {keys[form]!r}"
            raise BadConfig(cause, code="conflicting-alias")
    for variant, form in forms.items():
        if form in forms and forms[form] != form:
            cause = f"the form {form!r} of {variant!r} is itself a variant, of {forms[form]!r}"
            raise BadConfig(cause, code="chained-alias")
