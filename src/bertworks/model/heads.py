"""Heads: logits from the encoder's states. They depend on widths and activations, never on families.

    N  tokens of the batch      M  selected tokens      B  sequences      V  vocabulary      C  classes

Every head for whole sequences reads one *summary* vector: the state of its first or last token, through a dense layer
where the family has one (BERT's pooler, RoBERTa's and ELECTRA's classifier.dense, XLNet's sequence_summary).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertworks.config import ModelConfig
from bertworks.model.dropout import Dropout
from bertworks.model.fused_cross_entropy import LMLoss, fused_cross_entropy
from bertworks.model.layout import Layout
from bertworks.model.transformer import ACTIVATIONS


class Summary(nn.Module):
    """(B, hidden) -> (B, hidden): one vector for each sequence, from the state of its first or last token."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        size = config.encoder.hidden_size
        activation = config.heads.summary_activation
        self.reads_first = config.heads.summary == "first"
        self.dense = nn.Linear(size, size) if activation else nn.Identity()
        self.activation = ACTIVATIONS[activation] if activation else nn.Identity()

    def select(self, states: Tensor, layout: Layout) -> Tensor:
        """(N, hidden) -> (B, hidden): the states of these tokens."""
        return states.index_select(0, layout.starts if self.reads_first else layout.lasts)

    def forward(self, states: Tensor) -> Tensor:
        summary: Tensor = self.activation(self.dense(states))
        return summary


class LanguageHead(nn.Module):
    """(M, hidden) -> (M, V), masked or left-to-right. The projection is the token embedding itself (tied)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        encoder = config.encoder
        width = encoder.embedding_width
        self.dense = nn.Linear(encoder.hidden_size, width) if config.heads.lm_transform else nn.Identity()
        self.activation = ACTIVATIONS[config.heads.lm_activation] if config.heads.lm_transform else nn.Identity()
        self.norm = nn.LayerNorm(width, eps=encoder.norm_eps) if config.heads.lm_transform else nn.Identity()
        self.bias = nn.Parameter(torch.empty(encoder.vocab_size)) if config.heads.lm_bias else None

    def forward(self, states: Tensor, table: Tensor) -> Tensor:
        return F.linear(self._transform(states), table, self.bias)

    def loss(self, states: Tensor, table: Tensor, labels: Tensor, uniforms: Tensor | None) -> LMLoss:
        return fused_cross_entropy(self._transform(states), table, self.bias, labels, uniforms)

    def _transform(self, states: Tensor) -> Tensor:
        y: Tensor = self.norm(self.activation(self.dense(states)))
        return y


class ReplacedHead(nn.Module):
    """(N, hidden) -> (N,): is this token the original one? (Clark et al. 2020, section 3.1)"""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        size = config.encoder.hidden_size
        self.dense = nn.Linear(size, size)
        self.out = nn.Linear(size, 1)
        self.activation = ACTIVATIONS[config.encoder.activation]

    def forward(self, states: Tensor) -> Tensor:
        return self.out(self.activation(self.dense(states))).squeeze(-1)  # type: ignore[no-any-return]


class ClassHead(nn.Module):
    """(..., hidden) -> (..., C): dropout and one linear layer."""

    def __init__(self, config: ModelConfig, n_classes: int, *, dropout: float, bias: bool = True) -> None:
        super().__init__()
        self.drop = Dropout(dropout)
        self.out = nn.Linear(config.encoder.hidden_size, n_classes, bias=bias)

    def forward(self, states: Tensor) -> Tensor:
        logits: Tensor = self.out(self.drop(states))
        return logits


def _pair(config: ModelConfig) -> nn.Module:
    return ClassHead(config, 2, dropout=0.0)


def _sequence(config: ModelConfig) -> nn.Module:
    return ClassHead(config, len(config.heads.labels), dropout=config.heads.head_dropout, bias=config.heads.class_bias)


def _choice(config: ModelConfig) -> nn.Module:
    return ClassHead(config, 1, dropout=config.heads.head_dropout)


def _token(config: ModelConfig) -> nn.Module:
    return ClassHead(config, len(config.heads.labels), dropout=config.heads.head_dropout)


def _span(config: ModelConfig) -> nn.Module:
    return ClassHead(config, 2, dropout=0.0)


HEADS: dict[str, Callable[[ModelConfig], nn.Module]] = {
    "lm": LanguageHead,  # masked, permuted or left-to-right: which token is it?
    "replaced": ReplacedHead,  # is this token the original one?
    "pair": _pair,  # next sentence, or sentence order
    "sequence": _sequence,  # a class for the whole text
    "choice": _choice,  # a score for one of several texts
    "token": _token,  # a class for each token
    "span": _span,  # start and end of an answer
}
SUMMARY_HEADS = frozenset({"pair", "sequence", "choice"})
