"""One word's vectors in many contexts: a map for every layer, and groups where they are more than chance.

C  contexts      L  layers, the embeddings first      D  hidden size
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertworks.inspect.atlas import LoadedModel
from bertworks.inspect.clusters import Clusters, find_clusters
from bertworks.inspect.contexts import Context, Contexts, find_contexts
from bertworks.inspect.marking import marking_words
from bertworks.inspect.planes import LayerMap, aligned_maps
from bertworks.model.layout import Tokens
from bertworks.model.transformer import Transformer
from bertworks.model.weights import as_numpy
from bertworks.tasks.inference import Progress, no_progress, token_batches

FORMAT = 1
MAX_CONTEXTS = 1000
BATCH_TOKENS = 2048
Array = NDArray[np.float32]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class WordMap:
    word: str
    contexts: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]  # of the word in each context, in characters
    n_sentences: int  # of the corpus that have the word; of more than fit, the contexts are a random draw
    n_unread: int  # of these, that the model cannot read
    pieces: tuple[str, ...]  # of the word; several are averaged
    is_unknown: bool  # the tokenizer does not know the word, or a part of it
    layer_vectors: Array  # (L, C, D), less the mean of all tokens of the layer
    static_vectors: Array | None  # (L, D), the embedding less that mean; None where the encoder has none of this size
    maps: tuple[LayerMap, ...]  # by layer
    clusters: tuple[Clusters, ...]  # by layer
    group_words: tuple[tuple[tuple[str, ...], ...], ...]  # by layer and group: what marks its contexts

    def vectors(self, layer: int = -1) -> Array:
        """(C, D); layer 0 is the embeddings."""
        vectors: Array = self.layer_vectors[layer]
        return vectors

    @property
    def shown_layer(self) -> int:
        """The last layer with groups; without any, the last."""
        return max(
            (number for number, clusters in enumerate(self.clusters) if clusters.n > 1), default=len(self.maps) - 1
        )

    def as_dict(self) -> dict[str, Any]:
        """The same for the same input, to the byte."""
        layers = []
        for number, (layer, clusters, names) in enumerate(zip(self.maps, self.clusters, self.group_words, strict=True)):
            static = None if layer.static is None else np.round(layer.static, 5).tolist()
            groups = [
                {"sentences": size, "words": list(words)} for size, words in zip(clusters.sizes, names, strict=True)
            ]
            layers.append(
                {
                    "layer": number,
                    "variance": layer.variance,
                    "neighbours_kept": layer.neighbours_kept,
                    "static": static,
                    "points": np.round(layer.points, 5).tolist(),
                    "groups": groups,
                    "labels": clusters.labels.tolist(),
                    "tried": [asdict(division) for division in clusters.divisions],
                }
            )
        return {
            "format": FORMAT,
            "word": self.word,
            "pieces": list(self.pieces),
            "sentences": len(self.contexts),
            "sentences_in_corpus": self.n_sentences,
            "unread": self.n_unread,
            "contexts": [
                {"text": text, "start": start, "end": end}
                for text, (start, end) in zip(self.contexts, self.spans, strict=True)
            ],
            "layers": layers,
        }

    def save(self, path: str | Path, *, model: str = "") -> Path:
        """As a page; `model`: its name there."""
        from bertworks.inspect.word_page import write_word_page

        return write_word_page(Path(path), self, model=model)


def words(
    model: LoadedModel,
    word: str,
    texts: Iterable[str],
    *,
    sentences: int = MAX_CONTEXTS,
    progress: Progress = no_progress,
) -> WordMap:
    """The vectors of a word in up to so many sentences of these texts, which are read to their end."""
    contexts = find_contexts(model.tokenizer, model.limit, word, texts, sentences)
    layers, means = word_states(model, contexts.contexts, progress)
    static = static_vector(model, contexts.ids)
    static_vectors = None if static is None else static[None] - means
    centred = layers - means[:, None]
    sentence_texts = [context.text for context in contexts.contexts]
    # The embeddings differ by the place of the word in its sentence only: one group.
    clusters = (Clusters(np.zeros(len(sentence_texts), np.int64)), *map(find_clusters, centred[1:]))
    return WordMap(
        word.strip(),
        tuple(sentence_texts),
        tuple((context.start, context.end) for context in contexts.contexts),
        contexts.n_sentences,
        contexts.n_unread,
        *_pieces(model, contexts),
        centred,
        static_vectors,
        tuple(aligned_maps(centred, static_vectors)),
        clusters,
        tuple(marking_words(sentence_texts, of_layer.labels, word, contexts.common) for of_layer in clusters),
    )


def _pieces(model: LoadedModel, contexts: Contexts) -> tuple[tuple[str, ...], bool]:
    names = tuple(model.tokenizer.readable(id) for id in contexts.ids)
    return names, model.tokenizer.unknown_id in contexts.ids


@torch.inference_mode()
def static_vector(model: LoadedModel, ids: Sequence[int]) -> Array | None:
    """The mean embedding of pieces (D,); a small one (ALBERT's) is projected, as the encoder does it."""
    encoder = model.model.encoder
    vector = encoder.token_table[list(ids)].mean(0)
    if isinstance(encoder, Transformer):
        vector = encoder.project(vector)
    return as_numpy(vector) if len(vector) == encoder.config.hidden_size else None


@torch.inference_mode()
def word_states(model: LoadedModel, contexts: Sequence[Context], progress: Progress) -> tuple[Array, Array]:
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
