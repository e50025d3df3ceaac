"""What the model will see: examples with their masks, for people."""

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
from bertworks.files import atomic_write
from bertworks.page.html import both, escape, page, table
from bertworks.text.tokenizer import Tokenizer

State = Literal["text", "special", "masked", "random", "kept"]
COLOURS = {
    "masked": "bold black on yellow",
    "random": "bold white on red",
    "kept": "bold black on green",
    "special": "dim",
    "text": "",
}
STYLE = """
.example { border: 1px solid var(--line); border-radius: 8px; padding: 0.6rem 1rem 0.5rem; margin: 0.9rem 0; }
.example header { font-size: 0.85rem; color: var(--dim); margin-bottom: 0.35rem; }
.label { border-radius: 99px; padding: 0.1rem 0.6rem; margin-left: 0.5rem; background: var(--soft); border: 1px solid var(--line); }
.label.other { background: #b4231822; border-color: #b4231866; } .label.same { background: #067a4622; border-color: #067a4666; }
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
LABELS = {  # by kind of pair and label: how it is said in the terminal, English, Chinese
    ("nsp", 0): ("next sentence", "B follows A", "B 是 A 的下一句"),
    ("nsp", 1): ("random sentence", "B is from another document", "B 来自另一篇文档"),
    ("sop", 0): ("in order", "A and B in order", "A、B 顺序正确"),
    ("sop", 1): ("swapped", "A and B swapped", "A、B 顺序颠倒"),
}


@dataclass(frozen=True)
class ShownToken:
    seen: str
    original: str
    state: State
    starts_word: bool
    segment: int


@dataclass(frozen=True)
class MaskedExample:
    """An example, token by token, and its label."""

    tokens: list[ShownToken]
    label: int
    pairs: str

    def words(self) -> list[list[ShownToken]]:
        words: list[list[ShownToken]] = []
        for token in self.tokens:
            if token.starts_word or not words:
                words.append([])
            words[-1].append(token)
        return words

    def shares(self) -> Counter[State]:
        return Counter(token.state for token in self.tokens)


def view_masks(
    shards: Shards, config: DataConfig, *, seed: int, epoch: int, lines: int
) -> tuple[Epoch, list[MaskedExample]]:
    """The first examples of an epoch, in the order in which they are trained on."""
    loader = Loader(shards, config, seed=seed, batch_tokens=max(4096, config.max_length))
    found = loader.epoch(epoch)
    views: list[MaskedExample] = []
    for batch in range(len(found)):
        for member in found.examples_of(batch).tolist():
            views.append(_view(found, member, shards.tokenizer))
            if len(views) == lines:
                return found, views
    return found, views


def _view(epoch: Epoch, number: int, tokenizer: Tokenizer) -> MaskedExample:
    example = epoch.example(number)
    hidden = epoch.corrupted(number, example)
    targets = set(hidden.targets.tolist())
    tokens = []
    for at, (seen, original) in enumerate(zip(hidden.ids.tolist(), example.ids.tolist(), strict=True)):
        state: State = "text" if example.maskable[at] else "special"
        if at in targets:
            state = "kept" if seen == original else "masked" if seen == epoch.loader.vocabulary.mask_id else "random"
        starts = bool(example.word_starts[at] or not example.maskable[at] or at == 0 or not example.maskable[at - 1])
        tokens.append(
            ShownToken(tokenizer.readable(seen), tokenizer.readable(original), state, starts, int(example.segments[at]))
        )
    return MaskedExample(tokens, example.label, epoch.loader.config.pairs)


def print_view(view: MaskedExample) -> Text:
    """One line for the terminal: what the model sees, and behind each target what it was."""
    line = Text()
    if view.label != NO_LABEL:
        line.append(
            f" {LABELS[view.pairs, view.label][0]} ",
            style="white on red" if view.label == NEGATIVE_PAIR else "black on green",
        )
        line.append(" ")
    for word in view.words():
        for token in word:
            line.append(token.seen, style=COLOURS[token.state])
            if token.state in ("masked", "random"):
                line.append(f"‹{token.original}›", style="dim")
        line.append(" ")
    return line


def print_views(console: Console, views: list[MaskedExample]) -> None:
    console.print(legend())
    for number, view in enumerate(views, start=1):
        console.print(Text.assemble((f"{number:>3} ", "dim"), print_view(view)))


def legend() -> Text:
    line = Text("   ")
    for state, said in (
        ("masked", "hidden by the mask"),
        ("random", "replaced at random"),
        ("kept", "kept, but to be predicted"),
    ):
        line.append(f" {state} ", style=COLOURS[state])
        line.append(f" {said}   ")
    line.append("‹original›", style="dim")
    return line


def summary(views: list[MaskedExample]) -> Counter[State]:
    return sum((view.shares() for view in views), Counter())


def write_masks_page(path: Path, epoch: Epoch, views: list[MaskedExample]) -> None:
    config, shares = epoch.loader.config, summary(views)
    targets = sum(shares[state] for state in ("masked", "random", "kept"))
    free = max(1, shares.total() - shares["special"])
    whole = SPAN_LENGTHS[config.masking].words
    rows = [
        (both("predicted, of all tokens", "待预测，占全部词元"), targets, f"{targets / free:.1%}"),
        (both("hidden, of these", "其中被遮盖"), shares["masked"], f"{shares['masked'] / max(1, targets):.1%}"),
        (both("random, of these", "其中换成随机"), shares["random"], f"{shares['random'] / max(1, targets):.1%}"),
        (both("kept, of these", "其中保留原样"), shares["kept"], f"{shares['kept'] / max(1, targets):.1%}"),
    ]
    intro = both(
        f"These are {len(views)} examples as they are trained on: masking <b>{config.masking}</b>, pairs <b>{config.pairs}</b>, "
        f"at most {config.max_length} tokens. A coloured token is to be predicted; the small print below is what stood there.",
        f"以下是 {len(views)} 条训练样本：遮盖方式 <b>{config.masking}</b>，句对方式 <b>{config.pairs}</b>，"
        f"每条最多 {config.max_length} 个词元。着色的词元需要预测，下方小字是原来的内容。",
    )
    keys = [
        f'<span class="key masked">[MASK]</span>{both("hidden", "被遮盖")}',
        f'<span class="key random">?</span>{both("replaced by a random token", "换成随机词元")}',
        f'<span class="key kept">=</span>{both("kept, but to be predicted", "保留原样，但仍需预测")}',
    ]
    if whole:
        keys.append(
            both(
                "A box is a whole word: hidden whole or not at all.", "方框是一个完整的词：要么整个遮盖，要么完全不遮。"
            )
        )
    if config.pairs in ("nsp", "sop"):
        keys.append(both("Dots below: sentence B.", "下有点线：句子 B。"))
    tally = epoch.plan.stats
    plan = both(
        f"The epoch: {tally}.",
        f"本轮：{tally.examples:,} 条样本，读入 {tally.tokens_in:,} 个词元，用到 {tally.tokens_out:,} 个，"
        f"截短时丢掉 {tally.lost:,} 个，随机句对中重复用到 {tally.repeated:,} 个。",
    )
    shown = table(["", both("tokens", "词元"), both("share", "比例")], rows)
    body = [f"<p>{intro}</p>", f'<p class="legend">{"".join(keys)}</p>', shown, f'<p class="dim">{plan}</p>']
    body += [_example(number, view, whole) for number, view in enumerate(views, start=1)]
    with atomic_write(path) as file:
        file.write(page(("What the model will see", "模型将看到什么"), "\n".join(body), STYLE).encode())


def _example(number: int, view: MaskedExample, whole: bool) -> str:
    label = ""
    if view.label != NO_LABEL:
        _, english, chinese = LABELS[view.pairs, view.label]
        label = (
            f'<span class="label {"other" if view.label == NEGATIVE_PAIR else "same"}">{both(english, chinese)}</span>'
        )
    words = []
    for word in view.words():
        hidden = word[0].state not in ("text", "special")
        tokens = "".join(_token(token) for token in word)
        words.append(
            f'<span class="word{" whole" if hidden and whole else ""}{" b" if word[0].segment else ""}">{tokens}</span>'
        )
    boxed = " boxed" if whole else ""
    header = f"<header>{number}{label}</header>"
    return f'<div class="example{boxed}">{header}<div class="words">{"".join(words)}</div></div>'


def _token(token: ShownToken) -> str:
    below = f"<small>{escape(token.original)}</small>" if token.state in ("masked", "random", "kept") else ""
    return f'<span class="token {token.state}">{escape(token.seen)}{below}</span>'
