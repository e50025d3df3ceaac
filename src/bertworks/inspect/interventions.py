"""Texts that were changed on purpose, to confirm what a head is named for.

Words in another order: a head that looks at the next word still does. One word copied over another, far away: a head
that looks at the same word does so where there was no reason before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bertworks.inspect.naming import POSITIONAL
from bertworks.inspect.passages import Passage
from bertworks.inspect.relations import N_COMMON, OFFSETS, InspectedText, offset_features
from bertworks.inspect.running import OnText, Progress, run_passages
from bertworks.inspect.units import Floats
from bertworks.model.model import Model


def shuffled_words(passage: Passage, rng: np.random.Generator) -> Passage:
    """The words of each text in another order, their pieces together."""
    units = passage.units
    order = np.arange(len(units))
    for text in range(len(passage.texts)):
        members = np.flatnonzero(units.texts == text)
        order[members] = rng.permutation(members)
    pieces = np.concatenate(
        [np.arange(units.starts[unit], units.starts[unit] + units.n_pieces[unit]) for unit in order]
    )
    moved = {
        name: [getattr(passage.tokens, name)[piece] for piece in pieces]
        for name in ("ids", "pieces", "segments", "offsets", "special", "words", "texts")
    }
    return Passage(passage.texts, replace(passage.tokens, **moved), passage.document)


def planted_twin(passage: Passage, text: InspectedText, rng: np.random.Generator) -> tuple[Passage, int, int] | None:
    """One word copied over another, six words or more away; and where both are."""
    units = text.units
    is_candidate = (units.n_pieces == 1) & units.is_word & ~units.is_punctuation & (text.types >= N_COMMON)
    candidates = [unit for unit in np.flatnonzero(is_candidate) if (text.types == text.types[unit]).sum() == 1]
    pairs = [(a, b) for a in candidates for b in candidates if abs(a - b) >= 6]
    if not pairs:
        return None
    query, key = pairs[rng.integers(len(pairs))]
    ids = list(passage.tokens.ids)
    ids[units.starts[key]] = ids[units.starts[query]]
    return Passage(passage.texts, replace(passage.tokens, ids=ids), passage.document), int(query), int(key)


@dataclass(frozen=True)
class Interventions:
    """By layer and head, (L, H) each."""

    shuffled: Mapping[str, Floats]  # by positional name: its share after the words were shuffled, of that before
    twin_before: Floats  # attention to a word, before the query was copied there and after
    twin_after: Floats


def intervene(
    model: Model, passages: Sequence[Passage], texts: Sequence[InspectedText], n: int, progress: Progress
) -> Interventions:
    """On the first `n` passages."""
    rng = np.random.default_rng(0)
    chosen = range(min(n, len(passages)))
    shares: dict[tuple[str, int], list[Floats]] = {}
    shuffled = [shuffled_words(passages[index], rng) for index in chosen]

    def add_offsets(kind: str, own_texts: Sequence[InspectedText]) -> OnText:
        def on_text(layer: int, index: int, attention: Floats) -> None:
            text = own_texts[index]
            _, features = offset_features(text.units.attention(attention), text)
            shares.setdefault((kind, layer), []).append(features.sum(0))

        return on_text

    run_passages(model, [passages[index] for index in chosen], add_offsets("before", texts), progress)
    moved = [
        replace(texts[index], units=passage.units)  # types do not matter for offsets
        for index, passage in zip(chosen, shuffled, strict=True)
    ]
    run_passages(model, shuffled, add_offsets("after", moved), progress)
    n_layers = 1 + max(layer for _, layer in shares)

    def share(kind: str, offset: int) -> Floats:
        rows = []
        for layer in range(n_layers):
            total = np.sum(shares[kind, layer], axis=0).reshape(-1, len(OFFSETS), 4)[:, OFFSETS.index(offset)]
            rows.append(total[:, 0] / np.maximum(total[:, 1], 1e-30))
        return np.stack(rows)

    kept = {
        name: share("after", offset) / np.maximum(share("before", offset), 1e-30) for name, offset in POSITIONAL.items()
    }
    before, after = _twins(model, passages, texts, chosen, rng, n_layers, progress)
    return Interventions(kept, before, after)


def _twins(
    model: Model,
    passages: Sequence[Passage],
    texts: Sequence[InspectedText],
    chosen: Sequence[int],
    rng: np.random.Generator,
    n_layers: int,
    progress: Progress,
) -> tuple[Floats, Floats]:
    planted = [(index, planted_twin(passages[index], texts[index], rng)) for index in chosen]
    found = [(index, twin) for index, twin in planted if twin is not None]
    means = []
    for changed in (False, True):
        sums: dict[int, list[Floats]] = {}

        def on_text(layer: int, at: int, attention: Floats, sums: dict[int, list[Floats]] = sums) -> None:
            index, (_, query, key) = found[at]
            sums.setdefault(layer, []).append(texts[index].units.attention(attention)[:, query, key])

        run_passages(model, [twin[0] if changed else passages[index] for index, twin in found], on_text, progress)
        means.append(np.stack([np.mean(sums[layer], axis=0) for layer in range(n_layers)]))
    return means[0], means[1]
