"""Cross-entropy over the vocabulary without the table of logits.

    M  targets      V  vocabulary      E  width of the embedding

Logits, softmax and their gradients are each (M, V), the largest tensors of a pre-training step by far. Here a few rows at a time go all the
way to the gradients, in one buffer that fits into the cache: nothing of size (M, V) is ever there. The gradients are those of the
sum; the backward pass only scales them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BUFFER = {"cpu": 2**22, "cuda": 2**27}  # numbers in the buffer


class Guesses(NamedTuple):
    loss: Tensor  # () cross-entropy, summed
    right: Tensor  # () how many labels have the best logit
    drawn: Tensor  # (M,) a token from each distribution, where numbers to draw with were given


def vocabulary_loss(states: Tensor, table: Tensor, bias: Tensor | None, labels: Tensor, uniforms: Tensor | None = None) -> Guesses:
    """states (M, E), table (V, E), bias (V,), labels (M,). `uniforms` (M,) in [0, 1) draw a token each, by the inverse of the
    distribution function."""
    if torch.is_autocast_enabled(states.device.type):
        states, table = (t.to(torch.get_autocast_dtype(states.device.type)) for t in (states, table))
    return Guesses(*_VocabularyLoss.apply(states, table, bias, labels, uniforms))  # type: ignore[no-untyped-call]


class _VocabularyLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, table: Tensor, bias: Tensor | None, labels: Tensor, uniforms: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        exact = torch.promote_types(states.dtype, torch.float32)
        learns = any(ctx.needs_input_grad[:3])
        for_states = torch.empty_like(states) if learns else None
        for_table = torch.zeros_like(table, dtype=exact) if learns else None
        for_bias = torch.zeros_like(bias, dtype=exact) if learns and bias is not None else None
        loss, right = states.new_zeros((), dtype=exact), states.new_zeros((), dtype=exact)
        drawn = torch.empty_like(labels)
        rows = max(1, BUFFER.get(states.device.type, 2**24) // len(table))
        for begin in range(0, len(states), rows):
            part, wanted = states[begin : begin + rows], labels[begin : begin + rows].unsqueeze(1)
            logits = (part @ table.T).to(exact)
            if bias is not None:
                logits += bias
            top = logits.amax(1, keepdim=True)
            of_label = logits.gather(1, wanted)
            right += (of_label == top).sum()
            weights = logits.sub_(top).exp_()
            total = weights.sum(1, keepdim=True)
            loss += (total.log() + top - of_label).sum()
            if uniforms is not None:
                shares = weights.cumsum(1)
                places = uniforms[begin : begin + rows].to(exact).unsqueeze(1) * shares[:, -1:]
                drawn[begin : begin + rows] = torch.searchsorted(shares, places, right=True).squeeze(1).clamp(max=len(table) - 1)
            if for_states is None or for_table is None:
                continue
            slope = weights.div_(total)
            slope.scatter_add_(1, wanted, slope.new_full(wanted.shape, -1.0))
            torch.mm(slope.to(table.dtype), table, out=for_states[begin : begin + rows])
            for_table.addmm_(slope.T, part.to(exact))
            if for_bias is not None:
                for_bias += slope.sum(0)
        ctx.save_for_backward(for_states, for_table, for_bias)
        ctx.mark_non_differentiable(right, drawn)
        return loss, right, drawn

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        for_states, for_table, for_bias = ctx.saved_tensors
        return for_states * scale, for_table.mul_(scale), None if for_bias is None else for_bias * scale, None, None
