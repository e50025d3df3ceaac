"""`bertworks import`: the one command that reads pickled weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bertworks.cli.show import AsJson, show_json
from bertworks.errors import SaveFailed


def import_(
    folder: Annotated[str, typer.Argument(help="A folder with config.json and pytorch_model.bin.")],
    out: Annotated[Path, typer.Option("--out", help="The new model folder.")],
    as_json: AsJson = False,
) -> None:
    """Convert a folder with pytorch_model.bin to safetensors. The pickle is read by torch's restricted reader."""
    from bertworks.workbench import import_pickled

    if out.exists() and out.resolve() == Path(folder).resolve():
        cause = "output would overwrite the input, pickle included"
        raise SaveFailed(cause, place=str(out), remedy="choose another name", code="would-replace-input")
    bench = import_pickled(folder)
    bench.save(out)
    family = bench.config.family
    heads = list(bench.model.heads)
    if as_json:
        remarks = [str(remark) for remark in bench.remarks]
        show_json({"folder": str(out), "family": family, "heads": heads, "remarks": remarks})
        return
    typer.echo(f"{family} with {', '.join(heads) or 'no heads'} written to {out}")
