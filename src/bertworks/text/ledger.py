"""Counts of texts longer than the model's maximum length, of unknown tokens and of special tokens written in a text,
with a summary for the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MANY_UNKNOWN = 0.01  # share of the tokens, above which the summary mentions them
UNREADABLE = 0.2  # above which the model is one for other texts
OnLong = Literal["window", "truncate", "error"]


@dataclass
class Ledger:
    """Pass one to `encode` and read it afterwards. Tokens are counted without special tokens."""

    limit: int | None = None  # tokens of a text that fit into the model at once
    texts: int = 0
    tokens: int = 0
    windowed_texts: int = 0
    windowed_tokens: int = 0
    cut_texts: int = 0
    cut_tokens: int = 0
    unknown: int = 0  # [UNK] tokens
    special: int = 0  # [MASK] and others that the texts themselves contain

    def count(self, tokens: int, *, windows: bool, lost: int, unknown: int = 0, special: int = 0) -> None:
        """Count a text. `lost`: its truncated tokens."""
        self.texts += 1
        self.tokens += tokens
        self.unknown += unknown
        self.special += special
        if lost:
            self.cut_texts += 1
            self.cut_tokens += lost
        elif windows:
            self.windowed_texts += 1
            self.windowed_tokens += tokens

    @property
    def has_many_unknown(self) -> bool:
        return self.unknown > MANY_UNKNOWN * self.tokens

    @property
    def unknown_advice(self) -> tuple[str, str] | None:
        """What many unknown tokens mean and what to do, in English and Chinese."""
        if not self.has_many_unknown:
            return None
        share = self.unknown / self.tokens
        counts = f"{self.unknown:,} unknown tokens ({share:.1%}), which the model cannot tell apart"
        chinese = f"{self.unknown:,} 个未知词元（{share:.1%}），模型无法区分它们"
        if share <= UNREADABLE:
            return f"{counts}: see `bertworks vocab check`", f"{chinese}：见 `bertworks vocab check`"
        return (
            f"{counts}: it cannot read this text; take a model for this language (Chinese: bert-base-chinese, many "
            "languages: xlm-roberta-base), or train one of your own",
            f"{chinese}：它读不懂这些文本；请改用支持该语言的模型（中文：bert-base-chinese；多语言：xlm-roberta-base），"
            "或自行训练",
        )

    def __str__(self) -> str:
        parts = [f"{_count(self.texts, 'text')}, {_count(self.tokens, 'token')}"]
        if self.windowed_texts:
            parts.append(
                f"{_count(self.windowed_texts, 'text')} with {_count(self.windowed_tokens, 'token')} longer than "
                f"{self.limit} split into windows, nothing lost"
            )
        if self.cut_texts:
            share = self.cut_tokens / self.tokens
            parts.append(
                f"{_count(self.cut_texts, 'text')} longer than {self.limit} truncated: "
                f"{_count(self.cut_tokens, 'token')} lost ({share:.1%})"
            )
        if not self.windowed_texts and not self.cut_texts:
            parts.append("none longer than the model")
        if self.unknown_advice is not None:
            parts.append(self.unknown_advice[0])
        if self.special:
            parts.append(f"{_count(self.special, 'special token')} in the texts, such as [MASK], read as such")
        return "; ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
