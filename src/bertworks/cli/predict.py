"""`bertworks predict`: what a fine-tuned model says to texts."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer


def predict(
    run: Annotated[str, typer.Argument(help="A run of `bertworks finetune`, or a folder with a fine-tuned model.")],
    file: Annotated[str, typer.Argument(help="A file with a text on each line, or '-' for standard input.")],
    out: Annotated[Path | None, typer.Option(help="Write JSON lines to this file.")] = None,
    on_long: Annotated[Literal["window", "truncate", "error"] | None, typer.Option(help="Texts longer than the model.")] = None,
) -> None:
    """Answers of a fine-tuned model, one for each text."""
    import json

    from bertworks.files import whole_file
    from bertworks.text.ledger import Ledger
    from bertworks.workbench import load

    lines = sys.stdin.read().splitlines() if file == "-" else Path(file).read_text(encoding="utf-8").splitlines()
    ledger = Ledger()
    found = load(run).predict([line for line in lines if line.strip()], on_long=on_long, ledger=ledger)
    rows = [json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in found]
    if out is None:
        sys.stdout.writelines(rows)
    else:
        with whole_file(out) as written:
            written.writelines(row.encode() for row in rows)
    typer.echo(str(ledger), err=True)
