"""`bertworks evaluate` and `predict`: how good a fine-tuned model is, and what it says."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from bertworks.cli.show import console, show_json


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


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run of `bertworks finetune`.")],
    data: Annotated[Path, typer.Option(help="Examples with labels: a file like the one it was trained on, or a data set's folder.")],
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out rows that are no examples, and count them.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """How good a fine-tuned model is on other examples, with 95 % intervals."""
    from rich.table import Table

    from bertworks.cli.show import progress_bar
    from bertworks.runs.finetune import evaluate as look

    with progress_bar("examples") as advance:
        results, ledger = look(run, data, skip_bad=skip_bad, progress=advance)
    if json:
        show_json({"measures": results.measures, "intervals": results.intervals, "ledger": vars(ledger)})
        return
    table = Table("measure", "value", "95 % interval", box=None, header_style="bold", padding=(0, 2, 0, 1))
    for name, value in results.measures.items():
        low, high = results.intervals[name]
        table.add_row(name.replace("_", " "), f"{value:.4f}", f"{low:.4f} to {high:.4f}")
    console().print(table)
    typer.echo(str(ledger), err=True)
