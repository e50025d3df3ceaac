"""XLNet's two streams use the same keys, whatever the order of norms; padding is not pooled."""

from __future__ import annotations

import pytest
import torch

from bertworks.config import TransformerConfig
from bertworks.model.attention import record_attention
from bertworks.model.init import initialise
from bertworks.model.layout import Tokens
from bertworks.model.pooling import Pooling
from bertworks.model.two_stream import TwoStreamTransformer


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_both_streams_use_the_same_keys(norm_order: str) -> None:
    config = TransformerConfig(
        vocab_size=50,
        hidden_size=16,
        n_layers=3,
        n_heads=2,
        ffn_size=32,
        positions="none",
        n_positions=None,
        n_segments=0,
        attention="relative",
        embedding_norm=False,
        norm_order=norm_order,  # type: ignore[arg-type]
        init_range=0.5,
    )
    encoder = TwoStreamTransformer(config).eval()
    initialise(encoder, config, torch.Generator().manual_seed(0))
    tokens = Tokens.ragged(torch.arange(9), [5, 4])
    targets = torch.tensor([1, 3, 6])
    ranks = torch.full((9,), -1).index_copy(0, targets, torch.tensor([1, 0, 0]))
    with torch.no_grad(), record_attention() as recording:
        encoder.two_stream(tokens, ranks, targets, [2, 1])
    assert len(recording.layers) == 5, "the last content layer is not computed"
    for query, content in zip(recording.layers[:-1:2], recording.layers[1::2], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(query.keys, content.keys, strict=True))


@pytest.mark.parametrize("mode", ["mean", "max", "first", "last"])
def test_padding_is_not_pooled(mode: str) -> None:
    """Rectangular layouts, as an export has them, give the vectors of the ragged ones."""
    generator = torch.Generator().manual_seed(0)
    lengths = [4, 2, 3]
    width = 4
    states = torch.randn(sum(lengths), 8, generator=generator) - 3  # negative: zeros of padding would be the maximum
    ragged = Tokens.ragged(torch.zeros(9, dtype=torch.long), lengths)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    padded = torch.randn(len(lengths), width, 8, generator=generator)
    padded[mask] = states
    rectangular = Tokens.rectangular(torch.zeros(mask.shape, dtype=torch.long), mask)
    pooling = Pooling(mode=mode)  # type: ignore[arg-type]
    expected = pooling.pool(states, ragged.layout)
    assert torch.allclose(pooling.pool(padded.reshape(-1, 8), rectangular.layout), expected, atol=1e-6)
