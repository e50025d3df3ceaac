"""The attention contract: positions may turn queries and keys, memory is apart from queries, layers have a reach, and a
recorder may stream."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertworks.config import TransformerConfig
from bertworks.model.attention import (
    Attention,
    AttentionCall,
    AttentionLayer,
    Positions,
    record_attention,
    sinusoids,
)
from bertworks.model.count import count_config
from bertworks.model.init import initialise
from bertworks.model.layout import Layout, Run
from bertworks.model.model import Model
from bertworks.presets import preset
from test_contract import KINDS, LENGTHS, batch, make

CONFIG = TransformerConfig(vocab_size=50, hidden_size=16, n_heads=2, n_layers=2, ffn_size=24, init_range=0.3)


class RotaryAttention(Attention):
    """Su et al. 2021, in a dozen lines: what a family that comes later will need."""

    def positions(self, layout: Layout) -> Positions:
        def rotate(x: Tensor, positions: Tensor) -> Tensor:
            sin, cos = (wave[:, None] for wave in sinusoids(positions, x.size(-1)))
            first, second = x.chunk(2, -1)
            return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

        def rotary(q: Tensor, k: Tensor, run: Run) -> tuple[Tensor, Tensor, None]:
            return rotate(q, run.queries.positions), rotate(k, run.keys.positions), None

        return rotary


def attention(kind: type[Attention] = Attention) -> Attention:
    module = kind(CONFIG).eval()
    initialise(module, CONFIG, torch.Generator().manual_seed(0))
    return module


def states(n: int, seed: int = 1) -> Tensor:
    return torch.randn(n, 16, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_positions_may_turn_queries_and_keys() -> None:
    """Rotary scores depend on the distance alone: the same states further right give the same probabilities."""
    module, layout = attention(RotaryAttention), Layout.ragged([7])
    same = states(1).expand(7, 16)
    with record_attention() as recording:
        module(same, same, layout, AttentionCall())
    scores = recording.layers[0].scores[0]
    for offset in range(-5, 6):
        diagonal = scores.diagonal(offset, 1, 2)
        assert torch.allclose(diagonal, diagonal[:, :1].expand_as(diagonal), atol=1e-5)
    assert not torch.allclose(scores[:, 0, 0], scores[:, 0, 3], atol=1e-3), "distances do not matter"


@torch.no_grad()
def test_memory_is_apart_from_queries() -> None:
    """Keys and values made before, of other tokens than the queries', give what the states themselves give."""
    module, x, context = attention(), states(6), states(6, seed=2)
    layout = Layout.ragged([4, 2])
    direct = module(x, context, layout, AttentionCall())
    assert torch.equal(module(x, module.memory(context), layout, AttentionCall()), direct)
    assert not torch.allclose(module(x, x, layout, AttentionCall()), direct, atol=1e-3)


@pytest.mark.parametrize("kind", ["bert local", "gpt local"])
@torch.no_grad()
def test_reach_is_a_band(kind: str) -> None:
    model = make(kind)
    with record_attention() as recording:
        model.encoder(batch([9]))
    assert [layer.layer for layer in recording.layers] == [0, 1, 2, 3]
    places = torch.arange(9)
    distance = places[None] - places[:, None]
    for layer, reach in zip(recording.layers, (2, None, 1, 3), strict=True):
        expected = torch.ones(9, 9, dtype=torch.bool) if reach is None else distance.abs() <= reach
        if kind == "gpt local":
            expected = expected & (distance <= 0)
        assert torch.equal(layer.probabilities[0][0] > 0, expected)


@torch.no_grad()
def test_kernel_and_plain_attention_agree_on_reach() -> None:
    """The kernel is used without dropout, our own softmax with it; a rate of almost nothing drops nothing here."""
    model, tokens = make("gpt local"), batch(LENGTHS)
    by_kernel = model.encoder(tokens).last
    for module in model.modules():
        if isinstance(module, Attention):
            module.drop.train()
            module.drop.p = 1e-9
    assert torch.allclose(model.encoder(tokens).last, by_kernel, atol=1e-5)


@torch.no_grad()
def test_gated_feed_forward_is_the_formula() -> None:
    model = make("bert gated")
    part, x = next(iter(model.encoder.layers())).ffn, states(3)
    assert part.gate is not None
    expected = part.post(x + part.down(F.gelu(part.gate(x)) * part.up(x)))
    assert torch.allclose(part(x), expected, atol=1e-6)
    assert not any(name.endswith((".post.bias", "norm.bias")) for name in model.state_dict()), "norms have biases"


def test_new_axes_count_their_parameters() -> None:
    plain = preset("bert-mini")
    gated = plain.override(ffn="gated")
    encoder = plain.transformer
    more = encoder.n_layers * (encoder.hidden_size + 1) * encoder.ffn_size
    assert count_config(gated).total - count_config(plain).total == more
    n_norms = 1 + 2 * encoder.n_layers
    assert count_config(plain).total - count_config(plain.override(norm_bias=False)).total == n_norms * 256


@pytest.mark.parametrize("change", [{"reach": (1, 1, 1, 1)}, {"ffn": "gated"}, {"norm_bias": False}])
def test_what_others_cannot_express_is_saved_as_ours(change: dict[str, object], tmp_path: object) -> None:
    from bertworks.model.folder import config_values

    model = Model.fresh(KINDS["bert"].override(**change), ["lm"])
    assert config_values(model, {})["model_type"] == "bertworks"


@torch.no_grad()
def test_a_recorder_may_stream_and_keep_nothing() -> None:
    model, tokens = make("albert"), batch(LENGTHS)
    streamed: list[tuple[int, str, float]] = []

    def on_layer(layer: AttentionLayer) -> None:
        streamed.append((layer.layer, layer.stream, float(layer.probabilities[0].sum())))

    plain = model.encoder(tokens).last
    with record_attention(on_layer) as streaming, record_attention() as kept:
        watched = model.encoder(tokens).last
    assert torch.equal(plain, watched) and not streaming.layers
    assert [entry[:2] for entry in streamed] == [(layer, "content") for layer in range(4)], "shared layers have names"
    assert [float(layer.probabilities[0].sum()) for layer in kept.layers] == [entry[2] for entry in streamed]


@pytest.mark.parametrize("kind", ["bert", "xlnet", "gpt", "bert additive"])
@torch.no_grad()
def test_recorded_scores_are_before_the_softmax(kind: str) -> None:
    model, tokens = make(kind), batch([6, 4])
    with record_attention() as recording:
        model.encoder(tokens)
    for layer in recording.layers:
        for scores, probabilities in zip(layer.scores, layer.probabilities, strict=True):
            visible = scores.masked_fill(probabilities == 0, -torch.inf) if kind == "gpt" else scores
            assert torch.allclose(visible.softmax(-1), probabilities, atol=1e-6)


@torch.no_grad()
def test_both_streams_have_names() -> None:
    model = make("xlnet")
    tokens = batch([5])
    ranks = torch.tensor([-1, 0, -1, 1, -1])
    with record_attention() as recording:
        model.encoder.two_stream(tokens, ranks, torch.tensor([1, 3]), [2])
    named = [(layer.layer, layer.stream) for layer in recording.layers]
    assert named == [
        (0, "query"),
        (0, "content"),
        (1, "query"),
        (1, "content"),
        (2, "query"),
        (2, "content"),
        (3, "query"),
    ]


def test_groups_hold_every_parameter_once() -> None:
    for kind in KINDS:
        encoder = make(kind).encoder
        groups = encoder.groups()
        assert len(groups) == encoder.config.n_layers + 2
        members = [parameter for group in groups for module in group for parameter in module.parameters()]
        assert len(members) == len(set(members)), kind
        outside = [
            name for name, parameter in encoder.named_parameters() if all(parameter is not one for one in members)
        ]
        assert outside == (["mask_state"] if encoder.config.has_two_streams else []), kind


def test_freezing_is_by_group() -> None:
    model = make("albert in groups")
    model.encoder.freeze(2)
    assert not any(parameter.requires_grad for parameter in model.encoder.attentions[1].parameters())
    assert all(parameter.requires_grad for parameter in model.encoder.attentions[2].parameters())
    assert not model.encoder.token_table.requires_grad
    untouched = make("bert")
    untouched.encoder.freeze(0)
    assert all(parameter.requires_grad for parameter in untouched.parameters())
    assert isinstance(untouched.encoder, nn.Module)
