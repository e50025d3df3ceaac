"""SIGTERM and SIGINT ask for an end: the step is finished and saved; a look at dev is broken off, if one process makes it. A second signal
ends the process at once.

Whoever ends a group of processes often signals each of them twice, once directly and once through their parent; two SIGTERMs within a
moment are therefore one.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)
MOMENT = 0.5  # seconds


class BrokenOff(Exception):
    """The end was asked for in the middle of what can be done again."""


@dataclass
class Stop:
    signal: int = 0  # 0: nobody asked
    asked_at: float = 0.0

    def ask(self, number: int, frame: FrameType | None) -> None:
        same = number == self.signal == signal.SIGTERM and time.monotonic() - self.asked_at < MOMENT
        if self.signal and not same:
            os._exit(128 + number)
        self.signal, self.asked_at = number, time.monotonic()

    def check(self) -> None:
        if self.signal:
            raise BrokenOff


@contextmanager
def listening() -> Iterator[Stop]:
    stop = Stop()
    before = {number: signal.signal(number, stop.ask) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
