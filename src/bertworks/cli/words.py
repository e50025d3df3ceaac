"""`bertworks words` and `bertworks similar`: what a model makes of words and texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bertworks.cli.options import Column, Device, LineDocs, ModelArgument, SkipBad, Threads, load_model
from bertworks.cli.show import AsJson, Quiet, progress_bar, say, show_json, show_table


def words(
    model: ModelArgument,
    word: Annotated[str, typer.Argument(help="The word.")],
    corpus: Annotated[list[str], typer.Option(help="Text with sentences that have it.")],
    out: Annotated[Path | None, typer.Option(help="The page, an HTML file.")] = None,
    column: Column = None,
    line_docs: LineDocs = False,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show one word's vectors in many sentences, on a map of every layer, in groups where there are any."""
    from bertworks.data.corpus import Corpus, ReadOptions
    from bertworks.inspect.word_map import words as make_map
    from bertworks.inspect.word_page import write_word_page

    bench = load_model(model, device, threads)
    with progress_bar("sentences") as progress:
        found = make_map(bench, word, Corpus(corpus, ReadOptions(column, line_docs, skip_bad)), progress=progress)
    last = found.clusters[-1]
    sizes = [int((last.labels == group).sum()) for group in range(last.n)]
    if as_json:
        groups = [{"sentences": size, "words": list(names)} for size, names in zip(sizes, last.words, strict=True)]
        show_json({"word": word, "sentences": len(found.contexts), "silhouette": last.silhouette, "groups": groups})
    else:
        say(f"{len(found.contexts)} sentences; groups in the last layer: {last.n}")
        if last.n > 1:
            rows = [(size, ", ".join(names)) for size, names in zip(sizes, last.words, strict=True)]
            show_table(("sentences", "words around it"), rows)
    if out is not None:
        write_word_page(out, found, model=model)
        say(f"page      {out}")


def similar(
    model: ModelArgument,
    texts: Annotated[list[str], typer.Argument(help="Two texts or more.")],
    device: Device = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """How similar texts are: the cosine of the vectors of each pair."""
    cosines = load_model(model, device, threads).similarity(texts, texts)
    if as_json:
        show_json({"texts": texts, "cosines": cosines.tolist()})
        return
    rows = [(text, *(f"{value:.3f}" for value in row)) for text, row in zip(texts, cosines, strict=True)]
    show_table(("", *(str(number) for number in range(1, len(texts) + 1))), rows)
