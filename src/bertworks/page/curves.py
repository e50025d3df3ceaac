"""Curves for a page, as SVG without a script."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bertworks.page.html import both, escape

Point = tuple[float, float]
WIDTH, HEIGHT = 560, 270
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 14, 44
COLOURS = ("#3b6fd4", "#d9822b", "#2a9d6f", "#b04a9c")
STYLE = """
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(24rem, 1fr)); gap: 1.2rem 2rem; margin: 1.2rem 0; }
figure { margin: 0; } figure svg { width: 100%; max-width: 46rem; height: auto; display: block; }
figcaption { font-weight: 600; margin-bottom: 0.2rem; } .axis { stroke: var(--line); } .tick { fill: var(--dim); font-size: 12px; }
.key-line { display: inline-block; width: 1.4rem; height: 0.2rem; vertical-align: middle; margin: 0 0.4rem 0 0; border-radius: 2px; }
.keys > span { margin-right: 1.2rem; color: var(--dim); font-size: 0.9rem; }
"""


@dataclass(frozen=True)
class Curve:
    name: tuple[str, str]  # English, Chinese
    points: Sequence[Point]
    dots: bool = False


def figure(
    title: tuple[str, str],
    curves: Sequence[Curve],
    *,
    across: tuple[str, str],
    line: tuple[tuple[str, str], float] | None = None,
) -> str:
    """Curves over the same axes. `line`: a level to compare with, and its name. `across`: what the x axis counts."""
    shown = [
        Curve(curve.name, finite, curve.dots or len(finite) == 1)  # a single point makes no line
        for curve in curves
        if (finite := _finite(curve.points))
    ]
    if not shown:
        return ""
    ys = [y for curve in shown for _, y in curve.points] + ([line[1]] if line and math.isfinite(line[1]) else [])
    x_low, x_high = _range(x for curve in shown for x, _ in curve.points)
    y_low, y_high = _range(ys, margin=0.05)

    def at(x: float, y: float) -> str:
        across_share, up = (x - x_low) / (x_high - x_low), (y - y_low) / (y_high - y_low)
        return (
            f"{LEFT + across_share * (WIDTH - LEFT - RIGHT):.1f},{HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM):.1f}"
        )

    parts, keys = [], []
    for tick in _ticks(y_low, y_high):
        x, y = at(x_low, tick).split(",")
        parts.append(f'<line class="axis" x1="{x}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{float(y) + 4:.1f}" text-anchor="end">{tick:,.6g}</text>')
    for tick in _ticks(x_low, x_high):
        x = at(tick, y_low).split(",")[0]
        parts.append(f'<text class="tick" x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick:,.6g}</text>')
    middle = f'x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle"'
    parts += [
        f'<text class="tick" lang="{language}" {middle}>{escape(name)}</text>'
        for language, name in zip(("en", "zh"), across, strict=True)
    ]
    for curve, colour in zip(shown, COLOURS, strict=False):
        path = " ".join(at(x, y) for x, y in curve.points)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"/>'
        )
        dots = (at(x, y).split(",") for x, y in curve.points if curve.dots)
        parts += [f'<circle cx="{x}" cy="{y}" r="3.2" fill="{colour}"/>' for x, y in dots]
        keys.append(
            f'<span><span class="key-line" style="background:{colour}"></span>{both(*map(escape, curve.name))}</span>'
        )
    if line and math.isfinite(line[1]):
        y = at(x_low, line[1]).split(",")[1]
        parts.append(
            f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#b42318" stroke-dasharray="5 4"/>'
        )
        keys.append(
            f'<span><span class="key-line" style="background:#b42318"></span>{both(*map(escape, line[0]))} {line[1]:.3f}</span>'
        )
    picture = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title[0])}">{"".join(parts)}</svg>'
    return f'<figure><figcaption>{both(*map(escape, title))}</figcaption>{picture}<div class="keys">{"".join(keys)}</div></figure>'


def _finite(points: Sequence[Point]) -> list[Point]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def _range(values: Iterable[float], margin: float = 0.0) -> tuple[float, float]:
    known = list(values)
    low, high = min(known), max(known)
    room = (high - low) * margin or (0.0 if high > low else abs(low) or 1.0)
    return low - room, high + room


def _ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two others."""
    rough = (high - low) / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    return [tick * step for tick in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
