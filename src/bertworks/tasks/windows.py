"""Sliding windows for texts longer than the model: every token is in at least one, and neighbours overlap.

All windows have the full length and are spaced evenly, so the overlap is at least the configured one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import get_args

import numpy as np

from bertworks.config import WindowConfig
from bertworks.errors import BadConfig, TooLong
from bertworks.tasks.features import Array, Numbers, TokenCounts
from bertworks.text.ledger import OnLong
from bertworks.text.tokenizer import SpecialTokenTemplate, Tokenizer

TokenRange = tuple[int, int]  # begin, end (exclusive)
MAX_WINDOW_PAIRS = 64  # of two long texts: up to there all windows of one are combined with all of the other


def evenly_spaced(length: int, size: int, overlap: int, min_windows: int = 1) -> list[TokenRange]:
    """Windows of at most `size` tokens over a text of `length`; neighbours share at least `overlap`, or `size` / 2 if
    that is less."""
    overlap = min(overlap, size // 2)
    n_windows = max(min_windows, -(-(length - overlap) // (size - overlap)) if length > size else 1)
    starts = [max(0, length - size) * i // max(1, n_windows - 1) for i in range(n_windows)]
    return [(start, min(start + size, length)) for start in starts]


@dataclass(frozen=True)
class WindowRanges:
    """A window of a text or a pair: the range of tokens of each text, without special tokens."""

    texts: tuple[TokenRange, ...]


class SlidingWindows:
    """Splits tokens into windows. `limit`: tokens of a window, with special ones; `on_long`: what to do with longer
    texts."""

    def __init__(
        self, tokenizer: Tokenizer, limit: int, overlap: int, on_long: OnLong, *, final_token: bool = False
    ) -> None:
        """`final_token`: pairs end with a special token, even if the tokenizer has none there."""
        if on_long not in get_args(OnLong):
            cause = f"on_long = {on_long!r} is not one of {', '.join(get_args(OnLong))}"
            raise BadConfig(cause, code="unknown-value", fields=["on_long"])
        self.tokenizer = tokenizer
        self.limit = limit
        self.overlap = overlap
        self.on_long = on_long
        self.final_token = final_token

    @classmethod
    def from_config(cls, tokenizer: Tokenizer, config: WindowConfig, on_long: OnLong | None = None) -> SlidingWindows:
        return cls(tokenizer, config.max_length, config.overlap, on_long or config.on_long)

    def with_overlap(self, overlap: int, *, final_token: bool) -> SlidingWindows:
        """The same with at least this overlap."""
        overlap = max(self.overlap, overlap)
        return SlidingWindows(self.tokenizer, self.limit, overlap, self.on_long, final_token=final_token)

    def capacity(self, n_texts: int) -> int:
        """How many tokens of the texts fit into a window, beside the special ones."""
        return self.limit - self._templates[n_texts].n_special

    def ranges(self, lengths: tuple[int, ...], place: str) -> list[WindowRanges]:
        """The windows of one text, or of two. Of two, the shorter is in each window completely; if it takes more than
        half of a window, it has windows of its own. These are combined with all windows of the other text or, if that
        were too many, each with the one at the same relative position."""
        capacity = self.capacity(len(lengths))
        if capacity < len(lengths):
            raise BadConfig(f"a limit of {self.limit} tokens is used up by the special tokens", code="no-room")
        if sum(lengths) <= capacity:
            return [WindowRanges(tuple((0, length) for length in lengths))]
        if self.on_long == "error":
            remedy = "--on-long window reads it in windows, --on-long truncate cuts it"
            raise TooLong(f"{sum(lengths)} tokens, the model takes {capacity}", place=place, remedy=remedy)
        if len(lengths) == 1:
            ranges = [WindowRanges((window,)) for window in evenly_spaced(lengths[0], capacity, self.overlap)]
        else:
            ranges = list(self._pairs(lengths, capacity))
        return ranges[:1] if self.on_long == "truncate" else ranges

    def _pairs(self, lengths: tuple[int, ...], capacity: int) -> Iterator[WindowRanges]:
        short = int(lengths[1] < lengths[0])
        short_size = min(lengths[short], capacity // 2)
        sides = (lengths[short], short_size), (lengths[1 - short], capacity - short_size)
        shorter, longer = (evenly_spaced(*side, self.overlap) for side in sides)
        pairs: Iterable[tuple[TokenRange, ...]] = product(shorter, longer)
        if len(shorter) > 1 and len(shorter) * len(longer) > MAX_WINDOW_PAIRS:
            n_windows = max(len(shorter), len(longer))
            pairs = zip(*(evenly_spaced(*side, self.overlap, n_windows) for side in sides), strict=True)
        for pair in pairs:
            yield WindowRanges(pair if short == 0 else pair[::-1])

    def count(self, texts: tuple[Numbers, ...], ranges: Sequence[WindowRanges]) -> Iterator[TokenCounts]:
        """The token counts of each text."""
        unknown = self.tokenizer.unknown_id
        for text, (begin, end) in zip(texts, ranges[0].texts, strict=True):
            lost = len(text) - (end - begin) if self.on_long == "truncate" else 0
            n_unknown = int((text == unknown).sum()) if unknown is not None else 0
            n_special = int(np.isin(text, self.tokenizer.reserved_ids).sum())
            yield TokenCounts(len(text), lost, n_unknown, n_special)

    def with_special_tokens(
        self, texts: tuple[Numbers, ...], ranges: WindowRanges
    ) -> tuple[Numbers, Numbers, list[int]]:
        """A window with its special tokens: ids, segments, and the position of each text's first token."""
        template = self._templates[len(texts)]
        starts = []
        size = 0
        ids: list[Array] = []
        segments: list[Array] = []
        for i, (special, special_segments) in enumerate(template.parts):
            ids.append(special)
            segments.append(special_segments)
            size += len(special)
            if i < len(texts):
                begin, end = ranges.texts[i]
                starts.append(size)
                ids.append(texts[i][begin:end])
                segments.append(np.full(end - begin, template.segments[i]))
                size += end - begin
        return np.concatenate(ids).astype(np.int64), np.concatenate(segments).astype(np.int64), starts

    @cached_property
    def _templates(self) -> dict[int, SpecialTokenTemplate]:
        """Special tokens around one text and around two. GPT's tokenizer has none between and after texts; there, its
        end-of-text token separates them (Radford et al. 2018)."""
        pair = self.tokenizer.pair_template
        if "sep" in self.tokenizer.special:
            separator = np.array([self.tokenizer.id_of("sep")], np.int32), np.zeros(1, np.int32)
            before, between, after = pair.parts
            between = between if len(between[0]) else separator
            after = separator if self.final_token and not len(after[0]) else after
            pair = SpecialTokenTemplate((before, between, after), pair.segments)
        return {1: self.tokenizer.template, 2: pair}
