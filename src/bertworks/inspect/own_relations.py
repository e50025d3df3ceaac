"""Relations of the user's own: functions, word pairs in a table, or dependencies of a treebank.

A function gets the units of a passage (`units.words`: lower-case, empty for special tokens; `units.texts`: 0 and 1)
and gives pairs of indices, the word that attends and the word that it should attend to. A table has two words in each
row, and may have the name of a relation as a third column. A treebank in CoNLL-U has sentences of its own, in which
each word should attend to its head; the relations are named as they are there.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bertworks.errors import BadConfig, BadText, NotFound
from bertworks.files import read_file
from bertworks.inspect.naming import NAMES
from bertworks.inspect.passages import Passage
from bertworks.inspect.units import Bools, Units
from bertworks.text.tokenizer import Tokenizer

FindPairs = Callable[[Units], Iterable[tuple[int, int]]]
MIN_TREEBANK_PAIRS = 50  # of a relation; rarer ones are left out
TAKEN = ("inside", "related across", "related inside")  # by parts of other relations
TREEBANK_SUFFIXES = (".conllu", ".conll")


@dataclass(frozen=True)
class ParsedSentence:
    """A sentence of a treebank: relations between its words."""

    passage: Passage
    links: tuple[tuple[str, int, int], ...]  # relation, dependent and head, as indices of spans

    def pairs(self, name: str) -> Iterator[tuple[int, int]]:
        unit_of = {}
        units = self.passage.units
        assert self.passage.spans is not None
        starts = [start for start, _ in self.passage.spans[0]]
        for unit in np.flatnonzero(units.is_word).tolist():
            end = self.passage.tokens.offsets[int(units.starts[unit])][1]
            unit_of[int(np.searchsorted(starts, end - 1, "right")) - 1] = unit
        for relation, dependent, head in self.links:
            if relation == name and dependent in unit_of and head in unit_of:
                yield unit_of[dependent], unit_of[head]


@dataclass(frozen=True)
class OwnRelations:
    functions: Mapping[str, FindPairs] = field(default_factory=dict)  # on the passages of the corpus
    treebank: tuple[ParsedSentence, ...] = ()  # sentences with relations of theirs
    treebank_names: tuple[str, ...] = ()
    rare_names: tuple[str, ...] = ()  # of relations that the treebank has too few of

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.functions, *self.treebank_names)

    @classmethod
    def of(
        cls,
        relations: Mapping[str, FindPairs] | None,
        file: str | Path | None,
        tokenizer: Tokenizer,
        max_tokens: int,
    ) -> OwnRelations:
        functions = dict(relations or {})
        treebank: tuple[ParsedSentence, ...] = ()
        names: tuple[str, ...] = ()
        rare: tuple[str, ...] = ()
        if file is not None and str(file).endswith(TREEBANK_SUFFIXES):
            treebank = tuple(read_treebank(Path(file), tokenizer, max_tokens))
            counts = Counter(relation for parsed in treebank for relation, _, _ in parsed.links)
            names = tuple(sorted(name for name, count in counts.items() if count >= MIN_TREEBANK_PAIRS))
            rare = tuple(sorted(counts.keys() - set(names)))
        elif file is not None:
            functions |= {name: _listed(pairs) for name, pairs in read_word_pairs(Path(file)).items()}
        for name in (*functions, *names):
            check_name(name)
        return cls(functions, treebank, names, rare)


def check_name(name: str) -> None:
    if not name.strip() or name in (*NAMES, *TAKEN) or name.startswith("null: "):
        cause = f"a relation cannot be called {name!r}"
        remedy = f"give it a name of its own; taken are {', '.join(NAMES)}"
        raise BadConfig(cause, remedy=remedy, code="name-taken", fields=["relations"])


def matrix(units: Units, pairs: Iterable[tuple[int, int]], name: str) -> Bools:
    """(U, U)."""
    is_pair = np.zeros((len(units), len(units)), bool)
    for query, key in pairs:
        if not (0 <= query < len(units) and 0 <= key < len(units)):
            cause = f"relation {name!r} gives the pair ({query}, {key}) in a text of {len(units)} units"
            raise BadConfig(cause, remedy="give indices of units.words", code="out-of-range", fields=["relations"])
        is_pair[query, key] = True
    return is_pair


def _listed(pairs: frozenset[tuple[str, str]]) -> FindPairs:
    firsts = {first for first, _ in pairs}

    def find(units: Units) -> Iterator[tuple[int, int]]:
        for query, word in enumerate(units.words):
            if word in firsts:
                yield from ((query, key) for key, other in enumerate(units.words) if (word, other) in pairs)

    return find


def read_word_pairs(path: Path) -> dict[str, frozenset[tuple[str, str]]]:
    """Rows of two words, and perhaps the name of their relation; without one it is the file's."""
    lines = _lines(path)
    by_relation: dict[str, set[tuple[str, str]]] = {}
    for number, row in enumerate(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE), 1):
        if not row or row[0].startswith("#"):
            continue
        if len(row) not in (2, 3) or not all(cell.strip() for cell in row):
            cause = f"{len(row)} columns, not a word, another word, and perhaps the name of their relation"
            raise BadText(cause, place=f"{path}, line {number}", remedy="separate them by tabs", code="bad-row")
        first, second, *name = (cell.strip() for cell in row)
        by_relation.setdefault(name[0] if name else path.stem, set()).add((first.lower(), second.lower()))
    if not by_relation:
        raise BadText("no word pairs", place=str(path), remedy="two words in each row", code="no-pairs")
    return {name: frozenset(pairs) for name, pairs in by_relation.items()}


def read_treebank(path: Path, tokenizer: Tokenizer, max_tokens: int) -> Iterator[ParsedSentence]:
    """The sentences of a CoNLL-U file; longer ones than fit are left out."""
    n_sentences = 0
    for number, rows in _conllu_sentences(path):
        text, spans = "", []
        for row in rows:
            spans.append((len(text), len(text) + len(row[1])))
            text += row[1] + ("" if "SpaceAfter=No" in row[9].split("|") else " ")
        text = text.rstrip()
        places = {row[0]: index for index, row in enumerate(rows)}
        links = [(row[7], index, places[row[6]]) for index, row in enumerate(rows) if row[6] in places]
        pieces = tokenizer.pieces(text)
        if len(pieces.ids) <= max_tokens:
            n_sentences += 1
            yield ParsedSentence(Passage((text,), pieces, number, (spans,)), tuple(links))
    if not n_sentences:
        remedy = "ten columns, separated by tabs; a blank line ends a sentence"
        raise BadText("no sentences", place=str(path), remedy=remedy, code="no-sentences")


def _conllu_sentences(path: Path) -> Iterator[tuple[int, list[list[str]]]]:
    rows: list[list[str]] = []
    n_sentences = 0
    for number, line in enumerate([*_lines(path), ""], 1):
        if not line.strip():
            if rows:
                yield n_sentences, rows
                n_sentences += 1
            rows = []
        elif not line.startswith("#"):
            row = line.split("\t")
            if len(row) != 10:
                cause = f"{len(row)} columns, not the 10 of CoNLL-U"
                raise BadText(cause, place=f"{path}, line {number}", remedy="separate them by tabs", code="bad-row")
            if row[0].isdigit():  # neither a word of several parts nor one that is not written
                rows.append(row)


def _lines(path: Path) -> list[str]:
    if not path.exists():
        raise NotFound("no such file", place=str(path), remedy="a table of word pairs, or CoNLL-U (.conllu)")
    try:
        return read_file(path).decode().splitlines()
    except UnicodeDecodeError:
        raise BadText("not text in UTF-8", place=str(path), code="not-utf8") from None
