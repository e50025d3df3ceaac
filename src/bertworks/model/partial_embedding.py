"""An embedding of which few rows are used. An optimizer that updated all rows would spend much of a short step on the
others."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PartialEmbedding(nn.Module):
    """The rows `used` of a table are parameters; the others have no gradient and stay as they are. No row has weight
    decay, which would have to change the others too."""

    table: Tensor
    rows: Tensor
    row_of: Tensor

    def __init__(self, table: Tensor, used: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(table[used])
        self.register_buffer("table", table, persistent=False)
        self.register_buffer("rows", used, persistent=False)
        row_of = torch.full((len(table),), len(used))  # an index out of range, so that other ids are an error
        row_of[used] = torch.arange(len(used))
        self.register_buffer("row_of", row_of, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(self.row_of[ids], self.weight)

    def full_table(self) -> Tensor:
        return self.table.index_copy(0, self.rows, self.weight)
