"""What holds for every family: padding does not exist, neighbours do not leak, evaluation is still, every parameter
learns."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertworks.config import ModelConfig, TransformerConfig
from bertworks.model.attention import AttentionCall, record_attention
from bertworks.model.dropout import Dropout
from bertworks.model.heads import HEADS
from bertworks.model.init import LOCAL_OFFSETS, can_init_local_attention, init_local_attention
from bertworks.model.layout import Layout, Tokens
from bertworks.model.model import Model
from bertworks.presets import PRESETS, preset
from refusals import figures, refused

SMALL = {"vocab_size": 50, "hidden_size": 16, "n_heads": 2, "ffn_size": 24, "n_layers": 4, "init_range": 0.2}
CONFIGS: dict[str, ModelConfig] = {
    family: preset(f"{family}-mini").override(**SMALL) for family in ("bert", "roberta", "xlnet", "distilbert", "gpt")
}
CONFIGS["roberta"] = CONFIGS["roberta"].override(n_segments=2)
for family in ("albert", "electra"):
    CONFIGS[family] = preset(f"{family}-mini").override(**SMALL, embedding_size=8)
for sharing in ("attention", "ffn", "none"):
    CONFIGS[f"albert sharing {sharing}"] = CONFIGS["albert"].override(sharing=sharing)
CONFIGS["albert in groups"] = CONFIGS["albert"].override(n_groups=2, layers_per_group=2)
CONFIGS["bert sinusoidal"] = CONFIGS["bert"].override(positions="sinusoidal")
CONFIGS["bert additive"] = CONFIGS["bert"].override(attention="additive")
CONFIGS["bert left to right"] = CONFIGS["bert"].override(causal=True)
CONFIGS["xlnet left to right"] = CONFIGS["xlnet"].override(causal=True)
CONFIGS["bert with segments and positions"] = CONFIGS["bert"].override(n_segments=5, n_positions=1500)
CONFIGS["bert local"] = CONFIGS["bert"].override(reach=(2, None, 1, 3))
CONFIGS["gpt local"] = CONFIGS["gpt"].override(reach=(2, None, 1, 3))
CONFIGS["bert gated"] = CONFIGS["bert"].override(ffn="gated", norm_bias=False)
LENGTHS = [5, 9, 9, 2, 1]

every_config = pytest.mark.parametrize("kind", CONFIGS)


def make_model(kind: str, heads: tuple[str, ...] = (), **changes: object) -> Model:
    return Model.fresh(CONFIGS[kind].override(**changes), heads, seed=1).eval()


def random_batch(lengths: list[int], seed: int = 0, vocab: int = 50) -> Tokens:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, vocab, (sum(lengths),), generator=generator)
    return Tokens.ragged(ids, lengths, torch.cat([torch.arange(n) * 2 // n for n in lengths]))


def select_sequences(tokens: Tokens, lengths: list[int], sequences: list[int]) -> Tokens:
    starts = [sum(lengths[:i]) for i in sequences]
    index = torch.cat([torch.arange(start, start + lengths[i]) for start, i in zip(starts, sequences, strict=True)])
    return Tokens.ragged(tokens.ids[index], [lengths[i] for i in sequences], tokens.layout.queries.segments[index])


@every_config
@torch.no_grad()
def test_a_sequence_alone_is_as_in_a_batch(kind: str) -> None:
    model = make_model(kind)
    tokens = random_batch(LENGTHS)
    together = torch.split(model.encoder(tokens).last, LENGTHS)
    for i in range(len(LENGTHS)):
        alone = model.encoder(select_sequences(tokens, LENGTHS, [i])).last
        assert torch.allclose(alone, together[i], atol=1e-5, rtol=1e-5)


@every_config
@torch.no_grad()
def test_sequences_of_a_batch_do_not_leak(kind: str) -> None:
    model = make_model(kind).double()
    tokens = random_batch(LENGTHS)
    before = model.encoder(tokens).last[: LENGTHS[0]]
    other_ids = tokens.ids.clone()
    other_ids[LENGTHS[0] :] = 7
    after = model.encoder(Tokens(other_ids, tokens.layout)).last[: LENGTHS[0]]
    assert torch.equal(before, after)
    changed_ids = tokens.ids.clone()
    changed_ids[0] = (changed_ids[0] + 1) % 50
    assert not torch.equal(model.encoder(Tokens(changed_ids, tokens.layout)).last[: LENGTHS[0]], before), (
        "the output depends on its own tokens"
    )


@every_config
@torch.no_grad()
def test_evaluation_is_deterministic(kind: str) -> None:
    model = make_model(kind, dropout=0.5, attention_dropout=0.5, ffn_dropout=0.5)
    tokens = random_batch(LENGTHS)
    first = model.encoder(tokens).last
    second = model.encoder(tokens).last
    assert torch.equal(first, second)
    model.train()
    assert not torch.equal(model.encoder(tokens).last, model.encoder(tokens).last), "dropout is active in training"


@every_config
@torch.no_grad()
def test_recording_attention_changes_no_bit(kind: str) -> None:
    model = make_model(kind)
    tokens = random_batch(LENGTHS)
    expected = model.encoder(tokens).last
    with record_attention() as recording:
        recorded = model.encoder(tokens).last
    assert torch.equal(expected, recorded)
    assert len(recording.layers) == model.config.encoder.n_layers
    for layer in recording.layers:
        assert [tuple(p.shape) for p in layer.probabilities] == [(2, n, n) for n in LENGTHS]
        assert (
            [tuple(q.shape) for q in layer.queries]
            == [tuple(k.shape) for k in layer.keys]
            == [(2, n, 8) for n in LENGTHS]
        )
        for probabilities in layer.probabilities:
            assert torch.allclose(probabilities.sum(-1), torch.ones(probabilities.shape[:2]), atol=1e-5)
    model.encoder(tokens)
    assert len(recording.layers) == model.config.encoder.n_layers, "recording ends with its context"


@every_config
@torch.no_grad()
def test_recorded_probabilities_give_the_output(kind: str) -> None:
    """Recorded probabilities times values, before the output projection, are what the attention layer computed."""
    model = make_model(kind)
    tokens = random_batch([6, 6])
    attention = model.encoder.attentions[0]
    hooked: dict[str, Tensor] = {}
    attention.attn.v.register_forward_hook(lambda module, args, out: hooked.setdefault("v", out))
    attention.attn.out.register_forward_hook(lambda module, args, out: hooked.setdefault("joined", args[0]))
    with record_attention() as recording:
        model.encoder(tokens)
    values = hooked["v"].view(2, 6, 2, 8).transpose(1, 2)
    expected = (torch.stack(recording.layers[0].probabilities) @ values).transpose(1, 2).reshape(12, 16)
    assert torch.allclose(hooked["joined"], expected, atol=1e-5)


@every_config
@torch.no_grad()
def test_flat_and_rectangular_batches_agree(kind: str) -> None:
    model = make_model(kind)
    tokens = random_batch(LENGTHS)
    rows = [row.tolist() for row in torch.split(tokens.ids, LENGTHS)]
    segments = [row.tolist() for row in torch.split(tokens.layout.queries.segments, LENGTHS)]
    width = max(LENGTHS)
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    padded_segments = torch.tensor([row + [0] * (width - len(row)) for row in segments])
    mask = torch.tensor([[True] * n + [False] * (width - n) for n in LENGTHS])
    rectangular = Tokens.rectangular(ids, mask, padded_segments)
    states = model.encoder(rectangular).last.view(len(LENGTHS), width, -1)
    assert torch.allclose(states[mask], model.encoder(tokens).last, atol=1e-5)
    flat_index = torch.arange(mask.numel()).view(mask.shape)
    assert torch.equal(rectangular.layout.starts, flat_index[:, 0])
    assert torch.equal(rectangular.layout.lasts, torch.stack([flat_index[i, n - 1] for i, n in enumerate(LENGTHS)]))


@every_config
def test_every_parameter_gets_a_gradient(kind: str) -> None:
    model = make_model(kind, tuple(HEADS)).train()
    tokens = random_batch(LENGTHS)
    states = model.encoder(tokens).last
    loss = sum(model.read(head, states, tokens.layout).square().sum() for head in model.heads)
    if kind.startswith("xlnet"):
        ranks = torch.tensor([(i * 7) % 5 for i in range(sum(LENGTHS))])
        targets = torch.tensor([0, 3, 6])
        loss = loss + model.encoder.two_stream(tokens, ranks, targets, [2, 1, 0, 0, 0]).square().sum()
    loss.backward()  # type: ignore[union-attr]
    without_gradient = [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is None or not bool((parameter.grad != 0).any())
    ]
    # A bias on the keys shifts all scores of a query alike, and softmax does not see that.
    assert [name for name in without_gradient if not name.endswith("attn.k.bias")] == []


@every_config
def test_number_of_shared_layers(kind: str) -> None:
    model = make_model(kind)
    config = model.config.encoder
    expected = {
        "none": (4, 4),
        "all": (config.n_groups * config.layers_per_group,) * 2,
        "attention": (1, 4),
        "ffn": (4, 1),
    }[config.sharing]
    assert (len(model.encoder.attentions), len(model.encoder.ffns)) == expected
    assert len(list(model.encoder.layers())) == 4


def test_order_of_shared_groups() -> None:
    config = CONFIGS["albert in groups"].encoder
    assert config.order("attention") == (0, 1, 2, 3)
    config = CONFIGS["albert"].override(n_layers=8, n_groups=2, layers_per_group=2).encoder
    assert config.order("ffn") == (0, 1, 0, 1, 2, 3, 2, 3)


@pytest.mark.parametrize("attention", ["dot", "relative", "additive"])
def test_gradients_by_finite_differences(attention: str) -> None:
    """In float64, our own layers, every input and every parameter."""
    base = CONFIGS["xlnet" if attention == "relative" else "bert"]
    model = (
        Model.fresh(base.override(attention=attention, hidden_size=4, ffn_size=6, n_layers=2, vocab_size=9), seed=2)
        .double()
        .eval()
    )
    layout = random_batch([3, 2], vocab=9).layout
    layers = list(model.encoder.layers())
    x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    parameters = [*model.encoder.attentions.parameters(), *model.encoder.ffns.parameters()]

    def run_layers(x: Tensor, *_: Tensor) -> Tensor:
        for layer in layers:
            x = layer.ffn(layer.attention(x, layout, AttentionCall()))
        return x

    assert torch.autograd.gradcheck(run_layers, (x, *parameters), atol=1e-6)


def test_initial_weights() -> None:
    bert = Model.fresh(preset("bert-mini"), ["lm"])
    state = bert.state_dict()
    for name, tensor in state.items():
        if name.endswith("bias"):
            assert not tensor.any(), name
        elif "norm" in name or ".post." in name:
            assert bool((tensor == 1).all()), name
        else:
            assert 0.018 < float(tensor.std()) < 0.022 and abs(float(tensor.mean())) < 0.002, name
    gpt = Model.fresh(preset("gpt-mini")).state_dict()
    for name in ("encoder.attentions.1.attn.out.weight", "encoder.ffns.2.down.weight"):
        assert float(gpt[name].std()) == pytest.approx(0.02 / math.sqrt(8), rel=0.05)
    assert float(gpt["encoder.ffns.2.up.weight"].std()) == pytest.approx(0.02, rel=0.05)
    xlnet = Model.fresh(preset("xlnet-mini")).state_dict()
    assert float(xlnet["encoder.attentions.0.attn.content_bias"].std()) == pytest.approx(0.02, rel=0.2)


LOCAL_PRESETS = [
    "bert-mini",
    "roberta-mini",
    "albert-mini",
    "electra-mini",
    "electra-mini-generator",
    "distilbert-mini",
]


@pytest.mark.parametrize("name", LOCAL_PRESETS)
def test_local_attention_init(name: str) -> None:
    """At every position and in every layer."""
    model = Model.fresh(preset(name)).eval()
    n = 48
    config = model.config.encoder
    init_local_attention(model.encoder)
    tokens = Tokens.ragged(torch.randint(1000, 20_000, (n,), generator=torch.Generator().manual_seed(0)), [n])
    with torch.no_grad(), record_attention() as recording:
        model.encoder(tokens)
    expected_offsets = itertools.cycle(LOCAL_OFFSETS)
    inside = torch.arange(4, n - 4)
    offsets = torch.arange(-4, 5)
    for layer_index, layer in enumerate(recording.layers):
        if config.sharing == "all":
            expected_offsets = itertools.cycle(LOCAL_OFFSETS)
        for head, probabilities in enumerate(layer.probabilities[0]):
            mean_attention = probabilities[inside[:, None], inside[:, None] + offsets].mean(0)
            if head >= config.n_heads - config.n_heads // 4:
                assert mean_attention.max() < 0.1, "one head in four is not initialised"
            else:
                assert offsets[mean_attention.argmax()] == next(expected_offsets)
                assert mean_attention.max() > 0.4, (layer_index, head, mean_attention)


@pytest.mark.slow
def test_sinusoids_are_the_same_in_every_process() -> None:
    """Without the first call on one thread, one process in five to ten differed (two threads)."""
    code = "import torch; torch.set_num_threads(2); from bertworks.model.attention import sinusoids; "
    code += "import hashlib; print(hashlib.sha256(sinusoids(torch.arange(512), 64, 100.0)[0].numpy().tobytes()).hexdigest())"
    processes = (
        subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True) for _ in range(30)
    )
    assert len({process.stdout for process in processes}) == 1


def test_which_configs_can_use_local_attention_init() -> None:
    for name in LOCAL_PRESETS:
        assert can_init_local_attention(preset(name).encoder)
    unsupported = (
        {"attention": "additive"},
        {"n_heads": 256},
        {"embedding_size": 4},
        {"hidden_size": 64, "embedding_size": 512},
    )
    bert_variants = [preset("bert-mini").override(**changes) for changes in unsupported]
    for config in (
        preset("xlnet-mini"),
        preset("gpt-mini"),
        preset("distilbert-mini").override(positions="sinusoidal"),
        *bert_variants,
    ):
        assert not can_init_local_attention(config.encoder), config


@pytest.mark.parametrize("changes", [{"n_heads": 128}, {"embedding_size": 8}, {"n_heads": 1}, {"embedding_size": 512}])
def test_local_attention_init_with_odd_shapes(changes: dict[str, int]) -> None:
    model = Model.fresh(preset("bert-mini").override(**changes)).eval()
    init_local_attention(model.encoder)
    with torch.no_grad():
        assert bool(model.encoder(random_batch([9, 5])).last.isfinite().all())


def test_recordings_can_be_nested() -> None:
    model = make_model("bert")
    tokens = random_batch([3])
    with torch.no_grad(), record_attention() as outer:
        with record_attention() as inner:
            model.encoder(tokens)
        model.encoder(tokens)
    assert (len(outer.layers), len(inner.layers)) == (8, 4)


def test_embeddings_of_different_sizes_cannot_be_shared() -> None:
    generator = make_model("electra")
    discriminator = make_model("electra", vocab_size=60)
    with refused("embeddings-differ") as error:
        generator.encoder.share_embedding(discriminator.encoder)
    assert "vocab_size" in error.value.cause and figures(error.value.cause) == {"50", "60"}


@torch.no_grad()
def test_embedding_sum_is_one_linear_layer_on_one_hots() -> None:
    """Token + segment + position is a single matrix on three concatenated one-hots."""
    embed = make_model("bert").encoder.embed
    tokens = random_batch(LENGTHS)
    queries = tokens.layout.queries
    one_hot = nn.functional.one_hot
    assert isinstance(embed.positions, nn.Embedding) and isinstance(embed.segments, nn.Embedding)
    one_hots = torch.cat(
        [
            one_hot(tokens.ids, embed.tokens.num_embeddings),
            one_hot(queries.positions, embed.positions.num_embeddings),
            one_hot(queries.segments, embed.segments.num_embeddings),
        ],
        dim=-1,
    ).float()
    matrix = torch.cat([embed.tokens.weight, embed.positions.weight, embed.segments.weight])
    assert torch.allclose(embed.norm(one_hots @ matrix), embed(tokens), atol=1e-6)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_rate_and_mean(rate: float) -> None:
    drop = Dropout(rate)
    x = torch.ones(300, 1001, requires_grad=True)
    torch.manual_seed(0)
    y = drop(x)
    y.sum().backward()
    assert float((y == 0).double().mean()) == pytest.approx(rate, abs=3e-3)
    assert float(y[y > 0].min().detach()) == pytest.approx(1 / (1 - rate), rel=1e-4)
    assert x.grad is not None
    assert torch.equal(x.grad, y.detach()), "dropped elements get no gradient"
    assert abs(float(((y[:, :-1] * y[:, 1:]).mean() - y.mean() ** 2).detach())) < 0.01 / (1 - rate), (
        "neighbours are dropped independently"
    )
    torch.manual_seed(0)
    assert torch.equal(drop(x), y) and not torch.equal(drop(x), y)
    assert drop.eval()(x) is x


def test_dropout_of_everything_and_of_nothing() -> None:
    x = torch.randn(7, 5)
    assert not Dropout(1.0)(x).any()
    assert torch.equal(Dropout(0.0)(x), x)
    assert torch.equal(Dropout(1e-9)(x), F.dropout(x, 1e-9))
    assert Dropout(0.5)(torch.empty(0, 4)).shape == (0, 4)
    assert Dropout(0.5)(x.double().T).dtype == torch.float64


@torch.no_grad()
def test_sinusoids_match_the_paper() -> None:
    table = make_model("bert sinusoidal").encoder.embed.positions(torch.arange(30))
    for position, channel in ((0, 0), (3, 0), (3, 1), (17, 6), (29, 15)):
        angle = position / 1e4 ** (2 * (channel // 2) / 16)
        assert table[position, channel].item() == pytest.approx(
            math.cos(angle) if channel % 2 else math.sin(angle), abs=1e-5
        )


@torch.no_grad()
def test_additive_attention_matches_its_formula() -> None:
    model = make_model("bert additive")
    tokens = random_batch([4])
    attn = model.encoder.attentions[0].attn
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    q, k, v = (project(x).view(4, 2, 8) for project in (attn.q, attn.k, attn.v))
    scores = torch.zeros(2, 4, 4)
    for head in range(2):
        for i in range(4):
            for j in range(4):
                scores[head, i, j] = torch.dot(torch.tanh(q[i, head] + k[j, head]), attn.compare[head])
    expected = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).reshape(4, 16)
    assert torch.allclose(attn(x, x, tokens.layout, AttentionCall()), attn.out(expected), atol=1e-5)


@pytest.mark.parametrize("kind", ["gpt", "bert left to right", "xlnet left to right"])
@torch.no_grad()
def test_left_to_right_does_not_see_the_future(kind: str) -> None:
    model = make_model(kind).double()
    tokens = random_batch([8])
    changed_ids = tokens.ids.clone()
    changed_ids[5] = (changed_ids[5] + 1) % 50
    before = model.encoder(tokens).last
    after = model.encoder(Tokens(changed_ids, tokens.layout)).last
    assert torch.equal(before[:5], after[:5])
    assert all(not torch.equal(before[i], after[i]) for i in range(5, 8))


@torch.no_grad()
def test_the_query_stream_does_not_see_its_own_token() -> None:
    model = make_model("xlnet").double()
    tokens = random_batch([9])
    ranks = torch.tensor([-1, 2, -1, 0, -1, 1, -1, -1, 3])
    targets = torch.tensor([1, 3, 5, 8])
    before = model.encoder.two_stream(tokens, ranks, targets, [4])
    for position in range(9):
        changed_ids = tokens.ids.clone()
        changed_ids[position] = (changed_ids[position] + 1) % 50
        after = model.encoder.two_stream(Tokens(changed_ids, tokens.layout), ranks, targets, [4])
        for row, target in enumerate(targets.tolist()):
            may_see = bool(ranks[position] < ranks[target])
            assert torch.equal(before[row], after[row]) != may_see, (position, target)


@pytest.mark.parametrize("kind", ["bert", "xlnet", "bert additive"])
@torch.no_grad()
def test_a_query_that_sees_nothing_gives_no_nan(kind: str) -> None:
    model = make_model(kind)
    tokens = random_batch([4, 3])
    attention = model.encoder.attentions[0].attn
    layout = tokens.layout.ranked(torch.tensor([0, 1, 2, 3, 0, 1, 2])).targets(torch.arange(7), [4, 3])
    states = torch.randn(7, 16, generator=torch.Generator().manual_seed(0))
    with record_attention() as recording:
        out = attention(states, states, layout, AttentionCall())
    assert bool(out.isfinite().all())
    assert float(recording.layers[0].probabilities[0][:, 0].abs().sum()) == 0.0
    assert torch.allclose(out[0], attention.out(torch.zeros(1, 16))[0], atol=1e-6)


def test_runs_are_views_of_the_flat_batch() -> None:
    layout = Layout.ragged([3, 3, 2, 5])
    assert layout.shapes == ((2, 3, 3), (1, 2, 2), (1, 5, 5))
    assert layout.runs[0].queries.positions.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert layout.starts.tolist() == [0, 3, 6, 8] and layout.lasts.tolist() == [2, 5, 7, 12]


def test_the_presets_have_the_expected_families() -> None:
    assert {preset(name).family for name in PRESETS} == {
        "bert",
        "roberta",
        "xlm-roberta",
        "camembert",
        "albert",
        "electra",
        "xlnet",
        "distilbert",
        "gpt2",
    }
    assert isinstance(CONFIGS["bert"].encoder, TransformerConfig)
