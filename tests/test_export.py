"""A step towards ONNX: torch.export of every encoder on a rectangular layout, with dynamic batch size and length."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bertworks.model.layout import Tokens
from bertworks.model.model import Model
from test_contract import CONFIGS, make_model


class Rectangular(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        return self.model.encoder(Tokens.rectangular(ids, mask, segments)).last.view(*ids.shape, -1)


def random_inputs(rows: int, length: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, length + 1, (rows,), generator=generator)
    lengths[0] = length
    ids = torch.randint(3, 50, (rows, length), generator=generator)
    return ids, torch.arange(length) < lengths[:, None], torch.randint(0, 2, (rows, length), generator=generator)


@pytest.mark.parametrize("kind", CONFIGS)
def test_export(kind: str) -> None:
    module = Rectangular(make_model(kind))
    dynamic = {0: torch.export.Dim("rows", min=1, max=64), 1: torch.export.Dim("length", min=2, max=30)}
    program = torch.export.export(
        module, random_inputs(3, 7, seed=0), dynamic_shapes={"ids": dynamic, "mask": dynamic, "segments": dynamic}
    )
    other_inputs = random_inputs(5, 11, seed=1)
    with torch.no_grad():
        assert torch.allclose(program.module()(*other_inputs), module(*other_inputs), atol=1e-6)
