"""Texts longer than the model, in windows: every token is in one of them, and neighbours share some.

Windows are all as long as the model allows and spread evenly, so the share is at least what was asked for.
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

TokenRange = tuple[int, int]  # first token, and the one behind the last
MAX_WINDOW_PAIRS = 64  # of two long texts, if each window of one is to meet each of the other


def spread(length: int, room: int, overlap: int, fewest: int = 1) -> list[TokenRange]:
    """Where windows of at most `room` begin and end, so that neighbours share at least `overlap`."""
    shared = min(overlap, room // 2)
    count = max(fewest, -(-(length - shared) // (room - shared)) if length > room else 1)
    starts = [max(0, length - room) * at // max(1, count - 1) for at in range(count)]
    return [(start, min(start + room, length)) for start in starts]


@dataclass(frozen=True)
class WindowRanges:
    """A window of a text or a pair before special tokens are set around: which tokens of each text are in it."""

    texts: tuple[TokenRange, ...]


class SlidingWindows:
    """Tokens to windows, with what a model takes at once and what is to be done with more."""

    def __init__(
        self, tokenizer: Tokenizer, limit: int, overlap: int, on_long: OnLong, *, closed: bool = False
    ) -> None:
        """`closed`: there is a special token behind the texts."""
        if on_long not in get_args(OnLong):
            cause = f"on_long = {on_long!r} is not one of {', '.join(get_args(OnLong))}"
            raise BadConfig(cause, code="unknown-value", fields=["on_long"])
        self.tokenizer, self.limit, self.overlap, self.on_long, self.closed = tokenizer, limit, overlap, on_long, closed

    @classmethod
    def from_config(cls, tokenizer: Tokenizer, config: WindowConfig, on_long: OnLong | None = None) -> SlidingWindows:
        return cls(tokenizer, config.max_length, config.overlap, on_long or config.on_long)

    def with_overlap(self, overlap: int, *, closed: bool) -> SlidingWindows:
        """With windows that share at least so many tokens."""
        return SlidingWindows(self.tokenizer, self.limit, max(self.overlap, overlap), self.on_long, closed=closed)

    def capacity(self, n_texts: int) -> int:
        """Tokens of so many texts that fit into a window."""
        return self.limit - self._templates[n_texts].n_special

    def ranges(self, lengths: tuple[int, ...], place: str) -> list[WindowRanges]:
        """Windows of one text, or of two. Of two the shorter is whole in each of them, or, if it takes more than half
        of the room, in windows of its own; each of these meets all of the other's, or if they were too many, the one at
        the same height."""
        room = self.capacity(len(lengths))
        if room < len(lengths):
            raise BadConfig(
                f"a limit of {self.limit} tokens leaves no room for text beside the special ones", code="no-room"
            )
        if sum(lengths) <= room:
            return [WindowRanges(tuple((0, length) for length in lengths))]
        if self.on_long == "error":
            remedy = "--on-long window reads it in windows, truncate cuts it"
            raise TooLong(f"{sum(lengths)} tokens, {room} fit into the model", place=place, remedy=remedy)
        if len(lengths) == 1:
            cuts = [WindowRanges((window,)) for window in spread(lengths[0], room, self.overlap)]
        else:
            cuts = list(self._pairs(lengths, room))
        return cuts[:1] if self.on_long == "truncate" else cuts

    def _pairs(self, lengths: tuple[int, ...], room: int) -> Iterator[WindowRanges]:
        short = int(lengths[1] < lengths[0])
        half = min(lengths[short], room // 2)
        sides = (lengths[short], half), (lengths[1 - short], room - half)
        shorter, longer = (spread(*side, self.overlap) for side in sides)
        meetings: Iterable[tuple[TokenRange, ...]] = product(shorter, longer)
        if len(shorter) > 1 and len(shorter) * len(longer) > MAX_WINDOW_PAIRS:
            most = max(len(shorter), len(longer))
            meetings = zip(*(spread(*side, self.overlap, most) for side in sides), strict=True)
        for meeting in meetings:
            yield WindowRanges(meeting if short == 0 else meeting[::-1])

    def count(self, texts: tuple[Numbers, ...], ranges: Sequence[WindowRanges]) -> Iterator[TokenCounts]:
        """What there is in each text, and what of it is in no window."""
        unknown = self.tokenizer.unknown_id
        for text, (begin, end) in zip(texts, ranges[0].texts, strict=True):
            lost = len(text) - (end - begin) if self.on_long == "truncate" else 0
            yield TokenCounts(len(text), lost, int((text == unknown).sum()) if unknown is not None else 0)

    def with_special_tokens(
        self, texts: tuple[Numbers, ...], ranges: WindowRanges
    ) -> tuple[Numbers, Numbers, list[int]]:
        """A window with its special tokens: ids, segments, and where each text begins in it."""
        template, starts, size = self._templates[len(texts)], [], 0
        ids: list[Array] = []
        segments: list[Array] = []
        for at, (special, special_segments) in enumerate(template.parts):
            ids.append(special)
            segments.append(special_segments)
            size += len(special)
            if at < len(texts):
                begin, end = ranges.texts[at]
                starts.append(size)
                ids.append(texts[at][begin:end])
                segments.append(np.full(end - begin, template.segments[at]))
                size += end - begin
        return np.concatenate(ids).astype(np.int64), np.concatenate(segments).astype(np.int64), starts

    @cached_property
    def _templates(self) -> dict[int, SpecialTokenTemplate]:
        """Around one text and around two. GPT's tokenizer sets nothing between and behind them; its end mark tells what
        is what (Radford et al. 2018)."""
        one, two = self.tokenizer.template, self.tokenizer.pair_template
        if "sep" in self.tokenizer.special:
            mark = np.array([self.tokenizer.id_of("sep")], np.int32), np.zeros(1, np.int32)
            before, between, behind = two.parts
            behind = mark if self.closed and not len(behind[0]) else behind
            two = SpecialTokenTemplate((before, between if len(between[0]) else mark, behind), two.segments)
        return {1: one, 2: two}
