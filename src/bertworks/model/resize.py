"""Models that grow: more words, the old ones untouched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from bertworks.model.model import Model

OF_VOCABULARY = ("encoder.embed.tokens.weight", "heads.lm.bias")


def grow_vocabulary(model: Model, size: int, rows: Mapping[int, Sequence[int]]) -> Model:
    """The same model for `size` tokens at least; each new row starts as the mean of old ones, the language head's bias likewise."""
    size = max(size, model.config.encoder.vocab_size)
    with torch.device("meta"):
        grown = Model(model.config.override(vocab_size=size), tuple(model.heads), summary=model.summary is not None)
    state = model.state_dict()
    for name in OF_VOCABULARY:
        if name in state:
            state[name] = _grow(state[name], size, rows)
    grown.load_state_dict(state, assign=True)
    return grown.train(model.training)


def _grow(old: Tensor, size: int, rows: Mapping[int, Sequence[int]]) -> Tensor:
    new = old.new_zeros(size, *old.shape[1:])
    new[: len(old)] = old
    for id, parts in rows.items():
        new[id] = old[torch.tensor(parts)].mean(0)
    return new
