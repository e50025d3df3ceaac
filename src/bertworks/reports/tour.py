"""The tour as one page: what was seen, to be read again at leisure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertworks.page.bars import STYLE as BARS
from bertworks.page.bars import Bar, bars
from bertworks.page.curves import STYLE as CURVES
from bertworks.page.curves import Curve, figure
from bertworks.page.html import both, escape, page, table
from bertworks.reports.page import REPORT, STEPS, facts, points, write_page
from bertworks.reports.page import STYLE as FACTS
from bertworks.train.events import METRICS, Evaluated, Started, Trained, last, of_kind, read_events

STYLE = """
.alike td { padding: 0.3rem 0.7rem; } .alike th { text-align: right; padding-right: 0.7rem; }
.alike td.value { text-align: right; border-radius: 4px; font-variant-numeric: tabular-nums; }
.mistake { border-left: 3px solid #d9822b; padding: 0.2rem 0 0.2rem 1rem; margin: 0.9rem 0; max-width: 46rem; }
.mistake q { display: block; margin-bottom: 0.2rem; }
"""


@dataclass
class TourResults:
    """What the tour has come to."""

    sentences: Sequence[str] = ()
    vectors: NDArray[np.float32] | None = None
    counts: list[tuple[str, tuple[str, str]]] = field(
        default_factory=list
    )  # of the text; value, name in both languages
    blanks: list[tuple[str, str, str]] = field(default_factory=list)  # a sentence, guesses before and after
    question: tuple[str, str] = ("", "")
    examples: int = 0  # to learn from
    classes: int = 0
    starts: dict[str, tuple[tuple[str, str], dict[str, Any]]] = field(default_factory=dict)  # folder: name, results


def write_tour_report(out: Path, seen: TourResults) -> Path:
    body = [_intro(), *_alike(seen), *_text(seen), *_learned(out / "run", seen), *_worth(seen), _further()]
    return write_page(
        out / REPORT, page(("A tour through BERT", "BERT 之旅"), "\n".join(body), CURVES + FACTS + BARS + STYLE)
    )


def _intro() -> str:
    said = both(
        "From text to a vocabulary, from a vocabulary to a model, from a model to one that does a job: all of it made on this machine, "
        "a few minutes ago.",
        "从文本到词表，从词表到模型，再从模型到一个能做事的模型：全部在这台机器上，几分钟之内完成。",
    )
    return f'<p class="dim">{said}</p>'


def _alike(seen: TourResults) -> list[str]:
    if seen.vectors is None:
        return []
    unit = seen.vectors / np.linalg.norm(seen.vectors, axis=1, keepdims=True)
    rows = []
    for at, (sentence, row) in enumerate(zip(seen.sentences, unit @ unit.T, strict=True)):
        cells = ["<td></td>" if other == at else _cosine(float(value)) for other, value in enumerate(row)]
        rows.append(f"<tr><td>{at + 1}</td><td>{escape(sentence)}</td>{''.join(cells)}</tr>")
    head = "".join(f"<th>{number}</th>" for number in range(1, len(seen.sentences) + 1))
    said = both(
        "A trained model (all-MiniLM-L6-v2) turns a sentence into 384 numbers. The greener, the closer two of them are: meaning counts, "
        "not shared words. Sentences 1 and 2 share hardly one; 3 and 5 share “bank” and little else.",
        "一个训练好的模型（all-MiniLM-L6-v2）把句子变成 384 个数。越绿越接近：起作用的是意思，而不是相同的词。"
        "第 1、2 句几乎没有相同的词；第 3、5 句只共有 “bank” 一词。",
    )
    title = both("Sentences become vectors", "句子变成向量")
    return [
        f'<h2>{title}</h2><p>{said}</p><table class="alike"><tr><th></th><th></th>{head}</tr>{"".join(rows)}</table>'
    ]


def _cosine(value: float) -> str:
    shade = f"rgba(42, 157, 111, {max(0.0, value) ** 1.5:.2f})"
    return f'<td class="value" style="background: {shade}">{round(value, 2) + 0.0:.2f}</td>'


def _text(seen: TourResults) -> list[str]:
    said = both(
        'What a model learns from is made of text alone: some words are hidden, and it has to fill them in. <a href="masks.html">The '
        "examples as the model sees them</a>.",
        '模型的学习材料只来自文本：遮住一些词，让它填空。<a href="masks.html">模型看到的样本</a>。',
    )
    return [f"<h2>{both('From text to examples', '从文本到样本')}</h2>{facts(seen.counts)}<p>{said}</p>"]


def _learned(run: Path, seen: TourResults) -> list[str]:
    events = read_events(run / METRICS)
    trained, evaluated, started = of_kind(events, Trained), of_kind(events, Evaluated), last(events, Started)
    unigram = started.unigram_loss if started is not None else None
    level = (("unigram baseline", "一元词频基线"), unigram) if unigram is not None else None
    curves = [
        Curve(("training", "训练"), points(trained, [event.terms.get("masked") for event in trained])),
        Curve(
            ("held out", "留出文本"), points(evaluated, [event.metrics.get("masked") for event in evaluated]), dots=True
        ),
    ]
    drawn = figure(("Loss on hidden words", "被遮盖词的损失"), curves, across=STEPS, line=level)
    link = f'<a href="run/{REPORT}">'
    said = both(
        "A small model, from random weights. The red line is what one gets by knowing how frequent each word is and nothing else; below "
        f"it the model uses the words around. {link}All about this run</a>.",
        f"一个小模型，从随机权重开始。红线是只知道词频时的损失；低于红线，说明模型用上了上下文。{link}本次训练的全部细节</a>。",
    )
    head = [both("a blank", "填空"), both("before", "训练前"), both("after", "训练后")]
    rows = [(escape(sentence), before, after) for sentence, before, after in seen.blanks]
    return [f"<h2>{both('A model learns to fill blanks', '模型学会填空')}</h2><p>{said}</p>", drawn, table(head, rows)]


def _worth(seen: TourResults) -> list[str]:
    if not seen.starts:
        return []
    shown, links = [], []
    for folder, ((english, chinese), results) in seen.starts.items():
        low, high = results["intervals"]["accuracy"]
        shown.append(Bar((english, chinese), results["metrics"]["accuracy"], (low, high)))
        links.append(f'<a href="task/{folder}/{REPORT}">{both(english, chinese)}</a>')
    said = both(
        f"{seen.question[0]} Three models learn it from the same {seen.examples:,} examples, few enough to label by hand; they differ in "
        "what they start from. Dark: the 95 % interval; red: what chance alone gives.",
        f"{seen.question[1]}三个模型用同样的 {seen.examples:,} 个样本学习，只是起点不同；这么少的样本手工就能标注。"
        "深色：95 % 区间；红线：随机猜测。",
    )
    _, best = max(seen.starts.values(), key=lambda start: start[1]["metrics"]["accuracy"])
    mistakes = [
        f'<div class="mistake"><q>{escape(" / ".join(error["texts"]))}</q>{both("right", "正确")}: <b>{escape(error["expected"])}</b>, '
        f"{both('predicted', '预测')}: <b>{escape(error['predicted'])}</b> ({error['severity']:.0%})</div>"
        for error in best["errors"][:3]
    ]
    return [
        f"<h2>{both('What pre-training is worth', '预训练的价值')}</h2><p>{said}</p>",
        bars(shown, 1 / seen.classes),
        *_too_short(seen),
        f"<p>{both('The whole reports', '完整报告')}: {', '.join(links)}</p>",
        f"<h2>{both('The most confident mistakes of the best one', '最好的模型最有把握的错误')}</h2>",
        *mistakes,
    ]


def _too_short(seen: TourResults) -> list[str]:
    """What is to be said where pre-training does not show: its accuracy is inside the other's interval, or below."""
    made, random = (seen.starts[name][1] for name in ("pretrained", "random"))
    if made["metrics"]["accuracy"] > random["intervals"]["accuracy"][1]:
        return []
    said = both(
        "A few minutes of pre-training were too few to show here; MiniLM shows what it can come to. <code>bertworks tour --out NEW "
        "--budget 10m</code> gives it more.",
        "几分钟的预训练在这里还看不出效果；MiniLM 显示了它能达到的程度。<code>bertworks tour --out NEW --budget 10m</code> 给它更多时间。",
    )
    return [f"<p>{said}</p>"]


def _further() -> str:
    commands = [
        ("bertworks finetune classify --train FILE.csv --model minilm --out RUN", "a table of yours", "您自己的表格"),
        ("bertworks predict RUN FILE", "ask what you trained", "使用训练好的模型"),
        ("bertworks embed FILE --model minilm --out vectors.npy", "a vector for each line", "每行一个向量"),
    ]
    lines = (
        f"<p><code>{escape(command)}</code><br><span class='dim'>{both(*said)}</span></p>"
        for command, *said in commands
    )
    return f"<h2>{both('And now yours', '接下来')}</h2>{''.join(lines)}"
