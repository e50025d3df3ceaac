"""The report of a fine-tuning: how good, where it errs, how sure it is, and what became of long texts; one page that needs nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertworks.errors import Remark
from bertworks.files import read_json, whole_file
from bertworks.model.locate import RUN
from bertworks.page.curves import STYLE as CURVES
from bertworks.page.curves import Curve, figure
from bertworks.page.html import both, escape, page, table
from bertworks.runs.report import REPORT, STEPS, details, duration, facts, last, points
from bertworks.runs.report import STYLE as FACTS
from bertworks.runs.results import FEW_CLASSES, OverSeeds, Results
from bertworks.tasks.checks import WITHOUT_COPIES
from bertworks.tasks.example import Example
from bertworks.tasks.metrics import CORRELATIONS, DISTANCES
from bertworks.text.ledger import Ledger
from bertworks.train.log import METRICS, Event, read_events

STYLE = """
.grid td, .grid th { text-align: right; padding: 0.3rem 0.8rem; } .grid td:first-child { text-align: left; }
.errors table { width: 100%; } .errors td { vertical-align: top; padding-bottom: 0.7rem; } .errors td:first-child { width: 55%; }
.errors .text { font-size: 0.95rem; line-height: 1.5; white-space: pre-line; }
"""
NAMES = {  # of measures: English, Chinese
    "accuracy": ("accuracy", "准确率"),
    "f1": ("F1", "F1"),
    "f1_macro": ("F1, mean over classes", "各类平均 F1"),
    "matthews": ("Matthews correlation", "马修斯相关系数"),
    "pearson_spearman": ("mean of Pearson and Spearman", "皮尔逊与斯皮尔曼的平均"),
    "pearson": ("Pearson correlation", "皮尔逊相关系数"),
    "spearman": ("Spearman correlation", "斯皮尔曼相关系数"),
    "mean_error": ("mean error", "平均误差"),
    "entity_f1": ("entity F1", "实体 F1"),
    "precision": ("precision", "精确率"),
    "recall": ("recall", "召回率"),
    "tag_accuracy": ("right tags", "标签正确率"),
    "exact": ("exact match", "完全匹配"),
}
SPLITS = {WITHOUT_COPIES: "开发集，去掉训练集里也有的", "mismatched": "不同来源"}
LOSSES = ("class", "square", "mark", "tag", "start", "choice")
SURE = {"regress": ("off by", "误差"), "span": ("how sure x how wrong", "信心×错误程度")}  # what the errors are sorted by
OF_WHAT = {  # confidence
    "tag": (" in the tag of a word", "（每个词的标签）"),
    "multilabel": (" in each class of a text", "（每篇文本的每个类别）"),
    "span": (" in an answer, right if it is exact,", "（回答，完全匹配才算正确）"),
}
LONGEST = 600  # characters of a text that is shown
MOST_MIXED = 20  # pairs of classes, if there are more than a table can show


def write_task_report(run: Path, results: Results, measure: str, remarks: Sequence[Remark], seeds: OverSeeds | None) -> Path:
    """Of several seeds: what they came to, then the best one. `remarks`: what reading the examples found."""
    record, events = read_json(run / RUN), read_events((run / f"seed-{seeds.best}" if seeds is not None else run) / METRICS)
    body = [
        *(_seeds(seeds) if seeds is not None else ()),
        _facts(events, results),
        _said(record["source"], remarks),
        *_curves(events, measure, results),
        _measures(results, record["config"]["task"]["shape"]),
        *_confusion(results),
        *_classes(results),
        *_errors(results, record["config"]["task"]["shape"]),
        _ledgers(results),
        *details(record),
    ]
    path = run / REPORT
    with whole_file(path) as file:
        title = (f"Fine-tuning: {run.name}", f"微调：{run.name}")
        file.write(page(title, "\n".join(body), CURVES + FACTS + STYLE).encode(errors="replace"))
    return path


def _facts(events: list[Event], results: Results) -> str:
    end = events[-1] if events else {}
    start = last(events, "start")
    shown = [(_number(name, value), NAMES[name]) for name, value in results.measures.items()]
    shown += [
        (f"{start.get('train', 0):,}", ("examples to learn from", "训练样本")),
        (f"{start.get('dev', 0):,}", ("to be judged by", "开发样本")),
        (f"{end.get('step', 0):,}", ("steps", "步")),
        (duration(end.get("seconds", 0)), ("time", "用时")),
    ]
    return facts(shown)


def _said(source: dict[str, Any], remarks: Sequence[Remark]) -> str:
    """Where the examples come from, and what is to be known of them."""
    places = [source["dataset"], *(Path(path).name for name in ("folder", "train", "dev") if (path := source[name]))]
    lines = [", ".join(place for place in places if place), *map(str, remarks)]
    return f'<h2>{both("The examples", "样本")}</h2><ul class="dim">{"".join(f"<li>{escape(line)}</li>" for line in lines)}</ul>'


def _seeds(seeds: OverSeeds) -> list[str]:
    counted = list(seeds.measures)
    head = [both("on dev", "开发集"), both("mean", "平均"), both("deviation", "标准差"), both("95 % interval", "95 % 区间")]
    head += [f"{both('seed', '种子')} {seed}" for seed in [*counted, *seeds.given_up]]
    rows = []
    for name, value in seeds.mean.items():
        interval = " – ".join(_number(name, edge) for edge in seeds.intervals[name])
        each = [_number(name, seeds.measures[seed][name]) for seed in counted]
        each += [f"({_number(name, one[name])})" for one in seeds.given_up.values()]
        rows.append((both(*NAMES[name]), _number(name, value), _number(name, seeds.deviation[name]), interval, *each))
    for split, means in seeds.other_means.items():
        for name, value in means.items():
            each = [_number(name, seeds.others[split][seed][name]) for seed in counted] + [""] * len(seeds.given_up)
            rows.append((f"{_split(split)}: {both(*NAMES[name])}", _number(name, value), "", "", *each))
    given_up = (" In brackets: given up early.", "括号内：提前放弃。") if seeds.given_up else ("", "")
    said = both(
        f"The interval holds both the luck of the seed and that of the examples.{given_up[0]}",
        f"区间同时包含种子与样本带来的偶然性。{given_up[1]}",
    )
    best = both(f"The best of them, seed {seeds.best}", f"其中最好的：种子 {seeds.best}")
    return [f"<h2>{both('All seeds', '所有种子')}</h2>{table(head, rows)}<p>{said}</p><h2>{best}</h2>"]


def _split(name: str) -> str:
    return both(escape(name), SPLITS.get(name, escape(name)))


def _number(name: str, value: float) -> str:
    return f"{value:.3f}" if name in (*CORRELATIONS, *DISTANCES) else f"{value:.1%}"


def _curves(events: list[Event], measure: str, results: Results) -> list[str]:
    train, held_out = ([event for event in events if event["kind"] == kind] for kind in ("train", "held out"))
    figures = [figure(("Loss on train", "训练损失"), [Curve(("loss", "损失"), points(train, name))], across=STEPS) for name in LOSSES]
    name = NAMES[measure]
    on_dev = (f"{name[0]} on dev", f"开发集{name[1]}")
    figures.append(figure(on_dev, [Curve(name, points(held_out, measure), dots=True)], across=STEPS))
    if results.calibration is not None:
        seen = [(one.confidence, one.accuracy) for one in results.calibration.bins]
        ideal = Curve(("as sure as right", "信心等于正确率"), [(0.0, 0.0), (1.0, 1.0)])
        title = ("How often right, by confidence", "不同信心下的正确率")
        figures.append(figure(title, [ideal, Curve(("this model", "本模型"), seen, dots=True)], across=("confidence", "信心")))
    return ['<div class="figures">', *figures, "</div>"]


def _measures(results: Results, shape: str) -> str:
    head = [both("on dev", "开发集"), both("value", "值"), both("95 % interval", "95 % 区间")]
    rows = [
        (both(*NAMES[name]), _number(name, value), " – ".join(_number(name, edge) for edge in results.intervals[name]))
        for name, value in results.measures.items()
    ]
    for split, other in results.others.items():
        for name, value in other.measures.items():
            interval = " – ".join(_number(name, edge) for edge in other.intervals[name])
            rows.append((f"{_split(split)}: {both(*NAMES[name])}", _number(name, value), interval))
    said = ""
    if len(results.labels) == 2:
        said = both(f"F1 is that of the class “{escape(results.labels[1])}”.", f"F1 指“{escape(results.labels[1])}”一类。") + " "
    elif results.labels:
        said = both("F1 is the mean over the classes.", "F1 为各类的平均。") + " "
    if (found := results.calibration) is not None:
        of_what = OF_WHAT.get(shape, ("", ""))
        said += both(
            f"Confidence{of_what[0]} is off by {found.error_before:.1%} on average (ECE); with the temperature {found.temperature:.2f}, "
            f"which was found on the same dev and which the model keeps, by {found.error_after:.1%}.",
            f"信心{of_what[1]}平均偏差 {found.error_before:.1%}（ECE）；用温度 {found.temperature:.2f}（由同一开发集求得，已存入模型）"
            f"后为 {found.error_after:.1%}。",
        )
    if results.no_answer is not None:
        said += " " + both(
            f"A question is left without an answer where “not here” is better by {results.no_answer:.2f}; that gives the highest F1 on "
            "this same dev.",
            f"当“文中没有”的得分高出 {results.no_answer:.2f} 时不作答；该阈值使同一开发集上的 F1 最高。",
        )
    return f"<h2>{both('How good, and how sure that is', '成绩与区间')}</h2>{table(head, rows)}<p>{said}</p>"


def _confusion(results: Results) -> list[str]:
    """Rows are what is right, columns what was said; the darker, the more of its row. Of many classes, what is mixed up most."""
    if not results.labels:
        return []
    if len(results.labels) > FEW_CLASSES:
        return _mixed(results)
    head = "".join(f"<th>{escape(label)}</th>" for label in results.labels)
    rows = []
    for label, counts in zip(results.labels, results.confusion, strict=True):
        total = max(1, sum(counts))
        cells = "".join(f'<td style="background: rgba(59, 111, 212, {count / total * 0.7:.2f})">{count:,}</td>' for count in counts)
        rows.append(f"<tr><td>{escape(label)}</td>{cells}</tr>")
    title = both("What is right (rows) and what was said (columns)", "正确类别（行）与模型回答（列）")
    return [f'<h2>{title}</h2><table class="grid"><tr><th></th>{head}</tr>{"".join(rows)}</table>']


def _mixed(results: Results) -> list[str]:
    found = Counter((right, said) for right, said in results.evidence.astype(int).tolist() if right != said)
    rows = [(escape(results.labels[right]), results.labels[said], count) for (right, said), count in found.most_common(MOST_MIXED)]
    head = [both("right", "正确"), both("said", "回答"), both("times", "次数")]
    return [f"<h2>{both('Most often mixed up', '最常混淆的类别')}</h2>{table(head, rows)}"] if rows else []


def _classes(results: Results) -> list[str]:
    if not results.classes:
        return []
    head = [
        both("class", "类别"),
        both("there are", "实有"),
        both("found", "找到"),
        both("precision", "精确率"),
        both("recall", "召回率"),
        "F1",
    ]
    rows = [
        (escape(name), one.there, one.found, f"{one.precision:.1%}", f"{one.recall:.1%}", f"{one.f1:.1%}")
        for name, one in results.classes.items()
    ]
    return [f"<h2>{both('Class by class', '逐类成绩')}</h2>{table(head, rows)}"]


def _errors(results: Results, shape: str) -> list[str]:
    if not results.errors:
        return []
    head = [both("text", "文本"), both("right", "正确"), both("said", "回答"), both(*SURE.get(shape, ("how sure", "信心")))]
    written = ".4g" if shape == "regress" else ".0%"
    rows = [(_shown(example, shape), verdict.right, verdict.said, f"{verdict.sure:{written}}") for example, verdict in results.errors]
    title = both("The largest errors", "最大的误差") if shape == "regress" else both("The most confident errors", "最有把握的错误")
    return [f'<h2>{title}</h2><div class="errors">{table(head, rows)}</div>']


def _shown(example: Example, shape: str) -> str:
    texts = (" ".join(example.texts),) if shape == "tag" else example.texts
    if shape == "choice":
        texts = (texts[0], *(f"{at}. {way}" for at, way in enumerate(texts[1:], start=1)))
    short = [text if len(text) <= LONGEST else f"{text[:LONGEST]} …" for text in texts]
    lines = "<br>".join(f'<span class="text">{escape(text)}</span>' for text in short)
    return f'{lines}<br><small class="dim">{escape(Path(example.place).name)}</small>'


def _ledgers(results: Results) -> str:
    head = [
        both("texts", "文本"),
        both("number", "数量"),
        both("tokens", "词元"),
        both("read in windows", "分窗阅读"),
        both("lost", "丢失"),
    ]
    rows = []
    for split, ledgers in results.ledgers.items():
        for name, ledger in ledgers.items():
            rows.append((escape(f"{split}: {name}" if name else split), ledger.texts, ledger.tokens, ledger.windowed_texts, _lost(ledger)))
    return f"<h2>{both('Long texts', '长文本')}</h2>{table(head, rows)}"


def _lost(ledger: Ledger) -> str:
    return f"{ledger.cut_tokens:,} ({ledger.cut_tokens / max(1, ledger.tokens):.1%})" if ledger.cut_tokens else "0"
