"""What happened to texts longer than the model: counted, and said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MANY_UNKNOWN = 0.01
OnLong = Literal["window", "truncate", "error"]


@dataclass
class Ledger:
    """Hand one to `encode` and read it afterwards. Tokens are those of the texts, without [CLS] and the like."""

    limit: int | None = None  # tokens of a text that fit into the model at once
    texts: int = 0
    tokens: int = 0
    windowed_texts: int = 0
    windowed_tokens: int = 0
    cut_texts: int = 0
    cut_tokens: int = 0
    unknown: int = 0  # tokens that stand for what the vocabulary has no entry for

    def count(self, tokens: int, *, windows: bool, lost: int, unknown: int = 0) -> None:
        """One more text."""
        self.texts += 1
        self.tokens += tokens
        self.unknown += unknown
        if lost:
            self.cut_texts += 1
            self.cut_tokens += lost
        elif windows:
            self.windowed_texts += 1
            self.windowed_tokens += tokens

    @property
    def has_many_unknown(self) -> bool:
        return self.unknown > MANY_UNKNOWN * self.tokens

    def __str__(self) -> str:
        parts = [f"{self.texts:,} texts, {self.tokens:,} tokens"]
        if self.windowed_texts:
            parts.append(
                f"{self.windowed_texts:,} texts with {self.windowed_tokens:,} tokens were longer than {self.limit} "
                "and read in windows, nothing lost"
            )
        if self.cut_texts:
            share = self.cut_tokens / self.tokens
            parts.append(
                f"{self.cut_texts:,} texts were longer than {self.limit} and cut: {self.cut_tokens:,} tokens lost ({share:.1%})"
            )
        if not self.windowed_texts and not self.cut_texts:
            parts.append("none longer than the model")
        if self.has_many_unknown:
            share = self.unknown / self.tokens
            parts.append(
                f"{self.unknown:,} tokens ({share:.1%}) are unknown to the vocabulary and not read: see `bertworks vocab check`"
            )
        return "; ".join(parts)
