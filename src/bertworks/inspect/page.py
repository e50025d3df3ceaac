"""The attention page: one file with tokens as text, numbers as deflated bytes, and the script that draws them."""

from __future__ import annotations

import json
import unicodedata
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertworks.errors import BadConfig, TooLong, Unsupported
from bertworks.files import atomic_write, read_json
from bertworks.inspect.view import Array, AttentionView
from bertworks.page.html import bilingual, escape, page, table
from bertworks.page.modules import PARTS, joined_modules

MAX_TOKENS = 1024  # of a page
INITIALS = {
    "next": "→",
    "previous": "←",
    "next2": "⇉",
    "previous2": "⇇",
    "same": "=",
    "related": "≈",
    "across": "⇄",
    "pieces": "#",
    "predicts": "?",
    "cls": "C",
    "sep": "S",
    "first": "1",
}
MAX_QK_TOKENS = 128  # up to so many, queries and keys of every layer are in the page
THUMBNAIL = 64  # pixels
N_LINKS = 12  # listed without a script
Bytes = NDArray[np.uint8]


def write_attention_page(
    path: Path, view: AttentionView, *, model: str, other: AttentionView | None = None, atlas: Path | None = None
) -> Path:
    """`atlas`: the JSON of one of this model, with the names of its heads."""
    n_tokens = len(view.tokens.ids)
    if n_tokens > MAX_TOKENS:
        remedy = f"a shorter text; {MAX_TOKENS} tokens fit into a page"
        raise TooLong(f"{n_tokens} tokens are too many for a page", remedy=remedy)
    if other is not None and (other.tokens, other.probabilities.shape) != (view.tokens, view.probabilities.shape):
        cause = "the two models have other tokens for this text, or another number of layers and heads"
        raise Unsupported(cause, remedy="a model of the same size with the same tokenizer", code="not-comparable")
    names = None if atlas is None else read_names(atlas)
    html = attention_page(view, model=model, names=names, other=other)
    with atomic_write(path) as file:
        file.write(html.encode())
    return path


def read_names(atlas: Path) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """The names of heads in the JSON of an atlas."""
    content = read_json(atlas)
    try:
        return {
            (int(head["layer"]), int(head["head"])): [
                {"name": name, "initial": INITIALS[name], **head["evidence"][name]} for name in head["names"]
            ]
            for head in content["heads"]
            if head["names"]
        }
    except (KeyError, TypeError, ValueError):
        remedy = "`bertworks atlas MODEL --corpus FILE --out atlas.json` writes one"
        raise BadConfig("not the JSON of an atlas", place=str(atlas), remedy=remedy, code="not-an-atlas") from None


def attention_page(
    view: AttentionView,
    *,
    model: str,
    names: Mapping[tuple[int, int], Sequence[Mapping[str, Any]]] | None = None,
    other: AttentionView | None = None,
    qk_layers: Sequence[int] | None = None,
) -> str:
    """`names`: of heads, as an atlas has them; `other`: the same tokens in another model; `qk_layers`: whose queries
    and keys are in the page."""
    n_layers, n_heads, n_tokens, _ = view.probabilities.shape
    if qk_layers is None:
        qk_layers = range(n_layers) if n_tokens <= MAX_QK_TOKENS else ()
    thumbnail = min(THUMBNAIL, n_tokens)
    meta = {
        "layers": n_layers,
        "heads": n_heads,
        "headSize": view.queries.shape[-1],
        "starts": view.units.starts.tolist(),
        "thumbnail": thumbnail,
        "qk": list(qk_layers),
        "terms": list(view.position_terms),
        "difference": other is not None,
        "names": None if names is None else {f"{layer}-{head}": list(found) for (layer, head), found in names.items()},
    }
    blocks = {
        "norms": view.norms.astype("<f4").tobytes(),
        "thumbnails": root_code(thumbnails(view.probabilities, thumbnail)).tobytes(),
        "qk-scales": _scales(view).astype("<f4").tobytes(),
    }
    blocks |= {f"layer-{at}": root_code(layer).tobytes() for at, layer in enumerate(view.probabilities)}
    mean, rollout = view.probabilities.mean(1), view.rollout()
    blocks |= {f"flow-{at}": root_code(np.stack([mean[at], rollout[at]])).tobytes() for at in range(n_layers)}
    blocks |= {f"qk-{at}": _qk_codes(view, at) for at in qk_layers}
    if other is not None:
        blocks |= {f"other-{at}": root_code(layer).tobytes() for at, layer in enumerate(other.probabilities)}
    body = [
        f'<p class="dim">{escape(model)} · {n_layers} × {n_heads} · {n_tokens} {bilingual("tokens", "个标记")}</p>',
        '<div id="controls"></div><p id="status" role="status" aria-live="polite"></p><div id="view"></div>',
        f"<p><small>{bilingual(CAVEAT, CAVEAT_ZH)}</small></p>",
        _help(),
        f"<h2>{bilingual('Tokens', '标记')}</h2>{_tokens(view)}",
        f"<h2>{bilingual('Strongest links between words', '词间最强的连接')}</h2>{_links(view)}",
        json_block("meta", meta),
        *(data_block(name, content) for name, content in blocks.items()),
    ]
    style = (PARTS / "attention.css").read_text(encoding="utf-8")
    title = " / ".join(text if len(text) <= 60 else f"{text[:59]}…" for text in view.texts)
    return page((f"Attention: {title}", f"注意力：{title}"), "\n".join(body), style, joined_modules("attention"))


CAVEAT = (
    "Attention shows where a head looks, not what the model decides by: a token with much weight may add little. "
    "“By norm” weighs it with the length of what it adds."
)
CAVEAT_ZH = (
    "注意力显示一个头看向何处，而非模型据以决策的原因：权重大的标记可能贡献很小。“按范数”以其所加向量的长度加权。"
)
KEYS = (
    ("← →", "head", "头"),
    ("↑ ↓", "layer", "层"),
    ("1 – 9", "view", "视图"),
    ("w", "words or pieces", "词或词片"),
    ("n", "weight or norm", "权重或范数"),
    ("s", "with or without special tokens", "是否含特殊标记"),
    ("Esc", "no token selected", "取消所选标记"),
    ("?", "this help", "本帮助"),
)


def _help() -> str:
    rows = "".join(f"<li><kbd>{key}</kbd> {bilingual(english, chinese)}</li>" for key, english, chinese in KEYS)
    several = bilingual(
        "Shift or Ctrl and a click: several heads or tokens.", "按住 Shift 或 Ctrl 点击：可选多个头或标记。"
    )
    summary = f"<summary>{bilingual('Keyboard', '键盘')}</summary>"
    return f'<details id="help">{summary}<ul>{rows}</ul><p>{several}</p></details>'


# ---------------------------------------------------------------------- numbers


def root_code(probabilities: Array) -> Bytes:
    """A byte for each, by the root: a row of 512 equal ones is lost if they are coded linearly."""
    codes: Bytes = np.round(255 * np.sqrt(np.clip(probabilities, 0, 1))).astype(np.uint8)
    return codes


def thumbnails(probabilities: Array, size: int) -> Array:
    """(L, H, T, T) to (L, H, size, size): the largest of each square, since a mean loses diagonals."""
    n = probabilities.shape[-1]
    starts = np.linspace(0, n, size, endpoint=False).astype(int)
    rows = np.maximum.reduceat(probabilities, starts, axis=2)
    pooled: Array = np.maximum.reduceat(rows, starts, axis=3)
    return pooled


def _qk_parts(view: AttentionView, layer: int) -> list[Array]:
    """(H, ...) each: queries, keys, and the terms of positions."""
    return [view.queries[layer], view.keys[layer], *(term[layer] for term in view.position_terms.values())]


def _scales(view: AttentionView) -> Array:
    """(L, H, parts): what one step of a signed byte stands for."""
    return np.array(
        [
            [[float(np.abs(part[head]).max()) / 127 for part in _qk_parts(view, layer)] for head in range(len(heads))]
            for layer, heads in enumerate(view.probabilities)
        ]
    )


def _qk_codes(view: AttentionView, layer: int) -> bytes:
    codes = []
    for part in _qk_parts(view, layer):
        scale = np.abs(part).max(axis=(1, 2), keepdims=True) / 127
        codes.append(np.round(part / np.maximum(scale, 1e-30)).astype(np.int8).tobytes())
    return b"".join(codes)


def data_block(name: str, content: bytes) -> str:
    text = b64encode(zlib.compress(content, 9)).decode()
    return f'<script type="application/octet-stream" id="{name}">{text}</script>'


def json_block(name: str, value: object) -> str:
    """Numbers and names of ours; a `<` would end the element."""
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


# ---------------------------------------------------------------------- text


def token_texts(view: AttentionView) -> list[str]:
    """What is shown of each token: its stretch of the text; a special token, and a byte of a character, by its name."""
    return [
        piece if text is None else visible(view.texts[text][start:end]) or visible(piece)
        for piece, text, (start, end) in zip(view.tokens.pieces, view.tokens.texts, view.tokens.offsets, strict=True)
    ]


def visible(text: str) -> str:
    """Control characters by their pictures, other signs that cannot be seen by their numbers."""
    return "".join(map(_visible, text.strip(" ")))


def _visible(character: str) -> str:
    if ord(character) < 0x20:
        return chr(0x2400 + ord(character))
    return f"⟨{ord(character):04X}⟩" if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") else character


def _tokens(view: AttentionView) -> str:
    items = []
    for text, special, number in zip(token_texts(view), view.tokens.special, view.tokens.texts, strict=True):
        name = ' class="special"' if special else ""
        items.append(f'<li{name} dir="auto" data-text="{-1 if number is None else number}">{escape(text)}</li>')
    return f'<ol id="tokens">{"".join(items)}</ol>'


def _links(view: AttentionView) -> str:
    texts = token_texts(view)
    header = [bilingual("head", "头"), bilingual("from", "从"), bilingual("to", "到"), bilingual("weight", "权重")]
    rows = [
        (f"L{link.layer}H{link.head}", texts[link.from_token], texts[link.to_token], f"{link.weight:.3f}")
        for link in view.top(N_LINKS)
    ]
    return table(header, rows)
