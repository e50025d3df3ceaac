"""`bertworks corpus`: text to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bertworks.cli.show import AsJson, Quiet, progress_bar, report, show_json

app = typer.Typer(help="Text to begin with.", no_args_is_help=True)


@app.callback()
def corpus() -> None:
    """Text to begin with."""


@app.command("docs")
def docs(
    out: Annotated[Path, typer.Option(help="The file to write: JSON lines of text, package and module.")],
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Collect the English documentation of the Python packages installed here: sentences only, one document per
    module."""
    from time import monotonic

    from bertworks.data.documentation import write_documentation
    from bertworks.files import atomic_write

    start = monotonic()
    with progress_bar("files read") as advance, atomic_write(out) as file:
        documents, sentences, words = write_documentation(file, advance)
    seconds = monotonic() - start
    if as_json:
        counts = {"documents": documents, "sentences": sentences, "words": words}
        show_json({"out": str(out), **counts, "seconds": round(seconds, 2)})
    else:
        report(f"{documents:,} documents, {sentences:,} sentences, {words:,} words in {out}  ({seconds:.1f} s)")
