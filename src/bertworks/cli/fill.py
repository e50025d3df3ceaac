"""`bertworks fill`: the most likely tokens for the blanks of a text."""

from __future__ import annotations

from typing import Annotated

import typer

from bertworks.cli.options import Device, ModelArgument, OldModel, Threads, load_model, model_and_input
from bertworks.cli.show import AsJson, Quiet, console, show_json


def fill(
    model: ModelArgument,
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT", help="A text with one or more [MASK]; for a left-to-right model, how it begins."
        ),
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="Candidates for each blank.")] = 5,
    device: Device = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    old_model: OldModel = None,
) -> None:
    """Fill the blanks of a text: each on its own, as BERT does, and jointly, the most confident first."""
    from dataclasses import asdict

    model, text = model_and_input("fill", model, text, old_model, "TEXT")
    filled = load_model(model, device, threads).fill(text, top_k)
    if as_json:
        show_json(asdict(filled))
        return
    out = console()
    for number, candidates in enumerate(filled.blanks, start=1):
        best = "  ".join(f"{candidate.piece} {candidate.probability:.1%}" for candidate in candidates)
        out.print(f"blank {number}      {best}", markup=False)
    out.print(f"independent  {filled.independent}", markup=False)
    if len(filled.blanks) > 1:
        out.print(f"jointly      {filled.joint}", markup=False)
