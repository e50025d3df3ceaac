"""`bertworks masks`: what the model will see."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from bertworks.cli.show import console


def masks(
    shards: Annotated[Path, typer.Argument(help="A folder that `bertworks prepare` wrote.")],
    masking: Annotated[
        Literal["token", "word", "ngram", "span"],
        typer.Option(help="Masking unit: tokens, whole words, n-grams of words, or spans."),
    ] = "token",
    pairs: Annotated[
        Literal["nsp", "sop", "none", "stream"],
        typer.Option(help="Sentence pairs: next or random, in order or swapped, none; or a stream."),
    ] = "none",
    html: Annotated[Path | None, typer.Option(help="Write a page as well.")] = None,
    lines: Annotated[int, typer.Option(min=1, max=10_000, help="Number of examples.")] = 20,
    max_length: Annotated[int, typer.Option(help="Maximum length of an example, in tokens.")] = 128,
    mask_rate: Annotated[float, typer.Option(help="Share of tokens to predict.")] = 0.15,
    seed: Annotated[int, typer.Option(min=0, max=2**63, help="Random seed of the masks.")] = 0,
    epoch: Annotated[int, typer.Option(min=0, max=2**31, help="Epoch whose masks are shown.")] = 0,
) -> None:
    """Show training examples in colours: tokens masked, replaced or unchanged; whole words; labels of pairs."""
    from bertworks.config import check_data
    from bertworks.data.shards import Shards
    from bertworks.reports.masks import print_views, view_masks, write_masks_page

    config = check_data({"masking": masking, "pairs": pairs, "max_length": max_length, "mask_rate": mask_rate})
    examples, views = view_masks(Shards(shards), config, seed=seed, epoch=epoch, lines=lines)
    out = console()
    print_views(out, views)
    out.print(f"[dim]{examples.plan.stats}[/dim]")
    if html is not None:
        write_masks_page(html, examples, views)
        out.print(f"page written to {html}", markup=False)
