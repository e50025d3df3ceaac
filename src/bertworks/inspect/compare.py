"""Heads of two models compared: which do alike over the same text, and which names are kept, lost and gained.

Two heads do alike if their attention overlaps: the sum of the roots of the products of two rows (Bhattacharyya's
coefficient, 1 for equal rows), on average over the words of a text. Rows are over words, and all special tokens count
as one, so that models with other tokenizers can be compared. What two heads have in common for no reason but a special
token that all words look at is in the overlap of rows of different words, too: that is printed beside it.

A head's counterpart is the one it overlaps with most, if that holds the other way round; others have none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertworks.errors import BadConfig, BadText, Unsupported
from bertworks.files import atomic_write, read_json
from bertworks.inspect.atlas import LoadedModel, atlas, first_documents, reads_pairs
from bertworks.inspect.passages import Passage, read_passages
from bertworks.inspect.replacing import Head
from bertworks.inspect.running import run_passages
from bertworks.inspect.units import Floats, Units
from bertworks.tasks.inference import Progress, no_progress

N_TEXTS = 100  # that attention is compared on
TEXTS_AT_ONCE = 4  # of which all layers are in memory
MIN_SHARE = 0.5  # of the texts that both split into the same words


@dataclass(frozen=True)
class Match:
    """A head and its counterpart in the other model."""

    head: Head
    other: Head
    overlap: float | None = None  # None: matched by their place alone
    chance: float | None = None  # the overlap of the rows of different words


@dataclass(frozen=True)
class Comparison:
    matches: tuple[Match, ...]
    sizes: tuple[tuple[int, int], tuple[int, int]]  # layers and heads of both
    names: tuple[Mapping[Head, Sequence[str]], Mapping[Head, Sequence[str]]]
    unseen: tuple[frozenset[str], frozenset[str]]  # names that one of them cannot show
    n_texts: int = 0
    n_other_words: int = 0  # texts left out, since the tokenizers split them into other words
    overlaps: Floats | None = None  # (heads, other heads), layer by layer

    @property
    def has_attention(self) -> bool:
        return self.overlaps is not None

    def kept(self) -> list[tuple[Match, str]]:
        return [(match, name) for match in self.matches for name in self._own(match) if name in self._others(match)]

    def lost(self) -> list[tuple[Match, str]]:
        """Names of heads that their counterparts do not have, though they could."""
        return [
            (match, name)
            for match in self.matches
            for name in self._own(match)
            if name not in self._others(match) and name not in self.unseen[1]
        ]

    def gained(self) -> list[tuple[Match, str]]:
        return [
            (match, name)
            for match in self.matches
            for name in self._others(match)
            if name not in self._own(match) and name not in self.unseen[0]
        ]

    def counts(self) -> dict[str, tuple[int | None, int | None]]:
        """How many heads of each have a name; None: it cannot be seen."""
        both_names = [[name for names in side.values() for name in names] for side in self.names]
        return {
            name: (
                None if name in self.unseen[0] else both_names[0].count(name),
                None if name in self.unseen[1] else both_names[1].count(name),
            )
            for name in sorted({*both_names[0], *both_names[1]})
        }

    def _own(self, match: Match) -> Sequence[str]:
        return self.names[0].get(match.head, ())

    def _others(self, match: Match) -> Sequence[str]:
        return self.names[1].get(match.other, ())

    def as_dict(self) -> dict[str, Any]:
        def pairs(matched_names: Iterable[tuple[Match, str]]) -> list[dict[str, Any]]:
            return [
                {"head": list(match.head), "other": list(match.other), "name": name} for match, name in matched_names
            ]

        return {
            "sizes": [list(size) for size in self.sizes],
            "matched_by": "attention" if self.has_attention else "place",
            "texts": self.n_texts,
            "texts_left_out": self.n_other_words,
            "matches": [
                {
                    "head": list(match.head),
                    "other": list(match.other),
                    "overlap": None if match.overlap is None else round(match.overlap, 6),
                    "chance": None if match.chance is None else round(match.chance, 6),
                    "names": [list(self._own(match)), list(self._others(match))],
                }
                for match in self.matches
            ],
            "names": {name: list(both) for name, both in self.counts().items()},
            "kept": pairs(self.kept()),
            "lost": pairs(self.lost()),
            "gained": pairs(self.gained()),
        }

    def save(self, path: str | Path, *, models: tuple[str, str] = ("", "")) -> Path:
        """As a page, if the path ends with `.html`; else as JSON."""
        if Path(path).suffix == ".html":
            from bertworks.inspect.compare_page import comparison_page

            text = comparison_page(self, models=models)
        else:
            text = json.dumps(self.as_dict(), indent=1) + "\n"
        with atomic_write(Path(path)) as file:
            file.write(text.encode())
        return Path(path)


# ---------------------------------------------------------------------- by names


def read_atlas(path: Path) -> dict[str, Any]:
    content = read_json(path)
    try:
        _size(content), _names(content), dict(content["unseen"])
    except (KeyError, TypeError, ValueError):
        remedy = "`bertworks atlas MODEL --corpus FILE --out atlas.json` writes one"
        raise BadConfig("not the JSON of an atlas", place=str(path), remedy=remedy, code="not-an-atlas") from None
    return content


def compare_atlases(first: Mapping[str, Any], second: Mapping[str, Any]) -> Comparison:
    """Of two atlases as JSON has them: head by head in the same place; of models of other sizes, counts of names."""
    sizes = _size(first), _size(second)
    places = sorted(_names(first)) if sizes[0] == sizes[1] else []
    matches = tuple(Match(place, place) for place in places)
    unseen = frozenset(first["unseen"]), frozenset(second["unseen"])
    return Comparison(matches, sizes, (_names(first), _names(second)), unseen)


def _names(content: Mapping[str, Any]) -> dict[Head, list[str]]:
    return {(int(head["layer"]), int(head["head"])): [*map(str, head["names"])] for head in content["heads"]}


def _size(content: Mapping[str, Any]) -> tuple[int, int]:
    places = _names(content)
    return 1 + max(layer for layer, _ in places), 1 + max(head for _, head in places)


# ---------------------------------------------------------------------- by attention


def compare_heads(
    model: LoadedModel,
    other: LoadedModel,
    texts: Iterable[str],
    *,
    sentences: int = 500,
    progress: Progress = no_progress,
) -> Comparison:
    """Name the heads of both models over the same documents, and match those that do alike."""
    documents = list(first_documents(texts))
    pairs = same_texts(model, other, documents)
    overlaps, chance = overlaps_of(model, other, pairs.passages, progress)
    atlases = [atlas(each, documents, sentences=sentences, progress=progress).as_dict() for each in (model, other)]
    by_names = compare_atlases(*atlases)
    heads = [[(layer, head) for layer in range(layers) for head in range(heads)] for layers, heads in by_names.sizes]
    matches = tuple(
        Match(heads[0][own], heads[1][best], float(overlaps[own, best]), float(chance[own, best]))
        for own, best in mutual_best(overlaps)
    )
    n_texts = len(pairs.passages)
    return Comparison(matches, by_names.sizes, by_names.names, by_names.unseen, n_texts, pairs.n_other_words, overlaps)


def mutual_best(overlaps: Floats) -> list[tuple[int, int]]:
    """Rows and columns each of which is the other's largest."""
    best, best_of_others = overlaps.argmax(1), overlaps.argmax(0)
    return [(own, int(other)) for own, other in enumerate(best) if best_of_others[other] == own]


@dataclass(frozen=True)
class SameTexts:
    passages: list[tuple[Passage, Passage]]  # as both models read them
    n_other_words: int


def same_texts(model: LoadedModel, other: LoadedModel, documents: Sequence[str]) -> SameTexts:
    """Passages as both models read them; those that they split into the same words."""
    limit = min(128, model.limit, other.limit)
    in_pairs = reads_pairs(model) and reads_pairs(other)
    read = read_passages(documents, model.tokenizer, n=N_TEXTS, pairs=in_pairs, max_tokens=limit)
    if not read.passages:
        remedy = "sentences, several in a document; a blank line ends one"
        raise BadText("no passages in this text", remedy=remedy, code="no-passages")
    matching = []
    for passage in read.passages:
        also = Passage(passage.texts, other.tokenizer.pieces(*passage.texts), passage.document)
        if len(also.tokens.ids) <= other.limit and _words(passage.units) == _words(also.units):
            matching.append((passage, also))
    n_other = len(read.passages) - len(matching)
    if len(matching) <= MIN_SHARE * len(read.passages):
        cause = f"the tokenizers split {n_other} of {len(read.passages)} texts into other words"
        remedy = "models whose tokenizers find the same words; or compare two atlases by their names alone"
        raise Unsupported(cause, remedy=remedy, code="not-comparable")
    return SameTexts(matching, n_other)


def _words(units: Units) -> list[str]:
    return [word for word in units.words if word]


def overlaps_of(
    model: LoadedModel, other: LoadedModel, both: Sequence[tuple[Passage, Passage]], progress: Progress
) -> tuple[Floats, Floats]:
    """Of all heads of one with all of the other, (heads, other heads); and of the rows of different words."""
    rng = np.random.default_rng(0)
    overlap: Any = 0.0
    chance: Any = 0.0
    n_words = 0
    sides = zip(_roots(model, [a for a, _ in both]), _roots(other, [b for _, b in both]), strict=True)
    for n_done, (own, others) in enumerate(sides, start=1):
        size = own.shape[1]
        shuffled = others[:, rng.permutation(size)]
        overlap = overlap + own.reshape(len(own), -1) @ others.reshape(len(others), -1).T
        chance = chance + own.reshape(len(own), -1) @ shuffled.reshape(len(others), -1).T
        n_words += size
        progress(n_done, len(both))
    return overlap / n_words, chance / n_words


def _roots(model: LoadedModel, passages: Sequence[Passage]) -> Iterator[Floats]:
    """Of each text, the roots of its words' attention to words, and to all special tokens together: (all heads, W,
    W + 1)."""
    for start in range(0, len(passages), TEXTS_AT_ONCE):
        chunk = passages[start : start + TEXTS_AT_ONCE]
        layers: list[dict[int, Floats]] = [{} for _ in chunk]

        def on_text(
            layer: int,
            index: int,
            attention: Floats,
            *_: Floats,
            chunk: Sequence[Passage] = chunk,
            layers: list[dict[int, Floats]] = layers,
        ) -> None:
            units = chunk[index].units
            rows = units.attention(attention)[:, units.is_word]
            special = rows[:, :, ~units.is_word].sum(2, keepdims=True)
            layers[index][layer] = np.sqrt(np.concatenate([rows[:, :, units.is_word], special], axis=2))

        run_passages(model.model, chunk, on_text, no_progress)
        for by_layer in layers:
            yield np.concatenate([by_layer[layer] for layer in sorted(by_layer)])
