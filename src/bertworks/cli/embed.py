"""`bertworks embed`: one vector for each line of a file, or row of a table."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from bertworks.cli.options import (
    Device,
    ModelArgument,
    OldModel,
    OnLongOption,
    SkipBad,
    Text,
    Threads,
    load_model,
    model_and_input,
)
from bertworks.cli.show import AsJson, Quiet, progress_bar, report, resumable, say, show_json
from bertworks.errors import counted


def embed(
    model: ModelArgument,
    out: Annotated[Path, typer.Option("--out", help="The file of the vectors: .npy, (rows, hidden).")],
    file: Annotated[
        str | None,
        typer.Argument(metavar="INPUT", help="A table, or a file with a text on each line; - for standard input."),
    ] = None,
    text: Text = None,
    pooling: Annotated[
        str | None, typer.Option(help="mean, first, last or max; the folder's own if not given.")
    ] = None,
    on_long: OnLongOption = None,
    skip_bad: SkipBad = False,
    batch_tokens: Annotated[int, typer.Option(help="Tokens in a batch.")] = 2048,
    device: Device = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    old_model: OldModel = None,
) -> None:
    """Turn each line of a file, or row of a table, into a vector. If interrupted, the same command resumes."""
    from dataclasses import asdict

    from bertworks.datasets.columns import NamedColumns
    from bertworks.datasets.tables import check_file
    from bertworks.runs.embed import embed_file, text_inputs

    model, file = model_and_input("embed", model, file, old_model, "FILE")
    if file != "-":
        piped = f"echo {shlex.quote(file)} | bertworks embed {model} - --out {out}"
        check_file(Path(file), f"a text itself is piped in: {piped}")
    inputs = text_inputs(file, out, NamedColumns(text=text), skip_bad=skip_bad)
    bench = load_model(model, device, threads)
    with resumable() if file != "-" else nullcontext(), progress_bar("texts") as advance:
        result = embed_file(
            bench,
            inputs,
            out,
            pooling=pooling,
            on_long=on_long or "window",
            batch_tokens=batch_tokens,
            progress=advance,
        )
    if as_json:
        shape = [result.rows, result.width]
        remarks = [str(remark) for remark in inputs.remarks]
        values = {"out": str(out), "shape": shape, "resumed_at": result.resumed_at, "remarks": remarks}
        show_json({**values, "ledger": asdict(result.ledger)})
        return
    for remark in inputs.remarks:
        say(str(remark))
    if result.resumed_at:
        say(f"resumed: {result.resumed_at:,} vectors were there already")
    report(f"{counted(result.rows, 'vector')} of {result.width} numbers written to {out}")
    report(str(result.ledger))
