"""Where a head does what it is named for: the strongest examples, each of another document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bertworks.inspect.features import LayerAttention
from bertworks.inspect.naming import POSITIONAL
from bertworks.inspect.preparing import PreparedText
from bertworks.inspect.relations import at_offset
from bertworks.inspect.units import Numbers

N_EXAMPLES = 3
CONTEXT = 40  # characters to either side of a word
Place = tuple[int, int]  # first and last piece


@dataclass(frozen=True)
class Context:
    """A word of a text, with what is around it."""

    before: str
    word: str
    after: str


@dataclass(frozen=True)
class Example:
    """A word, another one that it attends to, and how much."""

    query: Context
    key: Context
    weight: float
    document: int


@dataclass
class Examples:
    """Of some heads and their names: the strongest so far."""

    texts: Sequence[PreparedText]
    wanted: dict[int, list[tuple[int, str, str]]]  # by layer: head, name, and the relation that shows it
    strongest: dict[tuple[int, int, str], list[tuple[float, int, Place, Place]]] = field(default_factory=dict)

    def add(self, layer: int, index: int, layer_attention: LayerAttention) -> None:
        prepared = self.texts[index]
        pairs: dict[str, tuple[Numbers, Numbers]] = {}
        for head, name, relation in self.wanted.get(layer, ()):
            if relation not in pairs:
                pairs[relation] = _pairs(prepared, relation)
            queries, keys = pairs[relation]
            if not len(queries):
                continue
            source = layer_attention.pieces if relation == "pieces" else layer_attention.words
            weights = source[head, queries, keys]
            best = int(weights.argmax())
            query, key = (_place(prepared, relation, int(units[best])) for units in (queries, keys))
            self.strongest.setdefault((layer, head, name), []).append((float(weights[best]), index, query, key))

    def of(self, layer: int, head: int, name: str) -> list[Example]:
        examples: list[Example] = []
        for weight, index, query, key in sorted(self.strongest.get((layer, head, name), ()), reverse=True):
            prepared = self.texts[index]
            if any(example.document == prepared.text.document for example in examples):
                continue
            shown = _shown(prepared, query), _shown(prepared, key)
            examples.append(Example(*shown, weight, prepared.text.document))
            if len(examples) == N_EXAMPLES:
                break
        return examples


def _pairs(prepared: PreparedText, relation: str) -> tuple[Numbers, Numbers]:
    """Queries and keys, units or pieces."""
    if relation in POSITIONAL:
        queries, keys = np.nonzero(at_offset(prepared.text, POSITIONAL[relation]))
    elif relation == "pieces":
        if prepared.pieces is None:
            return _none()
        queries, keys = prepared.pieces.to_own.queries, prepared.pieces.to_own.keys
    elif prepared.sinks is not None and relation in prepared.sinks:
        is_word = prepared.text.units.is_word
        queries, keys = np.nonzero(is_word[:, None] & prepared.sinks[relation][None] & prepared.text.sees)
    else:
        text_relation = prepared.relations.get(relation)
        if text_relation is None:
            return _none()
        rows, keys = np.nonzero(text_relation.targets)
        queries = text_relation.queries[rows]
    return queries, keys


def _none() -> tuple[Numbers, Numbers]:
    return np.empty(0, np.int64), np.empty(0, np.int64)


def _place(prepared: PreparedText, relation: str, at: int) -> Place:
    if relation == "pieces":
        return at, at
    units = prepared.text.units
    return int(units.starts[at]), int(units.starts[at] + units.n_pieces[at]) - 1


def _shown(prepared: PreparedText, place: Place) -> Context:
    tokens = prepared.passage.tokens
    first, last = place
    number = tokens.texts[first]
    if number is None:
        return Context("", tokens.pieces[first], "")
    text = prepared.passage.texts[number]
    start, end = tokens.offsets[first][0], max(tokens.offsets[last][1], tokens.offsets[first][1])
    start += len(text[start:end]) - len(text[start:end].lstrip())  # some tokenizers count the space before
    return Context(text[max(0, start - CONTEXT) : start], text[start:end], text[end : end + CONTEXT])


def wanted_examples(head_names: Iterable[tuple[int, int, str, str]]) -> dict[int, list[tuple[int, str, str]]]:
    """By layer, from (layer, head, name, relation)."""
    wanted: dict[int, list[tuple[int, str, str]]] = {}
    for layer, head, name, relation in head_names:
        wanted.setdefault(layer, []).append((head, name, relation))
    return wanted
