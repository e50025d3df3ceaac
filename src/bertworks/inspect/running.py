"""The attention of a model over passages, a layer of a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from bertworks.errors import Unsupported
from bertworks.inspect.passages import Passage
from bertworks.inspect.units import Floats
from bertworks.model.attention import CONTENT, AttentionLayer, record_attention
from bertworks.model.layout import Tokens
from bertworks.model.model import Model
from bertworks.model.weights import as_numpy
from bertworks.tasks.inference import Progress, token_batches

BATCH_TOKENS = 2048
OnText = Callable[[int, int, Floats, Floats], None]
"""Called with a layer, the index of a passage, the attention between its tokens, (H, T, T), and the lengths of what
they bring at full weight, (H, T)."""


def run_passages(model: Model, passages: Sequence[Passage], on_text: OnText, progress: Progress) -> None:
    """The attention of every layer and passage; nothing is kept."""
    encoder = model.encoder
    n_done = n_layers = 0
    for members in token_batches([len(passage.tokens.ids) for passage in passages], BATCH_TOKENS):
        batch = [passages[member] for member in members]

        def on_layer(layer: AttentionLayer, members: Sequence[int] = members.tolist()) -> None:
            nonlocal n_layers
            n_layers += 1
            if layer.stream == CONTENT:
                for member, attention, norms in zip(members, layer.probabilities, layer.value_norms, strict=True):
                    on_text(layer.layer, member, as_numpy(attention), as_numpy(norms))

        ids, segments = (
            torch.tensor([value for passage in batch for value in getattr(passage.tokens, name)], device=encoder.device)
            for name in ("ids", "segments")
        )
        with torch.inference_mode(), record_attention(on_layer, fields=["probabilities", "value_norms"]):
            encoder(Tokens.ragged(ids, [len(passage.tokens.ids) for passage in batch], segments))
        n_done += len(members)
        progress(n_done, len(passages))
    if passages and not n_layers:
        raise Unsupported("this encoder has no attention", code="no-attention")
