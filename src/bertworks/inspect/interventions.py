"""Texts that were changed on purpose, to confirm what a head is named for.

Words in another order: a head that looks at the next word, at pieces of its word or at a special token still does.
To a tokenizer each Chinese character is a word; for the pieces of words, the characters of one stay together.
One word copied over another, far away: a head that looks at the same word does so where there was no reason before.
[SEP] in another place: a head that rests on it goes there. A second text of another document: words that recur there
recur by chance, and a head that looks across texts for them still finds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bertworks.inspect.examples import Examples
from bertworks.inspect.features import (
    N_OFFSET_FEATURES,
    OFFSETS,
    SINKS,
    TO_WORD,
    TO_WORDS,
    TOKEN_FEATURES,
    LayerAttention,
    compared_features,
    hit_features,
    offset_features,
    piece_features,
    token_features,
)
from bertworks.inspect.naming import POSITIONAL, RelationEvidence, Thresholds
from bertworks.inspect.passages import Passage, piece_words
from bertworks.inspect.preparing import PreparedText
from bertworks.inspect.relations import PiecePairs
from bertworks.inspect.running import run_passages
from bertworks.inspect.units import Floats, Numbers
from bertworks.model.model import Model
from bertworks.tasks.inference import Progress

N_TEXTS = 100
MIN_PLANTED = 10  # twins, and word types that recur in foreign texts
TWIN_DISTANCE = 6
MOVED_FIELDS = ("ids", "pieces", "segments", "offsets", "special", "words", "texts")
NAMES_KEPT_BY_SHUFFLING = (*POSITIONAL, "cls", "first")


# ---------------------------------------------------------------------- changed texts


def reordered(prepared: PreparedText, order: Numbers, texts: Numbers | None = None) -> PreparedText:
    """With its units in another order; `texts`: to which text each belongs then."""
    passage, text = prepared.passage, prepared.text
    units = text.units
    pieces = np.concatenate(
        [np.arange(units.starts[unit], units.starts[unit] + units.n_pieces[unit]) for unit in order]
    )
    moved = {name: [getattr(passage.tokens, name)[piece] for piece in pieces] for name in MOVED_FIELDS}
    tokens = replace(passage.tokens, **moved)
    new_units = units.reordered(order)
    if texts is not None:
        new_units = replace(new_units, texts=texts)
    new_text = replace(text, units=new_units, types=text.types[order], log_counts=text.log_counts[order])
    sinks = None if prepared.sinks is None else {name: flags[order] for name, flags in prepared.sinks.items()}
    moved_pieces = prepared.pieces and _moved_pieces(prepared.pieces, pieces)
    return PreparedText(replace(passage, tokens=tokens), new_text, {}, moved_pieces, sinks)


def _moved_pieces(piece_pairs: PiecePairs, pieces: Numbers) -> PiecePairs | None:
    """The same pieces at their new places; those elsewhere are other pairs then, as far apart as before."""
    places = np.argsort(pieces)
    to_own = piece_pairs.to_own._replace(
        queries=places[piece_pairs.to_own.queries], keys=places[piece_pairs.to_own.keys]
    )
    return replace(piece_pairs, to_own=to_own)


def shuffled_units(prepared: PreparedText, rng: np.random.Generator) -> PreparedText:
    """The units of each text in another order: words, with their pieces together, and Chinese characters."""
    return _shuffled(prepared, np.arange(len(prepared.text.units)), rng)


def shuffled_words(prepared: PreparedText, rng: np.random.Generator) -> PreparedText:
    """The words of each text in another order, the characters of Chinese ones together."""
    owners, _ = piece_words(prepared.passage)
    owners = owners[prepared.text.units.starts]
    return _shuffled(prepared, np.cumsum(np.diff(owners, prepend=owners[0]) != 0), rng)


def _shuffled(prepared: PreparedText, groups: Numbers, rng: np.random.Generator) -> PreparedText:
    """`groups`: of each unit, (U,); neighbours with one number stay together."""
    texts = prepared.text.units.texts
    order = np.arange(len(texts))
    for text in range(len(prepared.passage.texts)):
        places = np.flatnonzero(texts == text)
        blocks = np.split(places, np.flatnonzero(np.diff(groups[places])) + 1)
        order[places] = np.concatenate([blocks[block] for block in rng.permutation(len(blocks))])
    return reordered(prepared, order)


def has_chinese_words(prepared: PreparedText) -> bool:
    """As rjieba finds them: words beside the units."""
    _, words = piece_words(prepared.passage)
    return len(words) > len(prepared.text.units)


def moved_separator(prepared: PreparedText, rng: np.random.Generator) -> PreparedText | None:
    """A pair whose first text ends earlier: what stands between both texts is moved there."""
    units = prepared.text.units
    first, second = (np.flatnonzero(units.texts == text) for text in (0, 1))
    if len(first) < 8 or not len(second):
        return None
    between = np.arange(first[-1] + 1, second[0])
    cut = int(rng.integers(3, len(first) - 3))
    order = np.concatenate([np.arange(first[cut]), between, first[cut:], np.arange(second[0], len(units))])
    texts = units.texts[order]
    places = np.isin(order, first[cut:])
    texts[places] = 1
    moved = reordered(prepared, order, texts)
    segment = prepared.passage.tokens.segments[int(units.starts[second[0]])]
    is_moved = np.repeat(places, moved.text.units.n_pieces)
    old = moved.passage.tokens.segments
    segments = [segment if flag else value for flag, value in zip(is_moved, old, strict=True)]
    tokens = replace(moved.passage.tokens, segments=segments)
    return replace(moved, passage=replace(moved.passage, tokens=tokens))


@dataclass(frozen=True)
class Twin:
    """A word copied over another."""

    passage: Passage
    query: int
    key: int
    is_across: bool


def planted_twin(prepared: PreparedText, rng: np.random.Generator, *, across: bool) -> Twin | None:
    """Some words away; into the other text, if there is one and it is wanted."""
    passage, text, units = prepared.passage, prepared.text, prepared.text.units
    is_candidate = (units.n_pieces == 1) & units.is_word & text.is_content
    candidates = [unit for unit in np.flatnonzero(is_candidate) if (text.types == text.types[unit]).sum() == 1]
    pairs = [
        (query, key)
        for query in candidates
        for key in candidates
        if abs(query - key) >= TWIN_DISTANCE and text.sees[query, key] and text.within[query, key] != across
    ]
    if not pairs:
        return None
    query, key = pairs[rng.integers(len(pairs))]
    ids = list(passage.tokens.ids)
    ids[units.starts[key]] = ids[units.starts[query]]
    return Twin(replace(passage, tokens=replace(passage.tokens, ids=ids)), int(query), int(key), across)


# ---------------------------------------------------------------------- what is left


@dataclass
class LayerSums:
    """What the heads of each layer do, summed over texts."""

    offsets: dict[int, Floats] = field(default_factory=dict)
    tokens: dict[int, Floats] = field(default_factory=dict)
    pieces: dict[int, Floats] = field(default_factory=dict)

    def add(self, layer: int, layer_attention: LayerAttention, norms: Floats, prepared: PreparedText) -> None:
        sums = {"offsets": offset_features(layer_attention, prepared.text)[1].sum(0)}
        if prepared.sinks is not None:
            sums["tokens"] = token_features(layer_attention, norms, prepared.text, prepared.sinks)[1].sum(0)
        if prepared.pieces is not None:
            sums["pieces"] = piece_features(layer_attention.pieces, prepared.pieces).sum(0)
        for name, values in sums.items():
            of_layer = getattr(self, name)
            of_layer[layer] = of_layer[layer] + values if layer in of_layer else values

    def of(self, name: str, layer: int) -> Floats:
        """How much heads do what a name says, (H,)."""
        if name in POSITIONAL:
            values = self.offsets[layer].reshape(-1, len(OFFSETS), N_OFFSET_FEATURES)
            at = values[:, OFFSETS.index(POSITIONAL[name])]
            share: Floats = at[:, TO_WORD] / np.maximum(at[:, TO_WORDS], 1e-30)
            return share
        if name == "pieces":
            own: Floats = self.pieces[layer][:, 0]
            return own
        assert name in SINKS
        mass: Floats = self.tokens[layer][:, TOKEN_FEATURES.index(name)]
        return mass


@dataclass(frozen=True)
class Confirmation:
    """What an intervention came to."""

    numbers: dict[str, float]
    is_confirmed: bool | None


@dataclass
class Interventions:
    """Runs over changed texts, as far as names need them."""

    model: Model
    thresholds: Thresholds
    seed: int
    progress: Progress
    before: LayerSums = field(default_factory=LayerSums)
    shuffled: LayerSums = field(default_factory=LayerSums)  # units
    shuffled_words: LayerSums = field(default_factory=LayerSums)
    moved: tuple[LayerSums, LayerSums] = field(default_factory=lambda: (LayerSums(), LayerSums()))
    twins: dict[bool, list[dict[int, list[Floats]]]] = field(default_factory=dict)  # by across: before, after
    foreign: dict[int, RelationEvidence] = field(default_factory=dict)

    def run(
        self, texts: Sequence[PreparedText], foreign: Sequence[PreparedText], names: set[str], examples: Examples
    ) -> None:
        """`texts`: those of the examples; the first of them are changed."""
        rng = np.random.default_rng([self.seed, 2])
        chosen = [item for item in texts[:N_TEXTS] if item.sinks is not None]
        self._run_before(texts, len(chosen), examples)
        if names & {*NAMES_KEPT_BY_SHUFFLING, "pieces"}:
            changed = [shuffled_units(item, rng) for item in chosen]
            has_own_words = "pieces" in names and any(map(has_chinese_words, chosen))
            if names & set(NAMES_KEPT_BY_SHUFFLING) or not has_own_words:
                self._sum(changed, self.shuffled)
            self.shuffled_words = self.shuffled
            if has_own_words:
                self.shuffled_words = LayerSums()
                own_rng = np.random.default_rng([self.seed, 4])  # other texts are changed as they are without it
                self._sum([shuffled_words(item, own_rng) for item in chosen], self.shuffled_words)
        if "sep" in names:
            pairs = [(item, moved_separator(item, rng)) for item in chosen]
            self._sum([item for item, moved in pairs if moved is not None], self.moved[0])
            self._sum([moved for _, moved in pairs if moved is not None], self.moved[1])
        if names & {"same", "across"}:
            for across in (False, True):
                planted = [(item, planted_twin(item, rng, across=across)) for item in chosen[across::2]]
                self._run_twins([(item, twin) for item, twin in planted if twin is not None], across)
            self._run_foreign(foreign)

    def _run_before(self, texts: Sequence[PreparedText], n_chosen: int, examples: Examples) -> None:
        def on_text(layer: int, index: int, attention: Floats, norms: Floats) -> None:
            layer_attention = LayerAttention(attention, texts[index].text)
            examples.add(layer, index, layer_attention)
            if index < n_chosen:
                self.before.add(layer, layer_attention, norms, texts[index])

        run_passages(self.model, [item.passage for item in texts], on_text, self.progress)

    def _sum(self, texts: Sequence[PreparedText], sums: LayerSums) -> None:
        def on_text(layer: int, index: int, attention: Floats, norms: Floats) -> None:
            sums.add(layer, LayerAttention(attention, texts[index].text), norms, texts[index])

        run_passages(self.model, [item.passage for item in texts], on_text, self.progress)

    def _run_twins(self, planted: Sequence[tuple[PreparedText, Twin]], across: bool) -> None:
        runs: list[dict[int, list[Floats]]] = []
        for is_changed in (False, True):
            values: dict[int, list[Floats]] = {}

            def on_text(
                layer: int, at: int, attention: Floats, norms: Floats, values: dict[int, list[Floats]] = values
            ) -> None:
                item, twin = planted[at]
                words = item.text.units.attention(attention)
                values.setdefault(layer, []).append(words[:, twin.query, twin.key])

            changed = [twin.passage if is_changed else item.passage for item, twin in planted]
            run_passages(self.model, changed, on_text, self.progress)
            runs.append(values)
        self.twins[across] = runs

    def _run_foreign(self, foreign: Sequence[PreparedText]) -> None:
        def on_text(layer: int, index: int, attention: Floats, norms: Floats) -> None:
            item = foreign[index]
            across = item.relations.get("across")
            features = (
                None
                if across is None
                else compared_features(layer_attention := LayerAttention(attention, item.text), across)
            )
            if across is None or features is None:
                return
            evidence = self.foreign.setdefault(layer, RelationEvidence.empty())
            evidence.compared.add(across.types[across.compared], item.text.document, features)
            evidence.hits.add(across.types, item.text.document, hit_features(layer_attention, across))

        run_passages(self.model, [item.passage for item in foreign], on_text, self.progress)

    # ------------------------------------------------------------------ results

    def confirmation(self, name: str, layer: int, head: int) -> Confirmation:
        if name in NAMES_KEPT_BY_SHUFFLING:
            return self._kept("kept when shuffled", name, layer, head, self.before, self.shuffled)
        if name == "pieces":
            return self._kept("kept when shuffled", name, layer, head, self.before, self.shuffled_words)
        if name == "sep" and layer in self.moved[0].tokens:
            return self._kept("kept when [SEP] moved", name, layer, head, *self.moved)
        if name in ("same", "across"):
            return self._twin(name, layer, head)
        return Confirmation({}, None)

    def _kept(self, title: str, name: str, layer: int, head: int, before: LayerSums, after: LayerSums) -> Confirmation:
        share = float(after.of(name, layer)[head] / max(float(before.of(name, layer)[head]), 1e-30))
        return Confirmation({title: share}, share >= self.thresholds.kept_share)

    def _twin(self, name: str, layer: int, head: int) -> Confirmation:
        wanted = [True] if name == "across" else [False, True]
        values = [
            np.array([float(row[head]) for across in wanted for row in self.twins[across][number].get(layer, ())])
            for number in (0, 1)
        ]
        numbers: dict[str, float] = {}
        confirmed: bool | None = None
        if len(values[0]) >= MIN_PLANTED:
            numbers["planted twin"] = float(values[1].mean() / max(values[0].mean(), 1e-9))
            confirmed = numbers["planted twin"] >= self.thresholds.twin_ratio
        foreign = self.foreign.get(layer)
        if foreign is not None and len(foreign.compared.types) >= MIN_PLANTED:
            numbers["lift in a foreign text"] = float(foreign.numbers()[0]["lift"][head])
            if name == "across":
                confirmed = confirmed is not False and numbers["lift in a foreign text"] >= self.thresholds.same_lift
        return Confirmation(numbers, confirmed)
