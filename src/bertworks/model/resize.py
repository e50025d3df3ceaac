"""Resizing models: more tokens, positions, segments and heads, with their trained weights. And models of which, for a
while, few token embeddings are trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertworks.config import ModelConfig
from bertworks.errors import BadConfig
from bertworks.model.model import Model
from bertworks.model.partial_embedding import PartialEmbedding

LM_BIAS = "heads.lm.bias"
POSITIONS, SEGMENTS = "encoder.embed.positions.weight", "encoder.embed.segments.weight"


def grow_vocabulary(model: Model, size: int, rows: Mapping[int, Sequence[int]]) -> Model:
    """The same model for `size` tokens at least; each new row starts as the mean of old ones, the language head's bias
    likewise."""
    size = max(size, model.config.encoder.vocab_size)
    with torch.device("meta"):
        grown = Model(model.config.override(vocab_size=size), tuple(model.heads), summary=model.summary is not None)
    state = model.state_dict()
    for name in (f"{_token_embedding_name(model)}.weight", LM_BIAS):
        if name in state:
            state[name] = _grow(state[name], size, rows)
    grown.load_state_dict(state, assign=True)
    return grown.train(model.training)


def refit(model: Model, config: ModelConfig, heads: Sequence[str], seed: int, *, keep_heads: bool = True) -> Model:
    """The same weights under another config and other heads. Heads are new where there were none, where their size has
    changed, and all of them if they are not kept. More positions are interpolated linearly from the old ones, so that
    first and last keep their places, fewer are cut; more segments are copies of the first."""
    refitted = Model.fresh(config, heads, seed=seed)
    state = refitted.state_dict()
    trained_state = model.state_dict()
    for name, fresh in state.items():
        trained = trained_state.get(name)
        if trained is None or (name.startswith("heads.") and not (keep_heads and trained.shape == fresh.shape)):
            continue
        if name == POSITIONS and len(fresh) > len(trained):
            trained = _stretch(trained, config.transformer.first_position, len(fresh))
        elif name == POSITIONS:
            trained = trained[: len(fresh)]
        elif name == SEGMENTS:
            trained = trained[[row if row < len(trained) else 0 for row in range(len(fresh))]]
        if trained.shape != fresh.shape:
            raise BadConfig(
                f"{name} is {list(trained.shape)} in the model to start from, {list(fresh.shape)} in the config"
            )
        state[name] = trained
    refitted.load_state_dict(state)
    return refitted


def use_partial_embedding(model: Model, used: Tensor) -> None:
    """Make only the rows `used` of the token embedding parameters, unless it is frozen."""
    embedding = model.encoder.token_embedding
    if not embedding.weight.requires_grad:
        return
    parent, _, name = _token_embedding_name(model).rpartition(".")
    setattr(model.get_submodule(parent), name, PartialEmbedding(embedding.weight.detach(), used))


@torch.no_grad()
def with_full_embedding(model: Model) -> Model:
    """The same model with an ordinary embedding, to be saved."""
    embedding = model.encoder.token_embedding
    if not isinstance(embedding, PartialEmbedding):
        return model
    with torch.device("meta"):
        full = Model(model.config, tuple(model.heads), summary=model.summary is not None)
    state = model.state_dict()
    state[f"{_token_embedding_name(model)}.weight"] = embedding.full_table()
    full.load_state_dict(state, assign=True)
    return full.train(model.training)


def _token_embedding_name(model: Model) -> str:
    embedding = model.encoder.token_embedding
    names: dict[nn.Module, str] = {module: name for name, module in model.named_modules()}
    return names[embedding]


def _stretch(positions: Tensor, first: int, n_rows: int) -> Tensor:
    """Interpolate a position table; the rows before `first` are not positions and stay."""
    table = positions[first:].T.unsqueeze(0)
    interpolated = F.interpolate(table, size=n_rows - first, mode="linear", align_corners=True)
    return torch.cat([positions[:first], interpolated.squeeze(0).T])


def _grow(table: Tensor, size: int, rows: Mapping[int, Sequence[int]]) -> Tensor:
    grown = table.new_zeros(size, *table.shape[1:])
    grown[: len(table)] = table
    for id, piece_ids in rows.items():
        grown[id] = table[torch.tensor(piece_ids)].mean(0)
    return grown
