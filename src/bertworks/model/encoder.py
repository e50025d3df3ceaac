"""What an encoder is: tokens in, states out. `transformer.py` has the BERT family's; others are a class and a row.

N  all tokens of the batch      M  selected tokens      V  vocabulary
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertworks.config import EncoderConfig
from bertworks.errors import Unsupported
from bertworks.model.layout import Tokens
from bertworks.model.partial_embedding import PartialEmbedding

LayerGroup = list[nn.Module]
"""The modules of one layer, in the order in which they run."""


@dataclass(frozen=True)
class States:
    """The hidden states of the tokens."""

    last: Tensor  # (N, hidden)
    layers: tuple[Tensor, ...] = ()  # the embeddings and every layer's output, when kept


class Encoder(nn.Module, ABC):
    """The interface of encoders for heads, objectives, tasks and the optimizer."""

    config: EncoderConfig

    @property
    @abstractmethod
    def token_embedding(self) -> nn.Embedding | PartialEmbedding:
        """The module that turns token ids into vectors."""

    @abstractmethod
    def forward(self, tokens: Tokens, keep_layers: bool = False) -> States:
        """The state of every token."""

    @abstractmethod
    def groups(self) -> list[LayerGroup]:
        """All modules with parameters, from below: the embeddings, each layer, and what lies above the last one (which
        may be nothing). Freezing, reinitialising and learning rates by layer follow from it."""

    def states_at(self, tokens: Tokens, chosen: Tensor, n_chosen: Sequence[int]) -> Tensor:
        """The last states of the tokens `chosen` (M,), `n_chosen` of each sequence: (M, hidden)."""
        last: Tensor = self(tokens).last
        return last.index_select(0, chosen)

    def two_stream(self, tokens: Tokens, ranks: Tensor, targets: Tensor, n_targets: Sequence[int]) -> Tensor:
        """States (M, hidden) for `targets` (M,), computed from their positions and the tokens ranked below them, not
        from the targets' own tokens."""
        raise Unsupported("this encoder has no query stream", remedy="xlnet's has", code="no-query-stream")

    def share_embedding(self, other: Encoder) -> None:
        """One embedding for both, as ELECTRA's generator takes its discriminator's."""
        raise Unsupported("this encoder cannot share its embedding", code="embeddings-differ")

    def use_recompute(self) -> None:
        """Compute each layer again in the backward pass: less memory, same numbers."""
        raise Unsupported("this encoder cannot recompute its layers", remedy="train.recompute=false", code="no-effect")

    @property
    def token_table(self) -> Tensor:
        """The embedding of every token, (V, embedding_width)."""
        return self.token_embedding.weight

    @property
    def device(self) -> torch.device:
        return self.token_table.device

    def freeze(self, n_layers: int) -> None:
        """Freeze the lowest layers and the embeddings below them; 0: nothing is frozen."""
        for group in self.groups()[: n_layers + 1] if n_layers else ():
            for module in group:
                module.requires_grad_(False)

    def freeze_pretraining_only(self) -> None:
        """Freeze parameters that no fine-tuning reads, if there are any."""


def parameter_depths(module: nn.Module) -> dict[str, int]:
    """How far below the heads the parameters of each encoder inside lie, by name: 1 for the last layer, one more for
    each before it and the embeddings. Parameters outside of all groups count as embeddings."""
    depths: dict[str, int] = {}
    for prefix, encoder in module.named_modules():
        if isinstance(encoder, Encoder):
            groups = encoder.groups()
            by_id = {
                id(parameter): len(groups) - 1 - index
                for index, group in enumerate(groups)
                for part in group
                for parameter in part.parameters()
            }
            for name, parameter in encoder.named_parameters():
                depths[f"{prefix}.{name}"] = by_id.get(id(parameter), len(groups) - 1)
    return depths
