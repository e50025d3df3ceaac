"""The attention of one text or pair: every layer and head, as arrays.

L  layers      H  heads      T  tokens      D  size of a head
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertworks.errors import Unsupported
from bertworks.inspect.units import Units
from bertworks.model.attention import AttentionLayer, record_attention
from bertworks.model.layout import Tokens
from bertworks.model.model import Model
from bertworks.model.transformer import Layer, Transformer
from bertworks.model.weights import as_numpy
from bertworks.predictor import check_segments
from bertworks.text.tokenizer import Pieces

Array = NDArray[np.float32]


class Link(NamedTuple):
    """A weight of attention."""

    layer: int
    head: int
    from_token: int
    to_token: int
    weight: float


@dataclass(frozen=True)
class AttentionView:
    """The attention over a text or a pair."""

    texts: tuple[str, ...]
    tokens: Pieces
    probabilities: Array  # (L, H, T, T)
    scores: Array = field(repr=False)  # (L, H, T, T), before mask and softmax
    position_terms: Mapping[str, Array] = field(repr=False)  # (L, H, T, T) each: parts of the scores beside q . k
    queries: Array = field(repr=False)  # (L, H, T, D), before positions
    keys: Array = field(repr=False)  # (L, H, T, D), before positions
    norms: Array = field(repr=False)  # (L, H, T): the length of what a token adds where it has all attention
    mixing: Array = field(repr=False)  # (L, T): the share of a token's new state that comes from other tokens

    @cached_property
    def units(self) -> Units:
        return Units.of(self.tokens, self.texts)

    def words(self) -> Array:
        """(L, H, U, U), of words: to a word goes the sum of its pieces, from a word their mean."""
        return np.stack([self.units.attention(layer) for layer in self.probabilities]).astype(np.float32)

    def contributions(self) -> Array:
        """(L, H, T, T): weights times the lengths of what they bring, rows scaled to sum to 1."""
        weighted = self.probabilities * self.norms[:, :, None]
        total: Array = weighted / np.maximum(weighted.sum(-1, keepdims=True), 1e-30)
        return total

    def rollout(self) -> Array:
        """(L, T, T): where each token's state comes from, through all layers so far (Abnar & Zuidema 2020); with the
        measured share of other tokens instead of one half, and with lengths instead of weights alone."""
        flow = np.eye(len(self.tokens.ids), dtype=np.float32)
        flows = []
        for weights, norms, mixing in zip(self.probabilities, self.norms, self.mixing, strict=True):
            others = (weights * norms[:, None]).sum(0)
            np.fill_diagonal(others, 0.0)
            others /= np.maximum(others.sum(1, keepdims=True), 1e-30)
            flow = mixing[:, None] * (others @ flow) + (1 - mixing[:, None]) * flow
            flows.append(flow)
        return np.stack(flows)

    def save(self, path: str | Path, *, model: str = "", other: AttentionView | None = None) -> Path:
        """As a page, one file that needs nothing else; `other`: the same tokens in another model, to compare with."""
        from bertworks.inspect.page import write_attention_page  # which imports this module

        return write_attention_page(Path(path), self, model=model, other=other)

    def top(self, n: int = 20) -> list[Link]:
        """The strongest weights between tokens that are not special."""
        ordinary = ~np.array(self.tokens.special)
        weights = self.probabilities * (ordinary[:, None] & ordinary[None])
        places = np.argsort(weights, axis=None, kind="stable")[::-1][:n]
        indices = zip(*np.unravel_index(places, weights.shape), strict=True)
        return [
            Link(int(layer), int(head), int(query), int(key), float(weights[layer, head, query, key]))
            for layer, head, query, key in indices
        ]


@torch.inference_mode()
def inspect_text(model: Model, tokens: Pieces, texts: tuple[str, ...]) -> AttentionView:
    """Run a model on the tokens of a text or a pair."""
    encoder = model.encoder
    mixing: list[Array] = []
    batch = Tokens.single(tokens.ids, tokens.segments, encoder.device)
    check_segments(model, batch)
    with record_attention() as recording:
        states = encoder(batch, keep_layers=True)
    layers = recording.layers
    if not layers or not isinstance(encoder, Transformer):
        raise Unsupported("this encoder has no attention", code="no-attention")
    for layer, below, recorded in zip(encoder.layers(), states.layers, layers, strict=False):
        mixing.append(as_numpy(mixing_share(layer, below, recorded)))

    def stacked(name: str) -> Array:
        return np.stack([as_numpy(getattr(layer, name)[0]) for layer in layers])

    names = [name for name in layers[0].terms[0] if name != "content"]
    return AttentionView(
        texts=texts,
        tokens=tokens,
        probabilities=stacked("probabilities"),
        scores=stacked("scores"),
        position_terms={name: np.stack([as_numpy(layer.terms[0][name]) for layer in layers]) for name in names},
        queries=stacked("queries"),
        keys=stacked("keys"),
        norms=stacked("value_norms"),
        mixing=np.stack(mixing),
    )


def mixing_share(layer: Layer, below: Tensor, recorded: AttentionLayer) -> Tensor:
    """How much of each token's state after the attention comes from other tokens, and not from itself or the residual:
    by the lengths of both parts, after the norm (Kobayashi et al. 2021), (T,)."""
    out = layer.attention.attn.out
    probabilities, values = recorded.probabilities[0], recorded.values[0]  # (H, T, T), (H, T, D)
    own = probabilities.diagonal(dim1=1, dim2=2).unsqueeze(-1) * values  # (H, T, D)
    from_itself, from_all = (part.transpose(0, 1).flatten(1) @ out.weight.T for part in (own, probabilities @ values))
    bias = 0.0 if out.bias is None else out.bias
    parts = from_all - from_itself, below + from_itself + bias
    others, itself = (_normed(layer.attention.post, part).norm(dim=-1) for part in parts)
    share: Tensor = others / (others + itself).clamp_min(1e-30)
    return share


def _normed(norm: nn.Module, part: Tensor) -> Tensor:
    """A part of a sum that a layer norm reads: centred and scaled as the whole is, up to a common factor."""
    if not isinstance(norm, nn.LayerNorm):
        return part
    return (part - part.mean(-1, keepdim=True)) * norm.weight
