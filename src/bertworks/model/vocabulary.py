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

BUFFER = {"cpu": 2**24, "cuda": 2**27}  # numbers in the buffer


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
        for_states, for_table, for_bias = torch.empty_like(states), None, None
        loss, right = states.new_zeros((), dtype=exact), states.new_zeros((), dtype=exact)
        drawn = torch.empty_like(labels)
        rows = max(1, BUFFER.get(states.device.type, 2**24) // len(table))
        for begin in range(0, len(states), rows):
            part, wanted = states[begin : begin + rows], labels[begin : begin + rows]
            logits = part @ table.T if bias is None else torch.addmm(bias.to(part.dtype), part, table.T)
            logits = logits.to(exact)
            top, of_label = logits.amax(1), logits.gather(1, wanted.unsqueeze(1)).squeeze(1)
            right += (of_label == top).sum()
            weights = logits.sub_(top.unsqueeze(1)).exp_()
            total = weights.sum(1)
            loss += (total.log() + top - of_label).sum()
            if uniforms is not None:
                shares = weights.cumsum(1)
                places = uniforms[begin : begin + rows].to(exact) * shares[:, -1]
                found = torch.searchsorted(shares, places.unsqueeze(1), right=True).squeeze(1)
                drawn[begin : begin + rows] = found.clamp(max=len(table) - 1)
            if learns:
                # The slope of the logits is softmax - 1 at the label; the division by `total` and the 1 go to the small factors.
                narrow = weights.to(table.dtype)
                for_states[begin : begin + rows] = (narrow @ table) / total.unsqueeze(1).to(part.dtype) - table[wanted]
                even = part / total.unsqueeze(1).to(part.dtype)
                for_table = narrow.T @ even if for_table is None else for_table.addmm_(narrow.T, even)
                for_table.index_add_(0, wanted, part, alpha=-1)
                if bias is not None:
                    slope = (weights.T @ total.reciprocal()).index_add_(0, wanted, torch.ones_like(total), alpha=-1)
                    for_bias = slope if for_bias is None else for_bias + slope
        if learns and for_table is None:  # no targets at all
            for_table, for_bias = torch.zeros_like(table), None if bias is None else torch.zeros_like(bias)
        ctx.save_for_backward(for_states, for_table, for_bias)
        ctx.mark_non_differentiable(right, drawn)
        return loss, right, drawn

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        for_states, for_table, for_bias = ctx.saved_tensors
        return for_states * scale, for_table.mul_(scale), None if for_bias is None else for_bias * scale, None, None
