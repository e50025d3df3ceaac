"""An embedding of which few rows occur. An optimiser that went over the others too would spend much of a short step on them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FewRows(nn.Module):
    """The rows `used` of a table are parameters. The others have no gradient, so weight decay shrinks them all alike: by `idle`."""

    table: Tensor
    used: Tensor
    places: Tensor

    def __init__(self, table: Tensor, used: Tensor) -> None:
        super().__init__()
        self.weight, self.idle = nn.Parameter(table[used]), nn.Parameter(table.new_ones(1, 1))
        self.register_buffer("table", table, persistent=False)
        self.register_buffer("used", used, persistent=False)
        places = torch.full((len(table),), len(used))  # no such row: an error, should one be asked for
        places[used] = torch.arange(len(used))
        self.register_buffer("places", places, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        # Adding nothing gives `idle` a gradient of zero, as the idle rows would have; without one the optimiser would leave it out.
        return F.embedding(self.places[ids], self.weight) + 0 * self.idle

    def whole(self) -> Tensor:
        return (self.table * self.idle).index_copy(0, self.used, self.weight)
