"""One encoder for the whole family: BERT (Devlin et al. 2019, section 3), RoBERTa, ALBERT (factorised embeddings and
shared parts: Lan et al. 2020, section 3.1), ELECTRA, DistilBERT, XLNet (Yang et al. 2019, section 2) and GPT-2.

    N  all tokens of the batch      M  targets of a two-stream pass

What differs is chosen in `__init__` from the axes of the config; no `forward` asks for a family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertworks.config import EncoderConfig
from bertworks.errors import BadConfig
from bertworks.model.attention import ATTENTION, sinusoids
from bertworks.model.dropout import Dropout
from bertworks.model.layout import Layout, Tokens
from bertworks.model.partial_embedding import PartialEmbedding

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}


@dataclass(frozen=True)
class States:
    """What the encoder makes of the tokens."""

    last: Tensor  # (N, hidden)
    layers: tuple[Tensor, ...] = ()  # the embeddings and every layer's output, when kept


class AttentionPart(nn.Module):
    """Attention, residual and norm. Pre- and post-norm in one straight line: the absent norm is an Identity."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pre, self.post = _norms(config)
        self.attn = ATTENTION[config.attention](config)
        self.drop = Dropout(config.dropout)

    def forward(self, x: Tensor, layout: Layout, context: Tensor | None = None) -> Tensor:
        h = self.pre(x)
        y: Tensor = self.post(x + self.drop(self.attn(h, h if context is None else context, layout)))
        return y


class FeedForwardPart(nn.Module):
    """Two linear layers with a non-linearity between them, residual and norm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pre, self.post = _norms(config)
        self.up, self.down = (
            nn.Linear(config.hidden_size, config.ffn_size),
            nn.Linear(config.ffn_size, config.hidden_size),
        )
        self.activation = ACTIVATIONS[config.activation]
        self.drop_inside, self.drop = Dropout(config.ffn_dropout), Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop_inside(self.activation(self.up(self.pre(x))))
        y: Tensor = self.post(x + self.drop(self.down(h)))
        return y


def _norms(config: EncoderConfig) -> tuple[nn.Module, nn.Module]:
    norm, none = nn.LayerNorm(config.hidden_size, eps=config.norm_eps), nn.Identity()
    return (norm, none) if config.norm_order == "pre" else (none, norm)


class Embedding(nn.Module):
    """Token + position + segment, norm. A generator and a discriminator may share one."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.embedding_width
        self.first_position = config.first_position
        self.tokens: nn.Embedding | PartialEmbedding = _table(config.vocab_size, size)
        self.positions = _positions(config)
        self.segments = _table(config.n_segments, size) if config.n_segments else NoEmbedding()
        self.norm = nn.LayerNorm(size, eps=config.norm_eps) if config.embedding_norm else nn.Identity()
        self.drop = Dropout(config.dropout)

    def forward(self, tokens: Tokens) -> Tensor:  # (N, embedding_width)
        where = tokens.layout.queries
        x = (
            self.tokens(tokens.ids)
            + self.positions(where.positions + self.first_position)
            + self.segments(where.segments)
        )
        y: Tensor = self.drop(self.norm(x.to(self.tokens.weight.dtype)))  # sinusoids are float32
        return y


def _table(rows: int, size: int) -> nn.Embedding:
    # nn.Embedding's own start costs a second on the meta device (it imports torch._dynamo), and init.py replaces it
    # anyway.
    table: nn.Embedding = nn.Embedding.from_pretrained(torch.empty(rows, size), freeze=False)  # type: ignore[no-untyped-call]
    return table


def _positions(config: EncoderConfig) -> nn.Module:
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
    """An embedding that is not there."""

    def forward(self, _: Tensor) -> float:
        return 0.0


class Encoder(nn.Module):
    """Tokens in, states out."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = Embedding(config)
        self.project = nn.Linear(config.embedding_size, config.hidden_size) if config.embedding_size else nn.Identity()
        self.attention_order, self.ffn_order = config.order("attention"), config.order("ffn")
        self.attentions = nn.ModuleList(AttentionPart(config) for _ in range(1 + max(self.attention_order)))
        self.ffns = nn.ModuleList(FeedForwardPart(config) for _ in range(1 + max(self.ffn_order)))
        self.norm = (
            nn.LayerNorm(config.hidden_size, eps=config.norm_eps) if config.norm_order == "pre" else nn.Identity()
        )
        self.recompute = False  # on the way back, each layer is computed again: less memory, same numbers
        if config.attention == "relative":
            self.mask_state = nn.Parameter(
                torch.empty(config.hidden_size)
            )  # what a query stream knows of its token: nothing

    @property
    def token_table(self) -> Tensor:
        """The embedding of every token, (V, embedding_width)."""
        return self.embed.tokens.weight

    @property
    def device(self) -> torch.device:
        return self.token_table.device

    def forward(self, tokens: Tokens, keep_layers: bool = False) -> States:
        x = self.project(self.embed(tokens))
        kept = [x]
        for attention, ffn in self.layers():
            x = self._layer(attention, ffn, x, tokens.layout)
            if keep_layers:
                kept.append(x)
        last = self.norm(x)
        return States(last, (*kept[:-1], last) if keep_layers else ())

    def states_at(self, tokens: Tokens, chosen: Tensor, n_chosen: Sequence[int]) -> Tensor:
        """The last states of the tokens `chosen` (M,), `n_chosen` of each sequence: (M, hidden), as `forward` would
        give them.

        The last layer works for these alone; the others are only looked at. In masked pre-training that is 15 % of the
        tokens.
        """
        x = self.project(self.embed(tokens))
        *below, (attention, ffn) = self.layers()
        for lower in below:
            x = self._layer(*lower, x, tokens.layout)
        x = self._layer(
            attention, ffn, x.index_select(0, chosen), tokens.layout.select(chosen, n_chosen), attention.pre(x)
        )
        states: Tensor = self.norm(x)
        return states

    def two_stream(self, tokens: Tokens, ranks: Tensor, targets: Tensor, n_targets: Sequence[int]) -> Tensor:
        """XLNet's two streams: states (M, hidden) for `targets` (M,), which know their place and what is ranked below
        them.

        The content stream h is the ordinary encoder; the query stream g runs through the same layers, looks at h, and
        never sees the token that it is to predict. Tokens of rank -1 are given to all; targets have ranks from 0.
        """
        content = tokens.layout.ranked(ranks)
        query = content.targets(targets, n_targets)
        h = self.project(self.embed(tokens))
        g = self.embed.drop(self.mask_state.expand(len(targets), -1))
        *below, last = self.layers()
        for attention, ffn in below:
            g = self._layer(attention, ffn, g, query, attention.pre(h))
            h = self._layer(attention, ffn, h, content)
        attention, ffn = last
        g = self._layer(attention, ffn, g, query, attention.pre(h))  # nobody looks at the last h
        states: Tensor = self.norm(g)
        return states

    def _layer(
        self, attention: AttentionPart, ffn: FeedForwardPart, x: Tensor, layout: Layout, context: Tensor | None = None
    ) -> Tensor:
        def run(x: Tensor, context: Tensor | None) -> Tensor:
            y: Tensor = ffn(attention(x, layout, context))
            return y

        return (
            checkpoint(run, x, context, use_reentrant=False)
            if self.recompute and torch.is_grad_enabled()
            else run(x, context)
        )

    def share_embedding(self, other: Encoder) -> None:
        """One embedding for both, as ELECTRA's generator takes its discriminator's."""
        fields = (
            "vocab_size",
            "embedding_width",
            "positions",
            "n_positions",
            "first_position",
            "n_segments",
            "norm_eps",
            "embedding_norm",
        )
        for name in fields:
            mine, theirs = getattr(self.config, name), getattr(other.config, name)
            if mine != theirs:
                raise BadConfig(f"embeddings with {name} {mine} and {theirs} cannot be one", code="embeddings-differ")
        self.embed = other.embed

    def depth(self, parameter: str) -> int:
        """How far below the heads a parameter of this name lies: 1 for the last layer, one more for each before it and
        the embeddings."""
        part, _, rest = parameter.partition(".")
        orders = {"attentions": self.attention_order, "ffns": self.ffn_order}
        if part in orders:  # shared ones lie where they are used last
            used = [layer for layer, unique in enumerate(orders[part]) if unique == int(rest.partition(".")[0])]
            return self.config.n_layers - max(used)
        return 0 if part == "norm" else self.config.n_layers + 1

    def layers(self) -> Iterator[tuple[AttentionPart, FeedForwardPart]]:
        """The attention and the feed-forward part of each layer; shared parts come again."""
        for a, f in zip(self.attention_order, self.ffn_order, strict=True):
            attention, ffn = self.attentions[a], self.ffns[f]
            assert isinstance(attention, AttentionPart) and isinstance(ffn, FeedForwardPart)
            yield attention, ffn
