"""The attention of one text or pair: every layer and head, as arrays.

L  layers      H  heads      T  tokens      D  size of a head
"""

from __future__ import annotations

import webbrowser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from bertworks.arguments import check_arguments
from bertworks.errors import BadConfig, TooLong, Unsupported
from bertworks.inspect.identity import check_atlas_model
from bertworks.inspect.numbers import Array
from bertworks.inspect.picture import lines_svg
from bertworks.inspect.units import Units
from bertworks.model.attention import AttentionLayer, record_attention
from bertworks.model.layout import Tokens
from bertworks.model.model import Model
from bertworks.model.transformer import Layer, Transformer
from bertworks.model.weights import as_numpy
from bertworks.page.html import escape
from bertworks.predictor import check_segments
from bertworks.text.tokenizer import Pieces

MAX_NOTEBOOK_BYTES = 8_000_000  # of a page inside of a notebook: it is stored there
MIN_LINE = 0.02  # weight of a line that is drawn


class Link(NamedTuple):
    """A weight of attention."""

    layer: int
    head: int
    from_token: int
    to_token: int
    weight: float


@dataclass(frozen=True, repr=False)
class AttentionView:
    """The attention over a text or a pair. In a notebook it is shown as a page."""

    texts: tuple[str, ...]
    tokens: Pieces
    probabilities: Array  # (L, H, T, T)
    scores: Array  # (L, H, T, T), before mask and softmax
    position_terms: Mapping[str, Array]  # (L, H, T, T) each: parts of the scores beside q . k
    queries: Array  # (L, H, T, D), before positions
    keys: Array  # (L, H, T, D), before positions
    norms: Array  # (L, H, T): the length of what a token adds where it has all attention
    mixing: Array  # (L, T): the share of a token's new state that comes from other tokens
    scores_are_products: bool = True  # of queries and keys; False: they are compared by a network
    model: str = ""  # its name, for titles
    _source: Model | None = field(default=None, compare=False, repr=False)  # to check an atlas against; never pickled

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_source": None}

    def __repr__(self) -> str:
        n_layers, n_heads, n_tokens, _ = self.probabilities.shape
        return f"<AttentionView: {n_tokens} tokens, {n_layers} x {n_heads} heads; a page in notebooks that are trusted>"

    @cached_property
    def units(self) -> Units:
        return Units.of(self.tokens, self.texts)

    def words(self) -> Array:
        """(L, H, U, U), of words: to a word goes the sum of its pieces, from a word their mean."""
        return np.stack([self.units.attention(layer) for layer in self.probabilities]).astype(np.float32)

    def contributions(self) -> Array:
        """(L, H, T, T): weights times the lengths of what they bring, rows scaled to sum to 1."""
        weighted = self.probabilities * self.norms[:, :, None]
        total: Array = weighted / np.maximum(weighted.sum(-1, keepdims=True), 1e-30)
        return total

    def rollout(self) -> Array:
        """(L, T, T): where each token's state comes from, through all layers so far (Abnar & Zuidema 2020); with the
        measured share of other tokens instead of one half, and with lengths instead of weights alone."""
        flow = np.eye(len(self.tokens.ids), dtype=np.float32)
        flows = []
        for weights, norms, mixing in zip(self.probabilities, self.norms, self.mixing, strict=True):
            others = (weights * norms[:, None]).sum(0)
            np.fill_diagonal(others, 0.0)
            others /= np.maximum(others.sum(1, keepdims=True), 1e-30)
            flow = mixing[:, None] * (others @ flow) + (1 - mixing[:, None]) * flow
            flows.append(flow)
        return np.stack(flows)

    @check_arguments()
    def save(
        self,
        path: str | Path,
        *,
        model: str = "",
        other: AttentionView | None = None,
        atlas: str | Path | None = None,
        layers: Sequence[int] | None = None,
    ) -> Path:
        """As a page, one file that needs nothing else.

        `model`: its name, for the title; `other`: another model or another text, to compare with; `atlas`: the JSON of
        one of this model, with the names of its heads; that of another model is refused; `layers`: only these.
        """
        from bertworks.inspect.page import write_attention_page  # which imports this module

        names = None if atlas is None else Path(atlas)
        if names is not None and self._source is not None:
            check_atlas_model(names, self._source)
        return write_attention_page(Path(path), self, model=model, other=other, atlas=names, layers=layers)

    def show(self, path: str | Path = "attention.html") -> Path | None:
        """In a notebook, below the cell. Without one, or where the page is too large for it, the page is written to
        `path`, and opened or linked."""
        display = notebook_display()
        if display is not None and len(self._page) <= MAX_NOTEBOOK_BYTES:
            display(self._repr_html_())
            return None
        saved = self.save(path)
        if display is None:
            webbrowser.open(saved.resolve().as_uri())
        else:
            display(f'<a href="{escape(saved)}" target="_blank">{escape(saved)}</a>')
        return saved

    def _repr_html_(self) -> str:
        """A frame that can reach nothing of the notebook around it."""
        size = len(self._page)
        if size > MAX_NOTEBOOK_BYTES:
            return f"<p>{escape(repr(self))}: {size / 1e6:.0f} MB; <code>.show()</code> writes it to a file</p>"
        return (
            f'<iframe srcdoc="{escape(self._page)}" sandbox="allow-scripts allow-downloads" width="100%" height="760"'
            ' frameborder="0"></iframe>'
        )

    @cached_property
    def _page(self) -> str:
        from bertworks.inspect.page import attention_page  # which imports this module

        return attention_page(self)

    @check_arguments()
    def svg(
        self,
        layer: int,
        heads: int | Sequence[int],
        *,
        token: int | Sequence[int] | None = None,
        direction: Literal["from", "to"] = "from",
        threshold: float = MIN_LINE,
    ) -> str:
        """The lines of some heads, as the page draws them; `token`: only from (or to) these; `threshold`: the smallest
        weight that is drawn."""
        from bertworks.inspect.page import token_texts  # which imports this module

        n_layers, n_heads, n_tokens, _ = self.probabilities.shape
        head_list = [heads] if isinstance(heads, int) else [*heads]
        tokens = [] if token is None else [token] if isinstance(token, int) else [*token]
        for name, numbers, size in (
            ("layer", [layer], n_layers),
            ("heads", head_list, n_heads),
            ("token", tokens, n_tokens),
        ):
            if not all(0 <= number < size for number in numbers):
                cause = f"{name} {', '.join(map(str, numbers))}: there are {size}, from 0"
                raise BadConfig(cause, code="out-of-range", fields=[name])
        return lines_svg(
            token_texts(self),
            self.probabilities[layer],
            layer,
            head_list,
            tokens,
            to=direction == "to",
            threshold=threshold,
        )

    def top(self, n: int = 20) -> list[Link]:
        """The strongest weights between tokens that are not special."""
        ordinary = ~np.array(self.tokens.special)
        weights = self.probabilities * (ordinary[:, None] & ordinary[None])
        flat = weights.reshape(-1)
        n = min(n, len(flat))
        largest = np.argpartition(flat, len(flat) - n)[len(flat) - n :].tolist()  # sorting all of them takes seconds
        places = sorted((place for place in largest if flat[place] > 0), key=lambda place: (-flat[place], place))
        indices = zip(*np.unravel_index(np.array(places, np.int64), weights.shape), strict=True)
        return [
            Link(int(layer), int(head), int(query), int(key), float(weights[layer, head, query, key]))
            for layer, head, query, key in indices
        ]


def notebook_display() -> Callable[[str], None] | None:
    """What shows HTML in the notebook that runs this, if one does."""
    try:
        from IPython import get_ipython  # type: ignore[import-not-found]
        from IPython.display import HTML, display  # type: ignore[import-not-found]
    except ImportError:
        return None
    return None if get_ipython() is None else lambda html: display(HTML(html))


def check_length(tokens: Pieces, texts: Sequence[str], limit: int, place: str) -> None:
    """An error that says what would fit."""
    n = len(tokens.ids)
    if n <= limit:
        return
    room = limit - sum(tokens.special)
    if len(texts) == 1:
        ends = [end for (_, end), is_special in zip(tokens.offsets, tokens.special, strict=True) if not is_special]
        last = ends[room - 1]
        remedy = f"its first {last:,} characters would fit, up to {texts[0][max(0, last - 40) : last]!r}"
    else:
        first, second = (tokens.texts.count(number) for number in (0, 1))
        remedy = f"{room:,} tokens of text would fit; the first one has {first:,}, the second {second:,}"
    raise TooLong(f"{n:,} tokens, {limit:,} fit into {place}", remedy=remedy)


@torch.inference_mode()
def inspect_text(model: Model, tokens: Pieces, texts: tuple[str, ...]) -> AttentionView:
    """Run a model on the tokens of a text or a pair."""
    encoder = model.encoder
    if not isinstance(encoder, Transformer):
        raise Unsupported("this encoder has no attention", code="no-attention")
    if len(texts) > 1 and encoder.config.causal:
        cause = "a model that reads from left to right has no pairs"
        raise Unsupported(cause, remedy="one text", code="no-pairs")
    batch = Tokens.single(tokens.ids, tokens.segments, encoder.device)
    check_segments(model, batch)
    with record_attention() as recording:
        states = encoder(batch, keep_layers=True)
    layers = recording.layers
    mixing = [
        as_numpy(mixing_share(layer, below, recorded))
        for layer, below, recorded in zip(encoder.layers(), states.layers, layers, strict=False)
    ]

    def stacked(name: str) -> Array:
        return np.stack([as_numpy(getattr(layer, name)[0]) for layer in layers])

    names = [name for name in layers[0].terms[0] if name != "content"]
    return AttentionView(
        texts=texts,
        tokens=tokens,
        probabilities=stacked("probabilities"),
        scores=stacked("scores"),
        position_terms={name: np.stack([as_numpy(layer.terms[0][name]) for layer in layers]) for name in names},
        queries=stacked("queries"),
        keys=stacked("keys"),
        norms=stacked("value_norms"),
        mixing=np.stack(mixing),
        scores_are_products=encoder.config.attention != "additive",
        _source=model,
    )


def mixing_share(layer: Layer, below: Tensor, recorded: AttentionLayer) -> Tensor:
    """How much of each token's state after the attention comes from other tokens, and not from itself or the residual:
    by the lengths of both parts, after the norm (Kobayashi et al. 2021), (T,)."""
    out = layer.attention.attn.out
    probabilities, values = recorded.probabilities[0], recorded.values[0]  # (H, T, T), (H, T, D)
    own = probabilities.diagonal(dim1=1, dim2=2).unsqueeze(-1) * values  # (H, T, D)
    from_itself, from_all = (part.transpose(0, 1).flatten(1) @ out.weight.T for part in (own, probabilities @ values))
    bias = 0.0 if out.bias is None else out.bias
    parts = from_all - from_itself, below + from_itself + bias
    others, itself = (_normed(layer.attention.post, part).norm(dim=-1) for part in parts)
    share: Tensor = others / (others + itself).clamp_min(1e-30)
    return share


def _normed(norm: nn.Module, part: Tensor) -> Tensor:
    """A part of a sum that a layer norm reads: centred and scaled as the whole is, up to a common factor."""
    if not isinstance(norm, nn.LayerNorm):
        return part
    return (part - part.mean(-1, keepdim=True)) * norm.weight
