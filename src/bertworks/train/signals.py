"""SIGTERM and SIGINT ask for an end: the step is finished and saved. A second one ends the process at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass
class Stop:
    signal: int = 0  # 0: nobody asked

    def ask(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            os._exit(128 + number)
        self.signal = number


@contextmanager
def listening() -> Iterator[Stop]:
    stop = Stop()
    before = {number: signal.signal(number, stop.ask) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
