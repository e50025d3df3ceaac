"""One word's vectors in many contexts: a map for every layer, and groups where they are more than chance.

C  contexts      L  layers, the embeddings first      D  hidden size
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bertworks.errors import NotFound, Unsupported
from bertworks.inspect.atlas import LoadedModel
from bertworks.inspect.units import Units
from bertworks.model.layout import Tokens
from bertworks.model.weights import as_numpy
from bertworks.tasks.inference import token_batches
from bertworks.text.sentences import split_sentences

MAX_CONTEXTS = 1000
MAX_CLUSTERS = 6
N_NULLS = 20  # of clusterings of shuffled vectors
N_NEIGHBOURS = 10
BATCH_TOKENS = 2048
WORD = re.compile(r"\w+")
Array = NDArray[np.float32]
Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Clusters:
    """Groups of contexts; a single one, if more are no better than in shuffled vectors."""

    labels: Numbers  # (C,)
    silhouette: float  # in the full space; of a single group 0
    null: float  # the largest silhouette of shuffled vectors, for as many groups
    words: tuple[tuple[str, ...], ...]  # that mark the contexts of each group

    @property
    def n(self) -> int:
        return len(self.words)


@dataclass(frozen=True)
class LayerMap:
    """The contexts of a word on a plane, in one layer."""

    points: Floats  # (C, 2)
    static: Floats  # (2,) the word's embedding, without a context
    variance: float  # the share of the variance that the two axes show
    neighbours_kept: float  # the share of the ten nearest contexts that are the nearest on the map, too


@dataclass(frozen=True)
class WordMap:
    word: str
    contexts: tuple[str, ...]
    starts: tuple[int, ...]  # of the word in each context
    n_pieces: int  # of the word; several are averaged
    layer_vectors: Array  # (L, C, D), less the mean of all tokens of the layer
    static_vectors: Array  # (L, D), the embedding less that mean
    maps: tuple[LayerMap, ...]  # by layer
    clusters: tuple[Clusters, ...]  # by layer

    def vectors(self, layer: int = -1) -> Array:
        """(C, D); layer 0 is the embeddings."""
        vectors: Array = self.layer_vectors[layer]
        return vectors


def words(
    model: LoadedModel, word: str, texts: Iterable[str], *, progress: Progress = lambda done, total: None
) -> WordMap:
    """The vectors of a word in up to a thousand sentences of these texts."""
    found = find_contexts(model, word, texts)
    layers, means = _states(model, found, progress)
    table = as_numpy(model.model.encoder.token_table.detach())
    if table.shape[1] != layers.shape[2]:
        raise Unsupported("this model's embeddings have another size than its states", code="no-static-vectors")
    static = table[list(found[0].ids)].mean(0)
    centred = layers - means[:, None]
    static_vectors = static[None] - means
    contexts = [context.text for context in found]
    clusters = tuple(find_clusters(vectors, contexts, word) for vectors in centred)
    return WordMap(
        word,
        tuple(contexts),
        tuple(context.start for context in found),
        len(found[0].ids),
        centred,
        static_vectors,
        tuple(_maps(centred, static_vectors)),
        clusters,
    )


# ---------------------------------------------------------------------- contexts


@dataclass(frozen=True)
class Context:
    text: str
    start: int  # character of the word
    token_ids: tuple[int, ...]
    segments: tuple[int, ...]
    pieces: range  # of the word
    ids: tuple[int, ...]  # of these


def find_contexts(model: LoadedModel, word: str, texts: Iterable[str]) -> list[Context]:
    """Sentences with the word, the first occurrence in each; the same sentence counts once."""
    wanted = word.strip().lower()
    contexts: dict[str, Context] = {}
    n_words = 0
    for text in texts:
        for paragraph in text.split("\n"):
            if wanted not in paragraph.lower():
                continue
            for sentence in split_sentences(paragraph):
                if wanted in sentence.lower() and sentence not in contexts:
                    n_words += 1
                    context = _context(model, wanted, sentence)
                    if context is not None:
                        contexts[sentence] = context
                if len(contexts) == MAX_CONTEXTS:
                    return list(contexts.values())
    if not contexts:
        seen = f" as a word of its own; {n_words} sentences have it inside of others" if n_words else ""
        raise NotFound(f"{word!r} does not occur{seen}", remedy="another word, or more text", code="no-such-word")
    return list(contexts.values())


def _context(model: LoadedModel, wanted: str, sentence: str) -> Context | None:
    pieces = model.tokenizer.pieces(sentence)
    if len(pieces.ids) > model.limit:
        return None
    units = Units.of(pieces, (sentence,))
    if wanted not in units.words:
        return None
    unit = units.words.index(wanted)
    members = range(int(units.starts[unit]), int(units.starts[unit] + units.n_pieces[unit]))
    ids = tuple(pieces.ids[member] for member in members)
    return Context(sentence, pieces.offsets[members[0]][0], tuple(pieces.ids), tuple(pieces.segments), members, ids)


@torch.inference_mode()
def _states(model: LoadedModel, contexts: Sequence[Context], progress: Progress) -> tuple[Array, Array]:
    """The vectors of the word (L, C, D), and the mean of all tokens (L, D)."""
    encoder = model.model.encoder
    vectors: list[Array] = [np.empty(0, np.float32)] * len(contexts)
    sums: Floats | None = None
    n_tokens = n_done = 0
    for members in token_batches([len(context.token_ids) for context in contexts], BATCH_TOKENS):
        batch = [contexts[member] for member in members]
        ids, segments = (
            torch.tensor([value for context in batch for value in getattr(context, name)], device=encoder.device)
            for name in ("token_ids", "segments")
        )
        lengths = [len(context.token_ids) for context in batch]
        layers = np.stack([as_numpy(layer) for layer in encoder(Tokens.ragged(ids, lengths, segments), True).layers])
        sums = layers.sum(1, dtype=np.float64) + (0 if sums is None else sums)
        n_tokens += layers.shape[1]
        starts = np.cumsum([0, *lengths])
        for member, context, start in zip(members.tolist(), batch, starts.tolist(), strict=False):
            vectors[member] = layers[:, start + context.pieces.start : start + context.pieces.stop].mean(1)
        n_done += len(members)
        progress(n_done, len(contexts))
    assert sums is not None
    return np.stack(vectors, axis=1), (sums / n_tokens).astype(np.float32)


# ---------------------------------------------------------------------- maps


def _maps(layers: Array, static: Array) -> list[LayerMap]:
    """By principal components; each layer is turned so that its points are as near as can be to those of the layer
    before, so that they do not jump."""
    maps: list[LayerMap] = []
    for vectors, own in zip(layers.astype(np.float64), static.astype(np.float64), strict=True):
        mean = vectors.mean(0)
        _, singular, axes = np.linalg.svd(vectors - mean, full_matrices=False)
        axes = axes[:2] if len(axes) > 1 else np.concatenate([axes[:1], np.zeros((1, vectors.shape[1]))])
        points, point = (vectors - mean) @ axes.T, (own - mean) @ axes.T
        if maps:
            turn = _rotation(points, maps[-1].points)
            points, point = points @ turn, point @ turn
        total = float((singular**2).sum())
        variance = float((singular[:2] ** 2).sum()) / total if total > 0 else 0.0
        maps.append(LayerMap(points, point, variance, neighbours_kept(vectors, points)))
    return maps


def _rotation(points: Floats, to: Floats) -> Floats:
    """The rotation or reflection that brings points nearest to others (Procrustes)."""
    left, _, right = np.linalg.svd(points.T @ to)
    turn: Floats = left @ right
    return turn


def neighbours_kept(vectors: Floats, points: Floats) -> float:
    n = min(N_NEIGHBOURS, len(vectors) - 1)
    if n < 1:
        return 1.0
    near, near_on_map = (
        np.argsort(_distances(rows) + np.diag(np.full(len(rows), np.inf)), axis=1)[:, :n] for rows in (vectors, points)
    )
    return float(np.mean([len(np.intersect1d(a, b)) / n for a, b in zip(near, near_on_map, strict=True)]))


def _distances(rows: Floats) -> Floats:
    squares = (rows**2).sum(1)
    distances: Floats = np.sqrt(np.maximum(squares[:, None] + squares[None] - 2 * rows @ rows.T, 0.0))
    return distances


# ---------------------------------------------------------------------- groups


def find_clusters(vectors: Array, contexts: Sequence[str], word: str, seed: int = 0) -> Clusters:
    """As many groups as have the largest silhouette above that of shuffled vectors, whose dimensions are independent of
    each other; one, if none has."""
    rng = np.random.default_rng(seed)
    data = vectors.astype(np.float64)
    data /= np.maximum(np.linalg.norm(data, axis=1, keepdims=True), 1e-12)
    distances = _distances(data)
    best = Clusters(np.zeros(len(data), np.int64), 0.0, 0.0, ((),))
    best_margin = 0.0
    for k in range(2, min(MAX_CLUSTERS, len(data) - 1) + 1):
        labels = k_means(data, k, np.random.default_rng(seed))
        value = silhouette(distances, labels)
        null = 0.0
        for _ in range(N_NULLS):
            shuffled = rng.permuted(data, axis=0)
            null = max(null, silhouette(_distances(shuffled), k_means(shuffled, k, np.random.default_rng(seed))))
            if null >= value:
                break
        if value - null > best_margin:
            best_margin = value - null
            best = Clusters(labels, value, null, marking_words(contexts, labels, word))
    return best


def k_means(data: Floats, k: int, rng: np.random.Generator, n_starts: int = 4, n_rounds: int = 50) -> Numbers:
    """Lloyd's algorithm from k-means++ starts (Arthur & Vassilvitskii 2007); the best of several."""
    best, best_cost = np.zeros(len(data), np.int64), np.inf
    for _ in range(n_starts):
        centres = data[[rng.integers(len(data))]]
        while len(centres) < k:
            nearest = ((data[:, None] - centres[None]) ** 2).sum(2).min(1)
            total = nearest.sum()
            chances = nearest / total if total > 0 else np.full(len(data), 1 / len(data))
            centres = np.concatenate([centres, data[[rng.choice(len(data), p=chances)]]])
        labels = np.zeros(len(data), np.int64)
        for _ in range(n_rounds):
            squares = ((data[:, None] - centres[None]) ** 2).sum(2)
            new = squares.argmin(1)
            if (new == labels).all():
                break
            labels = new
            centres = np.stack([data[labels == at].mean(0) if (labels == at).any() else centres[at] for at in range(k)])
        cost = float(((data - centres[labels]) ** 2).sum())
        if cost < best_cost:
            best, best_cost = labels, cost
    return best


def silhouette(distances: Floats, labels: Numbers) -> float:
    """The mean of (b - a) / max(a, b): a is the mean distance to one's own group, b to the nearest other one (Rousseeuw
    1987)."""
    groups = np.unique(labels)
    if len(groups) < 2:
        return 0.0
    sums = np.stack([distances[:, labels == group].sum(1) for group in groups], axis=1)
    sizes = np.array([(labels == group).sum() for group in groups])
    own = np.searchsorted(groups, labels)
    rows = np.arange(len(labels))
    inside = sums[rows, own] / np.maximum(sizes[own] - 1, 1)
    means = sums / sizes
    means[rows, own] = np.inf
    outside = means.min(1)
    values = np.where(sizes[own] > 1, (outside - inside) / np.maximum(np.maximum(inside, outside), 1e-12), 0.0)
    return float(values.mean())


def marking_words(contexts: Sequence[str], labels: Numbers, word: str, n: int = 6) -> tuple[tuple[str, ...], ...]:
    """The words that set the contexts of each group apart from the others, by log-odds with a prior (Monroe et al.
    2008)."""
    counts = [Counter[str]() for _ in range(int(labels.max()) + 1)]
    for context, label in zip(contexts, labels.tolist(), strict=True):
        counts[label].update({*WORD.findall(context.lower())} - {word.lower()})
    everything = sum(counts, Counter[str]())
    total = everything.total()
    marked = []
    for own in counts:
        n_own = own.total()
        scores = {}
        for candidate, count in own.items():
            prior = everything[candidate] / total * 100
            others = everything[candidate] - count
            odds = np.log((count + prior) / (n_own + 100 - count - prior))
            odds -= np.log((others + prior) / (total - n_own + 100 - others - prior))
            scores[candidate] = odds / np.sqrt(1 / (count + prior) + 1 / (others + prior))
        marked.append(tuple(sorted(scores, key=lambda candidate: (-scores[candidate], candidate))[:n]))
    return tuple(marked)
