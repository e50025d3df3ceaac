"""`bertworks import`: the one door for pickled weights."""

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
    """Turn a folder with pytorch_model.bin into a safe one. The pickle is read by torch's reader of plain tensors."""
    from bertworks.workbench import import_pickled

    if out.exists() and out.resolve() == Path(folder).resolve():
        cause = "the new folder must not be the old one: its pickle would go"
        raise SaveFailed(cause, place=str(out), remedy="choose another name", code="would-replace-input")
    bench = import_pickled(folder)
    bench.save(out)
    if as_json:
        remarks = [str(remark) for remark in bench.remarks]
        show_json(
            {"folder": str(out), "family": bench.config.family, "heads": list(bench.model.heads), "remarks": remarks}
        )
        return
    typer.echo(f"{bench.config.family} with {', '.join(bench.model.heads) or 'no heads'} written to {out}")
