"""One transformer for the whole family: BERT (Devlin et al. 2019, section 3), RoBERTa, ALBERT (factorised embeddings
and shared parts: Lan et al. 2020, section 3.1), ELECTRA, DistilBERT, XLNet (Yang et al. 2019, section 2) and GPT-2.

    N  all tokens of the batch      M  selected tokens

Differences between families are chosen in `__init__` from the config; no `forward` depends on the family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertworks.config import TransformerConfig
from bertworks.errors import BadConfig
from bertworks.model.attention import ATTENTION, CONTENT, AttentionCall, Memory, sinusoids
from bertworks.model.dropout import Dropout
from bertworks.model.encoder import Encoder, LayerGroup, States
from bertworks.model.layout import Layout, Tokens
from bertworks.model.partial_embedding import PartialEmbedding

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}


class AttentionPart(nn.Module):
    """Attention, residual and norm. Pre- and post-norm in one straight line: the absent norm is an Identity."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.pre, self.post = _norms(config)
        self.attn = ATTENTION[config.attention](config)
        self.drop = Dropout(config.dropout)

    def forward(self, x: Tensor, layout: Layout, call: AttentionCall, context: Tensor | Memory | None = None) -> Tensor:
        """`context`: what is attended to, if not x itself: normed states, or keys and values made of them before."""
        h = self.pre(x)
        y: Tensor = self.post(x + self.drop(self.attn(h, h if context is None else context, layout, call)))
        return y


class FeedForwardPart(nn.Module):
    """Two linear layers with a non-linearity between them (Shazeer 2020 if it is gated), residual and norm."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.pre, self.post = _norms(config)
        self.up = nn.Linear(config.hidden_size, config.ffn_size)
        self.gate = nn.Linear(config.hidden_size, config.ffn_size) if config.ffn == "gated" else None
        self.down = nn.Linear(config.ffn_size, config.hidden_size)
        self.activation = ACTIVATIONS[config.activation]
        self.drop_inside = Dropout(config.ffn_dropout)
        self.drop = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        h = self.pre(x)
        inner = self.activation(self.up(h)) if self.gate is None else self.activation(self.gate(h)) * self.up(h)
        y: Tensor = self.post(x + self.drop(self.down(self.drop_inside(inner))))
        return y


def _norm(size: int, config: TransformerConfig) -> nn.LayerNorm:
    return nn.LayerNorm(size, eps=config.norm_eps, bias=config.norm_bias)


def _norms(config: TransformerConfig) -> tuple[nn.Module, nn.Module]:
    """Before and after a part; one of them is an Identity."""
    norm = _norm(config.hidden_size, config)
    return (norm, nn.Identity()) if config.norm_order == "pre" else (nn.Identity(), norm)


class Embedding(nn.Module):
    """Token + position + segment, norm. A generator and a discriminator may share one."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        size = config.embedding_width
        self.first_position = config.first_position
        self.tokens: nn.Embedding | PartialEmbedding = _table(config.vocab_size, size)
        self.positions = _positions(config)
        self.segments = _table(config.n_segments, size) if config.n_segments else NoEmbedding()
        self.norm = _norm(size, config) if config.embedding_norm else nn.Identity()
        self.drop = Dropout(config.dropout)

    def forward(self, tokens: Tokens) -> Tensor:  # (N, embedding_width)
        layout = tokens.layout.queries
        positions = layout.positions + self.first_position
        x = self.tokens(tokens.ids) + self.positions(positions) + self.segments(layout.segments)
        y: Tensor = self.drop(self.norm(x.to(self.tokens.weight.dtype)))  # sinusoids are float32
        return y


def _table(rows: int, size: int) -> nn.Embedding:
    # nn.Embedding's own initialisation takes a second on the meta device (it imports torch._dynamo), and init.py
    # replaces it anyway.
    table: nn.Embedding = nn.Embedding.from_pretrained(torch.empty(rows, size), freeze=False)  # type: ignore[no-untyped-call]
    return table


def _positions(config: TransformerConfig) -> nn.Module:
    if config.positions == "learned":
        assert config.n_positions is not None  # the config has checked it
        return _table(config.n_positions + config.first_position, config.embedding_width)
    return Sinusoids(config.embedding_width) if config.positions == "sinusoidal" else NoEmbedding()


class Sinusoids(nn.Module):
    """Fixed positions (Vaswani et al. 2017, section 3.5): sine and cosine in turn."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, positions: Tensor) -> Tensor:
        return torch.stack(sinusoids(positions, self.size), -1).flatten(-2)


class NoEmbedding(nn.Module):
    """Takes the place of an absent embedding."""

    def forward(self, _: Tensor) -> float:
        return 0.0


@dataclass(frozen=True)
class Layer:
    """One layer of a forward pass; layers may share their parts."""

    index: int
    attention: AttentionPart
    ffn: FeedForwardPart
    reach: int | None  # how many tokens to either side it sees; None: all

    def call(self, stream: str) -> AttentionCall:
        return AttentionCall(self.index, stream, self.reach)


class Transformer(Encoder):
    """Tokens in, states out."""

    config: TransformerConfig

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = Embedding(config)
        self.project = nn.Linear(config.embedding_size, config.hidden_size) if config.embedding_size else nn.Identity()
        self.attention_order = config.order("attention")
        self.ffn_order = config.order("ffn")
        self.attentions = nn.ModuleList(AttentionPart(config) for _ in range(1 + max(self.attention_order)))
        self.ffns = nn.ModuleList(FeedForwardPart(config) for _ in range(1 + max(self.ffn_order)))
        self.norm = _norm(config.hidden_size, config) if config.norm_order == "pre" else nn.Identity()
        self.recompute = False

    @property
    def token_embedding(self) -> nn.Embedding | PartialEmbedding:
        return self.embed.tokens

    def forward(self, tokens: Tokens, keep_layers: bool = False) -> States:
        x = self.project(self.embed(tokens))
        layer_states = [x]
        for layer in self.layers():
            x = self._run(layer, x, tokens.layout)
            if keep_layers:
                layer_states.append(x)
        last = self.norm(x)
        return States(last, (*layer_states[:-1], last) if keep_layers else ())

    def states_at(self, tokens: Tokens, chosen: Tensor, n_chosen: Sequence[int]) -> Tensor:
        """As `forward` would give them; but the last layer is computed for these tokens alone, the others are only
        attended to. In masked pre-training that is 15 % of the tokens."""
        x = self.project(self.embed(tokens))
        *below, top = self.layers()
        for layer in below:
            x = self._run(layer, x, tokens.layout)
        selected = tokens.layout.select(chosen, n_chosen)
        x = self._run(top, x.index_select(0, chosen), selected, top.attention.pre(x))
        states: Tensor = self.norm(x)
        return states

    def _run(
        self, layer: Layer, x: Tensor, layout: Layout, context: Tensor | None = None, stream: str = CONTENT
    ) -> Tensor:
        def run(x: Tensor, context: Tensor | None) -> Tensor:
            y: Tensor = layer.ffn(layer.attention(x, layout, layer.call(stream), context))
            return y

        if self.recompute and torch.is_grad_enabled():
            y: Tensor = checkpoint(run, x, context, use_reentrant=False)
            return y
        return run(x, context)

    def layers(self) -> Iterator[Layer]:
        """From below; shared parts occur several times."""
        reaches = self.config.reach or (None,) * self.config.n_layers
        for index, reach in enumerate(reaches):
            attention = self.attentions[self.attention_order[index]]
            ffn = self.ffns[self.ffn_order[index]]
            assert isinstance(attention, AttentionPart) and isinstance(ffn, FeedForwardPart)
            yield Layer(index, attention, ffn, reach)

    def groups(self) -> list[LayerGroup]:
        """A part that several layers share belongs to the highest of them."""
        groups: list[LayerGroup] = []
        placed: set[nn.Module] = set()
        for layer in reversed(list(self.layers())):
            groups.insert(0, [part for part in (layer.attention, layer.ffn) if part not in placed])
            placed.update(groups[0])
        return [[self.embed, self.project], *groups, [self.norm]]

    def share_embedding(self, other: Encoder) -> None:
        fields = ("vocab_size", "embedding_width", "positions", "n_positions", "first_position", "n_segments")
        for name in (*fields, "norm_eps", "norm_bias", "embedding_norm"):
            own, shared = getattr(self.config, name), getattr(other.config, name, None)
            if own != shared:
                cause = f"embeddings with {name} {own} and {shared} cannot be shared"
                raise BadConfig(cause, code="embeddings-differ")
        assert isinstance(other, Transformer)  # only its config has these fields
        self.embed = other.embed

    def use_recompute(self) -> None:
        self.recompute = True
