"""`bertworks prepare`: text to shards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from bertworks.cli.options import Column, LineDocs, OldStrict, SkipBad, Sources, say_old_strict
from bertworks.cli.show import AsJson, Quiet, progress_bar, report, show_json


def prepare(
    sources: Sources,
    tokenizer: Annotated[str, typer.Option(help="A folder with a tokenizer, a model folder, or 'minilm'.")],
    out: Annotated[Path, typer.Option(help="The folder for the shards.")],
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; one per core if not given. The result is the same.")
    ] = None,
    words: Annotated[
        Literal["auto", "char"],
        typer.Option(help="Chinese words: auto finds them with rjieba, char takes each character for one."),
    ] = "auto",
    column: Column = None,
    line_docs: LineDocs = False,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    strict: OldStrict = False,
) -> None:
    """Tokenize text once for every objective. A run that was stopped goes on where it was."""
    from time import monotonic

    from bertworks.data.corpus import Corpus, ReadOptions
    from bertworks.data.prepare import prepare as run
    from bertworks.model.locate import locate
    from bertworks.text.tokenizer import Tokenizer

    say_old_strict(strict)
    start = monotonic()
    corpus = Corpus(sources, ReadOptions(column, line_docs, skip_bad))
    with progress_bar("preparing", in_bytes=True) as advance:
        manifest = run(corpus, Tokenizer.load(locate(tokenizer)), out, words=words, workers=workers, progress=advance)
    seconds, counts = monotonic() - start, manifest.counts
    size = sum(entry.bytes for entry in manifest.shards)
    if as_json:
        show_json({"out": str(out), "seconds": round(seconds, 2), "bytes": size, **manifest.to_json()})
        return
    rate = f", {corpus.position / seconds / 1e6:.1f} MB/s" if corpus.position else ""
    report(
        f"{counts.documents:,} documents, {counts.sentences:,} sentences, {counts.words:,} words, "
        f"{counts.tokens:,} tokens"
    )
    report(f"{counts.unknown:,} unknown tokens; {manifest.duplicates:,} documents occurred before and were left out")
    for remark in manifest.reading["remarks"]:
        report(remark)
    if manifest.segmenter:
        report(f"Chinese words found by {manifest.segmenter}")
    report(f"{len(manifest.shards)} shards, {size / 1e6:.1f} MB, in {out}  ({seconds:.1f} s{rate})")
