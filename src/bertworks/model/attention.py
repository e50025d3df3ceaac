"""Attention: Vaswani et al. 2017, section 3.2; relative positions as in Transformer-XL (Dai et al. 2019, section 3.3)
and XLNet (Yang et al. 2019, section 2); additive scores as in Bahdanau et al. 2015, for comparison.

    N  tokens of the batch   R, Tq, Tk  rows, queries and keys of a run   H  heads   D  size of a head

`attend` is the one function with a softmax over keys, and the one place where the flat batch is seen as rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertworks.arguments import check_arguments
from bertworks.config import TransformerConfig
from bertworks.errors import BadConfig, nearest
from bertworks.model.dropout import Dropout
from bertworks.model.layout import Layout, Run

# Torch's vectorised math functions initialise themselves in their first call. If several threads share that call, some
# may compute before it is ready, with fewer digits, and two processes would make different weights from one seed. One
# element is computed by one thread.
torch.ones(1).sin()

MAX_COMPARED = 2**24  # elements of additive attention that are in memory at once
CONTENT, QUERY = "content", "query"  # streams of a forward pass; the second in two-stream attention only


class Positions:
    """How positions enter the scores; here, they do not."""

    def __call__(self, q: Tensor, k: Tensor, run: Run) -> tuple[Tensor, Tensor, Tensor | None]:
        """(q, k, run) -> (q', k', bias): queries and keys with their positions in them, and what is added to the
        scores, (R, H, Tq, Tk)."""
        return q, k, None

    def terms(self, q: Tensor, k: Tensor, run: Run) -> dict[str, Tensor]:
        """What they contribute to the scores beside the product of q and k, by name, (R, H, Tq, Tk) each."""
        return {}


Score = Callable[[Tensor, Tensor], Tensor]
"""(q, k) -> scores, (R, H, Tq, Tk)."""

Memory = tuple[Tensor, Tensor]
"""Keys and values of the tokens that are attended to, (Nk, H*D) each."""


@dataclass(frozen=True)
class AttentionCall:
    """The layer and stream of an attention, and how far it sees. Layers may share a module, which cannot know this."""

    layer: int = 0
    stream: str = CONTENT
    reach: int | None = None  # tokens to either side; None: all


@dataclass
class AttentionLayer:
    """What is recorded of one attention layer, sequence by sequence."""

    layer: int = 0
    stream: str = CONTENT
    scores: list[Tensor] = field(default_factory=list)  # (H, Tq, Tk) each, before mask and softmax
    terms: list[dict[str, Tensor]] = field(default_factory=list)  # (H, Tq, Tk) each; their sum is the score
    probabilities: list[Tensor] = field(default_factory=list)  # (H, Tq, Tk) each
    queries: list[Tensor] = field(default_factory=list)  # (H, Tq, D) each, before positions
    keys: list[Tensor] = field(default_factory=list)  # (H, Tk, D) each, before positions
    values: list[Tensor] = field(default_factory=list)  # (H, Tk, D) each
    value_norms: list[Tensor] = field(default_factory=list)  # (H, Tk) each: length of what a key adds at full weight


Field = Literal["scores", "terms", "probabilities", "queries", "keys", "values", "value_norms"]
FIELDS: tuple[Field, ...] = get_args(Field)
OnLayer = Callable[[AttentionLayer], None]


@dataclass
class Recording:
    """The attention layers in the order in which they ran; a two-stream layer runs twice, queries first. With
    `on_layer` each goes there, and nothing is kept here."""

    layers: list[AttentionLayer] = field(default_factory=list)
    on_layer: OnLayer | None = None
    fields: Sequence[Field] = FIELDS

    def add(self, layer: AttentionLayer) -> None:
        (self.on_layer or self.layers.append)(layer)


EditHeads = Callable[["AttentionCall", Tensor, Tensor, Tensor | None], Tensor]
"""(call, outputs, values, sees) -> outputs: what each head found, (R, H, Tq, D), from the values (R, H, Tk, D); `sees`
(R, 1, Tq, Tk) is true where a query sees a key, None where all see all."""

_edits: ContextVar[tuple[EditHeads, ...]] = ContextVar("edits", default=())
_recordings: ContextVar[tuple[Recording, ...]] = ContextVar("recordings", default=())


@check_arguments()
@contextmanager
def record_attention(on_layer: OnLayer | None = None, fields: Sequence[Field] = FIELDS) -> Iterator[Recording]:
    """Record `fields` of every attention layer that runs inside; a layer at a time with `on_layer`, which may keep what
    it likes. The outputs stay the same to the bit."""
    if unknown := [name for name in fields if name not in FIELDS]:
        raise BadConfig(f"unknown field {unknown[0]!r}", remedy=nearest(str(unknown[0]), FIELDS), code="unknown-value")
    recording = Recording(on_layer=on_layer, fields=fields)
    token = _recordings.set((*_recordings.get(), recording))
    try:
        yield recording
    finally:
        _recordings.reset(token)


@contextmanager
def edit_heads(edit: EditHeads) -> Iterator[None]:
    """Replace what heads put out, in every attention that runs inside, such as those to be ablated."""
    token = _edits.set((*_edits.get(), edit))
    try:
        yield
    finally:
        _edits.reset(token)


def attend(
    q: Tensor,
    memory: Memory,
    layout: Layout,
    call: AttentionCall,
    *,
    n_heads: int,
    causal: bool,
    drop: Dropout,
    positions: Positions,
    score: Score | None,
    out: Tensor,
) -> Tensor:
    """q (Nq, H*D), memory (Nk, H*D) -> (Nq, H*D). Without a `score` of its own, attention is a scaled dot product.
    `out`: the weights (hidden, H*D) that the result will be multiplied by, for recordings."""
    recordings, edits = _recordings.get(), _edits.get()
    layers = [AttentionLayer(call.layer, call.stream) for _ in recordings]
    outputs = []
    use_kernel = score is None and (q.device.type != "cpu" or not drop.active)  # on CPUs it has no dropout
    query_sizes = [rows * n_queries for rows, n_queries, _ in layout.shapes]
    key_sizes = [rows * n_keys for rows, _, n_keys in layout.shapes]
    keys, values = memory
    flat_runs = zip(
        torch.split(q, query_sizes), torch.split(keys, key_sizes), torch.split(values, key_sizes), strict=True
    )
    for (rows, _, _), run, flat in zip(layout.shapes, layout.runs, flat_runs, strict=True):
        run_q, run_k, run_v = (t.view(rows, -1, n_heads, t.size(-1) // n_heads).transpose(1, 2) for t in flat)
        placed_q, placed_k, bias = positions(run_q, run_k, run)
        if use_kernel:
            output = _dot_product_attention(placed_q, placed_k, run_v, run, bias, causal, call.reach, drop)
        else:
            scores = _scores(placed_q, placed_k, bias, score)
            output = drop(_probabilities(scores, run.sees(causal, call.reach))) @ run_v
        for edit in edits:
            output = edit(call, output, run_v, run.sees(causal, call.reach))
        outputs.append(output.transpose(1, 2).reshape(flat[0].shape))
        if recordings:
            scores = _scores(placed_q, placed_k, bias, score).detach()
            attended = AttendedRun(
                run_q, run_k, run_v, run, scores, run.sees(causal, call.reach), positions, score, out
            )
            for recording, layer in zip(recordings, layers, strict=True):
                for name in recording.fields:
                    getattr(layer, name).extend(getattr(attended, name)())
    for recording, layer in zip(recordings, layers, strict=True):
        recording.add(layer)
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _dot_product_attention(
    q: Tensor, k: Tensor, v: Tensor, run: Run, bias: Tensor | None, causal: bool, reach: int | None, drop: Dropout
) -> Tensor:
    # The kernel makes a plain causal mask itself.
    is_causal = causal and reach is None and bias is None and run.queries.ranks is None and q.size(2) == k.size(2)
    sees = None if is_causal else run.sees(causal, reach)
    mask = sees if bias is None else bias if sees is None else bias.masked_fill(~sees, -math.inf)
    dropout_p = drop.p if drop.active else 0.0
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal, dropout_p=dropout_p)


def _scores(q: Tensor, k: Tensor, bias: Tensor | None, score: Score | None) -> Tensor:
    scores = (score or _dot_products)(q, k)
    return scores if bias is None else scores + bias


def _dot_products(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))


def _probabilities(scores: Tensor, sees: Tensor | None) -> Tensor:
    if sees is None:
        return scores.softmax(-1)
    # The row of a query that sees no key is all zeros, as in the kernel.
    return scores.masked_fill(~sees, -math.inf).softmax(-1).masked_fill(~sees, 0.0)


@dataclass(frozen=True)
class AttendedRun:
    """The attention of one run, for recordings: each method is a field of theirs, sequence by sequence."""

    q: Tensor  # (R, H, Tq, D)
    k: Tensor  # (R, H, Tk, D)
    v: Tensor  # (R, H, Tk, D)
    run: Run
    all_scores: Tensor  # (R, H, Tq, Tk)
    sees: Tensor | None
    positions: Positions
    score: Score | None
    out: Tensor  # (hidden, H*D)

    def scores(self) -> Sequence[Tensor]:
        return self.all_scores.unbind()

    def terms(self) -> list[dict[str, Tensor]]:
        terms = {"content": _scores(self.q, self.k, None, self.score), **self.positions.terms(self.q, self.k, self.run)}
        return [{name: term[row].detach() for name, term in terms.items()} for row in range(len(self.q))]

    def probabilities(self) -> Sequence[Tensor]:
        return _probabilities(self.all_scores, self.sees).unbind()

    def queries(self) -> Sequence[Tensor]:
        return self.q.detach().unbind()

    def keys(self) -> Sequence[Tensor]:
        return self.k.detach().unbind()

    def values(self) -> Sequence[Tensor]:
        return self.v.detach().unbind()

    def value_norms(self) -> Sequence[Tensor]:
        """As in Kobayashi et al. 2020."""
        v = self.v.detach()
        by_head = self.out.detach().view(len(self.out), v.size(1), v.size(3))  # (hidden, H, D)
        gram = torch.einsum("ehd,ehc->hdc", by_head, by_head)  # |v W|^2 = v (W W^T) v^T, without vectors of hidden size
        return torch.einsum("rhkd,hdc,rhkc->rhk", v, gram, v).clamp_min(0).sqrt().unbind()


class Attention(nn.Module):
    """Multi-head scaled dot-product attention."""

    score: Score | None = None

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.n_heads, self.causal = config.n_heads, config.causal
        self.q, self.k, self.v, self.out = (
            nn.Linear(config.hidden_size, config.hidden_size, bias=config.attention_bias) for _ in range(4)
        )
        self.drop = Dropout(config.attention_dropout)

    def memory(self, context: Tensor) -> Memory:
        """Keys and values of the tokens to attend to, from their states (Nk, hidden)."""
        return self.k(context), self.v(context)

    def forward(self, x: Tensor, context: Tensor | Memory, layout: Layout, call: AttentionCall) -> Tensor:
        """x (Nq, hidden) -> (Nq, hidden). `context`: the states (Nk, hidden) to attend to, or their memory."""
        q = self.q(x)
        y: Tensor = attend(
            q,
            self.memory(context) if isinstance(context, Tensor) else context,
            layout,
            call,
            n_heads=self.n_heads,
            causal=self.causal,
            drop=self.drop,
            positions=self.positions(layout),
            score=self.score,
            out=self.out.weight,
        )
        out: Tensor = self.out(y)
        return out

    def positions(self, layout: Layout) -> Positions:
        return Positions()


class RelativeAttention(Attention):
    """Distance and segment enter the scores, not the embeddings: three more terms, folded into the queries and a
    bias."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        size = config.hidden_size // config.n_heads
        self.distance = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.content_bias, self.distance_bias, self.segment_bias = (
            nn.Parameter(torch.empty(config.n_heads, size)) for _ in range(3)
        )
        self.segments = nn.Parameter(torch.empty(2, config.n_heads, size))  # same, other

    def positions(self, layout: Layout) -> Positions:
        longest = max(n_keys for _, _, n_keys in layout.shapes)
        distances = torch.arange(-longest, longest, device=self.distance.weight.device)
        waves = torch.cat(sinusoids(distances, self.distance.in_features), -1).to(self.distance.weight.dtype)
        return RelativePositions(self, self.distance(waves).view(2 * longest, self.n_heads, -1), longest)


@dataclass(frozen=True)
class RelativePositions(Positions):
    attention: RelativeAttention
    table: Tensor  # (2 * longest, H, D); row longest + d: distance d
    longest: int

    def __call__(self, q: Tensor, k: Tensor, run: Run) -> tuple[Tensor, Tensor, Tensor]:
        bias = (self._by_distance(q, run) + self._by_segment(q, run)) / math.sqrt(q.size(-1))
        return q + self.attention.content_bias[:, None], k, bias

    def terms(self, q: Tensor, k: Tensor, run: Run) -> dict[str, Tensor]:
        root = math.sqrt(q.size(-1))
        by_key = (self.attention.content_bias[:, None] @ k.transpose(-1, -2)).expand(-1, -1, q.size(2), -1)
        terms = {"key": by_key, "distance": self._by_distance(q, run), "segment": self._by_segment(q, run)}
        return {name: term / root for name, term in terms.items()}

    def _by_distance(self, q: Tensor, run: Run) -> Tensor:
        length = run.keys.positions.size(1)
        run_table = self.table[self.longest - length : self.longest + length]
        by_distance = torch.einsum("rhqd,thd->rhqt", q + self.attention.distance_bias[:, None], run_table)
        # (R, 1, Tq, Tk)
        rows = run.queries.positions[:, None, :, None] - run.keys.positions[:, None, None, :] + length
        return by_distance.gather(-1, rows.expand(-1, q.size(1), -1, -1))

    def _by_segment(self, q: Tensor, run: Run) -> Tensor:
        queries = q + self.attention.segment_bias[:, None]
        same, other = torch.einsum("rhqd,shd->srhq", queries, self.attention.segments).unsqueeze(-1)
        is_other = run.queries.segments[:, None, :, None] != run.keys.segments[:, None, None, :]
        return torch.where(is_other, other, same)


class AdditiveAttention(Attention):
    """Query and key are compared by a small network: w . tanh(q + k)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.compare = nn.Parameter(torch.empty(config.n_heads, config.hidden_size // config.n_heads))
        self.score = self._compare

    def _compare(self, q: Tensor, k: Tensor) -> Tensor:
        """A block of queries at a time: all of them with all keys would take D times the memory of the scores."""
        n_queries = max(1, MAX_COMPARED // max(1, k.numel()))
        blocks = [
            torch.einsum("rhqkd,hd->rhqk", torch.tanh(block.unsqueeze(3) + k.unsqueeze(2)), self.compare)
            for block in torch.split(q, n_queries, dim=2)
        ]
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=2)


def set_attention_dropout(module: nn.Module, rate: float) -> None:
    """Of all attentions inside."""
    for attention in module.modules():
        if isinstance(attention, Attention):
            attention.drop.p = rate


ATTENTION: dict[str, type[Attention]] = {"dot": Attention, "relative": RelativeAttention, "additive": AdditiveAttention}


def sinusoids(positions: Tensor, size: int, max_period: float = 1e4) -> tuple[Tensor, Tensor]:
    """Sines and cosines of geometrically falling frequencies, from 1 to nearly 1 / max_period; (..., size / 2) each."""
    frequencies = max_period ** (-torch.arange(0, size, 2, device=positions.device, dtype=torch.float32) / size)
    angles = positions.unsqueeze(-1) * frequencies
    return angles.sin(), angles.cos()
