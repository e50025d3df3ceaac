"""The tour as one page, to be read again later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bertworks.files import JsonObject
from bertworks.inspect.atlas_words import NAME_TITLES, REASONS, title_of
from bertworks.objectives.masked import Masked
from bertworks.page.bars import Bar, bar_table
from bertworks.page.html import bilingual, escape, table
from bertworks.reports.page import REPORT, key_figures, write_report
from bertworks.reports.pretrain import loss_figure
from bertworks.train.events import METRICS, read_events

BAR_HEADER = (("initial model", "初始模型"), ("accuracy", "准确率"), ("95 % CI", "95 % 置信区间"))

ATLAS, ATTENTION = "atlas", "attention"  # files of a model, without their endings
MAX_HEADS_SHOWN = 6  # of a name


def first_heads(heads: Sequence[str], separator: str) -> str:
    """`heads`: names, or links to them; how many more there are is said."""
    n_more = len(heads) - MAX_HEADS_SHOWN
    return (separator.join(heads[:MAX_HEADS_SHOWN]) + (f" +{n_more}" if n_more > 0 else "")) or "–"


@dataclass(frozen=True)
class NamedHeads:
    """The heads of a model by their names, from the JSON of an atlas; none, if the text was too short for one."""

    title: tuple[str, str]  # of the model
    folder: str  # of its pages, from the folder of the tour
    atlas: JsonObject | None

    def heads(self, name: str) -> list[str]:
        heads = self.atlas["heads"] if self.atlas is not None else []
        return [f"L{head['layer']}H{head['head']}" for head in heads if name in head["names"]]

    def can_show(self, name: str) -> bool:
        return all(name not in names for names in self.unseen.values())

    @property
    def attention_page(self) -> str:
        return f"{self.folder}/{ATTENTION}.html"

    @property
    def atlas_page(self) -> str | None:
        return None if self.atlas is None else f"{self.folder}/{ATLAS}.html"

    @property
    def unseen(self) -> dict[str, list[str]]:
        """Names that cannot be given, by the reason."""
        if self.atlas is None:
            return {"not enough text": list(NAME_TITLES)}
        reasons: dict[str, list[str]] = {}
        for name, reason in self.atlas["unseen"].items():
            reasons.setdefault(reason, []).append(name)
        return reasons

    @property
    def text(self) -> tuple[str, str]:
        """What was read."""
        if self.atlas is None:
            return "no passages", "无可用段落"
        passages, documents = self.atlas["passages"], self.atlas["documents"]
        return f"{passages:,} passages of {documents:,} documents", f"{documents:,} 篇文档的 {passages:,} 个段落"


@dataclass
class TourResults:
    """What the tour measured and predicted."""

    similarities: list[tuple[str, list[float]]] = field(default_factory=list)  # a sentence, its cosines with all
    # Of the corpus: value, title in English and Chinese.
    corpus_figures: list[tuple[str, tuple[str, str]]] = field(default_factory=list)
    blanks: list[tuple[str, str, str]] = field(default_factory=list)  # a sentence, predictions before and after
    question: tuple[str, str] = ("", "")  # of the classification task
    train_examples: int = 0
    n_classes: int = 0
    # By folder: what the fine-tuning starts from, in English and Chinese, and its results.json.
    starts: dict[str, tuple[tuple[str, str], JsonObject]] = field(default_factory=dict)
    pair: tuple[str, str] = ("", "")  # of sentences, whose attention is shown
    inside: list[NamedHeads] = field(default_factory=list)  # a model each


def accuracy(results: JsonObject) -> float:
    """Of a fine-tuning: what its interval is around, the estimate for new examples."""
    selection = results.get("selection") or {}
    return float((selection.get("cross_fitted") or results["metrics"])["accuracy"])


def write_tour_report(out: Path, results: TourResults) -> Path:
    body = [
        _intro(),
        _similarities(results),
        *_corpus(results),
        *_pretraining(out / "run", results),
        *_classification(results),
        *_inside(results),
        _next_steps(),
    ]
    return write_report(out / REPORT, ("A tour of BERT", "BERT 之旅"), body)


def _intro() -> str:
    text = bilingual(
        "From text to a vocabulary, to a pre-trained model, to a classifier: all made on this machine within a few "
        "minutes.",
        "从文本到词表，到预训练模型，再到分类器：全部在这台机器上、几分钟之内完成。",
    )
    return f'<p class="dim">{text}</p>'


def _similarities(results: TourResults) -> str:
    rows = []
    for index, (sentence, cosines) in enumerate(results.similarities):
        cells = ["<td></td>" if column == index else _cosine_cell(cosine) for column, cosine in enumerate(cosines)]
        rows.append(f"<tr><td>{index + 1}</td><td>{escape(sentence)}</td>{''.join(cells)}</tr>")
    header = "".join(f"<th>{number}</th>" for number in range(1, len(results.similarities) + 1))
    text = bilingual(
        "A trained model (all-MiniLM-L6-v2) turns a sentence into a vector of 384 numbers. The table shows the cosine "
        "similarity of each pair; the greener, the more similar. Meaning counts, not shared words: sentences 1 and 2 "
        "share hardly a word, 3 and 5 share “bank” and little else.",
        "训练好的模型（all-MiniLM-L6-v2）把一个句子变成 384 维的向量。表中是两两之间的余弦相似度，越绿越相似。"
        "起作用的是语义，而不是相同的词：第 1、2 句几乎没有相同的词；第 3、5 句除 “bank” 外几乎没有共同之处。",
    )
    title = bilingual("Sentences become vectors", "句子变成向量")
    cosine_table = (
        f'<table class="similarities" data-shade="value"><tr><th></th><th></th>{header}</tr>{"".join(rows)}</table>'
    )
    return f"<h2>{title}</h2><p>{text}</p>{cosine_table}"


def _cosine_cell(value: float) -> str:
    return f'<td class="value">{round(value, 2) + 0.0:.2f}</td>'


def _corpus(results: TourResults) -> list[str]:
    text = bilingual(
        "Pre-training needs no labels: some tokens are masked, and the model predicts them. "
        '<a href="masks.html">Examples as the model sees them</a>.',
        '预训练不需要标注：遮盖部分词元，让模型预测。<a href="masks.html">查看模型看到的样本</a>。',
    )
    title = bilingual("From text to training examples", "从文本到训练样本")
    return [f"<h2>{title}</h2>{key_figures(results.corpus_figures)}<p>{text}</p>"]


def _pretraining(run: Path, results: TourResults) -> list[str]:
    curves = loss_figure(read_events(run / METRICS), Masked.main_term, Masked.terms[Masked.main_term])
    link = f'<a href="run/{REPORT}">'
    text = bilingual(
        "A small model, trained from random weights. The dashed red line is the loss of a model that knows how "
        "frequent each token is, and no context; below it, the model uses the context. "
        f"{link}The report of this run</a>.",
        "一个小模型，从随机权重开始训练。红色虚线是只知道词频、不看上下文时的损失；低于它，说明模型用上了上下文。"
        f"{link}本次训练的报告</a>。",
    )
    title = bilingual("A model learns to fill in the blanks", "模型学会填空")
    header = [
        bilingual("sentence", "句子"),
        bilingual("before pre-training", "预训练前"),
        bilingual("after", "预训练后"),
    ]
    rows = [(escape(sentence), before, after) for sentence, before, after in results.blanks]
    return [f"<h2>{title}</h2><p>{text}</p>", curves, table(header, rows)]


def _classification(results: TourResults) -> list[str]:
    if not results.starts:
        return []
    bars = []
    links = []
    for folder, (title, start_results) in results.starts.items():
        low, high = start_results["intervals"]["accuracy"]
        bars.append(Bar(title, accuracy(start_results), (low, high)))
        links.append(f'<a href="task/{folder}/{REPORT}">{bilingual(*title)}</a>')
    text = bilingual(
        f"{results.question[0]} Three models are fine-tuned on the same {results.train_examples:,} examples, few "
        "enough to label by hand; they differ in their initial weights. Bars: accuracy, estimated for new "
        "examples; dark: 95 % CI; red, dashed: chance.",
        f"{results.question[1]}三个模型在同样的 {results.train_examples:,} 个样本上微调，这么少的样本手工就能标注；"
        "它们只有初始权重不同。条形：对新样本准确率的估计；深色：95 % 置信区间；红色虚线：随机猜测。",
    )
    _, best = max(results.starts.values(), key=lambda start: accuracy(start[1]))
    errors = [
        f'<div class="error"><q>{escape(" / ".join(error["texts"]))}</q>'
        f"{bilingual('expected: ', '标注：')}<b>{escape(error['expected'])}</b>"
        f"{bilingual(', predicted: ', '，预测：')}<b>{escape(error['predicted'])}</b> ({error['severity']:.0%})</div>"
        for error in best["errors"][:3]
    ]
    return [
        f"<h2>{bilingual('What pre-training is worth', '预训练的价值')}</h2><p>{text}</p>",
        bar_table(BAR_HEADER, bars, (("chance", "随机猜测"), 1 / results.n_classes)),
        *_no_gain(results),
        f"<p>{bilingual('Full reports: ', '完整报告：')}{', '.join(links)}</p>",
        f"<h2>{bilingual('The most confident errors of the best model', '最佳模型最有把握的错误')}</h2>",
        *errors,
    ]


def _no_gain(results: TourResults) -> list[str]:
    """A remark where pre-training gains nothing: its accuracy is not above the interval of random weights."""
    pretrained, random = (results.starts[name][1] for name in ("pretrained", "random"))
    if accuracy(pretrained) > random["intervals"]["accuracy"][1]:
        return []
    text = bilingual(
        "The pre-training was too short to make a difference here; MiniLM shows what a long one achieves. "
        "<code>bertworks tour --out NEW --budget 10m</code> trains longer.",
        "这里的预训练时间太短，还看不出差别；MiniLM 展示了充分预训练的效果。"
        "<code>bertworks tour --out NEW --budget 10m</code> 可训练更久。",
    )
    return [f"<p>{text}</p>"]


def _inside(results: TourResults) -> list[str]:
    text = bilingual(
        "Each layer has heads, and each head decides for every token which others it attends to. Some heads do the "
        "same thing in all texts. The atlas names such a head only if neither chance nor distance explains it.",
        "每一层都有若干注意力头，每个头决定各词元关注哪些词元。有些头在所有文本里都做同一件事；"
        "只有当偶然与距离都不足以解释时，图谱才为它命名。",
    )
    header = [bilingual("attends to", "关注的对象"), *(bilingual(*model.title) for model in results.inside)]
    rows = []
    for name, title in NAME_TITLES.items():
        if any(model.heads(name) for model in results.inside):
            cells = "".join(f"<td>{_head_links(model, name)}</td>" for model in results.inside)
            rows.append(f"<tr><td>{bilingual(*title)}</td>{cells}</tr>")
    titles = "".join(f"<th>{title}</th>" for title in header)
    names = f'<table class="heads"><tr>{titles}</tr>{"".join(rows)}</table>' if rows else ""
    pages = [_link(model.attention_page, model) for model in results.inside]
    atlases = [_link(model.atlas_page, model) for model in results.inside if model.atlas_page is not None]
    pair = escape(" / ".join(results.pair))
    return [
        f"<h2>{bilingual('What the heads attend to', '注意力头在关注什么')}</h2><p>{text}</p>{names}",
        f"<ul>{''.join(f'<li>{note}</li>' for note in (*map(_unnamed, results.inside), *_in_no_model(results)))}</ul>",
        f"<p>{bilingual('Atlas with the evidence: ', '附证据的图谱：')}{', '.join(atlases)}</p>" if atlases else "",
        f"<p>{bilingual('All heads on ', '全部注意力头：')}<q>{pair}</q>{bilingual(': ', '：')}{', '.join(pages)}</p>",
    ]


def _link(path: str, model: NamedHeads) -> str:
    return f'<a href="{path}">{bilingual(*model.title)}</a>'


def _head_links(model: NamedHeads, name: str) -> str:
    return first_heads([f'<a href="{model.attention_page}#{head}">{head}</a>' for head in model.heads(name)], ", ")


def _listed(names: Sequence[str]) -> tuple[str, str]:
    titles = [title_of(NAME_TITLES, name) for name in names]
    return ", ".join(english for english, _ in titles), "、".join(chinese for _, chinese in titles)


def _unnamed(model: NamedHeads) -> str:
    """What was read, and what it could not show."""
    parts = [(f"{model.title[0]}: {model.text[0]}", f"{model.title[1]}：{model.text[1]}")]
    for reason, names in model.unseen.items():
        (english, chinese), (title, title_zh) = _listed(names), title_of(REASONS, reason)
        parts.append((f"{escape(title)} ({escape(english)})", f"{escape(title_zh)}（{escape(chinese)}）"))
    return bilingual("; ".join(part for part, _ in parts), "；".join(part for _, part in parts))


def names_of_no_head(models: Sequence[NamedHeads]) -> list[str]:
    """Names that could have been given, and were not."""
    return [
        name
        for name in NAME_TITLES
        if any(model.can_show(name) for model in models) and not any(model.heads(name) for model in models)
    ]


def _in_no_model(results: TourResults) -> list[str]:
    names = names_of_no_head(results.inside)
    english, chinese = _listed(names)
    return [bilingual(f"no head in any model: {english}", f"任何模型中都没有这样的头：{chinese}")] if names else []


def _next_steps() -> str:
    commands = [
        (
            "bertworks finetune classify --train FILE.csv --model minilm --out RUN",
            "fine-tune on a table of your own",
            "用自己的表格微调",
        ),
        ("bertworks predict RUN FILE", "predict with the model you trained", "用训练好的模型预测"),
        ("bertworks embed minilm FILE --out vectors.npy", "one vector per line of a file", "文件每行一个向量"),
        (
            "bertworks inspect minilm --text 'your text' --out attention.html",
            "what every head attends to in a text",
            "每个注意力头在一段文本中关注什么",
        ),
    ]
    lines = (
        f"<p><code>{escape(command)}</code><br><span class='dim'>{bilingual(*description)}</span></p>"
        for command, *description in commands
    )
    return f"<h2>{bilingual('Next steps', '接下来')}</h2>{''.join(lines)}"
