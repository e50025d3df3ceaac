"""Dev examples on a map: what the head of the fine-tuned model reads of them, with its errors marked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from bertworks.datasets.example import Example
from bertworks.inspect.planes import plane
from bertworks.page.html import bilingual, escape
from bertworks.tasks.evaluation import EvalResults
from bertworks.tasks.inference import AnyTask
from bertworks.tasks.task import Score

MAX_GROUPS = 12  # with a sign of their own; rarer classes share one
N_INTERVALS = 5  # of numbers
WORST_SHARE = 0.1  # of numbers, that are marked
MAX_CHARS = 300  # shown of a text
OTHERS = ("other classes", "其他类别")
NOTHING = ("no class", "无类别")


@dataclass(frozen=True)
class Groups:
    """What colour and shape stand for, and which examples are marked."""

    names: tuple[str, ...]  # HTML
    members: list[int]  # the group of each example
    marked: list[bool]
    meaning: tuple[str, str]  # of the ring


def embedding_map(results: EvalResults, task: AnyTask) -> list[str]:
    """HTML with a point for each example; nothing for tasks that have no vector for a text."""
    if results.head_inputs is None or len(results.scored) < 3:
        return []
    points, _, variance = plane(results.head_inputs)
    # To the size of a picture: distances have no unit.
    points = points / max(float(np.abs(points).max()), 1e-12)
    scores = [score for _, score in results.scored]
    groups = _by_number(scores) if not results.classes else _by_class(scores)
    title = bilingual("Dev examples on a map", "开发集样本图")
    items = [
        _item(example, score, point, group, is_marked, task)
        for (example, score), point, group, is_marked in zip(
            results.scored, points.tolist(), groups.members, groups.marked, strict=True
        )
    ]
    summary = bilingual("The examples as a list", "样本列表")
    return [
        f'<section id="embedding-map"><h2>{title}</h2><p>{_explanation(results, variance, groups)}</p>',
        f'<div class="map-and-text"><div></div><div>{_legend(groups)}</div></div>',
        f'<details><summary>{summary}</summary><ol class="map-examples">{"".join(items)}</ol></details></section>',
    ]


def _explanation(results: EvalResults, variance: float, groups: Groups) -> str:
    n, n_all = len(results.scored), len(results.example_scores)
    drawn = (f"{n:,} of {n_all:,} dev examples, drawn at random", f"从 {n_all:,} 个开发集样本中随机抽取 {n:,} 个")
    all_of_them = (f"All {n:,} dev examples", f"全部 {n:,} 个开发集样本")
    english, chinese = drawn if n < n_all else all_of_them
    return bilingual(
        f"{english}: the vector that the model's head reads of each, by principal components. The two axes show "
        f"{variance:.0%} of the variance, so that what is close here may be far apart. {groups.meaning[0]}",
        f"{chinese}：模型的输出层所读取的向量，按主成分绘制。两条轴显示了 {variance:.0%} 的方差，图上相近的点实际"
        f"可能相距较远。{groups.meaning[1]}",
    )


def _by_class(scores: Sequence[Score]) -> Groups:
    """By the correct class; of several, the first by name."""
    classes = [min((name for name, _ in score.expected_items), default="") for score in scores]
    counts = Counter(classes)
    names = [name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    kept = names if len(names) <= MAX_GROUPS else names[: MAX_GROUPS - 1]
    titles = [escape(name) if name else bilingual(*NOTHING) for name in kept]
    if len(kept) < len(names):
        titles.append(bilingual(*OTHERS))
    numbers = {name: min(number, len(kept)) for number, name in enumerate(names)}
    ring = ("A ring marks errors.", "圆环表示预测错误。")
    return Groups(tuple(titles), [numbers[name] for name in classes], [score.is_wrong for score in scores], ring)


def _by_number(scores: Sequence[Score]) -> Groups:
    """By the correct number, in intervals with as many examples each; the largest errors are marked."""
    values = np.array([score.values[0] for score in scores])
    edges = np.unique(np.quantile(values, np.linspace(0, 1, N_INTERVALS + 1)))
    members = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(0, len(edges) - 2))
    names = [f"{low:.3g} – {high:.3g}" for low, high in pairwise(edges.tolist())] or [f"{edges[0]:.3g}"]
    severities = np.array([score.severity for score in scores])
    marked = severities > np.quantile(severities, 1 - WORST_SHARE)
    ring = ("A ring marks the tenth with the largest errors.", "圆环表示误差最大的十分之一。")
    return Groups(tuple(names), members.tolist(), marked.tolist(), ring)


def _legend(groups: Groups) -> str:
    """A class in a line, with its number of examples and of those that are marked."""
    items = []
    for number, name in enumerate(groups.names):
        own = [is_marked for group, is_marked in zip(groups.members, groups.marked, strict=True) if group == number]
        items.append(f"<li>{name} <small>{len(own):,} · ◯ {sum(own):,}</small></li>")
    return f'<ul class="map-groups">{"".join(items)}</ul>'


def _item(example: Example, score: Score, point: Sequence[float], group: int, is_marked: bool, task: AnyTask) -> str:
    texts = [text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} …" for text in task.shown_texts(example)]
    lines = "<br>".join(f'<span class="text" dir="auto">{escape(text)}</span>' for text in texts)
    answers = bilingual(
        f"expected {escape(score.expected)}, predicted {escape(score.predicted)}",
        f"标注：{escape(score.expected)}，预测：{escape(score.predicted)}",
    )
    place = escape(Path(example.place).name)
    mark = " data-marked" if is_marked else ""
    return (
        f'<li data-x="{point[0]:.4f}" data-y="{point[1]:.4f}" data-group="{group}"{mark}>'
        f'{lines}<br><b>{answers}</b> <small class="dim">{place}</small></li>'
    )
