"""The report of a fine-tuning run: metrics with intervals, calibration, errors, and what became of long texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from bertworks.datasets.checks import WITHOUT_COPIES
from bertworks.datasets.example import Example
from bertworks.errors import Remark, counted
from bertworks.files import JsonObject, read_json
from bertworks.measure.intervals import Interval
from bertworks.measure.metrics import Metric
from bertworks.model.locate import RUN
from bertworks.model.loss import Title
from bertworks.page.curves import Curve, figure
from bertworks.page.html import bilingual, escape, paragraph, table
from bertworks.reports.embedding_map import embedding_map
from bertworks.reports.page import REPORT, STEPS, curve_points, duration, key_figures, settings_sections, write_report
from bertworks.tasks.evaluation import MAX_CLASSES_SHOWN, EvalResults, SeedSummary, Selection, metrics_of
from bertworks.tasks.inference import AnyTask
from bertworks.text.ledger import Ledger
from bertworks.train.events import METRICS, Evaluated, Event, Started, Trained, last, of_kind, read_events

SPLIT_TITLES_ZH = {
    "train": "训练集",
    "dev": "开发集",
    WITHOUT_COPIES: "开发集（去除与训练集重复的样本）",
    "mismatched": "不匹配来源",
}
MAX_TEXT_CHARS = 600  # shown of a text
MAX_CONFUSED_PAIRS = 20  # shown where the confusion matrix would be too large
ESTIMATE = ("on new examples", "对新样本的估计")
INTERVAL = ("95 % CI", "95 % 置信区间")
CROSS_FITTED_NOTE = (
    "The checkpoint is chosen on these examples and looks better on them than on new ones. The estimate for new "
    "examples and the interval around it are corrected for that (cross-fitting: each half of dev is scored by the "
    "checkpoint that is chosen on the other half).",
    "检查点是在这些样本上挑选的，其得分偏乐观：“对新样本的估计”及其置信区间已对此作修正（交叉拟合：开发集的每一半"
    "由在另一半上选出的检查点评分）。",
)
Metrics = Mapping[str, Metric]
Key = TypeVar("Key")


def write_finetune_report(
    run: Path, results: EvalResults, task: AnyTask, metric: str, remarks: Sequence[Remark], seeds: SeedSummary | None
) -> Path:
    """With several seeds: a summary of all, then the best one. `remarks`: from reading the data."""
    record = read_json(run / RUN)
    events = read_events((run / f"seed-{seeds.best}" if seeds is not None else run) / METRICS)
    metrics = metrics_of(task)
    body = [
        *(_seeds(seeds, metrics) if seeds is not None else ()),
        _key_figures(events, results, metrics),
        _data(record["source"], remarks),
        *_curves(events, metrics[metric], results, task),
        _metrics(results, metrics, task),
        *_confusion(results),
        *_classes(results),
        *embedding_map(results, task),
        *_errors(results, task),
        _ledgers(results),
        *settings_sections(record),
    ]
    title = (f"Fine-tuning: {run.name}", f"微调：{run.name}")
    return write_report(run / REPORT, title, body)


def _key_figures(events: list[Event], results: EvalResults, metrics: Metrics) -> str:
    end = events[-1] if events else Event()
    started = last(events, Started)
    figures = [(metrics[name].format(value), metrics[name].title) for name, value in results.metrics.items()]
    figures += [
        (f"{(started.train_examples or 0) if started is not None else 0:,}", ("training examples", "训练样本")),
        (f"{(started.dev_examples or 0) if started is not None else 0:,}", ("dev examples", "开发集样本")),
        (f"{end.step:,}", ("steps", "步数")),
        (duration(end.seconds), ("time", "用时")),
    ]
    return key_figures(figures)


def _data(source: JsonObject, remarks: Sequence[Remark]) -> str:
    """Data set and files, and the remarks of reading them."""
    names = [source["dataset"], *(Path(path).name for key in ("folder", "train", "dev") if (path := source[key]))]
    lines = [escape(", ".join(name for name in names if name))]
    lines += [bilingual(paragraph(remark.text), paragraph(remark.chinese or remark.text)) for remark in remarks]
    items = "".join(f"<li>{line}</li>" for line in lines)
    return f'<h2>{bilingual("Data", "数据")}</h2><ul class="dim">{items}</ul>'


def _interval(metric: Metric, interval: Interval) -> str:
    return " – ".join(metric.format(bound) for bound in interval)


def _seeds(seeds: SeedSummary, metrics: Metrics) -> list[str]:
    def cells(by_split: Mapping[str, Mapping[str, float]]) -> dict[tuple[str, str], str]:
        return {
            (split, name): text
            for split, values in by_split.items()
            for name, text in _formatted(values, metrics).items()
        }

    titles = {("", name): bilingual(*metrics[name].title) for name in seeds.mean}
    for split, means in seeds.extra_eval_means.items():
        titles |= {(split, name): _split_title(split, bilingual(*metrics[name].title)) for name in means}
    columns = [
        (bilingual("mean", "均值"), cells({"": seeds.mean, **seeds.extra_eval_means})),
        (bilingual("std", "标准差"), cells({"": seeds.std})),
        (bilingual(*ESTIMATE), cells({"": seeds.cross_fitted})),
        (bilingual(*INTERVAL), {("", name): _interval(metrics[name], i) for name, i in seeds.intervals.items()}),
    ]
    for seed, values in seeds.metrics.items():
        extra = {split: by_seed[seed] for split, by_seed in seeds.extra_eval.items()}
        columns.append((f"{bilingual('seed', '种子')} {seed}", cells({"": values, **extra})))
    for seed, values in seeds.pruned.items():
        in_parentheses = {key: f"({text})" for key, text in cells({"": values}).items()}
        columns.append((f"{bilingual('seed', '种子')} {seed}", in_parentheses))
    notes: list[Title] = [
        (
            "The interval covers the variance of both the seeds and the dev examples.",
            "置信区间同时考虑随机种子与开发集抽样的方差。",
        )
    ]
    if seeds.cross_fitted:
        notes.append(CROSS_FITTED_NOTE)
    if seeds.pruned:
        notes.append(("In parentheses: pruned, not counted.", "括号内：被剪除的种子，不计入统计。"))
    best = bilingual(f"The best seed: {seeds.best}", f"最佳种子：{seeds.best}")
    parts = [f"<h2>{bilingual('All seeds', '全部种子')}</h2>", _results_table(titles, columns), _notes(notes)]
    optimistic = (
        "Chosen among the seeds on the same dev examples: the figures below are optimistic.",
        "在同一开发集上从各种子中挑选，以下得分偏乐观。",
    )
    return [*parts, f'<h2>{best}</h2><p class="dim">{bilingual(*optimistic)}</p>']


def _results_table(titles: Mapping[Key, str], columns: Sequence[tuple[str, Mapping[Key, str]]]) -> str:
    """`titles`: of the rows, as HTML; `columns`: their titles, as HTML, and the cells that they have. Columns without
    any are left out."""
    filled = [(title, cells) for title, cells in columns if cells]
    rows = [(title, *(cells.get(key, "") for _, cells in filled)) for key, title in titles.items()]
    header = [bilingual("dev metric", "开发集指标"), *(title for title, _ in filled)]
    return f'<div class="results">{table(header, rows)}</div>'


def _notes(notes: Sequence[Title]) -> str:
    return "".join(["<ul>", *(f"<li>{bilingual(*note)}</li>" for note in notes), "</ul>"]) if notes else ""


def _split_title(split: str, name: str = "") -> str:
    """`name`: of a metric or a class on this split, as HTML."""
    chinese = SPLIT_TITLES_ZH.get(split, escape(split))
    return bilingual(f"{escape(split)}: ", f"{chinese}：") + name if name else bilingual(escape(split), chinese)


def _curves(events: list[Event], metric: Metric, results: EvalResults, task: AnyTask) -> list[str]:
    trained = of_kind(events, Trained)
    evaluated = of_kind(events, Evaluated)
    figures = []
    for name, (english, chinese) in task.terms.items():
        curve = Curve(("loss", "损失"), curve_points(trained, [event.terms.get(name) for event in trained]))
        figures.append(figure((f"Training loss: {english}", f"训练损失：{chinese}"), [curve], x_title=STEPS))
    dev_values = curve_points(evaluated, [event.metrics.get(metric.name) for event in evaluated])
    dev_title = (f"Dev {metric.title[0]}", f"开发集{metric.title[1]}")
    dev_curve = Curve(metric.title, dev_values, dots=True)
    best = results.selection.step if results.selection is not None else None
    figures.append(figure(dev_title, [dev_curve], x_title=STEPS, y_percent=metric.is_percentage, best=best))
    if results.calibration is not None:
        bins = [(bin.confidence, bin.accuracy) for bin in results.calibration.bins]
        reliability = figure(
            ("Accuracy by confidence", "各置信度下的准确率"),
            [Curve(("this model", "本模型"), bins, dots=True)],
            x_title=("confidence", "置信度"),
            x_percent=True,
            y_percent=True,
            diagonal=("perfect calibration", "完美校准"),
        )
        figures.append(reliability)
    return ['<div class="figures">', *figures, "</div>"]


def _metrics(results: EvalResults, metrics: Metrics, task: AnyTask) -> str:
    selection = results.selection
    columns = [
        (
            bilingual(*(("value", "值") if selection is None else ("kept model", "保留的模型"))),
            _formatted(results.metrics, metrics),
        ),
        (bilingual(*ESTIMATE), _formatted(selection.cross_fitted if selection else {}, metrics)),
        (bilingual(*INTERVAL), {name: _interval(metrics[name], i) for name, i in results.intervals.items()}),
        (bilingual("last evaluation", "最后一次评估"), _formatted(selection.last if selection else {}, metrics)),
        (bilingual("baseline", "基线"), _formatted(results.baseline, metrics)),
    ]
    titles = {name: _explained(metrics[name]) for name in results.metrics}
    notes = _notes([*_selection_notes(results), *_prediction_notes(results, task)])
    title = f"<h2>{bilingual('Results', '结果')}</h2>"
    return "".join([title, _results_table(titles, columns), _extra_metrics(results, metrics), notes])


def _formatted(values: Mapping[str, float], metrics: Metrics) -> dict[str, str]:
    return {name: metrics[name].format(value) for name, value in values.items()}


def _extra_metrics(results: EvalResults, metrics: Metrics) -> str:
    """On further splits."""
    header = [bilingual("further data", "其他数据"), bilingual("value", "值"), bilingual(*INTERVAL)]
    rows = [
        (
            _split_title(split, bilingual(*metrics[name].title)),
            metrics[name].format(value),
            _interval(metrics[name], split_results.intervals[name]),
        )
        for split, split_results in results.extra_eval.items()
        for name, value in split_results.metrics.items()
    ]
    return table(header, rows) if rows else ""


def _prediction_notes(results: EvalResults, task: AnyTask) -> list[Title]:
    """What F1 is, whether confidence is what it says, and what was tuned on dev."""
    notes = []
    if len(results.labels) == 2:
        positive = escape(results.labels[1])
        notes.append((f"F1 is that of the class “{positive}”.", f"F1 以“{positive}”为正类。"))
    elif results.labels:
        notes.append(("F1 is averaged over the classes (macro).", "F1 为各类别的宏平均。"))
    if (calibration := results.calibration) is not None:
        english, chinese = task.confidence_of
        before = f"{calibration.error_before:.1%}"
        after = f"{calibration.error_after:.1%}"
        temperature = f"{calibration.temperature:.2f}"
        used = ("it is part of the saved weights", "已并入保存的权重")
        if not calibration.helps:
            error_falls = calibration.error_after < calibration.error_before
            used = (
                ("it is not used, since the right answers become less likely", "但正确答案的似然下降，故不采用")
                if error_falls
                else ("it is not used, since the error does not fall", "误差没有降低，故不采用")
            )
        notes.append(
            (
                f"The confidence{english} has an expected calibration error (ECE) of {before}, and of {after} with "
                f"temperature {temperature}, cross-validated on dev: {used[0]}.",
                f"置信度{chinese}的期望校准误差（ECE）为 {before}；温度缩放（T = {temperature}，开发集交叉验证）后为 "
                f"{after}：{used[1]}。",
            )
        )
    if "no_answer" in results.tuned:
        threshold = f"{results.tuned['no_answer']:.2f}"
        notes.append(
            (
                f"“No answer” is predicted where it scores higher than the best span by more than {threshold}; the "
                "threshold maximises F1 on the same dev set.",
                f"当“无答案”的得分比最佳片段高出 {threshold} 以上时不作答；该阈值使同一开发集上的 F1 最高。",
            )
        )
    return notes


def _selection_notes(results: EvalResults) -> list[Title]:
    """How the model was chosen, and what the columns are."""
    notes = []
    selection = results.selection
    if selection is not None:
        notes.append(_choice_note(selection))
    if selection is not None and selection.cross_fitted:
        notes.append(CROSS_FITTED_NOTE)
    if results.baseline:
        notes.append(
            (
                "The baseline does not read the texts: it always gives the most frequent answer, or the mean.",
                "基线不读文本，总是给出最常见的答案或均值。",
            )
        )
    return notes


def _choice_note(selection: Selection) -> Title:
    evaluations = counted(selection.n_evaluations, "evaluation")
    if selection.sampled_examples is None:
        return (
            f"The model is that of step {selection.step:,}, the best of {evaluations}.",
            f"模型取自第 {selection.step:,} 步，是 {selection.n_evaluations} 次评估中最好的一次。",
        )
    return (
        f"The model is that of step {selection.step:,}: of {evaluations} on {selection.sampled_examples:,} examples of "
        "dev, the latest within one standard error of the best. With so few examples, the best one is mostly the "
        "luckiest.",
        f"模型取自第 {selection.step:,} 步：在 {selection.sampled_examples:,} 个开发集样本上的 "
        f"{selection.n_evaluations} 次评估中，它是与最好成绩相差不超过一个标准误的最后一次。"
        "样本这么少时，最好的一次多半只是运气最好。",
    )


def _explained(metric: Metric) -> str:
    """Its title, with what it is in small print."""
    return f'{bilingual(*metric.title)}<small class="dim help">{bilingual(*metric.help)}</small>'


def _confusion(results: EvalResults) -> list[str]:
    """The confusion matrix, its cells shaded by their share of the row; with many classes, the most confused pairs."""
    if not results.labels:
        return []
    if len(results.labels) > MAX_CLASSES_SHOWN:
        return _most_confused(results)
    header = "".join(f"<th>{escape(label)}</th>" for label in results.labels)
    rows = []
    for label, counts in zip(results.labels, results.confusion, strict=True):
        cells = "".join(f"<td>{count:,}</td>" for count in counts)
        rows.append(f"<tr><td>{escape(label)}</td>{cells}</tr>")
    title = bilingual(
        "Confusion matrix: true class (rows), predicted class (columns)", "混淆矩阵：真实类别（行），预测类别（列）"
    )
    matrix = f'<table class="grid confusion" data-shade="row"><tr><th></th>{header}</tr>{"".join(rows)}</table>'
    return [f"<h2>{title}</h2>{matrix}"]


def _most_confused(results: EvalResults) -> list[str]:
    counts = Counter(
        (expected, predicted)
        for expected, predicted in results.example_scores.astype(int).tolist()
        if expected != predicted
    )
    rows = [
        (escape(results.labels[expected]), results.labels[predicted], count)
        for (expected, predicted), count in counts.most_common(MAX_CONFUSED_PAIRS)
    ]
    header = [bilingual("true class", "真实类别"), bilingual("predicted class", "预测类别"), bilingual("count", "次数")]
    title = bilingual("Most confused classes", "最易混淆的类别")
    return [f'<h2>{title}</h2><div class="confused">{table(header, rows)}</div>'] if rows else []


def _classes(results: EvalResults) -> list[str]:
    if not results.classes:
        return []
    header = [
        bilingual("class", "类别"),
        bilingual("support", "标注数"),
        bilingual("predicted", "预测数"),
        bilingual("precision", "精确率"),
        bilingual("recall", "召回率"),
        "F1",
    ]
    rows = [
        (
            escape(name),
            counts.support,
            counts.predicted,
            f"{counts.precision:.1%}",
            f"{counts.recall:.1%}",
            f"{counts.f1:.1%}",
        )
        for name, counts in results.classes.items()
    ]
    never = [name for name, counts in results.classes.items() if counts.support and not counts.predicted]
    shown = ", ".join(map(escape, never))
    notes = [(f"Never predicted on dev: {shown}.", f"在开发集上从未被预测：{shown}。")] if never else []
    return [f"<h2>{bilingual('By class', '逐类结果')}</h2>{table(header, rows)}{_notes(notes)}"]


def _errors(results: EvalResults, task: AnyTask) -> list[str]:
    if not results.errors:
        return []
    style = task.errors
    header = [bilingual("text", "文本"), bilingual("expected", "标注"), bilingual("predicted", "预测")]
    header.append(bilingual(*style.severity))
    rows = [
        (_example_cell(example, task), score.expected, score.predicted, f"{score.severity:{style.format}}")
        for example, score in results.errors
    ]
    return [f'<h2>{bilingual(*style.title)}</h2><div class="errors">{table(header, rows)}</div>']


def _example_cell(example: Example, task: AnyTask) -> str:
    """Its texts, shortened, and where it comes from."""
    texts = [
        text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]} …" for text in task.shown_texts(example)
    ]
    lines = "<br>".join(f'<span class="text">{escape(text)}</span>' for text in texts)
    return f'{lines}<br><small class="dim">{escape(Path(example.place).name)}</small>'


def _ledgers(results: EvalResults) -> str:
    header = [
        bilingual("split", "数据划分"),
        bilingual("texts", "文本数"),
        bilingual("tokens", "词元数"),
        bilingual("texts in windows", "滑窗处理的文本"),
        bilingual("tokens cut", "截断的词元"),
        bilingual("unknown tokens", "未知词元"),
    ]
    rows = []
    for split, ledgers in results.ledgers.items():
        for name, ledger in ledgers.items():
            rows.append(
                (
                    _split_title(split, escape(name)),
                    ledger.texts,
                    ledger.tokens,
                    ledger.windowed_texts,
                    _share(ledger.cut_tokens, ledger),
                    _share(ledger.unknown, ledger),
                )
            )
    advice = next(
        (ledgers[""].unknown_advice for ledgers in results.ledgers.values() if ledgers[""].unknown_advice), None
    )
    note = f"<p>{bilingual(*map(escape, advice))}</p>" if advice is not None else ""
    title = bilingual("Long texts and unknown tokens", "长文本与未知词元")
    return f"<h2>{title}</h2>{table(header, rows)}{note}"


def _share(n_tokens: int, ledger: Ledger) -> str:
    return f"{n_tokens:,} ({n_tokens / max(1, ledger.tokens):.1%})" if n_tokens else "0"
