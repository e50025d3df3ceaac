"""The live view of a training: a picture on a terminal, plain lines elsewhere, and how it ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bertworks.cli.show import console
from bertworks.tasks.metrics import CORRELATIONS, DISTANCES, SHARES

if TYPE_CHECKING:
    from rich.console import RenderableType

Event = dict[str, Any]
BARS = "▁▂▃▄▅▆▇█"
QUIET_SECONDS = 15.0  # between lines of the same kind where there is no terminal
TERMS = ("masked", "pair", "replaced", "permuted", "next", "class", "square", "mark", "tag", "start", "end", "choice")  # of the loss


@contextmanager
def watching(run: Path, *, quiet: bool) -> Iterator[Callable[[Event], None]]:
    """`watch(event)` for what the trainer says; the other processes of a training say nothing."""
    if quiet:
        yield lambda event: None
    elif sys.stderr is not None and sys.stderr.isatty():
        yield from _on_terminal(run)
    else:
        yield from _in_lines(run)


def _on_terminal(run: Path) -> Iterator[Callable[[Event], None]]:
    from rich.console import Console
    from rich.live import Live

    view = View(run)
    with Live(view, console=Console(stderr=True, highlight=False), refresh_per_second=4):
        yield view.take
    with suppress(OSError):  # nobody may be listening any more
        _ending(view)


def _in_lines(run: Path) -> Iterator[Callable[[Event], None]]:
    view, said = View(run), {"train": -QUIET_SECONDS}

    def watch(event: Event) -> None:
        view.take(event)
        now = time.monotonic()
        if event["kind"] == "train" and now - said["train"] < QUIET_SECONDS:
            return
        said["train"] = now if event["kind"] == "train" else said["train"]
        if line := describe(event):
            typer.echo(line, err=True)

    yield watch
    with suppress(OSError):
        _ending(view)


def _ending(view: View) -> None:
    out = console()
    if not view.end:
        out.print(f"stopped at step {view.step:,}; `bertworks resume {view.run}` goes on", markup=False)
        return
    if "kept" in view.end:
        title = "mean" if "deviation" in view.end else "best"
        out.print(f"{title}      {measures(view.end['kept'], view.end.get('deviation'))}", markup=False)
        if "interval" in view.end:
            name, seeds = view.end["measure"], f" and {view.end['seeds']} seeds" if "seeds" in view.end else ""
            low, high = (f"{edge:.1%}" if name in SHARES else f"{edge:.3f}" for edge in view.end["interval"])
            said = f"{name.replace('_', ' ')} between {low} and {high}, as far as {view.end['dev']:,} examples{seeds} can tell (95 %)"
            out.print(f"          {said}", markup=False)
        if view.end.get("given_up"):
            out.print(f"          given up early and not counted: seed {', '.join(map(str, view.end['given_up']))}", markup=False)
        for name, other in view.end.get("others", {}).items():
            out.print(f"          {name}: {measures(other)}", markup=False)
    elif view.held_out:
        out.print(f"held out  {measures(view.held_out)}", markup=False)
    if "unigram_loss" in view.start:
        out.print(f"          a guess without context costs {view.start['unigram_loss']:.3f}", markup=False)
    out.print(f"model     {view.end['model']}", markup=False)
    out.print(f"report    {view.end['report']}", markup=False)


def describe(event: Event) -> str | None:
    """An event in one line."""
    at = f"step {event['step']:,}"
    match event["kind"]:
        case "start":
            freed = "freed memory kept" if event["keeps_freed_memory"] else "freed memory given back"
            speed = f"{event['matrix_gflops']:,.0f} GFLOP/s in matrix products"
            return (
                f"{event['device']}, {event['threads']} threads x {event['world_size']} processes, {freed}, {speed}, torch {event['torch']}"
            )
        case "train":
            return f"{at}: {measures(event)}, {event['tokens_per_second']:,.0f} tokens/s, {duration(event['seconds_left'])} left"
        case "held out":
            return f"{at}: held out: {measures(event)}"
        case "plan":
            return f"{at}: planned {event['steps']:,} steps in all, {event['seconds_per_step']:.2f} s each"
        case "checkpoint":
            return f"{at}: saved {event['path']}"
        case "bad":
            return f"{at}: not finite (loss {event['loss']}), step not taken; epoch {event['epoch']}, batch {event['batch']}"
        case "not saved":
            return f"{at}: NOT SAVED: {event['reason']}"
        case "resumed":
            others = (f"\n  not as before, so equal bits are not promised: {other}" for other in event["differences"])
            return f"{at}: going on{''.join(others)}"
        case "remark":
            return str(event["text"])
    return None


def measures(event: Event, deviation: Event | None = None) -> str:
    """`deviation`: of each measure, over seeds."""
    spread = {name: f" ± {value * 100:.1f}" if name in SHARES else f" ± {value:.3f}" for name, value in (deviation or {}).items()}
    parts = [f"{name} {event[name]:.3f}" for name in TERMS if isinstance(event.get(name), float)]
    terms = [name for name in event if name.endswith("_accuracy") and name not in SHARES]
    parts += [f"{name.removesuffix('_accuracy')} right {event[name]:.1%}" for name in terms]
    parts += [f"{name.replace('_', ' ')} {event[name]:.1%}{spread.get(name, '')}" for name in SHARES if name in event]
    others = (*CORRELATIONS, *DISTANCES)
    parts += [f"{name.replace('_', ' ')} {event[name]:.3f}{spread.get(name, '')}" for name in others if name in event]
    parts += [f"perplexity {event['perplexity']:,.1f}" if event["perplexity"] < 1e9 else "perplexity huge"] if "perplexity" in event else []
    parts += [f"AUC {event['replaced_auc']:.3f}"] if "replaced_auc" in event else []
    return ", ".join(parts)


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class View:
    """What the last events said."""

    def __init__(self, run: Path) -> None:
        self.run, self.step = run, 0
        self.start: Event = {}
        self.train: Event = {}
        self.held_out: Event = {}
        self.end: Event = {}
        self.losses: list[float] = []
        self.messages: list[str] = []

    def take(self, event: Event) -> None:
        kind, self.step = event["kind"], event["step"]
        if kind == "start":
            self.start = event
        elif kind == "train":
            self.train = event
            self.losses += [event[name] for name in TERMS if isinstance(event.get(name), float)][:1]
        elif kind == "held out":
            self.held_out = event
        elif kind == "end":
            self.end = event
        if kind not in ("train", "held out") and (line := describe(event)):
            self.messages = [*self.messages, line][-4:]

    def __rich__(self) -> RenderableType:
        from rich.columns import Columns
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        train, progress = self.train, self.train.get("progress", 0.0)
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="dim")
        rows.add_row("step", Columns([ProgressBar(total=1.0, completed=progress, width=40), f"{self.step:,}   {progress:.0%}"]))
        if train:
            rows.add_row("loss", measures(train))
            rows.add_row("", Text(sparkline(self.losses, 60), style="cyan"))
        if self.held_out:
            rows.add_row("held out", f"{measures(self.held_out)}  (step {self.held_out['step']:,})")
        if train:
            rows.add_row("speed", f"{train['tokens_per_second']:,.0f} tokens/s, {train['share']:.0%} of the machine's matrix products")
            rows.add_row("time left", duration(train["seconds_left"]))
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
