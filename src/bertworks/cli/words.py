"""`bertworks words` and `bertworks similar`: what a model makes of words and texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertworks.cli.options import Column, Device, LineDocs, ModelArgument, SkipBad, Threads, load_model, open_corpus
from bertworks.cli.show import AsJson, Quiet, corpus_progress, say, show_json, show_result, show_table
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
    from bertworks.inspect.word_map import words as make_map

    bench = load_model(model, device, threads)
    documents = open_corpus(corpus, column, line_docs, skip_bad)
    with corpus_progress(documents, "sentences") as progress:
        word_map = make_map(bench, word, documents, sentences=sentences, progress=progress)
    show_result(word_map, _print, as_json=as_json, out=out, title="page", model=model)


def _print(word_map: WordMap) -> None:
    rows = []
    for number, (clusters, names) in enumerate(zip(word_map.clusters, word_map.group_words, strict=True)):
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
    drawn = f" of {word_map.n_sentences:,}" if len(word_map.contexts) < word_map.n_sentences else ""
    say(f"{len(word_map.contexts):,}{drawn} sentences with {word_map.word!r}")
    if word_map.n_unread:
        say(f"{word_map.n_unread:,} left out: too long for the model, or with the word inside a longer piece")


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
    from bertworks.inspect.word_similarity import read_pairs, score_pairs

    pairs = read_pairs(path)
    bench = load_model(model, device, threads)
    documents = None if corpus is None else open_corpus(corpus)
    with corpus_progress(documents, "sentences") as progress:
        agreement = score_pairs(bench, pairs, documents, progress=progress)
    if as_json:
        show_json(agreement.as_dict())
        return
    rows = [
        (score.vectors, f"{score.spearman:.3f}", f"{score.low:.3f} to {score.high:.3f}", score.n_pairs)
        for score in agreement.scores
    ]
    show_table(("layer", "Spearman", "95 % interval", "pairs"), rows)
    where = "each word alone" if corpus is None else f"{agreement.n_contexts:,} sentences"
    say(f"layer 0 is the embeddings with positions; {where}; {agreement.n_left_out} pairs left out")
