"""What happens in a run, as typed events: a line of `metrics.jsonl` each, TensorBoard if it is installed, and whoever
listens.

An event's fields are its line's keys, beside `kind`; docs/reference/events.md lists them. Lines of runs made before
version 0.2 are read as today's events.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from bertworks.files import atomic_write

METRICS = "metrics.jsonl"
Title = tuple[str, str]
"""English and Chinese."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Where the run stood; each kind of event adds what happened."""

    kind: ClassVar[str]

    step: int = 0
    progress: float = 0.0  # from 0 to 1
    tokens: int = 0  # trained on so far
    seconds: float = 0.0  # of the run, over all its processes one after the other

    def as_line(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Started(Event):
    kind = "start"

    machine: dict[str, Any]  # what the bits depend on, and what a reader would ask
    peak_gflops: float  # matrix products, measured
    terms: dict[str, Title] = field(default_factory=dict)  # of the loss: their titles
    unigram_loss: float | None = None  # pre-training: cost of a guess that knows frequencies and no context
    train_examples: int | None = None  # fine-tuning
    dev_examples: int | None = None


@dataclass(frozen=True, kw_only=True)
class Resumed(Event):
    kind = "resume"

    differences: list[str]  # from when the checkpoint was written: equal bits are not promised


@dataclass(frozen=True, kw_only=True)
class Planned(Event):
    kind = "plan"

    steps: int  # in all, as far as the time budget goes
    seconds_per_step: float


@dataclass(frozen=True, kw_only=True)
class Trained(Event):
    """Means over the steps since the last such line."""

    kind = "train"

    terms: dict[str, float]  # of the loss, and what is only watched
    lr: float
    gradient_norm: float
    tokens_per_second: float
    mfu: float  # share of the machine's peak in matrix products
    seconds_left: float


@dataclass(frozen=True, kw_only=True)
class Evaluated(Event):
    kind = "eval"

    metrics: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Saved(Event):
    kind = "checkpoint"

    path: str


@dataclass(frozen=True, kw_only=True)
class NotSaved(Event):
    kind = "save failed"

    reason: str


@dataclass(frozen=True, kw_only=True)
class Skipped(Event):
    """A step whose loss or gradient was not finite: it was not taken."""

    kind = "skip"

    loss: float | None
    gradient_norm: float | None
    epoch: int
    batch: int
    examples: list[int]


@dataclass(frozen=True, kw_only=True)
class Remarked(Event):
    kind = "remark"

    code: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Finished(Event):
    """`metrics` and what follows: of a fine-tuning, its best model on dev; of several seeds, their mean."""

    kind = "end"

    model: str
    report: str
    metrics: dict[str, float] = field(default_factory=dict)
    metric: str | None = None  # by which models are compared
    interval: tuple[float, float] | None = None  # 95 %, of that metric
    dev_examples: int | None = None
    extra_eval: dict[str, dict[str, float]] = field(default_factory=dict)  # metrics on further splits
    std: dict[str, float] | None = None  # over seeds
    n_seeds: int | None = None
    pruned_seeds: list[int] = field(default_factory=list)


KINDS: dict[str, type[Event]] = {
    event.kind: event
    for event in (Started, Resumed, Planned, Trained, Evaluated, Saved, NotSaved, Skipped, Remarked, Finished)
}
EventHandler = Callable[[Event], None]
Some = TypeVar("Some", bound=Event)


def ignore(event: Event) -> None:
    """Nobody listens."""


def of_kind(events: Iterable[Event], kind: type[Some]) -> list[Some]:
    return [event for event in events if isinstance(event, kind)]


def last(events: Iterable[Event], kind: type[Some]) -> Some | None:
    return next(reversed(of_kind(events, kind)), None)


def read_events(path: Path) -> list[Event]:
    """The lines that are whole; a killed process may leave half of one."""
    found = (_parse(line) for line in (path.read_bytes().splitlines() if path.is_file() else ()))
    return [event for event in found if event is not None]


def _parse(line: bytes) -> Event | None:
    try:
        values = _today(json.loads(line))
        kind = KINDS[values.pop("kind")]
        known = {one.name for one in fields(kind)}
        return (
            kind(**{name: value for name, value in values.items() if name in known})
            if isinstance(values["step"], int)
            else None
        )
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None


# Kinds of before version 0.2, whose lines were flat: today's kind, what its keys are called today, and where the others
# belong.
BEFORE: dict[str, tuple[str, dict[str, str], str | None]] = {
    "start": ("start", {"matrix_gflops": "peak_gflops", "train": "train_examples", "dev": "dev_examples"}, "machine"),
    "resumed": ("resume", {}, None),
    "train": ("train", {"gradient": "gradient_norm", "share": "mfu"}, "terms"),
    "held out": ("eval", {}, "metrics"),
    "bad": ("skip", {"gradient": "gradient_norm"}, None),
    "not saved": ("save failed", {}, None),
    "remark": ("remark", {}, None),
    "end": (
        "end",
        {
            "kept": "metrics",
            "measure": "metric",
            "dev": "dev_examples",
            "others": "extra_eval",
            "deviation": "std",
            "seeds": "n_seeds",
            "given_up": "pruned_seeds",
        },
        None,
    ),
}


def _today(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line as this version writes it."""
    kind, renamed, rest = BEFORE.get(line["kind"], (line["kind"], {}, None))
    values = {renamed.get(name, name): value for name, value in line.items()} | {"kind": kind}
    if kind == Remarked.kind:
        values.setdefault("code", "remark")
    if rest is None or rest in values:
        return values
    known = {"kind", *(one.name for one in fields(KINDS[kind]))}
    unknown = {name: value for name, value in values.items() if name not in known}
    return {**{name: value for name, value in values.items() if name in known}, rest: unknown}


class Log:
    """`metrics.jsonl`, TensorBoard, and whoever listens."""

    def __init__(self, folder: Path, on_event: EventHandler, *, since: int) -> None:
        """Goes on after step `since`: what an interrupted process wrote beyond it will be written again."""
        path = folder / METRICS
        kept = [event for event in read_events(path) if event.step <= since]
        with atomic_write(path) as file:
            file.writelines(map(_line, kept))
        self.file, self.on_event = path.open("ab"), on_event
        self.tensorboard, self.line_complete = _tensorboard(folder, since), True

    def write(self, event: Event) -> None:
        """A disk that is full, or a terminal that is gone, is no reason to stop training; whoever listens is told."""
        try:
            self.file.write(b"" if self.line_complete else b"\n")
            self.file.write(_line(event))
            self.file.flush()
            self.line_complete = True
        except OSError as error:
            if self.line_complete:
                text = f"{METRICS} could not be written: {error}"
                self._tell(Remarked(step=event.step, code="log-not-written", text=text))
            self.line_complete = False  # half a line may stand there; the next begins on its own
        self._tell(event)
        if self.tensorboard is not None:
            for name, value in _scalars(event):
                self.tensorboard.add_scalar(f"{event.kind}/{name}", value, event.step)

    def _tell(self, event: Event) -> None:
        with suppress(OSError, ValueError):
            self.on_event(event)

    def close(self) -> None:
        with suppress(OSError):
            self.file.close()
        if self.tensorboard is not None:
            self.tensorboard.close()


def _scalars(event: Event) -> Iterator[tuple[str, float]]:
    for name, value in event.as_line().items():
        nested = value if isinstance(value, dict) else {name: value}
        yield from ((key, number) for key, number in nested.items() if isinstance(number, float))


def _line(event: Event) -> bytes:
    return (json.dumps(_finite(event.as_line()), ensure_ascii=False) + "\n").encode()


def _finite(value: Any) -> Any:
    """JSON has no NaN: a number that is none is null."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _tensorboard(folder: Path, since: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=since + 1)
