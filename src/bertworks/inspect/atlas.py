"""What the heads of a model do over a corpus, and the names that follow from it.

The model runs once over the passages, in batches; of each batch one layer at a time is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from bertworks.errors import Unsupported
from bertworks.inspect.evidence import Evidence
from bertworks.inspect.naming import POSITIONAL, Thresholds, Verdict, has_enough_text, judge_offset, judge_same
from bertworks.inspect.passages import Passage
from bertworks.inspect.relations import (
    InspectedText,
    Sites,
    find_sites,
    offset_features,
    same_word,
    site_features,
)
from bertworks.inspect.units import Floats, WordTypes
from bertworks.model.attention import CONTENT, AttentionLayer, record_attention
from bertworks.model.layout import Tokens
from bertworks.model.model import Model
from bertworks.model.weights import as_numpy
from bertworks.tasks.inference import token_batches

BATCH_TOKENS = 2048
Progress = Callable[[int, int], None]


@dataclass
class LayerEvidence:
    """What was gathered of the heads of one layer, by relation."""

    offsets: Evidence = field(default_factory=Evidence)
    same: Evidence = field(default_factory=Evidence)

    def add(self, attention: Floats, text: InspectedText, sites: Sites | None) -> None:
        """Of attention (H, U, U) between the words of a text."""
        queries, features = offset_features(attention, text)
        self.offsets.add(text.types[queries], text.document, features)
        if sites is not None:
            self.same.add(text.types[sites.queries], text.document, site_features(attention, text, sites))


@torch.inference_mode()
def gather(
    model: Model, passages: Sequence[Passage], words: WordTypes, progress: Progress = lambda done, total: None
) -> list[LayerEvidence]:
    """By layer."""
    encoder = model.encoder
    layers: dict[int, LayerEvidence] = {}
    causal = bool(getattr(encoder.config, "causal", False))
    texts = [InspectedText.of(passage.units, words, passage.document, causal=causal) for passage in passages]
    n_done = 0
    for members in token_batches([len(passage.tokens.ids) for passage in passages], BATCH_TOKENS):
        batch = [passages[member] for member in members]
        batch_texts = [texts[member] for member in members]
        sites = [find_sites(text, same_word(text)) for text in batch_texts]

        def on_layer(
            layer: AttentionLayer,
            batch_texts: Sequence[InspectedText] = batch_texts,
            sites: Sequence[Sites | None] = sites,
        ) -> None:
            if layer.stream != CONTENT:
                return
            evidence = layers.setdefault(layer.layer, LayerEvidence())
            for text, text_sites, probabilities in zip(batch_texts, sites, layer.probabilities, strict=True):
                evidence.add(text.units.attention(as_numpy(probabilities).astype(np.float64)), text, text_sites)

        ids, segments = (
            torch.tensor([value for passage in batch for value in getattr(passage.tokens, name)], device=encoder.device)
            for name in ("ids", "segments")
        )
        with record_attention(on_layer, fields=["probabilities"]):
            encoder(Tokens.ragged(ids, [len(passage.tokens.ids) for passage in batch], segments))
        n_done += len(members)
        progress(n_done, len(passages))
    if not layers:
        raise Unsupported("this encoder has no attention", code="no-attention")
    return [layers[layer] for layer in sorted(layers)]


def judge(evidence: LayerEvidence, thresholds: Thresholds) -> dict[str, Verdict | None]:
    """By name; None: there is not enough text."""
    verdicts: dict[str, Verdict | None] = {}
    for name, offset in POSITIONAL.items():
        enough = has_enough_text(evidence.offsets, thresholds)
        verdicts[name] = judge_offset(evidence.offsets, offset, thresholds) if enough else None
    enough = has_enough_text(evidence.same, thresholds)
    verdicts["same"] = judge_same(evidence.same, thresholds) if enough else None
    return verdicts


def names_by_head(verdicts: Sequence[Mapping[str, Verdict | None]]) -> dict[tuple[int, int], list[dict[str, object]]]:
    """Of each layer's verdicts; heads without a name are not there."""
    named: dict[tuple[int, int], list[dict[str, object]]] = {}
    for layer, by_name in enumerate(verdicts):
        for name, verdict in by_name.items():
            for head in np.flatnonzero(verdict.is_named) if verdict is not None else ():
                assert verdict is not None
                numbers = {title: float(values[head]) for title, values in verdict.numbers.items()}
                entry = {"name": name, "strong": bool(verdict.is_strong[head]), "numbers": numbers}
                named.setdefault((layer, int(head)), []).append(entry)
    return named
