"""`bertworks tokenize`: how a model reads a text."""

from __future__ import annotations

from typing import Annotated

import typer

from bertworks.cli.options import ModelArgument, OldModel, model_and_input, say_old_spelling
from bertworks.cli.show import AsJson, console, say, show_json
from bertworks.errors import BadConfig


def tokenize(
    model: ModelArgument,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="A text.")] = None,
    text2: Annotated[str | None, typer.Option(help="A second text, read as sentence B.")] = None,
    as_json: AsJson = False,
    old_model: OldModel = None,
    pair: Annotated[str | None, typer.Option("--pair", hidden=True)] = None,
) -> None:
    """Print the tokens of a text: piece, id, segment, and character offsets."""
    from dataclasses import asdict

    from rich.table import Table
    from rich.text import Text

    from bertworks.model.locate import locate
    from bertworks.text.tokenizer import Tokenizer

    model, text = model_and_input("tokenize", model, text, old_model, "TEXT")
    if pair is not None:
        if text2 is not None:
            raise BadConfig("a second text is given twice", remedy="leave --pair out", code="given-twice")
        say_old_spelling("--text2")
        text2 = pair
    tokenizer = Tokenizer.load(locate(model))
    for remark in tokenizer.remarks:
        say(str(remark))
    pieces = tokenizer.pieces(text, text2)
    if as_json:
        show_json(asdict(pieces))
        return
    table = Table()
    for column in ("piece", "id", "segment", "characters", "text"):
        table.add_column(column, justify="left" if column in ("piece", "text") else "right")
    sources = _sources(pieces.special, text, text2)
    for piece, id, segment, (start, end), special, source in zip(
        pieces.pieces, pieces.ids, pieces.segments, pieces.offsets, pieces.special, sources, strict=True
    ):
        offsets = "" if special else f"{start}-{end}"
        table.add_row(Text(piece), str(id), str(segment), offsets, Text("" if special else source[start:end]))
    console().print(table)


def _sources(special: list[bool], text: str, text2: str | None) -> list[str]:
    """Which text each piece points into: the second starts after special tokens that follow the first."""
    sources: list[str] = []
    seen_first = False
    in_second = False
    for is_special in special:
        in_second = in_second or (is_special and seen_first and text2 is not None)
        seen_first = seen_first or not is_special
        sources.append(text2 if in_second and text2 is not None else text)
    return sources
