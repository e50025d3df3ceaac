"""`bertworks words` and `bertworks similar`: what a model makes of words and texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertworks.cli.options import Column, Device, LineDocs, ModelArgument, SkipBad, Threads, load_model
from bertworks.cli.show import AsJson, Quiet, progress_bar, say, show_json, show_table
from bertworks.errors import BadConfig

if TYPE_CHECKING:
    from bertworks.inspect.word_map import WordMap


def words(
    model: ModelArgument,
    word: Annotated[str, typer.Argument(help="The word.")],
    corpus: Annotated[list[str], typer.Option(help="Text with sentences that have it.")],
    sentences: Annotated[
        int, typer.Option(min=1, max=5000, help="At most so many, drawn from all of the text.")
    ] = 1000,
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

    bench = load_model(model, device, threads)
    documents = Corpus(corpus, ReadOptions(column, line_docs, skip_bad))
    with progress_bar("sentences") as progress:
        found = make_map(bench, word, documents, sentences=sentences, progress=progress)
    if as_json:
        show_json(found.as_dict())
    else:
        _print(found)
    if out is not None:
        found.save(out, model=model)
        say(f"page      {out}")


def _print(found: WordMap) -> None:
    rows = []
    for number, (clusters, names) in enumerate(zip(found.clusters, found.group_words, strict=True)):
        division = clusters.division
        if division is None:
            continue
        null = "" if division.null is None else f"{division.null:.2f}"
        words = " / ".join(
            f"{size}: {', '.join(group)}" for size, group in zip(clusters.sizes, names, strict=True) if group
        )
        rows.append((number, clusters.n, f"{division.silhouette:.2f}", null, f"{division.stability:.2f}", words))
    if rows:
        show_table(("layer", "groups", "silhouette", "null", "stability", "sentences: words around it"), rows)
    drawn = f" of {found.n_sentences:,}" if len(found.contexts) < found.n_sentences else ""
    say(f"{len(found.contexts):,}{drawn} sentences with {found.word!r}")


def similar(
    model: ModelArgument,
    texts: Annotated[list[str] | None, typer.Argument(help="Two texts or more.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="A word-similarity set: two words and a number in a line.")] = None,
    corpus: Annotated[
        list[str] | None, typer.Option(help="With --pairs: text with sentences that have these words.")
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """How similar texts are: the cosine of the vectors of each pair. With --pairs: how well the cosines of words agree
    with what people say, for embeddings and for every layer."""
    if pairs is not None and texts:
        raise BadConfig("both texts and --pairs are given", remedy="one of them", code="given-twice", fields=["pairs"])
    if pairs is not None:
        _score_pairs(model, pairs, corpus, device, threads, as_json)
        return
    if corpus is not None:
        raise BadConfig("--corpus is for --pairs", remedy="leave it out", code="conflicting-options", fields=["corpus"])
    if texts is None or len(texts) < 2:
        remedy = "two texts or more, or --pairs FILE"
        raise BadConfig("similar compares texts", remedy=remedy, code="missing-argument", fields=["texts"])
    cosines = load_model(model, device, threads).similarity(texts, texts)
    if as_json:
        show_json({"texts": texts, "cosines": cosines.tolist()})
        return
    rows = [(text, *(f"{value:.3f}" for value in row)) for text, row in zip(texts, cosines, strict=True)]
    show_table(("", *(str(number) for number in range(1, len(texts) + 1))), rows)


def _score_pairs(
    model: str, path: Path, corpus: list[str] | None, device: str, threads: int | None, as_json: bool
) -> None:
    from bertworks.data.corpus import Corpus
    from bertworks.inspect.word_similarity import read_pairs, score_pairs

    pairs = read_pairs(path)
    bench = load_model(model, device, threads)
    with progress_bar("sentences") as progress:
        found = score_pairs(bench, pairs, None if corpus is None else Corpus(corpus), progress=progress)
    if as_json:
        show_json(found.as_dict())
        return
    rows = [
        (score.vectors, f"{score.spearman:.3f}", f"{score.low:.3f} to {score.high:.3f}", score.n_pairs)
        for score in found.scores
    ]
    show_table(("layer", "Spearman", "95 % interval", "pairs"), rows)
    where = "each word alone" if corpus is None else f"{found.n_contexts:,} sentences"
    say(f"layer 0 is the embeddings with positions; {where}; {found.n_left_out} pairs left out")
