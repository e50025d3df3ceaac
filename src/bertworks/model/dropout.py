"""Dropout: Srivastava et al. 2014. The same as torch's, but on CPUs its random numbers are drawn four at a time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 2**16  # of a random number: 16 of the 64 bits that are drawn at once


class Dropout(nn.Dropout):
    """Torch draws one number for each element, in one thread, which takes a third of a training step. The rate is
    rounded to 1 / 65,536."""

    @property
    def active(self) -> bool:
        return self.training and self.p > 0

    def forward(self, x: Tensor) -> Tensor:
        dropped_levels = round(self.p * LEVELS)
        if not self.active or x.device.type != "cpu" or dropped_levels in (0, LEVELS):
            return F.dropout(x, self.p, self.training)
        n = x.numel()
        uniform = torch.empty(-(-n // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[:n].view(x.shape)
        mask = (uniform >= dropped_levels - LEVELS // 2).to(x.dtype)
        return x * mask.mul_(LEVELS / (LEVELS - dropped_levels))
