"""The parameter table: how many parameters a model has, and in which parts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from bertworks.config import ModelConfig
from bertworks.model.model import Model

ROWS = (
    "token embeddings",
    "position embeddings",
    "segment embeddings",
    "embedding projection",
    "attention",
    "feed-forward",
    "layers",
    "norms",
    "biases",
    "summary layer",
    "heads",
)
NOT_IN_WEIGHTS_AND_NORMS = {"biases", "summary layer", "heads"}


@dataclass(frozen=True)
class ParameterTable:
    """Two totals, since the literature has two: weights and norms of the encoder, and everything."""

    rows: dict[str, int]

    @property
    def weights_and_norms(self) -> int:
        return sum(count for name, count in self.rows.items() if name not in NOT_IN_WEIGHTS_AND_NORMS)

    @property
    def total(self) -> int:
        return sum(self.rows.values())


def count_parameters(model: Model) -> ParameterTable:
    rows = dict.fromkeys(ROWS, 0)
    for owner_name, owner in model.named_modules():
        for name, parameter in owner.named_parameters(recurse=False):
            is_token_table = owner is model.encoder.token_embedding
            row = "token embeddings" if is_token_table else _row(owner_name, owner, name)
            rows[row] += parameter.numel()
    return ParameterTable({name: count for name, count in rows.items() if count})


def count_config(config: ModelConfig) -> ParameterTable:
    """Without allocating the model: shapes only."""
    with torch.device("meta"):
        return count_parameters(Model(config))


def _row(owner_name: str, owner: nn.Module, name: str) -> str:
    path = owner_name.split(".")
    if path[0] in ("summary", "heads"):
        return "summary layer" if path[0] == "summary" else "heads"
    if isinstance(owner, nn.LayerNorm):
        return "norms"
    if name == "bias":
        return "biases"
    if path == ["encoder"]:
        return "token embeddings"  # XLNet's mask state takes the place of a token's embedding
    if path[1:] in (["embed", "positions"], ["embed", "segments"]):
        return f"{path[2].removesuffix('s')} embeddings"
    return {"project": "embedding projection", "attentions": "attention", "ffns": "feed-forward"}.get(path[1], "layers")
