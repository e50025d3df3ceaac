"""The report of a pre-training run: what was learned, how, on what; one page that needs nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bertworks.data.loader import PretrainBatch
from bertworks.files import read_json
from bertworks.model.locate import RUN
from bertworks.objectives.objective import Objective
from bertworks.page.curves import STYLE as CURVES
from bertworks.page.curves import Curve, figure
from bertworks.page.html import both, escape, page
from bertworks.reports.page import REPORT, STEPS, STYLE, details, duration, facts, points, write_page
from bertworks.text.tokenizer import Tokenizer
from bertworks.train.events import METRICS, Evaluated, Event, Started, Trained, last, of_kind, read_events


def write_pretrain_report(
    run: Path, objective: Objective, held_out: PretrainBatch | None, tokenizer: Tokenizer
) -> Path:
    """Read the run's own files, look at some held-out text with the model as it ended, and write the page."""
    record, events = read_json(run / RUN), read_events(run / METRICS)
    body = [
        _facts(events, objective),
        *_curves(events, objective),
        *_predictions(objective, held_out, tokenizer),
        *details(record),
    ]
    return write_page(
        run / REPORT, page((f"Pre-training: {run.name}", f"预训练：{run.name}"), "\n".join(body), CURVES + STYLE)
    )


def _facts(events: list[Event], objective: Objective) -> str:
    trained, evaluated, started = of_kind(events, Trained), last(events, Evaluated), last(events, Started)
    end = events[-1] if events else Event()
    shown = [
        (f"{end.step:,}", ("steps", "步")),
        (f"{end.tokens:,}", ("tokens trained on", "训练词元")),
        (duration(end.seconds), ("time", "用时")),
    ]
    metrics = evaluated.metrics if evaluated is not None else {}
    if isinstance(metrics.get(objective.main_term), float):
        shown.append((f"{metrics[objective.main_term]:.3f}", ("held-out loss, nats", "留出文本损失（奈特）")))
        if started is not None and started.unigram_loss:
            shown.append((f"{started.unigram_loss:.3f}", ("unigram baseline", "一元词频基线")))
        shown.append((f"{metrics['perplexity']:,.1f}", ("perplexity", "困惑度")))
        for name, (english, chinese) in objective.terms.items():
            if f"{name}_accuracy" in metrics:
                shown.append((f"{metrics[f'{name}_accuracy']:.1%}", (f"accuracy, {english}", f"准确率：{chinese}")))
        for name, (english, chinese) in objective.extra_metrics.items():
            if name in metrics:
                shown.append((f"{metrics[name]:.3f}", (english, chinese)))
    if trained:
        shown.append(
            (f"{np.median([event.tokens_per_second for event in trained]):,.0f}", ("tokens per second", "词元/秒"))
        )
        shown.append(
            (f"{np.median([event.mfu for event in trained]):.0%}", ("of peak FLOP/s (MFU)", "占峰值算力（MFU）"))
        )
    return facts(shown)


def _curves(events: list[Event], objective: Objective) -> list[str]:
    trained, evaluated, started = of_kind(events, Trained), of_kind(events, Evaluated), last(events, Started)
    unigram = started.unigram_loss if started is not None else None
    figures = []
    for name, (english, chinese) in objective.terms.items():
        curves = [
            Curve(("training", "训练"), points(trained, [event.terms.get(name) for event in trained])),
            Curve(
                ("held out", "留出文本"), points(evaluated, [event.metrics.get(name) for event in evaluated]), dots=True
            ),
        ]
        level = (
            (("unigram baseline", "一元词频基线"), unigram)
            if unigram is not None and name == objective.main_term
            else None
        )
        figures.append(figure((f"Loss: {english}", f"损失：{chinese}"), curves, line=level, across=STEPS))
    shares = {
        f"{name}_accuracy": (f"accuracy: {e}", f"准确率：{c}") for name, (e, c) in objective.terms.items()
    } | objective.extra_metrics
    accuracies = [
        Curve(title, points(evaluated, [event.metrics.get(name) for event in evaluated]), dots=True)
        for name, title in shares.items()
    ]
    figures.append(figure(("Held-out text: accuracy", "留出文本：准确率"), accuracies, across=STEPS))
    rates = [Curve(("learning rate", "学习率"), points(trained, [event.lr for event in trained]))]
    figures.append(figure(("Learning rate", "学习率"), rates, across=STEPS))
    speed = [Curve(("tokens per second", "词元/秒"), points(trained, [event.tokens_per_second for event in trained]))]
    figures.append(figure(("Speed", "速度"), speed, across=STEPS))
    return ['<div class="figures">', *figures, "</div>"]


def _predictions(objective: Objective, batch: PretrainBatch | None, tokenizer: Tokenizer) -> list[str]:
    """Held-out sequences, with what the model predicts where a token was masked."""
    if batch is None:
        return []
    where, tokens = objective.targets(batch)
    best, confidence = (values.tolist() for values in objective.top1(batch))
    found = dict(zip(where.tolist(), zip(tokens.tolist(), best, confidence, strict=True), strict=True))
    ends = np.cumsum(batch.lengths).tolist()
    boxes = []
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        words = [_word(found.get(at), int(batch.ids[at]), tokenizer) for at in range(begin, end)]
        boxes.append(f'<div class="example">{" ".join(words)}</div>')
    legend = both(
        "Not trained on. Green: the likeliest token is the right one. Red: the right one, and struck out what the model predicts.",
        "未参与训练的文本。绿色：模型最看好的词元正确；红色：正确的词元，删除线是模型的预测。",
    )
    return [f"<h2>{both('Held-out text and predictions', '留出文本与模型预测')}</h2><p>{legend}</p>", *boxes]


def _word(answer: tuple[int, int, float] | None, seen: int, tokenizer: Tokenizer) -> str:
    if answer is None:
        return escape(tokenizer.readable(seen))
    token, best, confidence = answer
    right, put = escape(tokenizer.readable(token)), escape(tokenizer.readable(best))
    if token == best:
        return f'<span class="guess right">{right}<small>{confidence:.0%}</small></span>'
    return f'<span class="guess wrong">{right} <s>{put}</s><small>{confidence:.0%}</small></span>'
