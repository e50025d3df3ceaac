"""The attention page: one file with tokens as text, numbers as deflated bytes, and the script that draws them."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bertworks.errors import BadConfig
from bertworks.files import atomic_write, read_json
from bertworks.inspect.alignment import check_comparable, piece_partners, word_partners
from bertworks.inspect.atlas_words import INITIALS, NAME_TITLES
from bertworks.inspect.numbers import Array, root_code, signed_code, signed_scale, thumbnails
from bertworks.inspect.view import AttentionView, check_length
from bertworks.page.html import bilingual, escape, page, table
from bertworks.page.modules import data_block, joined_modules, joined_styles, json_block

MAX_TOKENS = 1024  # of a page
MAX_QK_TOKENS = 128  # up to so many, queries and keys of every layer are in the page
THUMBNAIL = 64  # pixels
N_LINKS = 12  # listed without a script
N_EXAMPLES = 3  # of a name
Names = Mapping[tuple[int, int], Sequence[Mapping[str, Any]]]


def write_attention_page(
    path: Path,
    view: AttentionView,
    *,
    model: str = "",
    other: AttentionView | None = None,
    atlas: Path | None = None,
    layers: Sequence[int] | None = None,
) -> Path:
    """`model`: its name; `atlas`: the JSON of one of it, with the names of its heads; others as in `attention_page`."""
    view = replace(view, model=model or view.model)
    for one in (view, *([] if other is None else [other])):
        check_length(one.tokens, one.texts, MAX_TOKENS, "a page")
    if other is not None:
        check_comparable(view, other)
    n_layers, n_heads = view.probabilities.shape[:2]
    if layers is not None and not (layers and all(0 <= layer < n_layers for layer in layers)):
        cause = f"layers {', '.join(map(str, layers)) or 'none'}: the model has {n_layers}, from 0"
        raise BadConfig(cause, code="out-of-range", fields=["layers"])
    names = None if atlas is None else read_names(atlas, n_layers, n_heads)
    html = attention_page(view, names=names, other=other, layers=layers)
    with atomic_write(path) as file:
        file.write(html.encode())
    return path


def read_names(atlas: Path, n_layers: int, n_heads: int) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """The names of heads in the JSON of an atlas, each with its evidence."""
    content = read_json(atlas)
    try:
        sizes = [(int(head["layer"]), int(head["head"])) for head in content["heads"]]
        names = {
            place: [
                {"name": str(name), "profile": head.get("profile"), **head["evidence"].get(name, {})}
                for name in head["names"]
            ]
            for place, head in zip(sizes, content["heads"], strict=True)
            if head["names"]
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        remedy = "`bertworks atlas MODEL --corpus FILE --out atlas.json` writes one"
        raise BadConfig("not the JSON of an atlas", place=str(atlas), remedy=remedy, code="not-an-atlas") from None
    if set(sizes) != {(layer, head) for layer in range(n_layers) for head in range(n_heads)}:
        cause = f"an atlas of another model: this one has {n_layers} x {n_heads} heads"
        raise BadConfig(cause, place=str(atlas), remedy="the atlas of this model", code="not-comparable")
    return names


def attention_page(
    view: AttentionView,
    *,
    names: Names | None = None,
    other: AttentionView | None = None,
    layers: Sequence[int] | None = None,
) -> str:
    """`names`: of heads, as an atlas has them; `other`: another model or text, to compare with; `layers`: only these,
    with queries and keys however long the text is."""
    n_layers, n_heads, n_tokens, _ = view.probabilities.shape
    shown = list(range(n_layers)) if layers is None else sorted(set(layers))
    if names is not None:
        names = {place: found for place, found in names.items() if place[0] in shown}
    has_qk = view.scores_are_products and (layers is not None or n_tokens <= MAX_QK_TOKENS)
    meta = {
        "layers": shown,
        "heads": n_heads,
        "headSize": view.queries.shape[-1],
        "starts": view.units.starts.tolist(),
        "directions": [text_direction(text) for text in view.texts],
        "thumbnail": min(THUMBNAIL, n_tokens),
        "qk": shown if has_qk else [],
        "maxQk": MAX_QK_TOKENS,
        "isDot": view.scores_are_products,
        "terms": list(view.position_terms),
        "other": None if other is None else _other_meta(view, other),
        "names": None
        if names is None
        else {f"{layer}-{head}": _numbers_of(found) for (layer, head), found in names.items()},
        "nameTitles": None if names is None else {name: (INITIALS[name], *NAME_TITLES[name]) for name in NAME_TITLES},
    }
    body = [
        f'<p class="dim">{_subtitle(view, other)}</p>',
        '<div id="bar"><div id="controls"></div><p id="status" role="status" aria-live="polite"></p></div>',
        '<div id="view"></div>',
        f"<p><small>{bilingual(CAVEAT, CAVEAT_ZH)}</small></p>",
        _help(),
        f"<h2>{bilingual('Tokens', '词元')}</h2>{_tokens(view, 'tokens')}",
        "" if other is None else f"<h2>{bilingual('Compared with', '对比')}</h2>{_tokens(other, 'other-tokens')}",
        "" if names is None else f'<div id="names-home">{_names(names)}</div>',
        f"<h2>{bilingual('Strongest links between words', '词间最强的连接')}</h2>{_links(view)}",
        json_block("meta", meta),
        *(data_block(name, content) for name, content in _blocks(view, other, shown, has_qk).items()),
    ]
    style = joined_styles("attention")
    title = " / ".join(text if len(text) <= 60 else f"{text[:59]}…" for text in map(_one_line, view.texts))
    return page((f"Attention: {title}", f"注意力：{title}"), "\n".join(body), style, joined_modules("attention"))


def _blocks(view: AttentionView, other: AttentionView | None, layers: list[int], has_qk: bool) -> dict[str, bytes]:
    """The numbers of the page, by the name that its script asks for."""
    n_tokens = len(view.tokens.ids)
    rollout = view.rollout()
    blocks = {"norms": view.norms[layers].astype("<f4").tobytes()}
    if n_tokens > THUMBNAIL:
        blocks["thumbnails"] = root_code(thumbnails(view.probabilities[layers], THUMBNAIL)).tobytes()
    for layer in layers:
        blocks[f"layer-{layer}"] = root_code(view.probabilities[layer]).tobytes()
        blocks[f"rollout-{layer}"] = root_code(rollout[layer]).tobytes()
    if has_qk:
        parts = {layer: _qk_parts(view, layer) for layer in layers}
        scales = np.array([np.stack([signed_scale(part) for part in parts[layer]], 1) for layer in layers])
        blocks["qk-scales"] = scales.astype("<f4").tobytes()  # (layers, H, parts)
        blocks |= {f"qk-{layer}": b"".join(signed_code(part).tobytes() for part in parts[layer]) for layer in layers}
    if other is not None:
        blocks["other-norms"] = other.norms[layers].astype("<f4").tobytes()
        blocks |= {f"other-{layer}": root_code(other.probabilities[layer]).tobytes() for layer in layers}
    return blocks


def _qk_parts(view: AttentionView, layer: int) -> list[Array]:
    """(H, ...) each: queries, keys, and the terms of positions."""
    return [view.queries[layer], view.keys[layer], *(term[layer] for term in view.position_terms.values())]


def _other_meta(view: AttentionView, other: AttentionView) -> dict[str, Any]:
    return {
        "pieces": piece_partners(view, other),
        "words": word_partners(view, other),
        "starts": other.units.starts.tolist(),
    }


def _numbers_of(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of the evidence for names, what the script shows; examples are text and stand in the document."""
    kept = (
        "name",
        "strong",
        "confirmed",
        "by",
        "numbers",
        "conditions",
        "null",
        "types",
        "documents",
        "notes",
        "profile",
    )
    return [{key: name[key] for key in kept if name.get(key) is not None} for name in found]


# ---------------------------------------------------------------------- text

CAVEAT = (
    "Attention shows where a head looks, not what the model decides by: a token with much weight may add little. "
    "“By norm” (key n) weighs it with the length of what it adds. What would change if a token were hidden, a page "
    "cannot tell: that takes the model."
)
CAVEAT_ZH = (
    "注意力显示一个头看向何处，而非模型据以决策的原因：权重大的词元可能贡献很小。"
    "“按范数”（n 键）以其所加向量的长度加权。遮住某个词元会有什么变化，页面无法回答：那需要运行模型。"
)
KEYS = (
    ("← →", "head", "头"),
    ("↑ ↓", "layer", "层"),
    ("1 – 9", "view", "视图"),
    ("Tab", "next token; Enter selects it", "下一个词元；按 Enter 选中"),
    ("a", "all heads of the layer", "本层全部头"),
    ("w", "words or pieces", "词或词片"),
    ("n", "weight or norm", "权重或范数"),
    ("s", "with or without special tokens", "是否含特殊词元"),
    ("Esc", "no token selected", "取消所选词元"),
    ("?", "this help", "本帮助"),
)


def _help() -> str:
    rows = "".join(f"<li><kbd>{key}</kbd> {bilingual(english, chinese)}</li>" for key, english, chinese in KEYS)
    several = bilingual(
        "Shift or Ctrl and a click, or Shift and Enter: several heads or tokens. The address of the page keeps what is "
        "shown.",
        "按住 Shift 或 Ctrl 点击，或按 Shift 与 Enter：可选多个头或词元。页面地址保存当前所示。",
    )
    summary = f"<summary>{bilingual('Keyboard', '键盘')}</summary>"
    return f'<details id="help">{summary}<ul>{rows}</ul><p>{several}</p></details>'


def _subtitle(view: AttentionView, other: AttentionView | None) -> str:
    n_layers, n_heads, n_tokens, _ = view.probabilities.shape
    parts = [
        escape(view.model) if view.model else "",
        f"{n_layers} × {n_heads} {bilingual('heads', '个头')}",
        f"{n_tokens} {bilingual('tokens', '个词元')}",
    ]
    if other is not None:
        title = " / ".join(other.texts) if other.texts != view.texts else other.model
        parts.append(f'{bilingual("against", "对比")} <span id="other-title">{escape(_one_line(title))}</span>')
    return " · ".join(part for part in parts if part)


def token_texts(view: AttentionView) -> list[str]:
    """What is shown of each token: its stretch of the text; a special token by its name. Where several share a stretch,
    such as the bytes of one character, each by its own piece."""
    tokens = view.tokens
    stretches = list(zip(tokens.texts, tokens.offsets, strict=True))
    shown = []
    for at, (piece, (text, (start, end))) in enumerate(zip(tokens.pieces, stretches, strict=True)):
        is_shared = any(0 <= near < len(stretches) and stretches[near] == stretches[at] for near in (at - 1, at + 1))
        stretch = "" if text is None or is_shared else visible(view.texts[text][start:end])
        shown.append(stretch or visible(piece if text is None else piece_text(piece)))
    return shown


def piece_text(piece: str) -> str:
    """Without the marks of its vocabulary; bytes that are no characters, by their numbers."""
    codes = [BYTE_OF.get(character, -1) for character in piece]
    if min(codes, default=-1) >= 0:
        try:
            bytes(codes).decode()
        except UnicodeDecodeError:
            return f"⟨{bytes(codes).hex(' ').upper()}⟩"
    return piece.removeprefix("##").removeprefix("▁") or piece


def _byte_letters() -> dict[str, int]:
    """Byte-level vocabularies write each byte as a letter: itself, if it can be seen, else the next one from 256."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unseen = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + at): byte for at, byte in enumerate(unseen)}


BYTE_OF = _byte_letters()


def visible(text: str) -> str:
    """Control characters by their pictures, other signs that cannot be seen by their numbers."""
    return "".join(map(_visible, text.strip(" ")))


def _visible(character: str) -> str:
    if ord(character) < 0x20:
        return chr(0x2400 + ord(character))
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return f"⟨{ord(character):04X}⟩" if unicodedata.category(character) in hidden else character


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))


def text_direction(text: str) -> str:
    """By its first letter that has a direction, as `dir=auto` has it."""
    strong = (unicodedata.bidirectional(character) for character in text)
    return next(("ltr" if kind == "L" else "rtl" for kind in strong if kind in ("L", "R", "AL")), "ltr")


def _tokens(view: AttentionView, name: str) -> str:
    tokens = view.tokens
    items = []
    ends: dict[int | None, int] = {}
    for text, special, number, (start, end) in zip(
        token_texts(view), tokens.special, tokens.texts, tokens.offsets, strict=True
    ):
        kind = ' class="special"' if special else ""
        between = "" if number is None else view.texts[number][ends.get(number, 0) : start + 1]
        gap = " data-gap" if number in ends and any(map(str.isspace, between)) else ""
        ends[number] = end
        items.append(f'<li{kind} dir="auto" data-text="{-1 if number is None else number}"{gap}>{escape(text)}</li>')
    return f'<ol id="{name}" class="tokens">{"".join(items)}</ol>'


def _links(view: AttentionView) -> str:
    texts = token_texts(view)
    header = [bilingual("head", "头"), bilingual("from", "从"), bilingual("to", "到"), bilingual("weight", "权重")]
    rows = [
        (f"L{link.layer}H{link.head}", texts[link.from_token], texts[link.to_token], f"{link.weight:.3f}")
        for link in view.top(N_LINKS)
    ]
    return table(header, rows)


# ---------------------------------------------------------------------- names


def _names(names: Names) -> str:
    """The names of an atlas with their numbers and examples; the script takes this table into its view."""
    header = [bilingual("head", "头"), bilingual("name", "名称"), bilingual("evidence", "证据")]
    rows = "".join(
        f'<tr><td data-head="{layer}-{head}">L{layer}H{head}</td><td>{"<br>".join(map(_name, found))}</td>'
        f"<td>{''.join(map(_evidence, found))}</td></tr>"
        for (layer, head), found in sorted(names.items())
    )
    titles = "".join(f"<th>{title}</th>" for title in header)
    return (
        f'<section id="names"><h2>{bilingual("Names of heads", "注意力头的名称")}</h2>'
        f"<table><tr>{titles}</tr>{rows}</table></section>"
    )


def _name(found: Mapping[str, Any]) -> str:
    return escape(f"{found['name']}{' ★' if found.get('strong') else ''}{' ✓' if found.get('confirmed') else ''}")


def _evidence(found: Mapping[str, Any]) -> str:
    numbers = found.get("numbers")
    pairs = numbers.items() if isinstance(numbers, Mapping) else ()
    text = ", ".join(f"{title} {value:.3g}" for title, value in pairs if isinstance(value, int | float))
    examples = found.get("examples")
    shown = [_example(one) for one in examples[:N_EXAMPLES]] if isinstance(examples, list) else []
    return f"<div>{escape(text)}</div>" + (f"<ul>{''.join(shown)}</ul>" if shown else "")


def _example(example: Any) -> str:
    """A word and another one that it attends to, each with what is around it; or a sentence."""
    if not isinstance(example, Mapping):
        return f'<li dir="auto">{escape(visible(str(example)))}</li>'
    places = [example.get(side) for side in ("query", "key")]
    shown = " → ".join(_context(place) for place in places if isinstance(place, Mapping))
    weight = example.get("weight")
    number = f" {weight:.2f}" if isinstance(weight, int | float) else ""
    return f'<li dir="auto">{shown}{number}</li>'


def _context(place: Mapping[str, Any]) -> str:
    before, word, after = (escape(visible(str(place.get(part, "")))) for part in ("before", "word", "after"))
    return f"<bdi>{before} <mark>{word}</mark> {after}</bdi>"
