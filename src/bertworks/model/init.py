"""How new weights start: one table, read from top to bottom, first match wins.

| parameter                         | start                                                        |
|-----------------------------------|--------------------------------------------------------------|
| weight of a layer norm            | 1                                                            |
| any bias                          | 0 (XLNet's attention biases are weights: normal)             |
| last layer of a part, pre-norm    | normal, init_range / sqrt(2 x n_layers) (GPT-2, section 2.3) |
| everything else                   | normal, init_range                                           |
"""

from __future__ import annotations

import math

import torch
from torch import nn

from bertworks.config import EncoderConfig


@torch.no_grad()
def initialise(module: nn.Module, config: EncoderConfig, generator: torch.Generator | None = None) -> None:
    for owner_name, owner in module.named_modules():
        for name, parameter in owner.named_parameters(recurse=False):
            if isinstance(owner, nn.LayerNorm) and name == "weight":
                parameter.fill_(1.0)
            elif name == "bias":
                parameter.zero_()
            elif config.norm_order == "pre" and owner_name.endswith((".attn.out", ".down")):
                parameter.normal_(0.0, config.init_range / math.sqrt(2 * config.n_layers), generator=generator)
            else:
                parameter.normal_(0.0, config.init_range, generator=generator)
