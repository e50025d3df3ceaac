"""Lines of attention as SVG, for papers that are written without a browser.

The page's own script draws the same picture (`linesSvg` in `page/parts/lines.js`): Python has no engine to run it. So
there are two, and a test holds them to the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from bertworks.inspect.numbers import Array, decode_root, root_code

ROW, WIDTH, MARGIN, STROKE, FAINTEST = 22, 320, 6, 1.6, 0.04
MAX_LINES = 20_000
COLOURS = (
    "#0072b2 #e69f00 #009e73 #d55e00 #cc79a7 #56b4e9 #8c6d1f #7a52c7 "
    "#b3002d #4d7f17 #00827f #a04000 #5b6bbf #c2185b #3e7cb1 #6d4c41"
).split()


def lines_svg(
    tokens: Sequence[str],
    probabilities: Array,
    layer: int,
    heads: Sequence[int],
    chosen: Sequence[int],
    *,
    to: bool,
    threshold: float,
) -> str:
    """`probabilities`: (H, T, T) of the layer; `chosen`: tokens whose lines are drawn, none: all; `to`: those that end
    there, not those that start there."""
    n = len(tokens)
    side = _column_width(tokens)
    width, height = 2 * side + WIDTH, (n + 1) * ROW
    titles = [f"L{layer}H{head}" for head in heads]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' font-family="sans-serif" font-size="14"><title>{" ".join(titles)}</title>'
    ]
    for number, (title, head) in enumerate(zip(titles, heads, strict=True)):
        x = side + MARGIN + number % 6 * 52
        parts.append(f'<text x="{x}" y="16" fill="{_colour(head)}" font-weight="bold">{title}</text>')
    for head, row, column, weight in _strongest(probabilities, heads, chosen, to, threshold):
        parts.append(
            f'<line x1="{side + MARGIN}" y1="{row * ROW + 33}" x2="{side + WIDTH - MARGIN}" y2="{column * ROW + 33}"'
            f' stroke="{_colour(head)}" stroke-width="{STROKE}"'
            f' stroke-opacity="{min(1.0, max(FAINTEST, weight)):.3f}"/>'
        )
    for at, text in enumerate(tokens):
        parts.append(f'<text x="{side - 4}" y="{at * ROW + 38}" text-anchor="end">{escape(text, quote=False)}</text>')
    for at, text in enumerate(tokens):
        parts.append(f'<text x="{side + WIDTH + 4}" y="{at * ROW + 38}">{escape(text, quote=False)}</text>')
    return "".join([*parts, "</svg>"])


def _strongest(
    probabilities: Array, heads: Sequence[int], chosen: Sequence[int], to: bool, threshold: float
) -> Iterable[tuple[int, int, int, float]]:
    """Head, row, column and weight, as the page has them; the strongest last."""
    weights = decode_root(root_code(probabilities[list(heads)]))
    drawn = (weights >= threshold) & (weights > 0)
    if chosen:
        is_chosen = np.isin(np.arange(weights.shape[-1]), chosen)
        drawn &= is_chosen[None, None, :] if to else is_chosen[None, :, None]
    places = np.argwhere(drawn)
    values = weights[drawn]
    order = np.argsort(values, kind="stable")[-MAX_LINES:]
    return [
        (heads[number], int(row), int(column), float(value))
        for (number, row, column), value in zip(places[order], values[order], strict=True)
    ]


def _colour(head: int) -> str:
    return COLOURS[head % len(COLOURS)]


def _column_width(tokens: Sequence[str]) -> int:
    widest = max(sum(14 if ord(character) >= 0x2E80 else 8 for character in text) for text in tokens)
    return min(260, max(48, 16 + widest))
