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
    out: Annotated[Path, typer.Option(help="Where the tour puts what it makes; what is there already is used.")] = Path(
        "bertworks-tour"
    ),
    budget: Annotated[str, typer.Option(help="How long the pre-training takes.")] = "4m",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a tour that was stopped.")] = False,
    device: LoopDevice = None,
    threads: Threads = None,
) -> None:
    """See it work: a real model, then text to vocabulary to shards to a model from scratch to a classifier, and a page
    of it all."""
    from bertworks.cli.show import console

    screen = console()
    screen.print("[bold]bertworks[/bold]: one workbench for the BERT family\n")
    from bertworks.cli.live import training
    from bertworks.cli.show import progress_bar
    from bertworks.runs.settings import parse_duration
    from bertworks.runs.tour import tour as run_tour
    from bertworks.train.distributed import Distributed

    def train(run: Path) -> AbstractContextManager[ProcessContext]:
        return training(run, Distributed(), monotonic(), device, threads)

    seconds = parse_duration(budget)
    try:
        signal = run_tour(screen, text or [], out, progress_bar, train, budget=seconds, resumed=resume)
    except KeyboardInterrupt:
        signal = 2
    if signal:
        again = shlex.join(
            [
                "bertworks",
                "tour",
                *(part for name in text or () for part in ("--text", name)),
                "--out",
                str(out),
                "--resume",
            ]
        )
        screen.print(f"\nthe tour goes on with: {again}", markup=False)
        sys.exit(128 + signal)
