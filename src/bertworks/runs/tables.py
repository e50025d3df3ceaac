"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from bertworks.model.count import ParameterTable
from bertworks.text.coverage import ScriptCoverage
from bertworks.text.tokenizer import Tokenizer


def parameter_table(name: str, parameters: ParameterTable) -> Table:
    table = Table(title=Text(f"Parameters of {name}"), title_justify="left")
    table.add_column("part")
    table.add_column("parameters", justify="right")
    table.add_column("share", justify="right")
    for part, count in parameters.rows.items():
        table.add_row(part, f"{count:,}", f"{count / parameters.total:.1%}")
    table.add_section()
    table.add_row("weights and norms of the encoder", f"{parameters.weights_and_norms:,}", "")
    table.add_row("all", f"{parameters.total:,}", "", style="bold")
    return table


def similarity_table(similarities: Sequence[tuple[str, Sequence[float]]]) -> Table:
    """Of each text the cosine similarity with all of them; high ones stand out by their colour."""
    table = Table(title="Cosine similarity", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("")
    table.add_column("sentence")
    for number in range(1, len(similarities) + 1):
        table.add_column(str(number), justify="right")
    for number, (text, cosines) in enumerate(similarities, start=1):
        cells = [
            Text("·", style="dim") if column == number else _cosine_cell(cosine)
            for column, cosine in enumerate(cosines, start=1)
        ]
        table.add_row(str(number), text, *cells)
    return table


def _cosine_cell(value: float) -> Text:
    style = "bold green" if value > 0.5 else "yellow" if value > 0.25 else "dim"
    return Text(f"{round(value, 2) + 0.0:.2f}", style=style)  # + 0.0: no minus zero


def vocabulary_table(scripts: dict[str, ScriptCoverage], tokenizer: Tokenizer) -> Table:
    """How the words of each script split, and the words that cost most pieces."""
    table = Table(title="How words split, by script", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("script")
    for column in ("words", "occurrences", "pieces per word", "unknown"):
        table.add_column(column, justify="right")
    table.add_column("costliest: word (count) pieces")
    for name, script in scripts.items():
        worst = [
            f"{word} ({use.count:,}) {' '.join(map(str, map(tokenizer.piece, use.ids)))}" for word, use in script.worst
        ]
        unknown = script.unknown / script.occurrences
        cells = (f"{script.words:,}", f"{script.occurrences:,}", f"{script.pieces_per_word:.3f}", f"{unknown:.3%}")
        table.add_row(name, *cells, Text("\n".join(worst)))
    return table
