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
KINDS: dict[str, ModelConfig] = {
    family: preset(f"{family}-mini").override(**SMALL) for family in ("bert", "roberta", "xlnet", "distilbert", "gpt")
}
KINDS["roberta"] = KINDS["roberta"].override(n_segments=2)
for family in ("albert", "electra"):
    KINDS[family] = preset(f"{family}-mini").override(**SMALL, embedding_size=8)
for sharing in ("attention", "ffn", "none"):
    KINDS[f"albert sharing {sharing}"] = KINDS["albert"].override(sharing=sharing)
KINDS["albert in groups"] = KINDS["albert"].override(n_groups=2, layers_per_group=2)
KINDS["bert sinusoidal"] = KINDS["bert"].override(positions="sinusoidal")
KINDS["bert additive"] = KINDS["bert"].override(attention="additive")
KINDS["bert left to right"] = KINDS["bert"].override(causal=True)
KINDS["xlnet left to right"] = KINDS["xlnet"].override(causal=True)
KINDS["bert with segments and positions"] = KINDS["bert"].override(n_segments=5, n_positions=1500)
KINDS["bert local"] = KINDS["bert"].override(reach=(2, None, 1, 3))
KINDS["gpt local"] = KINDS["gpt"].override(reach=(2, None, 1, 3))
KINDS["bert gated"] = KINDS["bert"].override(ffn="gated", norm_bias=False)
LENGTHS = [5, 9, 9, 2, 1]

kinds = pytest.mark.parametrize("kind", KINDS)


def make(kind: str, heads: tuple[str, ...] = (), **changes: object) -> Model:
    return Model.fresh(KINDS[kind].override(**changes), heads, seed=1).eval()


def batch(lengths: list[int], seed: int = 0, vocab: int = 50) -> Tokens:
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, vocab, (sum(lengths),), generator=draw)
    return Tokens.ragged(ids, lengths, torch.cat([torch.arange(n) * 2 // n for n in lengths]))


def pick(tokens: Tokens, lengths: list[int], which: list[int]) -> Tokens:
    starts = [sum(lengths[:i]) for i in which]
    index = torch.cat([torch.arange(start, start + lengths[i]) for start, i in zip(starts, which, strict=True)])
    return Tokens.ragged(tokens.ids[index], [lengths[i] for i in which], tokens.layout.queries.segments[index])


@kinds
@torch.no_grad()
def test_alone_is_as_in_a_batch(kind: str) -> None:
    model, tokens = make(kind), batch(LENGTHS)
    together = torch.split(model.encoder(tokens).last, LENGTHS)
    for i in range(len(LENGTHS)):
        alone = model.encoder(pick(tokens, LENGTHS, [i])).last
        assert torch.allclose(alone, together[i], atol=1e-5, rtol=1e-5)


@kinds
@torch.no_grad()
def test_neighbours_do_not_leak(kind: str) -> None:
    model, tokens = make(kind).double(), batch(LENGTHS)
    before = model.encoder(tokens).last[: LENGTHS[0]]
    other = tokens.ids.clone()
    other[LENGTHS[0] :] = 7
    after = model.encoder(Tokens(other, tokens.layout)).last[: LENGTHS[0]]
    assert torch.equal(before, after)
    changed = tokens.ids.clone()
    changed[0] = (changed[0] + 1) % 50
    assert not torch.equal(model.encoder(Tokens(changed, tokens.layout)).last[: LENGTHS[0]], before), (
        "nothing would change this output"
    )


@kinds
@torch.no_grad()
def test_evaluation_is_still(kind: str) -> None:
    model, tokens = make(kind, dropout=0.5, attention_dropout=0.5, ffn_dropout=0.5), batch(LENGTHS)
    first, second = model.encoder(tokens).last, model.encoder(tokens).last
    assert torch.equal(first, second)
    model.train()
    assert not torch.equal(model.encoder(tokens).last, model.encoder(tokens).last), "dropout does nothing in training"


@kinds
@torch.no_grad()
def test_recording_changes_no_bit(kind: str) -> None:
    model, tokens = make(kind), batch(LENGTHS)
    plain = model.encoder(tokens).last
    with record_attention() as recording:
        watched = model.encoder(tokens).last
    assert torch.equal(plain, watched)
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
    assert len(recording.layers) == model.config.encoder.n_layers, "it went on recording"


@kinds
@torch.no_grad()
def test_recorded_probabilities_make_the_output(kind: str) -> None:
    """The picture is of what happened: probabilities x values, projected, is what the attention layer gave."""
    model, tokens = make(kind), batch([6, 6])
    part = model.encoder.attentions[0]
    seen: dict[str, Tensor] = {}
    part.attn.v.register_forward_hook(lambda module, args, out: seen.setdefault("v", out))
    part.attn.out.register_forward_hook(lambda module, args, out: seen.setdefault("joined", args[0]))
    with record_attention() as recording:
        model.encoder(tokens)
    values = seen["v"].view(2, 6, 2, 8).transpose(1, 2)
    expected = (torch.stack(recording.layers[0].probabilities) @ values).transpose(1, 2).reshape(12, 16)
    assert torch.allclose(seen["joined"], expected, atol=1e-5)


@kinds
@torch.no_grad()
def test_flat_is_rectangular(kind: str) -> None:
    model, tokens = make(kind), batch(LENGTHS)
    rows = [part.tolist() for part in torch.split(tokens.ids, LENGTHS)]
    segments = [part.tolist() for part in torch.split(tokens.layout.queries.segments, LENGTHS)]
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


@kinds
def test_every_parameter_gets_a_gradient(kind: str) -> None:
    model, tokens = make(kind, tuple(HEADS)).train(), batch(LENGTHS)
    states = model.encoder(tokens).last
    loss = sum(model.read(head, states, tokens.layout).square().sum() for head in model.heads)
    if kind.startswith("xlnet"):
        ranks = torch.tensor([(i * 7) % 5 for i in range(sum(LENGTHS))])
        places = torch.tensor([0, 3, 6])
        loss = loss + model.encoder.two_stream(tokens, ranks, places, [2, 1, 0, 0, 0]).square().sum()
    loss.backward()  # type: ignore[union-attr]
    silent = [name for name, p in model.named_parameters() if p.grad is None or not bool((p.grad != 0).any())]
    # A bias on the keys shifts all scores of a query alike, and softmax does not see that.
    assert [name for name in silent if not name.endswith("attn.k.bias")] == []


@kinds
def test_sharing_is_by_order(kind: str) -> None:
    model = make(kind)
    c = model.config.encoder
    expected = {"none": (4, 4), "all": (c.n_groups * c.layers_per_group,) * 2, "attention": (1, 4), "ffn": (4, 1)}[
        c.sharing
    ]
    assert (len(model.encoder.attentions), len(model.encoder.ffns)) == expected
    assert len(list(model.encoder.layers())) == 4


def test_groups_take_turns() -> None:
    c = KINDS["albert in groups"].encoder
    assert c.order("attention") == (0, 1, 2, 3)
    c = KINDS["albert"].override(n_layers=8, n_groups=2, layers_per_group=2).encoder
    assert c.order("ffn") == (0, 1, 0, 1, 2, 3, 2, 3)


@pytest.mark.parametrize("attention", ["dot", "relative", "additive"])
def test_gradients_by_finite_differences(attention: str) -> None:
    """float64, our own layers, every input and every parameter."""
    base = KINDS["xlnet" if attention == "relative" else "bert"]
    model = (
        Model.fresh(base.override(attention=attention, hidden_size=4, ffn_size=6, n_layers=2, vocab_size=9), seed=2)
        .double()
        .eval()
    )
    layout = batch([3, 2], vocab=9).layout
    layers = list(model.encoder.layers())
    x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    parameters = [*model.encoder.attentions.parameters(), *model.encoder.ffns.parameters()]

    def run(x: Tensor, *_: Tensor) -> Tensor:
        for layer in layers:
            x = layer.ffn(layer.attention(x, layout, AttentionCall()))
        return x

    assert torch.autograd.gradcheck(run, (x, *parameters), atol=1e-6)


def test_weights_start_as_the_table_says() -> None:
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


LOOKING = ["bert-mini", "roberta-mini", "albert-mini", "electra-mini", "electra-mini-generator", "distilbert-mini"]


@pytest.mark.parametrize("name", LOOKING)
def test_heads_can_begin_with_their_neighbours(name: str) -> None:
    """Wherever in the text, and in every layer."""
    model, n = Model.fresh(preset(name)).eval(), 48
    config = model.config.encoder
    init_local_attention(model.encoder)
    tokens = Tokens.ragged(torch.randint(1000, 20_000, (n,), generator=torch.Generator().manual_seed(0)), [n])
    with torch.no_grad(), record_attention() as recording:
        model.encoder(tokens)
    expected, inside, near = itertools.cycle(LOCAL_OFFSETS), torch.arange(4, n - 4), torch.arange(-4, 5)
    for number, layer in enumerate(recording.layers):
        if config.sharing == "all":
            expected = itertools.cycle(LOCAL_OFFSETS)
        for head, probabilities in enumerate(layer.probabilities[0]):
            looked = probabilities[inside[:, None], inside[:, None] + near].mean(0)
            if head >= config.n_heads - config.n_heads // 4:
                assert looked.max() < 0.1, "one in four is free"
            else:
                assert near[looked.argmax()] == next(expected) and looked.max() > 0.4, (number, head, looked)


@pytest.mark.slow
def test_every_process_begins_with_the_same_sines() -> None:
    """Without the first call on one thread, one process in five to ten had others (two threads)."""
    code = "import torch; torch.set_num_threads(2); from bertworks.model.attention import sinusoids; "
    code += "import hashlib; print(hashlib.sha256(sinusoids(torch.arange(512), 64, 100.0)[0].numpy().tobytes()).hexdigest())"
    calls = (
        subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True) for _ in range(30)
    )
    assert len({call.stdout for call in calls}) == 1


def test_who_can_begin_with_neighbours() -> None:
    for name in LOOKING:
        assert can_init_local_attention(preset(name).encoder)
    odd = (
        {"attention": "additive"},
        {"n_heads": 256},
        {"embedding_size": 4},
        {"hidden_size": 64, "embedding_size": 512},
    )
    cannot = [preset("bert-mini").override(**changes) for changes in odd]
    for config in (
        preset("xlnet-mini"),
        preset("gpt-mini"),
        preset("distilbert-mini").override(positions="sinusoidal"),
        *cannot,
    ):
        assert not can_init_local_attention(config.encoder), config


@pytest.mark.parametrize("changes", [{"n_heads": 128}, {"embedding_size": 8}, {"n_heads": 1}, {"embedding_size": 512}])
def test_odd_shapes_begin_with_neighbours_too(changes: dict[str, int]) -> None:
    model = Model.fresh(preset("bert-mini").override(**changes)).eval()
    init_local_attention(model.encoder)
    with torch.no_grad():
        assert bool(model.encoder(batch([9, 5])).last.isfinite().all())


def test_recordings_nest() -> None:
    model, tokens = make("bert"), batch([3])
    with torch.no_grad(), record_attention() as outer:
        with record_attention() as inner:
            model.encoder(tokens)
        model.encoder(tokens)
    assert (len(outer.layers), len(inner.layers)) == (8, 4)


def test_embeddings_that_differ_cannot_be_shared() -> None:
    generator, discriminator = make("electra"), make("electra", vocab_size=60)
    with refused("embeddings-differ") as error:
        generator.encoder.share_embedding(discriminator.encoder)
    assert "vocab_size" in error.value.cause and figures(error.value.cause) == {"50", "60"}


@torch.no_grad()
def test_embedding_sum_is_one_linear_layer_on_one_hots() -> None:
    """Token + segment + position is a single matrix on three concatenated one-hots."""
    embed = make("bert").encoder.embed
    tokens = batch(LENGTHS)
    where = tokens.layout.queries
    one_hot = nn.functional.one_hot
    assert isinstance(embed.positions, nn.Embedding) and isinstance(embed.segments, nn.Embedding)
    joined = torch.cat(
        [
            one_hot(tokens.ids, embed.tokens.num_embeddings),
            one_hot(where.positions, embed.positions.num_embeddings),
            one_hot(where.segments, embed.segments.num_embeddings),
        ],
        dim=-1,
    ).float()
    matrix = torch.cat([embed.tokens.weight, embed.positions.weight, embed.segments.weight])
    assert torch.allclose(embed.norm(joined @ matrix), embed(tokens), atol=1e-6)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_loses_its_share_and_keeps_the_mean(rate: float) -> None:
    drop, x = Dropout(rate), torch.ones(300, 1001, requires_grad=True)
    torch.manual_seed(0)
    y = drop(x)
    y.sum().backward()
    assert float((y == 0).double().mean()) == pytest.approx(rate, abs=3e-3)
    assert float(y[y > 0].min().detach()) == pytest.approx(1 / (1 - rate), rel=1e-4)
    assert x.grad is not None and torch.equal(x.grad, y.detach()), "what is lost learns nothing"
    assert abs(float(((y[:, :-1] * y[:, 1:]).mean() - y.mean() ** 2).detach())) < 0.01 / (1 - rate), (
        "neighbours are lost independently"
    )
    torch.manual_seed(0)
    assert torch.equal(drop(x), y) and not torch.equal(drop(x), y)
    assert drop.eval()(x) is x


def test_dropout_of_all_and_of_nothing() -> None:
    x = torch.randn(7, 5)
    assert (
        not Dropout(1.0)(x).any()
        and torch.equal(Dropout(0.0)(x), x)
        and torch.equal(Dropout(1e-9)(x), F.dropout(x, 1e-9))
    )
    assert Dropout(0.5)(torch.empty(0, 4)).shape == (0, 4)
    assert Dropout(0.5)(x.double().T).dtype == torch.float64


@torch.no_grad()
def test_sinusoids_are_the_papers() -> None:
    table = make("bert sinusoidal").encoder.embed.positions(torch.arange(30))
    for position, channel in ((0, 0), (3, 0), (3, 1), (17, 6), (29, 15)):
        angle = position / 1e4 ** (2 * (channel // 2) / 16)
        assert table[position, channel].item() == pytest.approx(
            math.cos(angle) if channel % 2 else math.sin(angle), abs=1e-5
        )


@torch.no_grad()
def test_additive_attention_is_a_small_network() -> None:
    model, tokens = make("bert additive"), batch([4])
    attn = model.encoder.attentions[0].attn
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    q, k, v = (f(x).view(4, 2, 8) for f in (attn.q, attn.k, attn.v))
    scores = torch.zeros(2, 4, 4)
    for h in range(2):
        for i in range(4):
            for j in range(4):
                scores[h, i, j] = torch.dot(torch.tanh(q[i, h] + k[j, h]), attn.compare[h])
    expected = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).reshape(4, 16)
    assert torch.allclose(attn(x, x, tokens.layout, AttentionCall()), attn.out(expected), atol=1e-5)


@pytest.mark.parametrize("kind", ["gpt", "bert left to right", "xlnet left to right"])
@torch.no_grad()
def test_left_to_right_sees_nothing_of_the_future(kind: str) -> None:
    model, tokens = make(kind).double(), batch([8])
    changed = tokens.ids.clone()
    changed[5] = (changed[5] + 1) % 50
    before, after = model.encoder(tokens).last, model.encoder(Tokens(changed, tokens.layout)).last
    assert torch.equal(before[:5], after[:5])
    assert all(not torch.equal(before[i], after[i]) for i in range(5, 8))


@torch.no_grad()
def test_a_query_stream_never_sees_its_token() -> None:
    model, tokens = make("xlnet").double(), batch([9])
    ranks = torch.tensor([-1, 2, -1, 0, -1, 1, -1, -1, 3])
    targets = torch.tensor([1, 3, 5, 8])
    before = model.encoder.two_stream(tokens, ranks, targets, [4])
    for place in range(9):
        changed = tokens.ids.clone()
        changed[place] = (changed[place] + 1) % 50
        after = model.encoder.two_stream(Tokens(changed, tokens.layout), ranks, targets, [4])
        for row, target in enumerate(targets.tolist()):
            may_see = bool(ranks[place] < ranks[target])
            assert torch.equal(before[row], after[row]) != may_see, (place, target)


@pytest.mark.parametrize("kind", ["bert", "xlnet", "bert additive"])
@torch.no_grad()
def test_a_query_that_sees_nothing_is_no_nan(kind: str) -> None:
    model, tokens = make(kind), batch([4, 3])
    part = model.encoder.attentions[0].attn
    layout = tokens.layout.ranked(torch.tensor([0, 1, 2, 3, 0, 1, 2])).targets(torch.arange(7), [4, 3])
    states = torch.randn(7, 16, generator=torch.Generator().manual_seed(0))
    with record_attention() as recording:
        out = part(states, states, layout, AttentionCall())
    assert bool(out.isfinite().all())
    assert float(recording.layers[0].probabilities[0][:, 0].abs().sum()) == 0.0
    assert torch.allclose(out[0], part.out(torch.zeros(1, 16))[0], atol=1e-6)


def test_runs_are_views_of_the_flat_batch() -> None:
    layout = Layout.ragged([3, 3, 2, 5])
    assert layout.shapes == ((2, 3, 3), (1, 2, 2), (1, 5, 5))
    assert layout.runs[0].queries.positions.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert layout.starts.tolist() == [0, 3, 6, 8] and layout.lasts.tolist() == [2, 5, 7, 12]


def test_the_axes_cover_the_presets() -> None:
    assert {preset(name).family for name in PRESETS} == {
        "bert",
        "roberta",
        "albert",
        "electra",
        "xlnet",
        "distilbert",
        "gpt2",
    }
    assert isinstance(KINDS["bert"].encoder, TransformerConfig)
