"""Heads replaced by something that knows nothing of the text.

A head's output is replaced by its mean over other texts, by zero (Michel et al. 2019) or by what it would be if its
attention were uniform (Kovaleva et al. 2019). States below the lowest replaced layer are those of the whole model: they
are computed once for all heads, and the last layer is computed for the scored tokens alone.

    N  tokens of the batch      R  rows of a run      H  heads      D  size of a head
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from bertworks.inspect.measures import Measure, ScoredBatch, ScoredText, scored_batches
from bertworks.inspect.units import Floats
from bertworks.model.attention import CONTENT, AttentionCall, EditHeads, edit_heads
from bertworks.model.model import Model
from bertworks.model.transformer import Transformer
from bertworks.model.weights import as_numpy
from bertworks.tasks.inference import Progress, no_progress

Replacement = Literal["mean", "zero", "uniform"]
Head = tuple[int, int]  # layer and head; layers that share weights are several
MeanOutputs = Mapping[tuple[int, str], Tensor]
"""By layer and stream: the mean of what each head puts out, (H, D)."""


def mean_outputs(model: Model, measure: Measure, texts: Sequence[ScoredText]) -> MeanOutputs:
    sums: dict[tuple[int, str], Tensor] = {}
    counts: dict[tuple[int, str], int] = {}

    def add(call: AttentionCall, outputs: Tensor, values: Tensor, sees: Tensor | None) -> Tensor:
        key = call.layer, call.stream
        sums[key] = outputs.double().sum((0, 2)) + sums.get(key, 0.0)
        counts[key] = outputs.size(0) * outputs.size(2) + counts.get(key, 0)
        return outputs

    for _, batch in scored_batches(texts, model.encoder.device):
        with torch.inference_mode(), edit_heads(add):
            measure.states(model, batch)
    return {key: (total / counts[key]).to(model.encoder.token_table.dtype) for key, total in sums.items()}


def replaced(heads: Sequence[Head], replacement: Replacement, means: MeanOutputs) -> EditHeads:
    """The edit that replaces these heads; `means`: for the replacement by the mean."""
    by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        by_layer.setdefault(layer, []).append(head)

    def edit(call: AttentionCall, outputs: Tensor, values: Tensor, sees: Tensor | None) -> Tensor:
        chosen = by_layer.get(call.layer)
        if chosen is None:
            return outputs
        edited = outputs.clone()
        if replacement == "mean":
            edited[:, chosen] = means[call.layer, call.stream][chosen].unsqueeze(1)
        elif replacement == "zero":
            edited[:, chosen] = 0.0
        else:
            edited[:, chosen] = _uniform(values[:, chosen], sees)
        return edited

    return edit


def _uniform(values: Tensor, sees: Tensor | None) -> Tensor:
    """Values (R, H, Tk, D) averaged over the keys that each query sees."""
    if sees is None:
        return values.mean(2, keepdim=True)
    weights = sees.to(values.dtype)
    return weights / weights.sum(-1, keepdim=True).clamp_min(1) @ values


class AblatedModel:
    """A model whose heads are replaced, one set after the other."""

    def __init__(self, model: Model, measure: Measure, replacement: Replacement, means: MeanOutputs) -> None:
        self.model = model
        self.measure = measure
        self.replacement = replacement
        self.means = means

    @torch.inference_mode()
    def changes(
        self, texts: Sequence[ScoredText], sets: Sequence[Sequence[Head]], progress: Progress = no_progress
    ) -> list[tuple[Floats, Floats]]:
        """Of each text: what is read off the whole model (rows, ...), and how that changes without each set of heads
        (sets, rows)."""
        by_text: dict[int, tuple[Floats, Floats]] = {}
        for members, batch in scored_batches(texts, self.model.encoder.device):
            resume = self._resume(batch)
            with_all_heads = self.measure.read(self.model, resume(()), batch)
            changed = []
            for number, heads in enumerate(sets):
                read = self.measure.read(self.model, resume(heads), batch)
                changed.append(as_numpy(self.measure.change(read, with_all_heads)).astype(np.float64))
                progress(len(by_text) * len(sets) + (number + 1) * len(members), len(texts) * len(sets))
            n_rows = batch.n_targets if len(with_all_heads) == len(batch.targets) else [1] * len(members)
            ends = np.cumsum(n_rows)[:-1]
            parts = np.split(as_numpy(with_all_heads), ends), np.split(np.stack(changed), ends, axis=1)
            for member, base, change in zip(members, *parts, strict=True):
                by_text[member] = base.astype(np.float64), change
        return [by_text[index] for index in range(len(texts))]

    def _resume(self, batch: ScoredBatch) -> Callable[[Sequence[Head]], Tensor]:
        """From heads to replace to the states at the targets."""
        encoder = self.model.encoder
        has_own_states = type(self.measure).states is not Measure.states
        if has_own_states or not isinstance(encoder, Transformer):

            def run(heads: Sequence[Head]) -> Tensor:
                with edit_heads(replaced(heads, self.replacement, self.means)):
                    return self.measure.states(self.model, batch)

            return run
        below = encoder(batch.tokens, keep_layers=True).layers

        def resume(heads: Sequence[Head]) -> Tensor:
            first = min((layer for layer, _ in heads), default=len(below) - 2)
            with edit_heads(replaced(heads, self.replacement, self.means)):
                return states_from(encoder, first, below[first], batch)

        return resume


def states_from(encoder: Transformer, first: int, x: Tensor, batch: ScoredBatch) -> Tensor:
    """As `states_at` gives them, from the states x (N, hidden) below the layer `first`."""
    layout = batch.tokens.layout
    *lower, top = list(encoder.layers())[first:]
    for layer in lower:
        x = layer.ffn(layer.attention(x, layout, layer.call(CONTENT)))
    selected = layout.select(batch.targets, batch.n_targets)
    chosen = x.index_select(0, batch.targets)
    states: Tensor = encoder.norm(top.ffn(top.attention(chosen, selected, top.call(CONTENT), top.attention.pre(x))))
    return states


# ---------------------------------------------------------------------- by the gradient


def gradient_importance(model: Model, measure: Measure, texts: Sequence[ScoredText]) -> Floats | None:
    """I_h = E |Att_h . dL/dAtt_h| (Michel et al. 2019, section 4.1), (L, H), from one backward pass: the slope of a
    text's loss by a gate on each head. None: a distance has no slope where it is 0."""
    if measure.is_distance:
        return None
    sums: list[Tensor] = []  # over the texts of a batch
    for _, batch in scored_batches(texts, model.encoder.device):
        gates: dict[tuple[int, str], list[Tensor]] = {}

        def gate(
            call: AttentionCall,
            outputs: Tensor,
            values: Tensor,
            sees: Tensor | None,
            gates: dict[tuple[int, str], list[Tensor]] = gates,
        ) -> Tensor:
            own = torch.ones(*outputs.shape[:2], 1, 1, dtype=outputs.dtype, device=outputs.device, requires_grad=True)
            gates.setdefault((call.layer, call.stream), []).append(own)
            return outputs * own

        with torch.enable_grad(), edit_heads(gate):
            losses = measure.read(model, measure.states(model, batch), batch)
            total = torch.stack([part.mean() for part in torch.split(losses, batch.n_targets)]).sum()
        flat = [gate_of_run for runs in gates.values() for gate_of_run in runs]
        slopes = iter(torch.autograd.grad(total, flat))
        by_layer: dict[int, Tensor] = {}  # (texts, H)
        for (layer, _), runs in gates.items():
            of_stream = torch.cat([next(slopes)[:, :, 0, 0] for _ in runs])
            by_layer[layer] = of_stream + by_layer.get(layer, 0.0)
        sums.append(torch.stack([by_layer[layer].abs().sum(0) for layer in sorted(by_layer)]))
    return as_numpy(torch.stack(sums).sum(0) / len(texts)).astype(np.float64)
