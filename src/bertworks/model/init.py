"""Initialisation of new weights. `initialise` is one table, read from top to bottom, first match wins:

| parameter                         | start                                                        |
|-----------------------------------|--------------------------------------------------------------|
| weight of a layer norm            | 1                                                            |
| any bias                          | 0 (XLNet's attention biases are weights: normal)             |
| last layer of a part, pre-norm    | normal, init_range / sqrt(2 x n_layers) (GPT-2, section 2.3) |
| everything else                   | normal, init_range                                           |

`init_local_attention` then turns the heads towards neighbouring tokens. A masked model with learned positions spends
more than its first thousand steps finding out where its neighbours are, and predicts little but frequent words
meanwhile (figures in docs/LOG.md); trained models have such heads anyway (Clark et al. 2019, "What does BERT look at?",
section 3). So positions start as sines and cosines on dimensions of their own, and three heads of four attend to the
position one or two steps to their left or right. All of it can be unlearned.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from bertworks.config import EncoderConfig, TransformerConfig
from bertworks.model.attention import Attention, sinusoids
from bertworks.model.encoder import Encoder
from bertworks.model.transformer import FeedForwardPart, Transformer

NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm)
LOCAL_OFFSETS = (-1, 1, -2, 2)  # which neighbour a head attends to, in turn
MAX_FREQUENCIES = 32  # of the position table, a sine and a cosine each
MAX_PERIOD = 100.0  # of these, the shortest being 1; times 2 pi tokens
NEIGHBOUR_SCORE = 32.0  # before the softmax; tokens far away have about 0


@torch.no_grad()
def initialise(module: nn.Module, config: EncoderConfig, generator: torch.Generator | None = None) -> None:
    for owner_name, owner in module.named_modules():
        for name, parameter in owner.named_parameters(recurse=False):
            if isinstance(owner, NORMS) and name == "weight":
                parameter.fill_(1.0)
            elif name.startswith("bias"):
                parameter.zero_()
            elif f".{owner_name}".endswith((".attn.out", ".down")):
                parameter.normal_(0.0, config.residual_init_range, generator=generator)
            else:
                parameter.normal_(0.0, config.init_range, generator=generator)


def can_init_local_attention(config: EncoderConfig) -> bool:
    """A transformer with learned positions, dimensions for them, and attention to both sides: left to right it does
    harm, since the last word is there already."""
    if not isinstance(config, TransformerConfig):
        return False
    head_frequencies = config.hidden_size // config.n_heads // 2
    has_room = min(_n_frequencies(config), head_frequencies) > 0 and 4 * _n_frequencies(config) <= config.hidden_size
    return has_room and config.positions == "learned" and config.attention == "dot" and not config.causal


def _n_frequencies(config: TransformerConfig) -> int:
    # By the embedding alone: a generator and a discriminator share it.
    return min(MAX_FREQUENCIES, config.embedding_width // 8)


@torch.no_grad()
def init_local_attention(encoder: Encoder) -> None:
    """For encoders for which it can be done and whose weights have just been made."""
    assert isinstance(encoder, Transformer)
    config, embed = encoder.config, encoder.embed
    assert isinstance(embed.positions, nn.Embedding)
    n_frequencies = _n_frequencies(config)
    position_dims = slice(2 * n_frequencies)
    positions = embed.positions.weight
    waves = torch.cat(sinusoids(torch.arange(len(positions)), 2 * n_frequencies, MAX_PERIOD), 1)
    positions.zero_()
    positions[:, position_dims] = waves * (math.sqrt(2) * config.init_range)
    positions[config.first_position] = 0  # the token that summarises the text attends to everything
    embed.tokens.weight[:, position_dims] = 0
    if isinstance(embed.segments, nn.Embedding):
        embed.segments.weight.zero_()
    if isinstance(encoder.project, nn.Linear):  # positions stay among themselves, and vectors as long as they were
        encoder.project.weight.div_(config.init_range * math.sqrt(config.embedding_width))
        encoder.project.weight[position_dims] = encoder.project.weight[:, position_dims] = 0
        encoder.project.weight[position_dims, position_dims] = torch.eye(2 * n_frequencies)
    head_size = config.hidden_size // config.n_heads
    # A narrow head has dimensions for some of the frequencies only.
    frequencies = torch.linspace(0, n_frequencies - 1, min(n_frequencies, head_size // 2)).long()
    sharpness = math.sqrt(NEIGHBOUR_SCORE * math.sqrt(head_size) / (2 * len(frequencies)))
    n_local_heads = config.n_heads - config.n_heads // 4  # the other heads are free, for tokens far away
    offsets = itertools.cycle(LOCAL_OFFSETS)
    identity = torch.eye(2 * n_frequencies, dtype=torch.float32)  # as sinusoids are
    projection = sharpness * identity[torch.cat([frequencies, n_frequencies + frequencies])]
    for module in encoder.modules():
        if isinstance(module, FeedForwardPart):
            module.down.weight[position_dims] = 0  # no layer writes over positions
        if isinstance(module, Attention):
            module.out.weight[position_dims] = 0
            queries, keys = (linear.weight.view(config.n_heads, head_size, -1) for linear in (module.q, module.k))
            for query, key, offset in zip(queries[:n_local_heads], keys[:n_local_heads], offsets, strict=False):
                key[: len(projection), position_dims] += projection
                query[: len(projection), position_dims] += projection @ _rotation(offset, n_frequencies)


def _rotation(offset: int, n_frequencies: int) -> Tensor:
    """Turns the sines and cosines of a position into those of the position `offset` further."""
    sin, cos = (wave.diag() for wave in sinusoids(torch.tensor(offset), 2 * n_frequencies, MAX_PERIOD))
    return torch.cat([torch.cat([cos, sin], 1), torch.cat([-sin, cos], 1)])
