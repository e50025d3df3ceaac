"""The events of a run, typed: each is a line of `metrics.jsonl`, goes to TensorBoard if it is installed, and to a
handler.

An event's fields are the keys of its line, beside `kind`; docs/reference/events.md lists them. Lines of runs made
before version 0.2 are read as today's events.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from bertworks.files import JsonObject, atomic_write

METRICS = "metrics.jsonl"
BEST_MODEL_LOST = "best-model-lost"  # code of a remark: evaluations before it are no longer those of the run's model
Title = tuple[str, str]
"""English and Chinese."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Where the run stood; each kind of event adds what happened."""

    kind: ClassVar[str]

    step: int = 0
    progress: float = 0.0  # from 0 to 1
    tokens: int = 0  # trained on so far
    seconds: float = 0.0  # of the run, summed over its processes, one after the other

    def as_line(self) -> dict[str, object]:
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Started(Event):
    kind = "start"

    machine: dict[str, Any]  # hardware and versions; the bits of a run depend on them
    peak_gflops: float  # of matrix products, measured
    terms: dict[str, Title] = field(default_factory=dict)  # titles of the terms of the loss
    unigram_loss: float | None = None  # pre-training: loss of predicting token frequencies, without context
    train_examples: int | None = None  # fine-tuning
    dev_examples: int | None = None


@dataclass(frozen=True, kw_only=True)
class Resumed(Event):
    kind = "resume"

    differences: list[str]  # of the machine since the checkpoint was written; then equal bits are not guaranteed


@dataclass(frozen=True, kw_only=True)
class Planned(Event):
    kind = "plan"

    steps: int  # total, estimated from the time budget
    seconds_per_step: float


@dataclass(frozen=True, kw_only=True)
class Trained(Event):
    """Means over the steps since the last such event."""

    kind = "train"

    terms: dict[str, float]  # of the loss, and those of weight 0, which are only monitored
    lr: float
    gradient_norm: float
    tokens_per_second: float
    mfu: float | None  # model FLOP/s as a share of the measured peak; null: that could not be measured
    seconds_left: float


@dataclass(frozen=True, kw_only=True)
class Evaluated(Event):
    kind = "eval"

    metrics: dict[str, float]  # with "loss", or "error" and "choice_error", by which models are chosen


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
    """A step was skipped: its loss or gradient was not finite."""

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
    """`metrics`: of the best model, on dev; of a pre-training, on held-out text; of several seeds, their mean. After
    them: of a fine-tuning only."""

    kind = "end"

    model: str
    report: str
    metrics: dict[str, float] = field(default_factory=dict)
    metric: str | None = None  # the main one
    interval: tuple[float, float] | None = None  # its 95 % CI
    dev_examples: int | None = None
    extra_eval: dict[str, dict[str, float]] = field(default_factory=dict)  # metrics on further splits
    std: dict[str, float] | None = None  # over seeds
    n_seeds: int | None = None
    pruned_seeds: list[int] = field(default_factory=list)
    best_step: int | None = None  # of the kept model
    n_evaluations: int | None = None  # among which it was chosen
    sampled_examples: int | None = None  # of dev that these read, if not all: then it is the latest near the best
    last: dict[str, float] = field(default_factory=dict)  # metrics of the last evaluation
    cross_fitted: dict[str, float] = field(default_factory=dict)  # metrics corrected for that choice
    baseline: dict[str, float] = field(default_factory=dict)  # metrics without reading the texts
    epochs: float | None = None  # of training data that were read
    evaluation_seconds: float | None = None  # of the final evaluation, which a budget does not include


KINDS: dict[str, type[Event]] = {
    event.kind: event
    for event in (Started, Resumed, Planned, Trained, Evaluated, Saved, NotSaved, Skipped, Remarked, Finished)
}
EventHandler = Callable[[Event], None]
AnyEvent = TypeVar("AnyEvent", bound=Event)


def ignore(event: Event) -> None:
    """The handler that does nothing."""


def of_kind(events: Iterable[Event], kind: type[AnyEvent]) -> list[AnyEvent]:
    return [event for event in events if isinstance(event, kind)]


def last(events: Iterable[Event], kind: type[AnyEvent]) -> AnyEvent | None:
    return next(reversed(of_kind(events, kind)), None)


def candidates(events: Iterable[Event]) -> list[Evaluated]:
    """The evaluations among which the run's model is chosen: all, but for those before a best model that was lost."""
    evaluated: list[Evaluated] = []
    for event in events:
        if isinstance(event, Remarked) and event.code == BEST_MODEL_LOST:
            evaluated = []
        elif isinstance(event, Evaluated):
            evaluated.append(event)
    return evaluated


def lowest_loss(events: Iterable[Event]) -> Evaluated | None:
    """The evaluation of the model that a pre-training keeps; of equal ones the latest."""
    best: Evaluated | None = None
    for event in candidates(events):
        if math.isfinite(loss := event.metrics.get("loss", math.inf)):
            best = event if best is None or loss <= best.metrics["loss"] else best
    return best


def read_events(path: Path) -> list[Event]:
    """Of a `metrics.jsonl`. Lines that cannot be read are skipped: a killed process may leave half of one."""
    lines = path.read_bytes().splitlines() if path.is_file() else []
    return [event for event in map(_parse, lines) if event is not None]


def _parse(line: bytes) -> Event | None:
    try:
        values = _upgrade(json.loads(line))
        event = KINDS[values.pop("kind")]
        names = {field.name for field in fields(event)}
        if not isinstance(values["step"], int):
            return None
        return event(**{name: value for name, value in values.items() if name in names})
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None


# Kinds before version 0.2, when lines were flat: the kind of today, renamed keys, and the field that takes the other
# keys.
OLD_KINDS: dict[str, tuple[str, dict[str, str], str | None]] = {
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


def _upgrade(line: JsonObject) -> JsonObject:
    """A line as this version writes it."""
    kind, renamed_keys, nested_field = OLD_KINDS.get(line["kind"], (line["kind"], {}, None))
    values = {renamed_keys.get(name, name): value for name, value in line.items()} | {"kind": kind}
    if kind == Remarked.kind:
        values.setdefault("code", "remark")
    if nested_field is None or nested_field in values:
        return values
    names = {"kind", *(field.name for field in fields(KINDS[kind]))}
    nested = {name: value for name, value in values.items() if name not in names}
    return {**{name: value for name, value in values.items() if name in names}, nested_field: nested}


class Log:
    """Writes events to `metrics.jsonl` and TensorBoard, and passes them to a handler."""

    def __init__(self, folder: Path, on_event: EventHandler, *, since: int) -> None:
        """Continues after step `since`: later events of an interrupted process are dropped, they will come again."""
        path = folder / METRICS
        earlier = [event for event in read_events(path) if event.step <= since]
        with atomic_write(path) as file:
            file.writelines(map(_line, earlier))
        self.file = path.open("ab")
        self.on_event = on_event
        self.tensorboard = _tensorboard(folder, since)
        self.line_complete = True  # the last line of the file

    def write(self, event: Event) -> None:
        """A full disk or a closed terminal does not stop the training; the handler gets a remark."""
        try:
            self.file.write(b"" if self.line_complete else b"\n")
            self.file.write(_line(event))
            self.file.flush()
            self.line_complete = True
        except OSError as error:
            if self.line_complete:
                text = f"{METRICS} could not be written: {error}"
                self.on_event(Remarked(step=event.step, code="log-not-written", text=text))
            self.line_complete = False  # half a line may have been written; the next event starts a new one
        self.on_event(event)
        if self.tensorboard is not None:
            for name, value in _scalars(event):
                self.tensorboard.add_scalar(f"{event.kind}/{name}", value, event.step)

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


def _finite(value: object) -> object:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, dict):
        return {key: _finite(nested) for key, nested in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _tensorboard(folder: Path, since: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=since + 1)
