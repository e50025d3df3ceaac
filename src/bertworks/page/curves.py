"""Curves of a page: a table of their numbers in each figure, which `parts/curves.js` draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bertworks.page.html import bilingual, escape

Point = tuple[float, float]
Title = tuple[str, str]  # English, Chinese


@dataclass(frozen=True)
class Curve:
    title: Title
    points: Sequence[Point]
    dots: bool = False  # a dot at every point


def figure(
    title: Title,
    curves: Sequence[Curve],
    *,
    x_title: Title,
    x_percent: bool = False,
    y_percent: bool = False,
    baseline: tuple[Title, float] | None = None,
    diagonal: Title | None = None,
    best: float | None = None,
) -> str:
    """Curves over the same axes; `x_percent`, `y_percent`: one of shares. `baseline`: the title and value of a
    horizontal line to compare with; `diagonal`: the title of the line where both axes are equal; `best`: where dots are
    those of the model that is kept."""
    curves = [Curve(curve.title, finite, curve.dots) for curve in curves if (finite := _finite(curve.points))]
    if not curves:
        return ""
    columns = [dict(curve.points) for curve in curves]
    rows = []
    for x in sorted({x for column in columns for x in column}):
        cells = "".join(f"<td>{_shown(column[x], y_percent) if x in column else ''}</td>" for column in columns)
        is_best = x == best and any(curve.dots and x in column for curve, column in zip(curves, columns, strict=True))
        mark = f"<small> {bilingual('kept model', '保留的模型')}</small>" if is_best else ""
        row = '<tr class="best">' if is_best else "<tr>"
        rows.append(f"{row}<td>{_shown(x, x_percent)}{mark}</td>{cells}</tr>")
    titles = (('<th class="dots">' if curve.dots else "<th>") + f"{_text(curve.title)}</th>" for curve in curves)
    head = f"<thead><tr><th>{_text(x_title)}</th>{''.join(titles)}</tr></thead>"
    numbers = f"<table>{head}<tbody>{''.join(rows)}</tbody>{_foot(baseline, diagonal, len(curves))}</table>"
    details = f'<summary>{bilingual("Numbers", "数值")}</summary><div class="numbers">{numbers}</div>'
    return f'<figure class="curves"><figcaption>{_text(title)}</figcaption><details open>{details}</details></figure>'


def _foot(baseline: tuple[Title, float] | None, diagonal: Title | None, n_curves: int) -> str:
    rows = []
    if baseline is not None and math.isfinite(baseline[1]):
        cell = f'<td colspan="{n_curves}">{baseline[1]:.3f}</td>'
        rows.append(f"<tr><th>{_text(baseline[0])}</th>{cell}</tr>")
    if diagonal is not None:
        rows.append(f'<tr class="diagonal"><th>{_text(diagonal)}</th><td colspan="{n_curves}">y = x</td></tr>')
    return f"<tfoot>{''.join(rows)}</tfoot>" if rows else ""


def _text(title: Title) -> str:
    return bilingual(*map(escape, title))


def _shown(value: float, percent: bool) -> str:
    """As the script reads it, too."""
    if percent:
        return f"{100 * value:.5g}%"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.5g}"


def _finite(points: Sequence[Point]) -> list[Point]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
