"""Training examples with their masks, for people: in the terminal and as a page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.text import Text

from bertworks.config import DataConfig
from bertworks.data.examples import NEGATIVE_PAIR, NO_LABEL
from bertworks.data.loader import Epoch, Loader
from bertworks.data.masking import SPAN_LENGTHS
from bertworks.data.shards import Shards
from bertworks.page.html import bilingual, escape, page, table
from bertworks.reports.page import write_page
from bertworks.text.tokenizer import Tokenizer

TokenState = Literal["text", "special", "masked", "random", "kept"]
TARGET_STATES: tuple[TokenState, ...] = ("masked", "random", "kept")
TERMINAL_STYLES = {
    "masked": "bold black on yellow",
    "random": "bold white on red",
    "kept": "bold black on green",
    "special": "dim",
    "text": "",
}
STYLE = """
.example { border: 1px solid var(--line); border-radius: 8px; padding: 0.6rem 1rem 0.5rem; margin: 0.9rem 0; }
.example header { font-size: 0.85rem; color: var(--dim); margin-bottom: 0.35rem; }
.label { border-radius: 99px; padding: 0.1rem 0.6rem; margin-left: 0.5rem; }
.label { background: var(--soft); border: 1px solid var(--line); }
.label.other { background: #b4231822; border-color: #b4231866; }
.label.same { background: #067a4622; border-color: #067a4666; }
.words { display: flex; flex-wrap: wrap; gap: 0.45rem 0.35rem; align-items: flex-start; }
.word { display: inline-flex; line-height: 1.35; border-radius: 4px; }
.boxed .word.whole { outline: 1px solid var(--dim); outline-offset: 1px; }
.word.b .token { text-decoration: underline dotted #7c8cff; text-underline-offset: 4px; }
.token { text-align: center; } .token.special { color: var(--dim); }
.token small { display: block; font-size: 0.68rem; line-height: 1.1; text-decoration: none; }
.masked, .random, .kept { padding: 0 0.28rem 0.15rem; }
.word .token:first-child { border-radius: 4px 0 0 4px; } .word .token:last-child { border-radius: 0 4px 4px 0; }
.word .token:only-child { border-radius: 4px; } .word .token + .token { border-left: 1px dashed #00000033; }
.masked { background: #ffd54d; color: #332500; } .random { background: #d13438; color: #fff; }
.kept { background: #46b07d; color: #04210f; }
.key { border-radius: 4px; padding: 0 0.45rem; margin-right: 0.3rem; } .legend span[lang] { margin-right: 1.1rem; }
"""
LABELS = {  # by `data.pairs` and label: in the terminal; on the page in English and Chinese
    ("nsp", 0): ("next sentence", "B follows A", "B 是 A 的下一句"),
    ("nsp", 1): ("random sentence", "B is from another document", "B 来自另一篇文档"),
    ("sop", 0): ("in order", "A and B in order", "A、B 顺序正确"),
    ("sop", 1): ("swapped", "A and B swapped", "A、B 顺序颠倒"),
}


@dataclass(frozen=True)
class ShownToken:
    seen: str  # by the model
    original: str
    state: TokenState
    starts_word: bool
    segment: int


@dataclass(frozen=True)
class MaskedExample:
    """An example, token by token, and its label."""

    tokens: list[ShownToken]
    label: int  # of the sentence pair
    pairs: str  # `data.pairs`

    def words(self) -> list[list[ShownToken]]:
        words: list[list[ShownToken]] = []
        for token in self.tokens:
            if token.starts_word or not words:
                words.append([])
            words[-1].append(token)
        return words

    def count_states(self) -> Counter[TokenState]:
        return Counter(token.state for token in self.tokens)


def view_masks(
    shards: Shards, config: DataConfig, *, seed: int, epoch: int, lines: int
) -> tuple[Epoch, list[MaskedExample]]:
    """The first examples of an epoch, in the order in which they are trained on."""
    loader = Loader(shards, config, seed=seed, batch_tokens=max(4096, config.max_length))
    examples = loader.epoch(epoch)
    views: list[MaskedExample] = []
    for batch in range(len(examples)):
        for example_id in examples.examples_of(batch).tolist():
            views.append(_view(examples, example_id, shards.tokenizer))
            if len(views) == lines:
                return examples, views
    return examples, views


def _view(epoch: Epoch, example_id: int, tokenizer: Tokenizer) -> MaskedExample:
    example = epoch.example(example_id)
    corrupted = epoch.corrupted(example_id, example)
    targets = set(corrupted.targets.tolist())
    tokens = []
    for index, (seen, original) in enumerate(zip(corrupted.ids.tolist(), example.ids.tolist(), strict=True)):
        state: TokenState = "text" if example.maskable[index] else "special"
        if index in targets:
            state = "kept" if seen == original else "masked" if seen == epoch.loader.vocabulary.mask_id else "random"
        is_start = bool(
            example.word_starts[index] or not example.maskable[index] or index == 0 or not example.maskable[index - 1]
        )
        segment = int(example.segments[index])
        tokens.append(ShownToken(tokenizer.readable(seen), tokenizer.readable(original), state, is_start, segment))
    return MaskedExample(tokens, example.label, epoch.loader.config.pairs)


def terminal_line(view: MaskedExample) -> Text:
    """What the model sees, and behind each masked or random token the original."""
    line = Text()
    if view.label != NO_LABEL:
        line.append(
            f" {LABELS[view.pairs, view.label][0]} ",
            style="white on red" if view.label == NEGATIVE_PAIR else "black on green",
        )
        line.append(" ")
    for word in view.words():
        for token in word:
            line.append(token.seen, style=TERMINAL_STYLES[token.state])
            if token.state in ("masked", "random"):
                line.append(f"‹{token.original}›", style="dim")
        line.append(" ")
    return line


def print_views(console: Console, views: list[MaskedExample]) -> None:
    console.print(_legend())
    for number, view in enumerate(views, start=1):
        console.print(Text.assemble((f"{number:>3} ", "dim"), terminal_line(view)))


def _legend() -> Text:
    line = Text("   ")
    for state, meaning in (
        ("masked", "replaced by the mask token"),
        ("random", "replaced by a random token"),
        ("kept", "unchanged, but a target"),
    ):
        line.append(f" {state} ", style=TERMINAL_STYLES[state])
        line.append(f" {meaning}   ")
    line.append("‹original›", style="dim")
    return line


def count_states(views: list[MaskedExample]) -> Counter[TokenState]:
    return sum((view.count_states() for view in views), Counter())


def write_masks_page(path: Path, epoch: Epoch, views: list[MaskedExample]) -> None:
    config = epoch.loader.config
    counts = count_states(views)
    n_targets = sum(counts[state] for state in TARGET_STATES)
    n_maskable = max(1, counts.total() - counts["special"])
    whole_words = SPAN_LENGTHS[config.masking].words
    titles = (
        bilingual("of the targets: masked", "其中：遮盖"),
        bilingual("of the targets: random", "其中：随机替换"),
        bilingual("of the targets: kept", "其中：保持不变"),
    )
    rows = [(bilingual("targets, of all tokens", "预测目标（占全部词元）"), n_targets, f"{n_targets / n_maskable:.1%}")]
    rows += [
        (title, counts[state], f"{counts[state] / max(1, n_targets):.1%}")
        for title, state in zip(titles, TARGET_STATES, strict=True)
    ]
    intro = bilingual(
        f"{len(views)} training examples: masking <b>{config.masking}</b>, pairs <b>{config.pairs}</b>, at most "
        f"{config.max_length} tokens. Coloured tokens are targets, with the original token below in small print.",
        f"{len(views)} 条训练样本：遮盖方式 <b>{config.masking}</b>，句对方式 <b>{config.pairs}</b>，"
        f"每条最多 {config.max_length} 个词元。着色的词元是预测目标，下方小字为原词元。",
    )
    keys = [
        f'<span class="key masked">[MASK]</span>{bilingual("masked", "遮盖")}',
        f'<span class="key random">?</span>{bilingual("replaced by a random token", "替换为随机词元")}',
        f'<span class="key kept">=</span>{bilingual("unchanged, but a target", "保持不变，但仍需预测")}',
    ]
    if whole_words:
        keys.append(
            bilingual("Box: a word, masked as a whole or not at all.", "方框：一个完整的词，要么整词遮盖，要么不遮。")
        )
    if config.pairs in ("nsp", "sop"):
        keys.append(bilingual("Dotted underline: sentence B.", "点状下划线：句子 B。"))
    stats = epoch.plan.stats
    plan = bilingual(
        f"The epoch: {stats}.",
        f"本轮：{stats.examples:,} 条样本，读入 {stats.tokens_in:,} 个词元，使用 {stats.tokens_out:,} 个，"
        f"截断丢弃 {stats.lost:,} 个，随机句对中重复使用 {stats.repeated:,} 个。",
    )
    counts_table = table(["", bilingual("tokens", "词元数"), bilingual("share", "比例")], rows)
    body = [f"<p>{intro}</p>", f'<p class="legend">{"".join(keys)}</p>', counts_table, f'<p class="dim">{plan}</p>']
    body += [_example(number, view, whole_words) for number, view in enumerate(views, start=1)]
    write_page(path, page(("Training examples", "训练样本"), "\n".join(body), STYLE))


def _example(number: int, view: MaskedExample, whole_words: bool) -> str:
    label = ""
    if view.label != NO_LABEL:
        _, english, chinese = LABELS[view.pairs, view.label]
        style = "other" if view.label == NEGATIVE_PAIR else "same"
        label = f'<span class="label {style}">{bilingual(english, chinese)}</span>'
    words = []
    for word in view.words():
        box = " whole" if whole_words and word[0].state in TARGET_STATES else ""
        segment = " b" if word[0].segment else ""
        tokens = "".join(_token(token) for token in word)
        words.append(f'<span class="word{box}{segment}">{tokens}</span>')
    boxed = " boxed" if whole_words else ""
    header = f"<header>{number}{label}</header>"
    return f'<div class="example{boxed}">{header}<div class="words">{"".join(words)}</div></div>'


def _token(token: ShownToken) -> str:
    original = f"<small>{escape(token.original)}</small>" if token.state in TARGET_STATES else ""
    return f'<span class="token {token.state}">{escape(token.seen)}{original}</span>'
