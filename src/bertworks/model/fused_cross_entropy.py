"""Cross-entropy over the vocabulary without the table of logits.

    M  targets      V  vocabulary      E  width of the embedding

Logits, softmax and their gradients are each (M, V), the largest tensors of a pre-training step by far. Here they are
computed a few rows at a time, up to the gradients, in one buffer that fits into the cache: nothing of size (M, V) is
ever allocated. The gradients are those of the sum; the backward pass only scales them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

BUFFER_SIZE = {"cpu": 2**24, "cuda": 2**27}  # logits in the buffer, by type of device


class LMLoss(NamedTuple):
    loss: Tensor  # () cross-entropy, summed
    n_correct: Tensor  # () how many labels have the largest logit
    samples: Tensor  # (M,) a token drawn from each distribution, if `uniforms` were given


def fused_cross_entropy(
    states: Tensor, table: Tensor, bias: Tensor | None, labels: Tensor, uniforms: Tensor | None = None
) -> LMLoss:
    """states (M, E), table (V, E), bias (V,), labels (M,). `uniforms` (M,) in [0, 1) draw a token each, by inverse
    transform sampling."""
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    with torch.autocast(device, enabled=False):  # which parts are in low precision is decided below
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
        needs_grad = any(ctx.needs_input_grad[:3])
        cast_table = table.to(dtype)
        grad_states = torch.empty_like(states)
        grad_table = torch.zeros_like(table, dtype=exact)
        grad_bias = None if bias is None else torch.zeros_like(bias, dtype=exact)
        loss = states.new_zeros((), dtype=exact)
        n_correct = torch.zeros_like(labels[:1]).sum()
        samples = torch.empty_like(labels)
        n_rows = max(1, BUFFER_SIZE.get(states.device.type, 2**24) // len(table))
        for start in range(0, len(states), n_rows):
            rows = slice(start, start + n_rows)
            row_states = states[rows].to(dtype)
            row_labels = labels[rows]
            product = (
                row_states @ cast_table.T if bias is None else torch.addmm(bias.to(dtype), row_states, cast_table.T)
            )
            logits = product.to(exact)
            largest = logits.amax(1)
            label_logits = logits.gather(1, row_labels.unsqueeze(1)).squeeze(1)
            # In low precision several logits are often the largest; then the first counts, which takes longer to find.
            n_correct += (label_logits == largest if dtype == exact else logits.argmax(1) == row_labels).sum()
            exps = logits.sub_(largest.unsqueeze(1)).exp_()
            exp_sums = exps.sum(1, keepdim=True)
            loss += (exp_sums.squeeze(1).log() + largest - label_logits).sum()
            if uniforms is not None:
                cumulative = exps.cumsum(1)
                thresholds = uniforms[rows].to(exact).unsqueeze(1) * cumulative[:, -1:]
                drawn = torch.searchsorted(cumulative, thresholds, right=True).squeeze(1)
                samples[rows] = drawn.clamp(max=len(table) - 1)
            if needs_grad:
                # The gradient of the logits is softmax - 1 at the label. The division by `exp_sums` and the 1 go to the
                # small factors.
                cast_exps = exps.to(dtype)
                exact_states = states[rows].to(exact)
                grad_states[rows] = (cast_exps @ cast_table).to(exact) / exp_sums - table[row_labels]
                grad_table += cast_exps.T @ (exact_states / exp_sums).to(dtype)
                grad_table.index_add_(0, row_labels, exact_states, alpha=-1)
                if grad_bias is not None:
                    grad_bias += (exps.T @ exp_sums.reciprocal()).squeeze(1)
                    grad_bias.index_add_(0, row_labels, torch.ones_like(largest), alpha=-1)
        ctx.save_for_backward(grad_states, grad_table, grad_bias)
        ctx.mark_non_differentiable(n_correct, samples)
        return loss, n_correct, samples

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        grad_states, grad_table, grad_bias = ctx.saved_tensors
        grad_bias = None if grad_bias is None else grad_bias * scale
        return grad_states * scale, grad_table.mul_(scale), grad_bias, None, None, None
