"""XLNet's two streams (Yang et al. 2019, section 2.3): to predict a token from its position and what is ranked below
it, without seeing the token itself.

    N  all tokens of the batch      M  targets
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bertworks.config import TransformerConfig
from bertworks.model.attention import QUERY
from bertworks.model.layout import Tokens
from bertworks.model.transformer import Transformer


class TwoStreamTransformer(Transformer):
    """A transformer that can run a second stream of queries through its layers."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.mask_state = nn.Parameter(
            torch.empty(config.hidden_size)
        )  # where the query stream starts for every target

    def two_stream(self, tokens: Tokens, ranks: Tensor, targets: Tensor, n_targets: Sequence[int]) -> Tensor:
        """The content stream h is the ordinary encoder; the query stream g runs through the same layers and attends to
        h. Tokens of rank -1 are visible to all; targets have ranks from 0."""
        content = tokens.layout.ranked(ranks)
        query = content.targets(targets, n_targets)
        h = self.project(self.embed(tokens))
        g = self.embed.drop(self.mask_state.expand(len(targets), -1))
        *below, top = self.layers()
        for layer in below:
            g = self._run(layer, g, query, layer.attention.pre(h), QUERY)
            h = self._run(layer, h, content)
        g = self._run(top, g, query, top.attention.pre(h), QUERY)  # nobody attends to the last h
        states: Tensor = self.norm(g)
        return states

    def freeze_pretraining_only(self) -> None:
        self.mask_state.requires_grad_(False)
