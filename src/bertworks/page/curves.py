"""Line charts for a page, as SVG without a script."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bertworks.page.html import bilingual, escape

Point = tuple[float, float]
WIDTH, HEIGHT = 440, 250  # of the SVG's view box
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 14, 44  # margins around the plot
COLOURS = ("#3b6fd4", "#d9822b", "#2a9d6f", "#b04a9c")
BASELINE_COLOUR = "#b42318"
STYLE = """
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); }
.figures { gap: 1.2rem 2rem; margin: 1.2rem 0; }
figure { margin: 0; } figure svg { width: 100%; max-width: 46rem; height: auto; display: block; }
figcaption { font-weight: 600; margin-bottom: 0.2rem; }
.axis { stroke: var(--line); } .tick { fill: var(--dim); font-size: 12px; }
.key-line { display: inline-block; width: 1.4rem; height: 0.2rem; border-radius: 2px; }
.key-line { vertical-align: middle; margin: 0 0.4rem 0 0; }
.keys > span { display: inline-block; margin-right: 1.2rem; color: var(--dim); font-size: 0.9rem; }
"""


@dataclass(frozen=True)
class Curve:
    title: tuple[str, str]  # English, Chinese
    points: Sequence[Point]
    dots: bool = False  # a dot at every point


def figure(
    title: tuple[str, str],
    curves: Sequence[Curve],
    *,
    x_title: tuple[str, str],
    x_percent: bool = False,
    y_percent: bool = False,
    baseline: tuple[tuple[str, str], float] | None = None,
) -> str:
    """Curves over the same axes; `x_percent`, `y_percent`: one of shares. `baseline`: the title and value of a
    horizontal line to compare with."""
    curves = [
        Curve(curve.title, finite, curve.dots or len(finite) == 1)  # a single point makes no line
        for curve in curves
        if (finite := _finite(curve.points))
    ]
    if not curves:
        return ""
    if baseline is not None and not math.isfinite(baseline[1]):
        baseline = None
    ys = [y for curve in curves for _, y in curve.points] + ([baseline[1]] if baseline else [])
    x_low, x_high = _range(x for curve in curves for x, _ in curve.points)
    y_low, y_high = _range(ys, margin=0.05)

    def pixels(x: float, y: float) -> str:
        right = (x - x_low) / (x_high - x_low)
        up = (y - y_low) / (y_high - y_low)
        return f"{LEFT + right * (WIDTH - LEFT - RIGHT):.1f},{HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM):.1f}"

    parts = []
    keys = []
    for tick in _ticks(y_low, y_high):
        x, y = pixels(x_low, tick).split(",")
        parts.append(f'<line class="axis" x1="{x}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}"/>')
        place = f'x="{LEFT - 8}" y="{float(y) + 4:.1f}" text-anchor="end"'
        parts.append(f'<text class="tick" {place}>{_label(tick, y_percent)}</text>')
    for tick in _ticks(x_low, x_high):
        x = pixels(tick, y_low).split(",")[0]
        place = f'x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle"'
        parts.append(f'<text class="tick" {place}>{_label(tick, x_percent)}</text>')
    middle = f'x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle"'
    parts += [
        f'<text class="tick" lang="{language}" {middle}>{escape(text)}</text>'
        for language, text in zip(("en", "zh"), x_title, strict=True)
    ]
    for curve, colour in zip(curves, COLOURS, strict=False):
        path = " ".join(pixels(x, y) for x, y in curve.points)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"/>'
        )
        dots = (pixels(x, y).split(",") for x, y in curve.points if curve.dots)
        parts += [f'<circle cx="{x}" cy="{y}" r="3.2" fill="{colour}"/>' for x, y in dots]
        keys.append(_key(colour, bilingual(*map(escape, curve.title))))
    if baseline:
        y = pixels(x_low, baseline[1]).split(",")[1]
        stroke = f'stroke="{BASELINE_COLOUR}" stroke-dasharray="5 4"'
        parts.append(f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" {stroke}/>')
        keys.append(_key(BASELINE_COLOUR, f"{bilingual(*map(escape, baseline[0]))} {baseline[1]:.3f}"))
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title[0])}">{"".join(parts)}</svg>'
    caption = f"<figcaption>{bilingual(*map(escape, title))}</figcaption>"
    return f'<figure>{caption}{svg}<div class="keys">{"".join(keys)}</div></figure>'


def _label(tick: float, percent: bool) -> str:
    return f"{100 * tick:,.6g}%" if percent else f"{tick:,.6g}"


def _key(colour: str, title: str) -> str:
    return f'<span><span class="key-line" style="background:{colour}"></span>{title}</span>'


def _finite(points: Sequence[Point]) -> list[Point]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def _range(values: Iterable[float], margin: float = 0.0) -> tuple[float, float]:
    """Of an axis; never empty. `margin`: a share of the range, added on both sides."""
    values = list(values)
    low = min(values)
    high = max(values)
    padding = (high - low) * margin or (0.0 if high > low else abs(low) or 1.0)
    return low - padding, high + padding


def _ticks(low: float, high: float, max_ticks: int = 6) -> list[float]:
    """Round numbers from `low` to `high`."""
    min_step = (high - low) / max_ticks
    magnitude = 10.0 ** math.floor(math.log10(min_step))
    step = next(magnitude * factor for factor in (1, 2, 5, 10) if magnitude * factor >= min_step)
    return [tick * step for tick in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
