"""How new weights start. `initialise` is one table, read from top to bottom, first match wins:

| parameter                         | start                                                        |
|-----------------------------------|--------------------------------------------------------------|
| weight of a layer norm            | 1                                                            |
| any bias                          | 0 (XLNet's attention biases are weights: normal)             |
| last layer of a part, pre-norm    | normal, init_range / sqrt(2 x n_layers) (GPT-2, section 2.3) |
| everything else                   | normal, init_range                                           |

`look_around` then turns the heads towards neighbouring tokens. A masked model with learned positions spends more than
its first thousand steps finding out where its neighbours are, and says little but frequent words meanwhile (figures in
docs/LOG.md); trained models have such heads anyway (Clark et al. 2019, "What does BERT look at?", section 3). So
positions start as sines and cosines on dimensions of their own, and three heads of four ask for the position one or two
steps to their left or right. All of it can be unlearned.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import nn

from bertworks.config import EncoderConfig
from bertworks.model.attention import Attention, sinusoids
from bertworks.model.encoder import Encoder, FeedForwardPart

LOCAL_OFFSETS = (-1, 1, -2, 2)  # where the heads look, in turn
MOST_WAVES = 32  # of the positions, a sine and a cosine each
LONGEST = 100.0  # wave, the shortest being 1; times 2 pi tokens
SCORE = 32.0  # what a head gives the token it looks for, before the softmax; far ones get about 0


@torch.no_grad()
def initialise(module: nn.Module, config: EncoderConfig, generator: torch.Generator | None = None) -> None:
    for owner_name, owner in module.named_modules():
        for name, parameter in owner.named_parameters(recurse=False):
            if isinstance(owner, nn.LayerNorm) and name == "weight":
                parameter.fill_(1.0)
            elif name == "bias":
                parameter.zero_()
            elif config.norm_order == "pre" and f".{owner_name}".endswith((".attn.out", ".down")):
                parameter.normal_(0.0, config.init_range / math.sqrt(2 * config.n_layers), generator=generator)
            else:
                parameter.normal_(0.0, config.init_range, generator=generator)


def can_init_local_attention(config: EncoderConfig) -> bool:
    """With learned positions, room for them, and both sides to see: left to right it does harm, the last word is there
    already."""
    room = min(config.embedding_width // 8, config.hidden_size // config.n_heads // 2)
    plain = config.positions == "learned" and config.attention == "dot" and not config.causal
    return plain and room > 0 and 4 * _n_waves(config) <= config.hidden_size


def _n_waves(config: EncoderConfig) -> int:
    # By the embedding alone: a generator and a discriminator share it.
    return min(MOST_WAVES, config.embedding_width // 8)


@torch.no_grad()
def init_local_attention(encoder: Encoder) -> None:
    """For encoders whose weights have just been made."""
    config, embed, n_waves = encoder.config, encoder.embed, _n_waves(encoder.config)
    assert isinstance(embed.positions, nn.Embedding)  # it can look around
    own = slice(2 * n_waves)  # the dimensions of positions
    waves = torch.cat(sinusoids(torch.arange(len(embed.positions.weight)), 2 * n_waves, LONGEST), 1)
    embed.positions.weight.zero_()
    embed.positions.weight[:, own] = waves * (math.sqrt(2) * config.init_range)
    embed.positions.weight[config.first_position] = 0  # the token that sums up looks at everything
    embed.tokens.weight[:, own] = 0
    if isinstance(embed.segments, nn.Embedding):
        embed.segments.weight.zero_()
    if isinstance(encoder.project, nn.Linear):  # positions stay among themselves, and vectors as long as they were
        encoder.project.weight.div_(config.init_range * math.sqrt(config.embedding_width))
        encoder.project.weight[own] = encoder.project.weight[:, own] = 0
        encoder.project.weight[own, own] = torch.eye(2 * n_waves)
    head_size = config.hidden_size // config.n_heads
    seen = torch.linspace(0, n_waves - 1, min(n_waves, head_size // 2)).long()  # a narrow head sees some of the waves
    sharpness = math.sqrt(SCORE * math.sqrt(head_size) / (2 * len(seen)))
    n_tied = config.n_heads - config.n_heads // 4  # the others are free, for what is far away
    steps = itertools.cycle(LOCAL_OFFSETS)
    look = sharpness * torch.eye(2 * n_waves, dtype=torch.float32)[torch.cat([seen, n_waves + seen])]
    for module in encoder.modules():
        if isinstance(module, FeedForwardPart):
            module.down.weight[own] = 0  # no layer writes over positions
        if isinstance(module, Attention):
            module.out.weight[own] = 0
            heads = (linear.weight.view(config.n_heads, head_size, -1)[:n_tied] for linear in (module.q, module.k))
            for query, key, step in zip(*heads, steps, strict=False):
                sin, cos = (
                    wave.diag() for wave in sinusoids(torch.tensor(step), 2 * n_waves, LONGEST)
                )  # turn by a step
                key[: len(look), own] += look
                query[: len(look), own] += look @ torch.cat([torch.cat([cos, sin], 1), torch.cat([-sin, cos], 1)])
