"""The live view of a training: a picture on a terminal, plain lines elsewhere, and how it ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bertworks.cli.show import console, is_json_wanted, is_quiet, show_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bertworks.runs.context import ProcessContext
    from bertworks.train.distributed import Distributed
    from bertworks.train.events import Evaluated, Event, Finished, Started, Trained

BARS = "▁▂▃▄▅▆▇█"
LINE_SECONDS = 15.0  # between lines of training where there is no terminal


@contextmanager
def training(
    run: Path, distributed: Distributed, began: float, device: str | None = None, threads: int | None = None
) -> Iterator[ProcessContext]:
    """A training in this process, which is ours: it may set signal handlers and threads, and is watched here. `device`
    and `threads`: other than those of the run's config."""
    from bertworks.runs.context import ProcessContext
    from bertworks.train.runtime import own_process

    with own_process(began) as runtime, live_view(run, quiet=not distributed.is_main) as on_event:
        yield ProcessContext(runtime, distributed, on_event, device, threads)


@contextmanager
def live_view(run: Path, *, quiet: bool = False) -> Iterator[Callable[[Event], None]]:
    """A handler of events, and how it ended. The other processes of a training say nothing."""
    view = LiveView(run)
    if quiet:
        yield lambda event: None
        return
    if is_quiet():
        yield view.take
    elif sys.stderr is not None and sys.stderr.isatty():
        yield from _on_terminal(view)
    else:
        yield from _in_lines(view)
    with suppress(OSError):  # a terminal that is gone is no reason to fail
        _print_end(view)


def _on_terminal(view: LiveView) -> Iterator[Callable[[Event], None]]:
    from rich.console import Console
    from rich.live import Live

    with Live(view, console=Console(stderr=True, highlight=False), refresh_per_second=4):
        yield view.take


def _in_lines(view: LiveView) -> Iterator[Callable[[Event], None]]:
    """A log is kept: a line for each evaluation, and of training one now and then."""
    from bertworks.train.events import Planned, Trained

    shown_at = -LINE_SECONDS

    def on_event(event: Event) -> None:
        nonlocal shown_at
        view.take(event)
        now = time.monotonic()
        if isinstance(event, Planned) or (isinstance(event, Trained) and now - shown_at < LINE_SECONDS):
            return
        shown_at = now if isinstance(event, Trained) else shown_at
        if line := event_line(event):
            typer.echo(line, err=True)

    yield on_event


def _print_end(view: LiveView) -> None:
    if is_json_wanted():
        show_json(_end_values(view))
        return
    if is_quiet():
        return
    out = console()
    if view.finished is None:
        out.print(f"stopped at step {view.step:,}; `bertworks resume {view.run}` goes on with it", markup=False)
        return
    end = view.finished
    if end.metrics:
        out.print(
            f"{'mean' if end.std is not None else 'best'}      {metrics_line(end.metrics, end.std)}", markup=False
        )
        if end.metric is not None and end.interval is not None:
            out.print(f"          {_interval_line(end)}", markup=False)
        if end.pruned_seeds:
            out.print(f"          pruned, not counted: seed {', '.join(map(str, end.pruned_seeds))}", markup=False)
        for name, other in end.extra_eval.items():
            out.print(f"          {name}: {metrics_line(other)}", markup=False)
    elif view.evaluated is not None:
        out.print(f"held out  {metrics_line(view.evaluated.metrics)}", markup=False)
    if view.started is not None and view.started.unigram_loss is not None:
        out.print(f"          unigram baseline {view.started.unigram_loss:.3f}", markup=False)
    out.print(f"model     {end.model}", markup=False)
    out.print(f"report    {end.report}", markup=False)


def _end_values(view: LiveView) -> dict[str, Any]:
    """For programs: the last event of a finished run; of a pre-training, with what held-out text gave."""
    if view.finished is None:
        return {"run": str(view.run), "finished": False, "step": view.step}
    end = view.finished.as_line()
    metrics = end["metrics"] or (view.evaluated.metrics if view.evaluated is not None else {})
    return {"run": str(view.run), "finished": True, **end, "metrics": metrics}


def _interval_line(end: Finished) -> str:
    assert end.metric is not None and end.interval is not None
    low, high = (_format(end.metric, edge) for edge in end.interval)
    seeds = f", {end.n_seeds} seeds" if end.n_seeds is not None else ""
    return f"{end.metric.replace('_', ' ')} {low} to {high} (95 % CI, n={end.dev_examples:,}{seeds})"


def event_line(event: Event) -> str | None:
    """An event in one line."""
    from bertworks.train import events

    at = f"step {event.step:,}"
    match event:
        case events.Started():
            machine = event.machine
            speed = f"{event.peak_gflops:,.0f} GFLOP/s in matrix products"
            where = f"{machine['device']}, {machine['threads']} threads x {machine['world_size']} processes"
            return f"{where}, {speed}, torch {machine['torch']}"
        case events.Trained():
            speed = f"{event.tokens_per_second:,.0f} tokens/s"
            return f"{at}: {metrics_line(event.terms)}, {speed}, {duration(event.seconds_left)} left"
        case events.Evaluated():
            return f"{at}: eval: {metrics_line(event.metrics)}"
        case events.Planned():
            return f"{at}: planned {event.steps:,} steps in all, {event.seconds_per_step:.2f} s each"
        case events.Saved():
            return f"{at}: saved {event.path}"
        case events.Skipped():
            return f"{at}: not finite (loss {event.loss}), step skipped; epoch {event.epoch}, batch {event.batch}"
        case events.NotSaved():
            return f"{at}: NOT SAVED: {event.reason}"
        case events.Resumed():
            others = (f"\n  not as before, so equal bits are not promised: {other}" for other in event.differences)
            return f"{at}: resumed{''.join(others)}"
        case events.Remarked():
            return event.text
    return None


def metrics_line(metrics: Mapping[str, float], std: Mapping[str, float] | None = None) -> str:
    """`std`: of each metric, over seeds."""
    shown = {
        name: value for name, value in metrics.items() if name not in ("loss", "error") and isinstance(value, float)
    }
    return ", ".join(
        f"{name.replace('_', ' ')} {_format(name, value)}{_spread(name, std)}" for name, value in shown.items()
    )


def _spread(name: str, std: Mapping[str, float] | None) -> str:
    if std is None or name not in std:
        return ""
    return f" ± {std[name] * 100:.1f}" if _is_percentage(name) else f" ± {std[name]:.3f}"


def _format(name: str, value: float) -> str:
    if name == "perplexity":
        return f"{value:,.1f}" if value < 1e9 else "huge"
    return f"{value:.1%}" if _is_percentage(name) else f"{value:.3f}"


def _is_percentage(name: str) -> bool:
    from bertworks.measure.metrics import METRICS

    return METRICS[name].is_percentage if name in METRICS else name.endswith("_accuracy")


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class LiveView:
    """What the last events said."""

    def __init__(self, run: Path) -> None:
        self.run, self.step = run, 0
        self.started: Started | None = None
        self.trained: Trained | None = None
        self.evaluated: Evaluated | None = None
        self.finished: Finished | None = None
        self.losses: list[float] = []
        self.messages: list[str] = []

    def take(self, event: Event) -> None:
        from bertworks.train import events

        self.step = event.step
        match event:
            case events.Trained():
                self.trained = event
                self.losses += list(event.terms.values())[:1]
                return
            case events.Evaluated():
                self.evaluated = event
                return
            case events.Started():
                self.started = event
            case events.Finished():
                self.finished = event
        if line := event_line(event):
            self.messages = [*self.messages, line][-4:]

    def __rich__(self) -> RenderableType:
        from rich.columns import Columns
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        trained, evaluated = self.trained, self.evaluated
        progress = trained.progress if trained is not None else 0.0
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="dim")
        rows.add_row(
            "step", Columns([ProgressBar(total=1.0, completed=progress, width=40), f"{self.step:,}   {progress:.0%}"])
        )
        if trained is not None:
            rows.add_row("train", metrics_line(trained.terms))
            rows.add_row("", Text(sparkline(self.losses, 60), style="cyan"))
        if evaluated is not None:
            rows.add_row("eval", f"{metrics_line(evaluated.metrics)}  (step {evaluated.step:,})")
        if trained is not None:
            rows.add_row("speed", f"{trained.tokens_per_second:,.0f} tokens/s, MFU {trained.mfu:.0%}")
            rows.add_row("time left", duration(trained.seconds_left))
        notes = Text("\n".join(self.messages), style="dim")
        return Panel(Group(rows, notes), title=str(self.run), title_align="left")


def sparkline(values: list[float], width: int) -> str:
    """The course of a number, in one line of text."""
    if not values:
        return ""
    step = max(1.0, len(values) / width)
    picked = [values[min(len(values) - 1, int(at * step))] for at in range(min(width, len(values)))]
    low, high = min(picked), max(picked)
    return "".join(BARS[round((value - low) / ((high - low) or 1.0) * (len(BARS) - 1))] for value in picked)
