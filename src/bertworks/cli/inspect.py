"""`bertworks inspect`: the attention of a text, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertworks.cli.options import Device, ModelArgument, Threads, load_model
from bertworks.cli.show import AsJson, Quiet, console, say, show_json
from bertworks.errors import BadConfig, BadText

if TYPE_CHECKING:
    from bertworks.inspect.view import AttentionView

N_LINKS = 10


def inspect(
    model: ModelArgument,
    text: Annotated[str | None, typer.Option(help="The text; with --file, the column of it.")] = None,
    pair: Annotated[
        str | None, typer.Option(help="A second text, for models that read pairs; with --file, its column.")
    ] = None,
    file: Annotated[str | None, typer.Option(help="Take the text from a table, or from the lines of a file.")] = None,
    row: Annotated[int | None, typer.Option(min=1, help="Which row of --file; without it the first.")] = None,
    out: Annotated[Path | None, typer.Option(help="The page, an HTML file.")] = None,
    layers: Annotated[
        str | None,
        typer.Option(help="Only these, such as 0,4-5; with queries and keys, which long texts otherwise lack."),
    ] = None,
    atlas: Annotated[Path | None, typer.Option(help="The names of heads: JSON of `bertworks atlas`.")] = None,
    against: Annotated[str | None, typer.Option(help="Another model of the same size, to see the difference.")] = None,
    against_text: Annotated[str | None, typer.Option(help="Another text, to see the difference.")] = None,
    against_pair: Annotated[str | None, typer.Option(help="The second text of --against-text.")] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show what every head attends to in a text: lines, matrices, shaded text, queries and keys, in one file."""
    if open_page and out is None:
        raise BadConfig("there is no page to open", remedy="--out attention.html", code="missing-option")
    if against is not None and against_text is not None:
        cause = "another model and another text at once: no one could tell which of them made a difference"
        raise BadConfig(cause, remedy="--against or --against-text", code="conflicting-options")
    layer_numbers = None if layers is None else parse_layers(layers)
    if out is None and (layers, atlas, against, against_text) != (None, None, None, None):
        cause = "--layers, --atlas, --against and --against-text are of a page"
        raise BadConfig(cause, remedy="--out attention.html", code="missing-option")
    if against_pair is not None and against_text is None:
        raise BadConfig("--against-pair without --against-text", remedy="--against-text A", code="missing-option")
    if row is not None and file is None:
        raise BadConfig("--row without --file", remedy="--file ROWS --row N", code="missing-option")
    a, b = (text, pair) if file is None else read_row(file, row or 1, text, pair)
    if a is None:
        remedy = 'bertworks inspect MODEL --text "..." --out attention.html; or --file ROWS --row 1'
        raise BadConfig("there is no text", remedy=remedy, code="missing-option")
    view = _view(model, a, b, device, threads)
    other = _view(against, a, b, device, threads) if against is not None else None
    if against_text is not None:
        other = _view(model, against_text, against_pair, device, threads)
    if as_json:
        show_json(_summary(view))
    else:
        _print_links(view)
    if out is not None:
        view.save(out, other=other, atlas=atlas, layers=layer_numbers)
        say(f"page      {out}")
    if open_page:
        typer.launch(str(out))


def _view(model: str, text: str, pair: str | None, device: str, threads: int | None) -> AttentionView:
    from dataclasses import replace

    return replace(load_model(model, device, threads).attention(text, pair), model=model)


def parse_layers(layers: str) -> list[int]:
    """`0,4-5` to 0, 4 and 5."""
    numbers: list[int] = []
    for part in layers.split(","):
        first, dash, last = part.partition("-")
        if not first.strip().isdecimal() or (dash and not last.strip().isdecimal()):
            raise BadConfig(f"--layers {layers}", remedy="numbers and ranges: 0,4-5", code="not-a-number")
        if not (layer_range := range(int(first), int(last if dash else first) + 1)):
            raise BadConfig(f"--layers {layers}", remedy="ranges from the lower to the higher", code="out-of-range")
        numbers += layer_range
    return numbers


def read_row(file: str, row: int, text: str | None, pair: str | None) -> tuple[str, str | None]:
    """The text or pair in a row of a file; `text`, `pair`: its columns."""
    from bertworks.datasets.columns import NamedColumns
    from bertworks.datasets.inputs import Inputs
    from bertworks.datasets.schema import Schema

    columns = NamedColumns(text=text, text2=pair)
    inputs = Inputs(file, Schema(), pairs=None, named=columns, skip_bad=True)
    for remark in inputs.remarks:
        say(str(remark))
    examples = [example for batch in inputs for example in batch.examples]
    if row > len(examples):
        raise BadConfig(f"there is no row {row}", place=file, remedy=f"1 to {len(examples)}", code="out-of-range")
    example = examples[row - 1]
    if example is None:
        raise BadText(f"row {row} has no text", place=file, remedy="another --row", code="empty-text")
    first, *second = example.texts
    return first, second[0] if second else None


def _summary(view: AttentionView) -> dict[str, object]:
    n_layers, n_heads, _, _ = view.probabilities.shape
    links = [link._asdict() for link in view.top(N_LINKS)]
    return {"tokens": view.tokens.pieces, "layers": n_layers, "heads": n_heads, "strongest": links}


def _print_links(view: AttentionView) -> None:
    out = console()
    pieces = view.tokens.pieces
    n_layers, n_heads, n_tokens, _ = view.probabilities.shape
    out.print(
        f"{n_tokens} tokens, {n_layers} layers, {n_heads} heads; the strongest links between words:", markup=False
    )
    for link in view.top(N_LINKS):
        head = f"L{link.layer}H{link.head}"
        out.print(f"{head:8} {link.weight:.3f}  {pieces[link.from_token]} → {pieces[link.to_token]}", markup=False)
