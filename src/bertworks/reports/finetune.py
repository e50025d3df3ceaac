"""The report of a fine-tuning: how good, where it errs, how confident it is, and what became of long texts; one page
for itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertworks.datasets.checks import WITHOUT_COPIES
from bertworks.datasets.example import Example
from bertworks.errors import Remark
from bertworks.files import read_json
from bertworks.measure.intervals import Interval
from bertworks.measure.metrics import Metric
from bertworks.model.locate import RUN
from bertworks.page.curves import STYLE as CURVES
from bertworks.page.curves import Curve, figure
from bertworks.page.html import both, escape, page, table
from bertworks.reports.page import REPORT, STEPS, details, duration, facts, points, write_page
from bertworks.reports.page import STYLE as FACTS
from bertworks.tasks.evaluation import MAX_CLASSES_SHOWN, EvalResults, SeedSummary, metrics_of
from bertworks.tasks.inference import AnyTask
from bertworks.text.ledger import Ledger
from bertworks.train.events import METRICS, Evaluated, Event, Started, Trained, last, of_kind, read_events

STYLE = """
.grid td, .grid th { text-align: right; padding: 0.3rem 0.8rem; } .grid td:first-child { text-align: left; }
.errors table { width: 100%; } .errors td { vertical-align: top; padding-bottom: 0.7rem; } .errors td:first-child { width: 55%; }
.errors .text { font-size: 0.95rem; line-height: 1.5; white-space: pre-line; }
"""
SPLITS = {WITHOUT_COPIES: "开发集，去掉训练集里也有的", "mismatched": "不同来源"}
LONGEST = 600  # characters of a text that is shown
MOST_CONFUSED = 20  # pairs of classes, if there are more than a table can show
Metrics = Mapping[str, Metric]


def write_finetune_report(
    run: Path, results: EvalResults, task: AnyTask, metric: str, remarks: Sequence[Remark], seeds: SeedSummary | None
) -> Path:
    """Of several seeds: what they came to, then the best one. `remarks`: what reading the examples found."""
    record, events = (
        read_json(run / RUN),
        read_events((run / f"seed-{seeds.best}" if seeds is not None else run) / METRICS),
    )
    metrics = metrics_of(task)
    body = [
        *(_seeds(seeds, metrics) if seeds is not None else ()),
        _facts(events, results, metrics),
        _data(record["source"], remarks),
        *_curves(events, metrics[metric], results, task),
        _metrics(results, metrics, task),
        *_confusion(results),
        *_classes(results),
        *_errors(results, task),
        _ledgers(results),
        *details(record),
    ]
    return write_page(
        run / REPORT, page((f"Fine-tuning: {run.name}", f"微调：{run.name}"), "\n".join(body), CURVES + FACTS + STYLE)
    )


def _facts(events: list[Event], results: EvalResults, metrics: Metrics) -> str:
    end = events[-1] if events else Event()
    started = last(events, Started)
    shown = [(metrics[name].format(value), metrics[name].title) for name, value in results.metrics.items()]
    shown += [
        (f"{(started.train_examples or 0) if started is not None else 0:,}", ("training examples", "训练样本")),
        (f"{(started.dev_examples or 0) if started is not None else 0:,}", ("dev examples", "开发样本")),
        (f"{end.step:,}", ("steps", "步")),
        (duration(end.seconds), ("time", "用时")),
    ]
    return facts(shown)


def _data(source: dict[str, Any], remarks: Sequence[Remark]) -> str:
    """Where the examples come from, and what is to be known of them."""
    places = [source["dataset"], *(Path(path).name for name in ("folder", "train", "dev") if (path := source[name]))]
    lines = [", ".join(place for place in places if place), *map(str, remarks)]
    return f'<h2>{both("The data", "数据")}</h2><ul class="dim">{"".join(f"<li>{escape(line)}</li>" for line in lines)}</ul>'


def _interval(metric: Metric, interval: Interval) -> str:
    return " – ".join(metric.format(edge) for edge in interval)


def _seeds(seeds: SeedSummary, metrics: Metrics) -> list[str]:
    counted = list(seeds.metrics)
    head = [both("on dev", "开发集"), both("mean", "平均"), both("std", "标准差"), both("95 % CI", "95 % 置信区间")]
    head += [f"{both('seed', '种子')} {seed}" for seed in [*counted, *seeds.pruned]]
    rows = []
    for name, value in seeds.mean.items():
        metric = metrics[name]
        each = [metric.format(seeds.metrics[seed][name]) for seed in counted]
        each += [f"({metric.format(one[name])})" for one in seeds.pruned.values()]
        rows.append(
            (
                both(*metric.title),
                metric.format(value),
                metric.format(seeds.std[name]),
                _interval(metric, seeds.intervals[name]),
                *each,
            )
        )
    for split, means in seeds.extra_eval_means.items():
        for name, value in means.items():
            each = [metrics[name].format(seeds.extra_eval[split][seed][name]) for seed in counted] + [""] * len(
                seeds.pruned
            )
            rows.append((f"{_split(split)}: {both(*metrics[name].title)}", metrics[name].format(value), "", "", *each))
    pruned = (" In brackets: pruned early, not counted.", "括号内：提前剪除，不计入。") if seeds.pruned else ("", "")
    legend = both(
        f"The interval covers both the noise of the seed and that of the examples.{pruned[0]}",
        f"区间同时包含种子与样本带来的随机性。{pruned[1]}",
    )
    best = both(f"The best of them, seed {seeds.best}", f"其中最好的：种子 {seeds.best}")
    return [f"<h2>{both('All seeds', '所有种子')}</h2>{table(head, rows)}<p>{legend}</p><h2>{best}</h2>"]


def _split(name: str) -> str:
    return both(escape(name), SPLITS.get(name, escape(name)))


def _curves(events: list[Event], metric: Metric, results: EvalResults, task: AnyTask) -> list[str]:
    trained, evaluated = of_kind(events, Trained), of_kind(events, Evaluated)
    figures = []
    for name, (english, chinese) in task.terms.items():
        curve = Curve(("loss", "损失"), points(trained, [event.terms.get(name) for event in trained]))
        figures.append(figure((f"Training loss: {english}", f"训练损失：{chinese}"), [curve], across=STEPS))
    on_dev = (f"{metric.title[0]} on dev", f"开发集{metric.title[1]}")
    curve = Curve(metric.title, points(evaluated, [event.metrics.get(metric.name) for event in evaluated]), dots=True)
    figures.append(figure(on_dev, [curve], across=STEPS))
    if results.calibration is not None:
        seen = [(one.confidence, one.accuracy) for one in results.calibration.bins]
        ideal = Curve(("perfectly calibrated", "完全校准"), [(0.0, 0.0), (1.0, 1.0)])
        title = ("Accuracy by confidence", "不同置信度下的准确率")
        figures.append(
            figure(title, [ideal, Curve(("this model", "本模型"), seen, dots=True)], across=("confidence", "置信度"))
        )
    return ['<div class="figures">', *figures, "</div>"]


def _metrics(results: EvalResults, metrics: Metrics, task: AnyTask) -> str:
    head = [both("on dev", "开发集"), both("value", "值"), both("95 % CI", "95 % 置信区间")]
    rows = list(_metric_rows(results, metrics, ""))
    for split, other in results.extra_eval.items():
        rows += _metric_rows(other, metrics, f"{_split(split)}: ")
    legend = ""
    if len(results.labels) == 2:
        legend = (
            both(f"F1 is that of the class “{escape(results.labels[1])}”.", f"F1 指“{escape(results.labels[1])}”一类。")
            + " "
        )
    elif results.labels:
        legend = both("F1 is the mean over the classes.", "F1 为各类的平均。") + " "
    if (found := results.calibration) is not None:
        about = task.confidence_of
        legend += both(
            f"Confidence{about[0]} is off by {found.error_before:.1%} on average (ECE); with the temperature {found.temperature:.2f}, "
            f"which was found on the same dev and which the model keeps, by {found.error_after:.1%}.",
            f"置信度{about[1]}平均偏差 {found.error_before:.1%}（ECE）；用温度 {found.temperature:.2f}（由同一开发集求得，已存入模型）"
            f"后为 {found.error_after:.1%}。",
        )
    if "no_answer" in results.tuned:
        threshold = results.tuned["no_answer"]
        legend += " " + both(
            f"A question is left without an answer where “no answer” scores higher by {threshold:.2f}; that gives the highest F1 on "
            "this same dev.",
            f"当“无答案”的得分高出 {threshold:.2f} 时不作答；该阈值使同一开发集上的 F1 最高。",
        )
    return f"<h2>{both('Results', '结果')}</h2>{table(head, rows)}<p>{legend}</p>"


def _metric_rows(results: EvalResults, metrics: Metrics, prefix: str) -> Iterable[tuple[str, str, str]]:
    for name, value in results.metrics.items():
        metric = metrics[name]
        yield prefix + both(*metric.title), metric.format(value), _interval(metric, results.intervals[name])


def _confusion(results: EvalResults) -> list[str]:
    """Rows are what is right, columns what was predicted; the darker, the more of its row. Of many classes, what is
    confused most."""
    if not results.labels:
        return []
    if len(results.labels) > MAX_CLASSES_SHOWN:
        return _most_confused(results)
    head = "".join(f"<th>{escape(label)}</th>" for label in results.labels)
    rows = []
    for label, counts in zip(results.labels, results.confusion, strict=True):
        total = max(1, sum(counts))
        cells = "".join(
            f'<td style="background: rgba(59, 111, 212, {count / total * 0.7:.2f})">{count:,}</td>' for count in counts
        )
        rows.append(f"<tr><td>{escape(label)}</td>{cells}</tr>")
    title = both(
        "Confusion matrix: right class (rows), predicted class (columns)", "混淆矩阵：正确类别（行），预测类别（列）"
    )
    return [f'<h2>{title}</h2><table class="grid confusion"><tr><th></th>{head}</tr>{"".join(rows)}</table>']


def _most_confused(results: EvalResults) -> list[str]:
    found = Counter(
        (right, predicted) for right, predicted in results.example_scores.astype(int).tolist() if right != predicted
    )
    rows = [
        (escape(results.labels[right]), results.labels[predicted], count)
        for (right, predicted), count in found.most_common(MOST_CONFUSED)
    ]
    head = [both("right", "正确"), both("predicted", "预测"), both("times", "次数")]
    title = both("Most often confused", "最常混淆的类别")
    return [f'<h2>{title}</h2><div class="confused">{table(head, rows)}</div>'] if rows else []


def _classes(results: EvalResults) -> list[str]:
    if not results.classes:
        return []
    head = [
        both("class", "类别"),
        both("support", "样本数"),
        both("predicted", "预测数"),
        both("precision", "精确率"),
        both("recall", "召回率"),
        "F1",
    ]
    rows = [
        (escape(name), one.support, one.predicted, f"{one.precision:.1%}", f"{one.recall:.1%}", f"{one.f1:.1%}")
        for name, one in results.classes.items()
    ]
    return [f"<h2>{both('By class', '逐类结果')}</h2>{table(head, rows)}"]


def _errors(results: EvalResults, task: AnyTask) -> list[str]:
    if not results.errors:
        return []
    style = task.errors
    head = [both("text", "文本"), both("right", "正确"), both("predicted", "预测"), both(*style.severity)]
    rows = [
        (_shown(example, task), one.expected, one.predicted, f"{one.severity:{style.format}}")
        for example, one in results.errors
    ]
    return [f'<h2>{both(*style.title)}</h2><div class="errors">{table(head, rows)}</div>']


def _shown(example: Example, task: AnyTask) -> str:
    short = [text if len(text) <= LONGEST else f"{text[:LONGEST]} …" for text in task.shown_texts(example)]
    lines = "<br>".join(f'<span class="text">{escape(text)}</span>' for text in short)
    return f'{lines}<br><small class="dim">{escape(Path(example.place).name)}</small>'


def _ledgers(results: EvalResults) -> str:
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
            rows.append(
                (
                    escape(f"{split}: {name}" if name else split),
                    ledger.texts,
                    ledger.tokens,
                    ledger.windowed_texts,
                    _lost(ledger),
                )
            )
    return f"<h2>{both('Long texts', '长文本')}</h2>{table(head, rows)}"


def _lost(ledger: Ledger) -> str:
    return f"{ledger.cut_tokens:,} ({ledger.cut_tokens / max(1, ledger.tokens):.1%})" if ledger.cut_tokens else "0"
