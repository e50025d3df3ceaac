"""`bertworks import`: models as they were published; the one command that reads pickled weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bertworks.cli.show import AsJson, report, show_json
from bertworks.files import check_not_input


def import_(
    folder: Annotated[
        str, typer.Argument(help="A folder with config.json and weights, or with a checkpoint of fairseq's RoBERTa.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The new model folder.")],
    family: Annotated[
        str | None, typer.Option(help="bert, roberta, ...: where config.json has no model_type and it cannot be told.")
    ] = None,
    vocab: Annotated[
        Path | None, typer.Option(help="A vocabulary file or folder, where the model's folder has none.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse weights that nothing reads and heads without weights.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Convert a model as it was published to a folder with safetensors: pytorch_model.bin, an old config.json, or a
    checkpoint of fairseq. Pickles are read by torch's restricted reader."""
    from bertworks.workbench import import_pickled

    check_not_input(out, folder)
    bench = import_pickled(folder, family=family, vocab=vocab, strict=strict)
    bench.save(out)
    heads = list(bench.model.heads)
    if as_json:
        remarks = [str(remark) for remark in bench.remarks]
        show_json({"folder": str(out), "family": bench.config.family, "heads": heads, "remarks": remarks})
        return
    report(f"{bench.config.family} with {', '.join(heads) or 'no heads'} written to {out}")
