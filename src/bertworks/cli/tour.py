"""`bertworks tour`: the newcomer's first look."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from bertworks.cli.options import LoopDevice, Threads


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
    """See it work: a trained model, then text to vocabulary to shards to a model from scratch to a classifier, what
    their heads attend to, and a page of it all."""
    from bertworks.cli.show import console

    screen = console()
    screen.print("[bold]bertworks[/bold]: one workbench for the BERT family\n")
    from bertworks.cli.tour_stages import Tour
    from bertworks.train.runtime import set_threads

    set_threads(threads, 1)
    stages = Tour(text or [], out, budget, device, threads, screen)
    try:
        stopped_by = stages.run(resumed=resume)
    except KeyboardInterrupt:
        stopped_by = signal.SIGINT
    if stopped_by:
        screen.print(f"\nto continue the tour: {stages.resume_command}", markup=False)
        sys.exit(128 + stopped_by)
