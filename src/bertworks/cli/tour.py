"""`bertworks tour`: the newcomer's first look."""

from __future__ import annotations

import shlex
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from bertworks.cli.options import LoopDevice, Threads

if TYPE_CHECKING:
    from bertworks.runs.context import ProcessContext


def tour(
    text: Annotated[
        list[str] | None, typer.Option(help="Your own text, instead of the documentation installed here.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of the tour; files of an earlier tour are reused.")] = Path(
        "bertworks-tour"
    ),
    budget: Annotated[str, typer.Option(help="How long the pre-training takes.")] = "4m",
    resume: Annotated[bool, typer.Option("--resume", help="Continue a tour that was stopped.")] = False,
    device: LoopDevice = None,
    threads: Threads = None,
) -> None:
    """See it work: a trained model, then text to vocabulary to shards to a model from scratch to a classifier, and a
    page of it all."""
    from bertworks.cli.show import console

    screen = console()
    screen.print("[bold]bertworks[/bold]: one workbench for the BERT family\n")
    from bertworks.cli.live import live_training
    from bertworks.cli.show import progress_bar
    from bertworks.runs.settings import parse_duration
    from bertworks.runs.tour import tour as run_tour
    from bertworks.train.distributed import Distributed
    from bertworks.train.runtime import set_threads

    set_threads(threads, 1)

    def training(run: Path) -> AbstractContextManager[ProcessContext]:
        return live_training(run, Distributed(), monotonic(), device, threads)

    seconds = parse_duration(budget)
    try:
        signal = run_tour(screen, text or [], out, progress_bar, training, budget=seconds, resumed=resume)
    except KeyboardInterrupt:
        signal = 2
    if signal:
        text_options = [part for name in text or () for part in ("--text", name)]
        command = shlex.join(["bertworks", "tour", *text_options, "--out", str(out), "--resume"])
        screen.print(f"\nto continue the tour: {command}", markup=False)
        sys.exit(128 + signal)
