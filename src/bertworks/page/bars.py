"""Shares with their confidence intervals: a table, beside whose numbers `parts/charts.js` draws bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bertworks.page.html import bilingual


@dataclass(frozen=True)
class Bar:
    title: tuple[str, str]  # HTML, English and Chinese
    share: float
    interval: tuple[float, float]  # low, high


def bar_table(header: Sequence[tuple[str, str]], bars: Sequence[Bar], reference: tuple[tuple[str, str], float]) -> str:
    """`header`: of title, share and interval; `reference`: the title and value of a line across all bars."""
    classes = ("", ' class="number"', "")
    titles = "".join(f"<th{name}>{bilingual(*title)}</th>" for name, title in zip(classes, header, strict=True))
    rows = [
        f'<tr><td>{bilingual(*bar.title)}</td><td class="number">{bar.share:.1%}</td>'
        f"<td>{' – '.join(f'{bound:.1%}' for bound in bar.interval)}</td></tr>"
        for bar in bars
    ]
    foot = f'<td>{bilingual(*reference[0])}</td><td class="number">{reference[1]:.1%}</td><td></td>'
    body = f"<tbody>{''.join(rows)}</tbody><tfoot><tr>{foot}</tr></tfoot>"
    return f'<div class="bars"><table><thead><tr>{titles}</tr></thead>{body}</table></div>'
