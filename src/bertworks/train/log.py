"""What happens in a run, line by line: `metrics.jsonl`, TensorBoard if it is installed, and whoever watches."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertworks.files import whole_file

METRICS = "metrics.jsonl"
Event = dict[str, Any]
Watch = Callable[[Event], None]


def read_events(path: Path) -> list[Event]:
    """The lines that are whole; a killed process may leave half of one."""
    events = []
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        try:
            events.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    known = (event for event in events if isinstance(event, dict))
    return [event for event in known if isinstance(event.get("step"), int) and isinstance(event.get("kind"), str)]


class Log:
    def __init__(self, folder: Path, watch: Watch, *, since: int) -> None:
        """Goes on after step `since`: what an interrupted process wrote beyond it will be written again."""
        path = folder / METRICS
        kept = [event for event in read_events(path) if event["step"] <= since]
        with whole_file(path) as file:
            file.writelines(_line(event) for event in kept)
        self.file, self.watch, self.board, self.whole = path.open("ab"), watch, _tensorboard(folder, since), True

    def write(self, event: Event) -> None:
        """A disk that is full, or a terminal that is gone, is no reason to stop training; whoever watches is told."""
        try:
            self.file.write(b"" if self.whole else b"\n")
            self.file.write(_line(event))
            self.file.flush()
            self.whole = True
        except OSError as error:
            if self.whole:
                with suppress(OSError, ValueError):
                    text = f"{METRICS} could not be written: {error}"
                    self.watch({"kind": "remark", "step": event["step"], "code": "log-not-written", "text": text})
            self.whole = False  # half a line may stand there; the next begins on its own
        with suppress(OSError, ValueError):
            self.watch(event)
        if self.board is not None:
            for name, value in event.items():
                if isinstance(value, float):
                    self.board.add_scalar(f"{event['kind']}/{name}", value, event["step"])

    def close(self) -> None:
        with suppress(OSError):
            self.file.close()
        if self.board is not None:
            self.board.close()


def _line(event: Event) -> bytes:
    # JSON has no NaN: a number that is none is null.
    finite = {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in event.items()}
    return (json.dumps(finite, ensure_ascii=False) + "\n").encode()


def _tensorboard(folder: Path, since: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=since + 1)
