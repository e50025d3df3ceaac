"""Models that grow: more words, positions, segments and heads; what they knew stays. And models of which, for a while,
few words learn."""

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
    """The same weights under another config and other heads. New heads start anew, as do those of another size, and all
    of them if they are not kept; more positions are drawn out of the old ones by linear interpolation, so that first
    and last keep their places, fewer are cut; more segments are as the first."""
    new = Model.fresh(config, heads, seed=seed)
    state, old = new.state_dict(), model.state_dict()
    for name, start in state.items():
        known = old.get(name)
        if known is not None and known.shape != start.shape and name == POSITIONS:
            longer = len(start) > len(known)
            known = _stretch(known, config.transformer.first_position, len(start)) if longer else known[: len(start)]
        elif known is not None and known.shape != start.shape and name == SEGMENTS:
            known = known[[row if row < len(known) else 0 for row in range(len(start))]]
        if known is not None and name.startswith("heads.") and not (keep_heads and known.shape == start.shape):
            known = None
        if known is not None and known.shape != start.shape:
            raise BadConfig(
                f"{name} is {list(known.shape)} in the model to go on from, {list(start.shape)} in the config"
            )
        state[name] = start if known is None else known
    new.load_state_dict(state)
    return new


def use_partial_embedding(model: Model, used: Tensor) -> None:
    """Only the rows `used` of the token embedding are parameters; where it learns at all."""
    full = model.encoder.token_embedding
    if not full.weight.requires_grad:
        return
    parent, _, name = _token_embedding_name(model).rpartition(".")
    setattr(model.get_submodule(parent), name, PartialEmbedding(full.weight.detach(), used))


@torch.no_grad()
def with_full_embedding(model: Model) -> Model:
    """The same model with a plain embedding, to be saved."""
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


def _stretch(old: Tensor, first: int, rows: int) -> Tensor:
    """Position tables; the rows before `first` are not positions and stay."""
    drawn = F.interpolate(old[first:].T.unsqueeze(0), size=rows - first, mode="linear", align_corners=True)
    return torch.cat([old[:first], drawn.squeeze(0).T])


def _grow(old: Tensor, size: int, rows: Mapping[int, Sequence[int]]) -> Tensor:
    new = old.new_zeros(size, *old.shape[1:])
    new[: len(old)] = old
    for id, parts in rows.items():
        new[id] = old[torch.tensor(parts)].mean(0)
    return new
