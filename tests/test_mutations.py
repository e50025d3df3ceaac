"""The parity tests can fail: each of these mutations is detected in every family it applies to."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bertworks.model import attention, encoder, heads, layout, transformer
from bertworks.model.dropout import Dropout
from bertworks.model.folder import load_folder
from bertworks.model.model import Model
from parity import TOLERANCE, difference, our_outputs, their_outputs
from zoo import FAMILIES, hf_folder, hf_model

Patch = pytest.MonkeyPatch
Mutation = Callable[[Patch, Model], None]

LM_HEAD = dict.fromkeys(FAMILIES, "masked") | {"xlnet": "pretraining", "gpt2": "pretraining"}
LIKE_ROBERTA = ("roberta", "xlm-roberta", "camembert")
BERT_LIKE = ("bert", *LIKE_ROBERTA, "albert", "electra", "distilbert")
WITH_SEGMENTS = ("bert", *LIKE_ROBERTA, "albert", "electra", "xlnet")
ERF = ("bert", *LIKE_ROBERTA, "electra", "xlnet", "distilbert")


def tanh_for_erf_gelu(patch: Patch, model: Model) -> None:
    for part in model.encoder.ffns:
        patch.setattr(part, "activation", partial(F.gelu, approximate="tanh"))


def erf_for_tanh_gelu(patch: Patch, model: Model) -> None:
    for part in model.encoder.ffns:
        patch.setattr(part, "activation", F.gelu)


def position_plus_one(patch: Patch, model: Model) -> None:
    if model.config.encoder.attention == "relative":
        sinusoids = attention.sinusoids
        patch.setattr(attention, "sinusoids", lambda positions, size: sinusoids(positions + 1, size))
    else:
        patch.setattr(model.encoder.embed, "first_position", model.encoder.embed.first_position + 1)


def padding_visible(patch: Patch, model: Model) -> None:
    """Sequences are padded to the longest without a mask."""
    forward = transformer.Transformer.forward

    def padded(self: transformer.Transformer, tokens: layout.Tokens, keep_layers: bool = False) -> encoder.States:
        lengths = [length for rows, length, _ in tokens.layout.shapes for _ in range(rows)]
        longest = max(lengths)
        index = torch.cat([torch.arange(n) + i * longest for i, n in enumerate(lengths)])
        ids = torch.zeros(len(lengths) * longest, dtype=torch.long).index_copy(0, index, tokens.ids)
        segments = torch.zeros_like(ids).index_copy(0, index, tokens.layout.queries.segments)
        states = forward(self, layout.Tokens.ragged(ids, [longest] * len(lengths), segments), keep_layers)
        return encoder.States(states.last.index_select(0, index))

    patch.setattr(transformer.Transformer, "forward", padded)


def segments_swapped(patch: Patch, model: Model) -> None:
    if model.config.encoder.attention == "relative":
        for part in model.encoder.attentions:
            part.attn.segments.data = part.attn.segments.data.flip(0)
    else:
        model.encoder.embed.segments.weight.data = model.encoder.embed.segments.weight.data.flip(0)


def two_layers_swapped(patch: Patch, model: Model) -> None:
    order = list(model.encoder.attention_order)
    other = next(i for i, part in enumerate(order) if part != order[0])
    order[0], order[other] = order[other], order[0]
    patch.setattr(model.encoder, "attention_order", tuple(order))


def norm_eps_times_1000(patch: Patch, model: Model) -> None:
    """Matters only where a norm's input is small, so this mutation is tried on faint embeddings."""
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            patch.setattr(module, "eps", module.eps * 1000)


def pre_for_post_norm(patch: Patch, model: Model) -> None:
    for part in [*model.encoder.attentions, *model.encoder.ffns]:
        part.pre, part.post = part.post, part.pre


def no_scaling(patch: Patch, model: Model) -> None:
    attend = F.scaled_dot_product_attention
    patch.setattr(F, "scaled_dot_product_attention", lambda *args, **kwargs: attend(*args, **kwargs, scale=1.0))


def q_and_k_swapped(patch: Patch, model: Model) -> None:
    for part in model.encoder.attentions:
        part.attn.q, part.attn.k = part.attn.k, part.attn.q


def untied_head(patch: Patch, model: Model) -> None:
    other_table = torch.randn(model.encoder.embed.tokens.weight.shape, generator=torch.Generator().manual_seed(3)) * 0.2
    forward = heads.LanguageHead.forward
    patch.setattr(heads.LanguageHead, "forward", lambda self, states, table: forward(self, states, other_table))


def transform_skipped(patch: Patch, model: Model) -> None:
    width = model.config.encoder.embedding_width
    patch.setattr(
        heads.LanguageHead, "forward", lambda self, states, table: F.linear(states[:, :width], table, self.bias)
    )


def dropout_live_in_evaluation(patch: Patch, model: Model) -> None:
    attend = attention.attend
    patch.setattr(attention, "attend", lambda *args, **kwargs: attend(*args, **{**kwargs, "drop": Dropout(0.5)}))


def a_head_lost(patch: Patch, model: Model) -> None:
    for part in model.encoder.attentions:
        part.attn.out.weight.data[:, :6] = 0.0


def residual_forgotten(patch: Patch, model: Model) -> None:
    def forward(self: transformer.FeedForwardPart, x: torch.Tensor) -> torch.Tensor:
        return self.post(self.down(self.activation(self.up(self.pre(x)))))  # type: ignore[no-any-return]

    patch.setattr(transformer.FeedForwardPart, "forward", forward)


def future_visible(patch: Patch, model: Model) -> None:
    for part in model.encoder.attentions:
        patch.setattr(part.attn, "causal", False)


MUTATIONS: dict[Mutation, tuple[str, ...]] = {
    tanh_for_erf_gelu: ERF,
    erf_for_tanh_gelu: ("albert", "gpt2"),
    position_plus_one: FAMILIES,
    padding_visible: tuple(
        family for family in FAMILIES if family != "gpt2"
    ),  # left-to-right never looks at what follows
    segments_swapped: WITH_SEGMENTS,
    two_layers_swapped: FAMILIES,
    norm_eps_times_1000: FAMILIES,
    pre_for_post_norm: FAMILIES,
    no_scaling: FAMILIES,
    q_and_k_swapped: FAMILIES,
    untied_head: FAMILIES,
    transform_skipped: BERT_LIKE,
    dropout_live_in_evaluation: FAMILIES,
    a_head_lost: FAMILIES,
    residual_forgotten: FAMILIES,
    future_visible: ("gpt2",),
}
CASES = [(mutation, family) for mutation, families in MUTATIONS.items() for family in families]


@cache
def outputs_without_a_mutation(family: str, root: Path, faint: bool) -> list[torch.Tensor]:
    """Of transformers, with which ours agree as long as nothing is mutated."""
    head = LM_HEAD[family]
    theirs = their_outputs(hf_model(family, head, faint=faint), family, head)
    healthy = load_folder(hf_folder(family, head, root, faint)).model
    assert difference(our_outputs(healthy, family, head), theirs) <= TOLERANCE
    return theirs


@pytest.mark.parametrize(("mutation", "family"), CASES, ids=[f"{m.__name__}-{f}" for m, f in CASES])
def test_mutations_are_detected(mutation: Mutation, family: str, root: Path, monkeypatch: Patch) -> None:
    head = LM_HEAD[family]
    faint = mutation is norm_eps_times_1000
    theirs = outputs_without_a_mutation(family, root, faint)
    mutated = load_folder(hf_folder(family, head, root, faint)).model
    torch.manual_seed(0)
    mutation(monkeypatch, mutated)
    assert difference(our_outputs(mutated, family, head), theirs) > TOLERANCE


def test_there_are_enough_mutations() -> None:
    assert len(MUTATIONS) >= 12
    assert {family for _, family in CASES} == set(FAMILIES)
