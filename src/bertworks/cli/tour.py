"""`bertworks tour`: the newcomer's first look."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def tour(
    text: Annotated[list[str] | None, typer.Option(help="Your own text, instead of the documentation installed here.")] = None,
    out: Annotated[Path, typer.Option(help="Where the tour puts what it makes; what is there already is used.")] = Path("bertworks-tour"),
) -> None:
    """See it work: a real model, a few sentences, then text to vocabulary to shards to masks."""
    from bertworks.cli.show import console

    screen = console()
    screen.print("[bold]bertworks[/bold]: one workbench for the BERT family\n")
    from bertworks.cli.show import progress_bar
    from bertworks.runs.tour import tour as run_tour

    run_tour(screen, text or [], out, progress_bar)
