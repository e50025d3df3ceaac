"""`bertworks compare-heads`: which heads of two models do alike."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertworks.cli.options import Column, Device, LineDocs, SkipBad, Threads, load_model, open_corpus
from bertworks.cli.show import AsJson, Quiet, corpus_progress, say, show_result, show_table
from bertworks.errors import BadConfig

if TYPE_CHECKING:
    from bertworks.inspect.compare import Comparison

N_ROWS = 20  # of heads that do alike


def compare_heads(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model, or the JSON of its atlas.")],
    other: Annotated[str, typer.Argument(metavar="MODEL", help="Another one.")],
    corpus: Annotated[
        list[str] | None, typer.Option(help="Text to compare two models on, a blank line between documents.")
    ] = None,
    sentences: Annotated[int, typer.Option(min=1, help="How many passages the heads are named on.")] = 500,
    out: Annotated[Path | None, typer.Option(help="The comparison: a page (.html), or JSON (.json).")] = None,
    column: Column = None,
    line_docs: LineDocs = False,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare the heads of two models over the same text: which do alike, and which names are kept, lost and gained; or
    two atlases, by their names."""
    from bertworks.inspect.compare import compare_atlases, read_atlas
    from bertworks.inspect.compare import compare_heads as compare

    if all(name.endswith(".json") for name in (model, other)):
        if corpus:
            cause = "two atlases are compared by their names: --corpus has no effect"
            raise BadConfig(cause, remedy="leave it out, or name the models", code="conflicting-options")
        comparison = compare_atlases(read_atlas(Path(model)), read_atlas(Path(other)))
    elif not corpus:
        remedy = "--corpus FILE; or two atlases: the JSON of `bertworks atlas`"
        raise BadConfig("there is no text to compare the models on", remedy=remedy, code="missing-option")
    else:
        documents = open_corpus(corpus, column, line_docs, skip_bad)
        bench, other_bench = (load_model(name, device, threads) for name in (model, other))
        with corpus_progress(documents, "passages") as progress:
            comparison = compare(bench, other_bench, documents, sentences=sentences, progress=progress)
    print_tables = partial(_print, model=model, other=other)
    show_result(comparison, print_tables, as_json=as_json, out=out, title="comparison", models=(model, other))


def _print(comparison: Comparison, model: str, other: str) -> None:
    counts = [
        (name, *("cannot be seen" if count is None else count for count in both))
        for name, both in comparison.counts().items()
    ]
    show_table(("name", model, other), counts)
    matches = sorted(comparison.matches, key=lambda match: -(match.overlap or 0.0))
    if comparison.has_attention:
        rows = [
            (_head(match.head), _head(match.other), f"{match.overlap:.3f}", f"{match.chance:.3f}") for match in matches
        ]
        show_table(("head", "counterpart", "overlap", "of different words"), rows[:N_ROWS])
        n_heads = comparison.sizes[0][0] * comparison.sizes[0][1]
        say(f"{len(rows)} of {n_heads} heads have a counterpart, over {comparison.n_texts} texts")
    for title, names in (("kept", comparison.kept()), ("lost", comparison.lost()), ("gained", comparison.gained())):
        say(
            f"{title}: "
            + (", ".join(f"{name} {_head(match.head)}→{_head(match.other)}" for match, name in names) or "-")
        )


def _head(head: tuple[int, int]) -> str:
    return f"L{head[0]}H{head[1]}"
