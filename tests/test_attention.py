"""The attention contract: positions may rotate queries and keys, memory is separate from queries, layers have a reach,
and recordings may be streamed."""

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
    edit_heads,
    record_attention,
    sinusoids,
)
from bertworks.model.count import count_config
from bertworks.model.init import initialise
from bertworks.model.layout import Layout, Run
from bertworks.model.model import Model
from bertworks.presets import preset
from test_contract import CONFIGS, LENGTHS, make_model, random_batch

CONFIG = TransformerConfig(vocab_size=50, hidden_size=16, n_heads=2, n_layers=2, ffn_size=24, init_range=0.3)


class RotaryAttention(Attention):
    """Rotary positions (Su et al. 2021), as a later family will need them."""

    def positions(self, layout: Layout) -> Positions:
        def rotate(x: Tensor, positions: Tensor) -> Tensor:
            sin, cos = (wave[:, None] for wave in sinusoids(positions, x.size(-1)))
            first, second = x.chunk(2, -1)
            return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

        class Rotary(Positions):
            def __call__(self, q: Tensor, k: Tensor, run: Run) -> tuple[Tensor, Tensor, None]:
                return rotate(q, run.queries.positions), rotate(k, run.keys.positions), None

        return Rotary()


def make_attention(kind: type[Attention] = Attention) -> Attention:
    module = kind(CONFIG).eval()
    initialise(module, CONFIG, torch.Generator().manual_seed(0))
    return module


def random_states(n: int, seed: int = 1) -> Tensor:
    return torch.randn(n, 16, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_positions_may_rotate_queries_and_keys() -> None:
    """Rotary scores depend on the distance alone: the same states further right give the same probabilities."""
    module = make_attention(RotaryAttention)
    layout = Layout.ragged([7])
    equal_states = random_states(1).expand(7, 16)
    with record_attention() as recording:
        module(equal_states, equal_states, layout, AttentionCall())
    scores = recording.layers[0].scores[0]
    for offset in range(-5, 6):
        diagonal = scores.diagonal(offset, 1, 2)
        assert torch.allclose(diagonal, diagonal[:, :1].expand_as(diagonal), atol=1e-5)
    assert not torch.allclose(scores[:, 0, 0], scores[:, 0, 3], atol=1e-3), "scores depend on the distance"


@torch.no_grad()
def test_memory_is_separate_from_queries() -> None:
    """Keys and values computed beforehand give the same output as the states they were computed from."""
    module = make_attention()
    x = random_states(6)
    context = random_states(6, seed=2)
    layout = Layout.ragged([4, 2])
    expected = module(x, context, layout, AttentionCall())
    assert torch.equal(module(x, module.memory(context), layout, AttentionCall()), expected)
    assert not torch.allclose(module(x, x, layout, AttentionCall()), expected, atol=1e-3)


@pytest.mark.parametrize("kind", ["bert local", "gpt local"])
@torch.no_grad()
def test_reach_is_a_band_of_visible_tokens(kind: str) -> None:
    model = make_model(kind)
    with record_attention() as recording:
        model.encoder(random_batch([9]))
    assert [layer.layer for layer in recording.layers] == [0, 1, 2, 3]
    positions = torch.arange(9)
    distance = positions[None] - positions[:, None]
    for layer, reach in zip(recording.layers, (2, None, 1, 3), strict=True):
        expected = torch.ones(9, 9, dtype=torch.bool) if reach is None else distance.abs() <= reach
        if kind == "gpt local":
            expected = expected & (distance <= 0)
        assert torch.equal(layer.probabilities[0][0] > 0, expected)


@torch.no_grad()
def test_fused_and_explicit_attention_agree_on_reach() -> None:
    """Without dropout the fused kernel is used, with dropout our own softmax; a tiny rate drops nothing here."""
    model = make_model("gpt local")
    tokens = random_batch(LENGTHS)
    fused = model.encoder(tokens).last
    for module in model.modules():
        if isinstance(module, Attention):
            module.drop.train()
            module.drop.p = 1e-9
    assert torch.allclose(model.encoder(tokens).last, fused, atol=1e-5)


@torch.no_grad()
def test_gated_feed_forward_matches_its_formula() -> None:
    model = make_model("bert gated")
    ffn = next(iter(model.encoder.layers())).ffn
    x = random_states(3)
    assert ffn.gate is not None
    expected = ffn.post(x + ffn.down(F.gelu(ffn.gate(x)) * ffn.up(x)))
    assert torch.allclose(ffn(x), expected, atol=1e-6)
    assert not any(name.endswith((".post.bias", "norm.bias")) for name in model.state_dict()), "norms have no biases"


def test_parameter_counts_of_gated_ffn_and_norm_bias() -> None:
    config = preset("bert-mini")
    gated = config.override(ffn="gated")
    encoder = config.transformer
    gate_parameters = encoder.n_layers * (encoder.hidden_size + 1) * encoder.ffn_size
    assert count_config(gated).total - count_config(config).total == gate_parameters
    n_norms = 1 + 2 * encoder.n_layers
    assert count_config(config).total - count_config(config.override(norm_bias=False)).total == n_norms * 256


@pytest.mark.parametrize("change", [{"reach": (1, 1, 1, 1)}, {"ffn": "gated"}, {"norm_bias": False}])
def test_models_that_transformers_cannot_express_are_saved_as_bertworks(
    change: dict[str, object], tmp_path: object
) -> None:
    from bertworks.model.folder import config_values

    model = Model.fresh(CONFIGS["bert"].override(**change), ["lm"])
    assert config_values(model, {})["model_type"] == "bertworks"


@torch.no_grad()
def test_a_recorder_may_stream_and_keep_nothing() -> None:
    model = make_model("albert")
    tokens = random_batch(LENGTHS)
    streamed: list[tuple[int, str, float]] = []

    def on_layer(layer: AttentionLayer) -> None:
        streamed.append((layer.layer, layer.stream, float(layer.probabilities[0].sum())))

    expected = model.encoder(tokens).last
    with record_attention(on_layer) as streaming, record_attention() as recording:
        recorded = model.encoder(tokens).last
    assert torch.equal(expected, recorded) and not streaming.layers
    assert [entry[:2] for entry in streamed] == [(layer, "content") for layer in range(4)], "shared layers have names"
    assert [float(layer.probabilities[0].sum()) for layer in recording.layers] == [entry[2] for entry in streamed]


@pytest.mark.parametrize("kind", ["bert", "xlnet", "gpt", "bert additive"])
@torch.no_grad()
def test_recorded_scores_are_before_the_softmax(kind: str) -> None:
    model = make_model(kind)
    tokens = random_batch([6, 4])
    with record_attention() as recording:
        model.encoder(tokens)
    for layer in recording.layers:
        for scores, probabilities in zip(layer.scores, layer.probabilities, strict=True):
            visible = scores.masked_fill(probabilities == 0, -torch.inf) if kind == "gpt" else scores
            assert torch.allclose(visible.softmax(-1), probabilities, atol=1e-6)


@pytest.mark.parametrize("kind", CONFIGS)
@torch.no_grad()
def test_terms_add_up_to_the_scores(kind: str) -> None:
    model = make_model(kind)
    with record_attention() as recording:
        model.encoder(random_batch(LENGTHS))
    for layer in recording.layers:
        for terms, scores in zip(layer.terms, layer.scores, strict=True):
            assert set(terms) == ({"content", "key", "distance", "segment"} if "xlnet" in kind else {"content"})
            assert torch.allclose(sum(terms.values(), torch.zeros(())), scores, atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "xlnet", "albert"])
@torch.no_grad()
def test_value_norms_are_lengths_of_what_a_key_adds(kind: str) -> None:
    """Against the vectors themselves, one head and one key at a time."""
    model = make_model(kind)
    tokens = random_batch([5])
    with record_attention() as recording:
        states = model.encoder(tokens, keep_layers=True)
    for layer, below, recorded in zip(model.encoder.layers(), states.layers, recording.layers, strict=False):
        attention = layer.attention.attn
        values = attention.v(layer.attention.pre(below)).view(5, attention.n_heads, -1)
        by_head = attention.out.weight.view(len(attention.out.weight), attention.n_heads, -1)
        expected = torch.stack([(values[:, head] @ by_head[:, head].T).norm(dim=-1) for head in range(by_head.size(1))])
        assert torch.allclose(recorded.value_norms[0], expected, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_only_what_is_asked_for_is_recorded() -> None:
    model = make_model("bert")
    with record_attention(fields=["probabilities", "value_norms"]) as recording, record_attention() as everything:
        model.encoder(random_batch(LENGTHS))
    for layer, whole in zip(recording.layers, everything.layers, strict=True):
        assert not (layer.scores or layer.terms or layer.queries or layer.keys) and whole.scores
        assert all(map(torch.equal, layer.probabilities, whole.probabilities)) and len(layer.value_norms) == len(
            LENGTHS
        )


@torch.no_grad()
def test_heads_may_be_edited() -> None:
    """Of one layer that shares its weights with others: what it puts out is replaced, and nothing else."""
    model = make_model("albert")
    tokens = random_batch(LENGTHS)
    expected = model.encoder(tokens).last
    seen: list[int] = []

    def silence(call: AttentionCall, outputs: Tensor, values: Tensor, sees: Tensor | None) -> Tensor:
        seen.append(call.layer)
        if call.layer != 2:
            return outputs
        return outputs.index_fill(1, torch.tensor([1]), 0.0)

    with edit_heads(silence):
        edited = model.encoder(tokens, keep_layers=True)
    unedited = model.encoder(tokens, keep_layers=True)
    assert all(map(torch.equal, edited.layers[:3], unedited.layers[:3]))
    assert not torch.allclose(edited.layers[3], unedited.layers[3], atol=1e-4)
    assert sorted({*seen}) == [0, 1, 2, 3] and torch.equal(model.encoder(tokens).last, expected)


@torch.no_grad()
def test_recorded_layers_name_their_stream() -> None:
    model = make_model("xlnet")
    tokens = random_batch([5])
    ranks = torch.tensor([-1, 0, -1, 1, -1])
    with record_attention() as recording:
        model.encoder.two_stream(tokens, ranks, torch.tensor([1, 3]), [2])
    layers = [(layer.layer, layer.stream) for layer in recording.layers]
    assert layers == [
        (0, "query"),
        (0, "content"),
        (1, "query"),
        (1, "content"),
        (2, "query"),
        (2, "content"),
        (3, "query"),
    ]


def test_groups_contain_every_parameter_once() -> None:
    for kind in CONFIGS:
        encoder = make_model(kind).encoder
        groups = encoder.groups()
        assert len(groups) == encoder.config.n_layers + 2
        members = [parameter for group in groups for module in group for parameter in module.parameters()]
        assert len(members) == len(set(members)), kind
        ungrouped = [
            name for name, parameter in encoder.named_parameters() if all(parameter is not member for member in members)
        ]
        assert ungrouped == (["mask_state"] if encoder.config.has_two_streams else []), kind


def test_freezing_is_by_group() -> None:
    model = make_model("albert in groups")
    model.encoder.freeze(2)
    assert not any(parameter.requires_grad for parameter in model.encoder.attentions[1].parameters())
    assert all(parameter.requires_grad for parameter in model.encoder.attentions[2].parameters())
    assert not model.encoder.token_table.requires_grad
    untouched = make_model("bert")
    untouched.encoder.freeze(0)
    assert all(parameter.requires_grad for parameter in untouched.parameters())
    assert isinstance(untouched.encoder, nn.Module)
