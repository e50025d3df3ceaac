"""The report of a pre-training run: what was learned, how, on what; one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bertworks.data.loader import Batch
from bertworks.files import read_json, whole_file
from bertworks.model.locate import RUN
from bertworks.objectives.objective import Objective
from bertworks.page.curves import STYLE as CURVES
from bertworks.page.curves import Curve, figure
from bertworks.page.html import both, escape, page, table
from bertworks.text.tokenizer import Tokenizer
from bertworks.train.log import METRICS, Event, read_events

REPORT = "report.html"
STYLE = """
.facts { display: flex; flex-wrap: wrap; gap: 0.8rem; margin: 1rem 0 0.4rem; }
.fact { border: 1px solid var(--line); border-radius: 8px; padding: 0.5rem 0.9rem; min-width: 8.5rem; background: var(--soft); }
.fact b { display: block; font-size: 1.25rem; } .fact span { color: var(--dim); font-size: 0.85rem; }
.example { border: 1px solid var(--line); border-radius: 8px; padding: 0.6rem 1rem; margin: 0.8rem 0; line-height: 1.9; }
.guess { border-radius: 4px; padding: 0.05rem 0.3rem; } .guess small { opacity: 0.85; font-size: 0.72rem; margin-left: 0.25rem; }
.right { background: #46b07d; color: #04210f; } .wrong { background: #f3c1bd; color: #4a0f0a; }
.wrong s { opacity: 0.75; } details { margin: 0.5rem 0; } summary { cursor: pointer; color: var(--link); }
"""
STEPS = ("step", "步")
TERMS = {  # of the loss: English, Chinese
    "masked": ("masked tokens", "被遮盖的词元"),
    "pair": ("sentence pairs", "句对"),
    "replaced": ("replaced tokens", "被替换的词元"),
    "permuted": ("permuted tokens", "乱序预测的词元"),
    "next": ("next token", "下一个词元"),
}


def write_report(run: Path, objective: Objective, held_out: Batch | None, tokenizer: Tokenizer) -> Path:
    """Read the run's own files, look at some held-out text with the model as it ended, and write the page."""
    record, events = read_json(run / RUN), read_events(run / METRICS)
    body = [_facts(events, objective.loss), *_curves(events, objective.loss), *_guesses(objective, held_out, tokenizer), *details(record)]
    path = run / REPORT
    with whole_file(path) as file:
        text = page((f"Pre-training: {run.name}", f"预训练：{run.name}"), "\n".join(body), CURVES + STYLE)
        file.write(text.encode(errors="replace"))  # a folder's name may be any bytes
    return path


def duration(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def _facts(events: list[Event], loss: str) -> str:
    train, held_out, start = (last(events, kind) for kind in ("train", "held out", "start"))
    end = events[-1] if events else {}
    speeds = [event["tokens_per_second"] for event in events if event["kind"] == "train"]
    shares = [event["share"] for event in events if event["kind"] == "train"]
    shown = [
        (f"{end.get('step', 0):,}", ("steps", "步")),
        (f"{end.get('tokens', 0):,}", ("tokens seen", "读过的词元")),
        (duration(end.get("seconds", 0)), ("time", "用时")),
    ]
    if isinstance(held_out.get(loss), float):
        shown.append((f"{held_out[loss]:.3f}", ("held-out loss, nats", "留出文本损失（奈特）")))
        if start.get("unigram_loss"):
            shown.append((f"{start['unigram_loss']:.3f}", ("loss of guesses without context", "不看上下文的损失")))
        shown.append((f"{held_out['perplexity']:,.1f}", ("perplexity", "困惑度")))
        for name in sorted(held_out):
            if name.endswith("_accuracy"):
                english, chinese = TERMS[name.removesuffix("_accuracy")]
                shown.append((f"{held_out[name]:.1%}", (f"right, {english}", f"正确率：{chinese}")))
        if "replaced_auc" in held_out:
            shown.append((f"{held_out['replaced_auc']:.3f}", ("AUC, replaced tokens", "AUC：被替换的词元")))
    if train:
        shown.append((f"{np.median(speeds):,.0f}", ("tokens per second", "词元/秒")))
        shown.append((f"{np.median(shares):.0%}", ("of the machine's matrix products", "占本机矩阵乘法速度")))
    return facts(shown)


def facts(values: Iterable[tuple[str, tuple[str, str]]]) -> str:
    """The most important numbers, each with its name in both languages."""
    boxes = "".join(f'<div class="fact"><b>{escape(value)}</b><span>{both(*name)}</span></div>' for value, name in values)
    return f'<div class="facts">{boxes}</div>'


def _curves(events: list[Event], loss: str) -> list[str]:
    train, held_out = ([event for event in events if event["kind"] == kind] for kind in ("train", "held out"))
    unigram = last(events, "start").get("unigram_loss")
    figures = []
    for name, (english, chinese) in TERMS.items():
        curves = [
            Curve(("training", "训练"), points(train, name)),
            Curve(("held out", "留出文本"), points(held_out, name), dots=True),
        ]
        level = (("without context", "不看上下文"), unigram) if unigram is not None and name == loss else None
        figures.append(figure((f"Loss: {english}", f"损失：{chinese}"), curves, line=level, across=STEPS))
    measures = [Curve((f"right: {e}", f"正确：{c}"), points(held_out, f"{name}_accuracy"), dots=True) for name, (e, c) in TERMS.items()]
    measures.append(Curve(("AUC, replaced", "AUC：替换"), points(held_out, "replaced_auc"), dots=True))
    figures.append(figure(("Held-out text: how often the best guess is right", "留出文本：最佳猜测的正确率"), measures, across=STEPS))
    figures.append(figure(("Learning rate", "学习率"), [Curve(("learning rate", "学习率"), points(train, "lr"))], across=STEPS))
    speed = [Curve(("tokens per second", "词元/秒"), points(train, "tokens_per_second"))]
    figures.append(figure(("Speed", "速度"), speed, across=STEPS))
    return ['<div class="figures">', *figures, "</div>"]


def _guesses(objective: Objective, batch: Batch | None, tokenizer: Tokenizer) -> list[str]:
    """Held-out sequences, with what the model puts where a token was hidden."""
    if batch is None:
        return []
    where, tokens = objective.answers(batch)
    best, sure = (values.tolist() for values in objective.best(batch))
    found = dict(zip(where.tolist(), zip(tokens.tolist(), best, sure, strict=True), strict=True))
    ends = np.cumsum(batch.lengths).tolist()
    boxes = []
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        words = [_word(found.get(at), int(batch.ids[at]), tokenizer) for at in range(begin, end)]
        boxes.append(f'<div class="example">{" ".join(words)}</div>')
    said = both(
        "Text that was not trained on. Green: the likeliest token is the right one. Red: the right one, and struck out what the model put.",
        "未参与训练的文本。绿色：模型最看好的词元正确；红色：正确的词元，删除线是模型的猜测。",
    )
    return [f"<h2>{both('Held-out text, and what the model guesses', '留出文本与模型的猜测')}</h2><p>{said}</p>", *boxes]


def _word(answer: tuple[int, int, float] | None, seen: int, tokenizer: Tokenizer) -> str:
    if answer is None:
        return escape(tokenizer.readable(seen))
    token, best, sure = answer
    right, put = escape(tokenizer.readable(token)), escape(tokenizer.readable(best))
    if token == best:
        return f'<span class="guess right">{right}<small>{sure:.0%}</small></span>'
    return f'<span class="guess wrong">{right} <s>{put}</s><small>{sure:.0%}</small></span>'


def details(record: dict[str, Any]) -> list[str]:
    setting, value = both("setting", "设置"), both("value", "值")
    environment = record.get("environment")
    sections: list[tuple[str, dict[str, Any]]] = [
        (both("Config", "配置"), record["config"]),
        (both("Machine", "运行环境"), environment if isinstance(environment, dict) else {}),
        (both("Text", "文本"), {name: record[name] for name in ("shards", "source", "data") if name in record}),
    ]
    tables = [(title, [(escape(name), str(given)) for name, given in _flat(values)]) for title, values in sections]
    return [f"<details><summary>{title}</summary>{table([setting, value], rows)}</details>" for title, rows in tables]


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found = []
    for name, value in values.items():
        found += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return found


def last(events: list[Event], kind: str) -> Event:
    return next((event for event in reversed(events) if event["kind"] == kind), {})


def points(events: list[Event], name: str) -> list[tuple[float, float]]:
    return [(event["step"], event[name]) for event in events if isinstance(event.get(name), float)]
