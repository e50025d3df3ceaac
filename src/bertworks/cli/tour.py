"""`bertworks tour`: the newcomer's first look."""

from __future__ import annotations


def tour() -> None:
    """See it work: a real model, a few sentences, what is inside."""
    from bertworks.cli.show import console

    out = console()
    out.print("[bold]bertworks[/bold]: one workbench for the BERT family\n")
    from bertworks.runs.tour import tour as run_tour

    run_tour(out)
