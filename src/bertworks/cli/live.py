"""The live view of a training: a panel on a terminal, log lines elsewhere, and its outcome at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bertworks.cli.show import console, is_json_requested, is_quiet, metric_title, say, show_json
from bertworks.errors import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bertworks.runs.context import ProcessContext
    from bertworks.train.distributed import Distributed
    from bertworks.train.events import Evaluated, Event, Finished, Started, Trained
    from bertworks.train.runtime import StopRequest

SPARKLINE_BARS = "▁▂▃▄▅▆▇█"
STOPPING = "stopping after this step; Ctrl-C again ends at once"
HIDDEN = ("loss", "error", "choice_error")  # of an evaluation: models are compared by them
LOG_SECONDS = 15.0  # between training lines where there is no terminal


@contextmanager
def live_training(
    run: Path, distributed: Distributed, began: float, device: str | None = None, threads: int | None = None
) -> Iterator[ProcessContext]:
    """A training in the process of the command line, with signal handlers, threads and a live view. `device` and
    `threads`: other than those of the run's config."""
    from bertworks.runs.context import ProcessContext
    from bertworks.train.runtime import own_process

    with own_process(began) as runtime, live_view(run, runtime.stop, quiet=not distributed.is_main) as show:

        def on_event(event: Event) -> None:
            with suppress(OSError, ValueError):  # a closed terminal is no reason to stop
                show(event)

        yield ProcessContext(runtime, distributed, on_event, device, threads)


@contextmanager
def live_view(run: Path, stop: StopRequest | None = None, *, quiet: bool = False) -> Iterator[Callable[[Event], None]]:
    """An event handler; afterwards the outcome is printed. `stop`: is said at once, where it is requested. Processes of
    a training other than the main one are `quiet`."""
    view = LiveView(run, stop)
    if quiet:
        yield lambda event: None
        return
    if is_quiet():
        yield view.update
    elif sys.stderr is not None and sys.stderr.isatty():
        yield from _on_terminal(view)
    else:
        if stop is not None:
            stop.notice = f"{STOPPING}\n"
        yield from _as_log_lines(view)
    with suppress(OSError):  # a closed terminal is no reason to fail
        _print_outcome(view)


def _on_terminal(view: LiveView) -> Iterator[Callable[[Event], None]]:
    from rich.live import Live

    live = Live(view, console=console(stderr=True), refresh_per_second=4)
    live.start()
    try:
        yield view.update
    finally:
        with suppress(OSError):  # the terminal may be closed
            live.stop()


def _as_log_lines(view: LiveView) -> Iterator[Callable[[Event], None]]:
    """A line for each event but new plans and checkpoints, and for training at most one every `LOG_SECONDS`."""
    from bertworks.train.events import Planned, Saved, Trained

    logged_at = -LOG_SECONDS

    def on_event(event: Event) -> None:
        nonlocal logged_at
        view.update(event)
        now = time.monotonic()
        if isinstance(event, Planned | Saved) or (isinstance(event, Trained) and now - logged_at < LOG_SECONDS):
            return
        logged_at = now if isinstance(event, Trained) else logged_at
        if line := event_line(event):
            say(line)

    yield on_event


def _print_outcome(view: LiveView) -> None:
    if is_json_requested():
        show_json(_outcome_values(view))
        return
    if is_quiet():
        return
    finished = view.finished
    if finished is None:
        lines = [f"stopped at step {view.step:,}; `bertworks resume {view.run}` continues it"]
    else:
        lines = _metrics_lines(finished)
        if view.started is not None and view.started.unigram_loss is not None:
            lines.append(f"          unigram baseline {view.started.unigram_loss:.3f}")
        lines += [f"model     {finished.model}", f"report    {finished.report}"]
    console().print("\n".join(lines), markup=False)


def _outcome_values(view: LiveView) -> dict[str, object]:
    """For programs: the last event of a finished run."""
    if view.finished is None:
        return {"run": str(view.run), "finished": False, "step": view.step}
    return {"run": str(view.run), "finished": True, **view.finished.as_line()}


def _metrics_lines(finished: Finished) -> list[str]:
    """Metrics of the model that is kept; a pre-training without evaluations has none."""
    if not finished.metrics:
        return []
    label = "mean" if finished.std is not None else "best"
    if finished.metric is not None and finished.std is None and finished.n_evaluations is None:
        label = "dev"  # the model of the last step: there was nothing to choose from
    elif finished.sampled_examples is not None:
        label = "kept"  # which need not be the best
    lines = [f"{label:8}  {metrics_line(finished.metrics, finished.std)}"]
    if finished.metric is not None and finished.interval is not None:
        lines += _choice_lines(finished, finished.metric)
        lines += _estimate_lines(finished, finished.metric, finished.interval)
    if finished.metric in finished.baseline:
        value = _format(finished.metric, finished.baseline[finished.metric])
        lines.append(f"baseline  {metric_title(finished.metric)} {value}, without reading the texts")
    if finished.epochs is not None:
        seconds = duration(finished.evaluation_seconds or 0)
        lines.append(f"trained   {finished.epochs:.1f} epochs; final evaluation {seconds}")
    if finished.pruned_seeds:
        lines.append(f"          pruned, not counted: seed {', '.join(map(str, finished.pruned_seeds))}")
    return lines + [f"          {split}: {metrics_line(metrics)}" for split, metrics in finished.extra_eval.items()]


def _choice_lines(finished: Finished, metric: str) -> list[str]:
    """Which evaluations the metrics are of."""
    last = f"; the last: {_format(metric, finished.last[metric])}" if metric in finished.last else ""
    if finished.n_evaluations is not None:
        evaluations = counted(finished.n_evaluations, "evaluation")
        if finished.sampled_examples is None:
            return [f"          the best of {evaluations} on dev, at step {finished.best_step:,}{last}"]
        return [
            f"          of {evaluations} on {counted(finished.sampled_examples, 'dev example')} the latest within one "
            f"standard error of the best, at step {finished.best_step:,}{last}"
        ]
    return [f"          of the model that each seed keeps, on dev{last}"] if last else []


def _estimate_lines(finished: Finished, metric: str, interval: tuple[float, float]) -> list[str]:
    """What to expect on new examples: the 95 % CI, and what it is around if that is not the metric itself."""
    low, high = (_format(metric, edge) for edge in interval)
    seeds = f", {counted(finished.n_seeds, 'seed')}" if finished.n_seeds is not None else ""
    size = f"(n={finished.dev_examples:,}{seeds})"
    if metric not in finished.cross_fitted:
        return [f"95 % CI   {metric_title(metric)} {low} to {high} {size}"]
    value = _format(metric, finished.cross_fitted[metric])
    return [
        f"estimate  {metric_title(metric)} {value} on new examples, 95 % CI {low} to {high} {size}",
        "          corrected for choosing the best checkpoint (cross-fitted)",
    ]


def event_line(event: Event) -> str | None:
    """An event in one line."""
    from bertworks.train import events

    step = f"step {event.step:,}"
    match event:
        case events.Started():
            machine = event.machine
            speed = f"{event.peak_gflops:,.0f} GFLOP/s in matrix products"
            processes = f"{counted(machine['threads'], 'thread')} x {counted(machine['world_size'], 'process')}"
            return f"{machine['device']}, {processes}, {speed}, torch {machine['torch']}"
        case events.Trained():
            speed = f"{event.tokens_per_second:,.0f} tokens/s"
            return f"{step}: {metrics_line(event.terms)}, {speed}, {duration(event.seconds_left)} left"
        case events.Evaluated():
            return f"{step}: eval: {metrics_line(event.metrics)}"
        case events.Planned():
            return f"{step}: planned {event.steps:,} steps in all, {event.seconds_per_step:.2f} s each"
        case events.Saved():
            return f"{step}: saved {event.path}"
        case events.Skipped():
            return f"{step}: not finite (loss {event.loss}), step skipped; epoch {event.epoch}, batch {event.batch}"
        case events.NotSaved():
            return f"{step}: NOT SAVED: {event.reason}"
        case events.Resumed():
            changes = (f"\n  changed, so equal bits are not guaranteed: {change}" for change in event.differences)
            return f"{step}: resumed{''.join(changes)}"
        case events.Remarked():
            return event.text
    return None


def metrics_line(metrics: Mapping[str, float], std: Mapping[str, float] | None = None) -> str:
    """`std`: of each metric, over seeds. A loss is called so, with its name where there are several."""
    shown = {name: value for name, value in metrics.items() if name not in HIDDEN and isinstance(value, float)}
    losses = [name for name in shown if _is_loss(name)]
    titles = {name: f"{metric_title(name)} loss" if len(losses) > 1 else "loss" for name in losses}
    return ", ".join(
        f"{titles.get(name) or metric_title(name)} {_format(name, value)}{_format_std(name, std or {})}"
        for name, value in shown.items()
    )


def _is_loss(name: str) -> bool:
    """Of a model's terms, whose accuracies are beside them; the others are metrics of a task."""
    from bertworks.measure.metrics import METRICS

    return name not in METRICS and name != "perplexity" and not name.endswith("_accuracy")


def _format_std(name: str, std: Mapping[str, float]) -> str:
    from bertworks.measure.metrics import METRICS

    return f" ± {METRICS[name].format_std(std[name])}" if name in std else ""


def _format(name: str, value: float) -> str:
    """Also terms and accuracies of a pre-training, which are no metrics of a task."""
    from bertworks.measure.metrics import METRICS

    if name in METRICS:
        return METRICS[name].format(value)
    if name == "perplexity":
        return f"{value:,.1f}" if value < 1e9 else "huge"
    return f"{value:.1%}" if name.endswith("_accuracy") else f"{value:.3f}"


def duration(seconds: float) -> str:
    minutes, whole_seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{whole_seconds:02}" if hours else f"{minutes}:{whole_seconds:02}"


class LiveView:
    """The latest events of a run, as a panel for the terminal."""

    def __init__(self, run: Path, stop: StopRequest | None = None) -> None:
        self.run = run
        self.stop = stop
        self.step = 0
        self.started: Started | None = None
        self.trained: Trained | None = None
        self.evaluated: Evaluated | None = None
        self.finished: Finished | None = None
        self.losses: list[float] = []
        self.messages: list[str] = []

    def update(self, event: Event) -> None:
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

        trained = self.trained
        evaluated = self.evaluated
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
            mfu = f", MFU {trained.mfu:.0%}" if trained.mfu is not None else ""
            rows.add_row("speed", f"{trained.tokens_per_second:,.0f} tokens/s{mfu}")
            rows.add_row("time left", duration(trained.seconds_left))
        stopping = [STOPPING] if self.stop is not None and self.stop.signal else []
        messages = Text("\n".join([*self.messages, *stopping]), style="dim")
        return Panel(Group(rows, messages), title=Text(str(self.run)), title_align="left")


def sparkline(values: list[float], width: int) -> str:
    """A curve in one line of text, of at most `width` characters."""
    if not values:
        return ""
    stride = max(1.0, len(values) / width)
    samples = [values[min(len(values) - 1, int(index * stride))] for index in range(min(width, len(values)))]
    low = min(samples)
    spread = (max(samples) - low) or 1.0
    return "".join(SPARKLINE_BARS[round((value - low) / spread * (len(SPARKLINE_BARS) - 1))] for value in samples)
