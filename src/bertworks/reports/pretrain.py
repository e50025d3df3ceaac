"""The report of a pre-training run: loss curves, held-out metrics, speed, and predictions on held-out text."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bertworks.data.loader import PretrainBatch
from bertworks.files import read_json
from bertworks.model.locate import RUN
from bertworks.objectives.objective import Objective
from bertworks.page.curves import STYLE as CURVE_STYLE
from bertworks.page.curves import Curve, figure
from bertworks.page.html import bilingual, escape, page
from bertworks.reports.page import REPORT, STEPS, curve_points, duration, key_figures, settings_sections, write_page
from bertworks.reports.page import STYLE as REPORT_STYLE
from bertworks.text.tokenizer import Tokenizer
from bertworks.train.events import METRICS, Evaluated, Event, Started, Trained, last, of_kind, read_events


def write_pretrain_report(
    run: Path, objective: Objective, held_out: PretrainBatch | None, tokenizer: Tokenizer
) -> Path:
    """From the run's files, and the final model's predictions on the batch `held_out`."""
    record = read_json(run / RUN)
    events = read_events(run / METRICS)
    body = [
        _key_figures(events, objective),
        *_curves(events, objective),
        *_predictions(objective, held_out, tokenizer),
        *settings_sections(record),
    ]
    title = (f"Pre-training: {run.name}", f"预训练：{run.name}")
    return write_page(run / REPORT, page(title, "\n".join(body), CURVE_STYLE + REPORT_STYLE))


def _key_figures(events: list[Event], objective: Objective) -> str:
    trained = of_kind(events, Trained)
    evaluated = last(events, Evaluated)
    started = last(events, Started)
    end = events[-1] if events else Event()
    figures = [
        (f"{end.step:,}", ("steps", "步数")),
        (f"{end.tokens:,}", ("training tokens", "训练词元数")),
        (duration(end.seconds), ("time", "用时")),
    ]
    metrics = evaluated.metrics if evaluated is not None else {}
    if isinstance(metrics.get(objective.main_term), float):
        figures.append((f"{metrics[objective.main_term]:.3f}", ("held-out loss (nats)", "留出集损失（nat）")))
        if started is not None and started.unigram_loss:
            figures.append((f"{started.unigram_loss:.3f}", ("unigram baseline (nats)", "一元词频基线（nat）")))
        figures.append((f"{metrics['perplexity']:,.1f}", ("held-out perplexity", "留出集困惑度")))
        for name, (english, chinese) in objective.terms.items():
            if f"{name}_accuracy" in metrics:
                figures.append((f"{metrics[f'{name}_accuracy']:.1%}", (f"accuracy, {english}", f"准确率：{chinese}")))
        for name, (english, chinese) in objective.extra_metrics.items():
            if name in metrics:
                figures.append((f"{metrics[name]:.3f}", (english, chinese)))
    if trained:
        speed = np.median([event.tokens_per_second for event in trained])
        figures.append((f"{speed:,.0f}", ("tokens per second", "词元/秒")))
        figures.append(_mfu_figure(trained))
    return key_figures(figures)


def _mfu_figure(trained: list[Trained]) -> tuple[str, tuple[str, str]]:
    """The peak of older runs may have been measured beside other processes: shares above 1 are none."""
    shares = [event.mfu for event in trained if event.mfu is not None and event.mfu <= 1]
    if not shares:
        return "–", ("peak FLOP/s could not be measured", "未能测得峰值算力")
    return f"{np.median(shares):.0%}", ("of peak FLOP/s (MFU)", "占峰值算力（MFU）")


def _curves(events: list[Event], objective: Objective) -> list[str]:
    trained = of_kind(events, Trained)
    evaluated = of_kind(events, Evaluated)
    started = last(events, Started)
    unigram = started.unigram_loss if started is not None else None
    figures = []
    for name, (english, chinese) in objective.terms.items():
        train_loss = curve_points(trained, [event.terms.get(name) for event in trained])
        held_out_loss = curve_points(evaluated, [event.metrics.get(name) for event in evaluated])
        curves = [Curve(("training", "训练"), train_loss), Curve(("held out", "留出集"), held_out_loss, dots=True)]
        baseline = None
        if unigram is not None and name == objective.main_term:
            baseline = ("unigram baseline", "一元词频基线"), unigram
        title = (f"Loss: {english}", f"损失：{chinese}")
        figures.append(figure(title, curves, baseline=baseline, x_title=STEPS))
    accuracy_titles = {
        f"{name}_accuracy": (f"accuracy: {english}", f"准确率：{chinese}")
        for name, (english, chinese) in objective.terms.items()
    }
    accuracies = [
        Curve(title, curve_points(evaluated, [event.metrics.get(name) for event in evaluated]), dots=True)
        for name, title in (accuracy_titles | objective.extra_metrics).items()
    ]
    figures.append(figure(("Held-out accuracy", "留出集准确率"), accuracies, x_title=STEPS))
    lr = Curve(("learning rate", "学习率"), curve_points(trained, [event.lr for event in trained]))
    figures.append(figure(("Learning rate", "学习率"), [lr], x_title=STEPS))
    speeds = curve_points(trained, [event.tokens_per_second for event in trained])
    figures.append(figure(("Speed", "速度"), [Curve(("tokens per second", "词元/秒"), speeds)], x_title=STEPS))
    return ['<div class="figures">', *figures, "</div>"]


def _predictions(objective: Objective, batch: PretrainBatch | None, tokenizer: Tokenizer) -> list[str]:
    """Held-out sequences, with the model's predictions at the targets."""
    if batch is None:
        return []
    positions, target_ids = objective.targets(batch)
    top1_ids, confidences = (values.tolist() for values in objective.top1(batch))
    predictions = zip(target_ids.tolist(), top1_ids, confidences, strict=True)
    by_position = dict(zip(positions.tolist(), predictions, strict=True))
    ends = np.cumsum(batch.lengths).tolist()
    boxes = []
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        tokens = [_token(by_position.get(at), int(batch.ids[at]), tokenizer) for at in range(begin, end)]
        boxes.append(f'<div class="example">{" ".join(tokens)}</div>')
    legend = bilingual(
        "Text that was not trained on. Green: the top prediction is correct. Red: the correct token, then the top "
        "prediction struck out. Percentages: the model's confidence in its top prediction.",
        "未参与训练的文本。绿色：首选预测正确；红色：正确的词元，其后删除线为首选预测；百分数为首选预测的置信度。",
    )
    return [f"<h2>{bilingual('Predictions on held-out text', '留出文本上的预测')}</h2><p>{legend}</p>", *boxes]


def _token(prediction: tuple[int, int, float] | None, input_id: int, tokenizer: Tokenizer) -> str:
    """`prediction`: target, top-1 token and its confidence, if the token is a target."""
    if prediction is None:
        return escape(tokenizer.readable(input_id))
    target_id, top1_id, confidence = prediction
    target = escape(tokenizer.readable(target_id))
    if target_id == top1_id:
        return f'<span class="guess right">{target}<small>{confidence:.0%}</small></span>'
    top1 = escape(tokenizer.readable(top1_id))
    return f'<span class="guess wrong">{target} <s>{top1}</s><small>{confidence:.0%}</small></span>'
