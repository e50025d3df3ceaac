"""A bar chart of shares with their confidence intervals, in plain HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bertworks.page.html import bilingual

STYLE = """
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: 0.55rem 1rem; align-items: center; }
.bars { max-width: 52rem; margin: 1rem 0; }
.track { position: relative; height: 1.5rem; background: var(--soft); border-radius: 5px; overflow: hidden; }
.track .fill { position: absolute; inset: 0 auto 0 0; background: #3b6fd4; opacity: 0.85; border-radius: 5px 0 0 5px; }
.track .interval { position: absolute; top: 0.62rem; height: 0.26rem; background: var(--ink); }
.track .interval { opacity: 0.75; border-radius: 2px; }
.track .baseline { position: absolute; top: 0; bottom: 0; width: 2px; background: #b42318; }
.bars b { font-variant-numeric: tabular-nums; }
"""


@dataclass(frozen=True)
class Bar:
    title: tuple[str, str]  # HTML, English and Chinese
    share: float
    interval: tuple[float, float]  # low, high


def bar_chart(bars: Sequence[Bar], baseline: float) -> str:
    """`baseline`: the accuracy of chance, a red line."""
    cells = []
    for bar in bars:
        low, high = bar.interval
        interval = f'<span class="interval" style="left:{low:.1%};width:{max(0.0, high - low):.1%}"></span>'
        fill = f'<span class="fill" style="width:{bar.share:.1%}"></span>'
        line = f'<span class="baseline" style="left:{baseline:.1%}"></span>'
        number = f"<span><b>{bar.share:.1%}</b> <small class='dim'>{low:.1%} – {high:.1%}</small></span>"
        cells.append(f'<span>{bilingual(*bar.title)}</span><span class="track">{fill}{line}{interval}</span>{number}')
    return f'<div class="bars">{"".join(cells)}</div>'
