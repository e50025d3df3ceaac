"""`bertworks inspect`: the attention of a text, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertworks.cli.options import Device, ModelArgument, Threads, load_model
from bertworks.cli.show import AsJson, Quiet, console, say, show_json
from bertworks.errors import BadConfig

if TYPE_CHECKING:
    from bertworks.inspect.view import AttentionView

N_LINKS = 10


def inspect(
    model: ModelArgument,
    text: Annotated[str, typer.Option(help="The text.")],
    pair: Annotated[str | None, typer.Option(help="A second text, for models that read pairs.")] = None,
    out: Annotated[Path | None, typer.Option(help="The page, an HTML file.")] = None,
    against: Annotated[
        str | None, typer.Option(help="Another model with the same tokens, to see the difference.")
    ] = None,
    atlas: Annotated[Path | None, typer.Option(help="The names of heads: JSON of `bertworks atlas`.")] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show what every head attends to in a text: lines, matrices, shaded text, queries and keys, in one file."""
    from bertworks.inspect.page import write_attention_page

    if open_page and out is None:
        raise BadConfig("there is no page to open", remedy="--out attention.html", code="missing-option")
    view = load_model(model, device, threads).attention(text, pair)
    other = load_model(against, device, threads).attention(text, pair) if against is not None else None
    if as_json:
        show_json(_summary(view))
    else:
        _print_links(view)
    if out is not None:
        write_attention_page(out, view, model=model, other=other, atlas=atlas)
        say(f"page      {out}")
    if open_page:
        typer.launch(str(out))


def _summary(view: AttentionView) -> dict[str, Any]:
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
