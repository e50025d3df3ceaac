"""Cross-entropy over the vocabulary without the table of logits.

    M  targets      V  vocabulary      E  width of the embedding

Logits, softmax and their gradients are each (M, V), the largest tensors of a pre-training step by far. Here a few rows
at a time go all the way to the gradients, in one buffer that fits into the cache: nothing of size (M, V) is ever there.
The gradients are those of the sum; the backward pass only scales them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BUFFER = {"cpu": 2**24, "cuda": 2**27}  # numbers in the buffer


class LMLoss(NamedTuple):
    loss: Tensor  # () cross-entropy, summed
    n_correct: Tensor  # () how many labels have the best logit
    samples: Tensor  # (M,) a token from each distribution, where numbers to draw with were given


def fused_cross_entropy(
    states: Tensor, table: Tensor, bias: Tensor | None, labels: Tensor, uniforms: Tensor | None = None
) -> LMLoss:
    """states (M, E), table (V, E), bias (V,), labels (M,). `uniforms` (M,) in [0, 1) draw a token each, by the inverse
    of the distribution function."""
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    with torch.autocast(device, enabled=False):  # what is narrow and what exact is decided below
        return LMLoss(*_FusedCrossEntropy.apply(states, table, bias, labels, uniforms, dtype))  # type: ignore[no-untyped-call]


class _FusedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        table: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        uniforms: Tensor | None,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Products are computed in `dtype`; softmax, sums and gradients in float32 at least."""
        exact = torch.promote_types(states.dtype, torch.float32)
        learns = any(ctx.needs_input_grad[:3])
        narrow, for_states = table.to(dtype), torch.empty_like(states)
        for_table, for_bias = (None if t is None else torch.zeros_like(t, dtype=exact) for t in (table, bias))
        loss, right, drawn = (
            states.new_zeros((), dtype=exact),
            torch.zeros_like(labels[:1]).sum(),
            torch.empty_like(labels),
        )
        rows = max(1, BUFFER.get(states.device.type, 2**24) // len(table))
        for begin in range(0, len(states), rows):
            part, wanted = states[begin : begin + rows].to(dtype), labels[begin : begin + rows]
            logits = (part @ narrow.T if bias is None else torch.addmm(bias.to(dtype), part, narrow.T)).to(exact)
            top, of_label = logits.amax(1), logits.gather(1, wanted.unsqueeze(1)).squeeze(1)
            # In narrow numbers several logits are often the largest; then the first counts, which takes longer to find.
            right += (of_label == top if dtype == exact else logits.argmax(1) == wanted).sum()
            weights = logits.sub_(top.unsqueeze(1)).exp_()
            total = weights.sum(1, keepdim=True)
            loss += (total.squeeze(1).log() + top - of_label).sum()
            if uniforms is not None:
                shares = weights.cumsum(1)
                places = uniforms[begin : begin + rows].to(exact).unsqueeze(1) * shares[:, -1:]
                drawn[begin : begin + rows] = (
                    torch.searchsorted(shares, places, right=True).squeeze(1).clamp(max=len(table) - 1)
                )
            if learns and for_table is not None:
                # The slope of the logits is softmax - 1 at the label. The division by `total` and the 1 go to the small
                # factors.
                wide, mine = weights.to(dtype), states[begin : begin + rows].to(exact)
                for_states[begin : begin + rows] = (wide @ narrow).to(exact) / total - table[wanted]
                for_table += wide.T @ (mine / total).to(dtype)
                for_table.index_add_(0, wanted, mine, alpha=-1)
                if for_bias is not None:
                    for_bias += (weights.T @ total.reciprocal()).squeeze(1)
                    for_bias.index_add_(0, wanted, torch.ones_like(top), alpha=-1)
        ctx.save_for_backward(for_states, for_table, for_bias)
        ctx.mark_non_differentiable(right, drawn)
        return loss, right, drawn

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        for_states, for_table, for_bias = ctx.saved_tensors
        return (
            for_states * scale,
            for_table.mul_(scale),
            None if for_bias is None else for_bias * scale,
            None,
            None,
            None,
        )
